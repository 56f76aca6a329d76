"""Measures whether a token's cost depends on the number of streams, or on a response's length.

    python tests/bench/scaling.py [--repetitions 3]

`firehose.py` answers over the engine link at 1,000 tokens/s a stream. First so many streams at once
run for the same time, then a hundred streams give responses of growing length. The gateway's CPU
time, from the first request to the last response's end, is plotted against either; a straight line
says that nothing grows with the number of streams or with what a stream has said already. What the
gateway uses while idle is taken off. All is run several times, in turns; the line goes through the
medians, as one run's CPU time varies by a tenth and more where others use the machine. The plot has
every run.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvloop

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows as shape  # noqa: E402
from tests.bench.clocks import Watch, cpu_us  # noqa: E402
from tests.bench.firehose import MODEL  # noqa: E402
from tests.bench.rows import Plot, Row  # noqa: E402
from tests.bench.streams import connect, serving  # noqa: E402
from tests.e2e.gateway_process import GatewayProcess, redis_server  # noqa: E402

RATE_PER_S = 1_000
NUM_STREAMS = (20, 50, 100, 200, 400, 600, 800, 1_000)
TOKENS_EACH = 2_000  # while their number varies
LENGTHS_TOKENS = (250, 500, 1_000, 2_000, 3_000, 4_500, 6_000)
STREAMS_EACH = 100  # while their length varies
IDLE_S = 2.0
MIN_STRAIGHT = 0.98


class Run(NamedTuple):
    """Measures streams that began together and ended; CPU of the gateway, idle time taken off."""

    num_streams: int
    num_tokens: int  # of each
    gateway_us: float
    load: str


async def run(
    gateway: GatewayProcess, engine: int, idle_share: float, num_streams: int, num_tokens: int
) -> Run:
    """Runs so many streams of so many tokens, on connections that are open already."""
    clients = await connect(gateway, argparse.Namespace(streams=num_streams, transport="socket"))
    watch = Watch({"gateway": gateway.process.pid, "engine": engine, "client": os.getpid()})
    body = {"model": MODEL, "max_output_tokens": num_tokens, "store": False}
    for client in clients:
        client.begin(body, "Go on from ")
        await asyncio.sleep(0)
    await asyncio.gather(*(client.over for client in clients))
    spent_us, wall_us = watch.read()
    load = watch.verdict()
    for client in clients:
        client.close()
    return Run(num_streams, num_tokens, spent_us["gateway"] - idle_share * wall_us, load)


def line_through(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Fits by least squares: slope, intercept, and the share of the variance that is explained."""
    xs, ys = zip(*points, strict=True)
    slope, intercept = statistics.linear_regression(xs, ys)
    return slope, intercept, statistics.correlation(xs, ys) ** 2


def medians(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns one point for each x: the median of its ys."""
    ys: dict[float, list[float]] = {}
    for x, y in points:
        ys.setdefault(x, []).append(y)
    return [(x, statistics.median(of_x)) for x, of_x in ys.items()]


def row_of(
    name: str, slug: str, runs: list[Run], x_of: Callable[[Run], int], x_label: str
) -> list[Row]:
    """Says how straight the line is, and what a token costs at its end beside its beginning."""
    points = [(float(x_of(run)), run.gateway_us / 1e6) for run in runs]
    _, _, straight = line_through(medians(points))
    most = max(x_of(run) for run in runs)
    few = [run for run in runs if x_of(run) <= most / 4]
    many = [run for run in runs if x_of(run) > most / 2]

    def token_us(runs: list[Run]) -> list[float]:
        return [run.gateway_us / run.num_streams / run.num_tokens for run in runs]

    plot = Plot(slug=slug, title=name, x_label=x_label, y_label="CPU-s, gateway", points=points)
    loads = "; ".join(dict.fromkeys(run.load for run in many))
    return [
        Row(
            name=f"{name}: how straight (R squared of medians)",
            unit="",
            values=[straight],
            goal=shape.at_least(MIN_STRAIGHT),
            plot=plot,
            load=f"{name}, upper half: {loads}",
        ),
        Row(
            name=f"{name}: a token, upper half",
            unit="CPU-us/token",
            values=token_us(many),
            baseline="a token, lowest quarter",
            baseline_values=token_us(few),
            goal=shape.ahead(1.1),
            per="token",
            cpu_us=token_us(many),
            baseline_cpu_us=token_us(few),
        ),
    ]


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--most", type=int, default=10**6, help="streams or tokens, at most; from 500"
    )
    parser.set_defaults(rate=RATE_PER_S, interval_ms=20.0, source="link")
    shape.add_argument(parser)
    asked = parser.parse_args()
    by_streams: list[Run] = []
    by_length: list[Run] = []
    with (
        tempfile.TemporaryDirectory(prefix="lw-bench-") as name,
        redis_server(Path(name)) as url,
        serving(Path(name), url, asked, ROOT) as (gateway, engine),
    ):
        measure = partial(run, gateway, engine)
        uvloop.run(measure(0.0, 20, 500))  # what is done once
        before_us = cpu_us(gateway.process.pid)
        time.sleep(IDLE_S)
        idle_share = (cpu_us(gateway.process.pid) - before_us) / 1e6 / IDLE_S
        for _ in range(asked.repetitions):
            by_streams += [
                uvloop.run(measure(idle_share, num_streams, TOKENS_EACH))
                for num_streams in NUM_STREAMS
                if num_streams <= asked.most
            ]
            by_length += [
                uvloop.run(measure(idle_share, STREAMS_EACH, num_tokens))
                for num_tokens in LENGTHS_TOKENS
                if num_tokens <= asked.most
            ]
    shape.publish(
        [
            *row_of(
                f"Cost of streams of {TOKENS_EACH:,} tokens",
                "cost-by-streams",
                by_streams,
                lambda run: run.num_streams,
                "streams at once",
            ),
            *row_of(
                f"Cost of {STREAMS_EACH} responses by their length",
                "cost-by-length",
                by_length,
                lambda run: run.num_tokens,
                "tokens of each response",
            ),
        ],
        asked,
    )


if __name__ == "__main__":
    main()
