"""Measures what a second worker costs: CPU per task and per token with one and with two.

Short tasks, on an engine that answers at once, go to `lanewise serve` and to `lanewise serve
--workers 2`, in turns. So do streams of an engine that sends at a fixed rate: as many to each
worker as to the one, which shows whether a worker's throughput stays flat; and as many in all,
which shows what two cost instead of one. There each has half of the streams, so its rounds are
cheaper and come sooner: clients get their tokens earlier, in more events. CPU time is that of all
workers together, from their own clocks; the load, both engines, Redis and the supervisor are other
processes. On two cores, which all of these share, two workers need not finish sooner than one: what
can be shown is that the work costs the same, so that cores are what limits.

    python tests/bench/workers.py [--repetitions 3]
"""

import argparse
import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows  # noqa: E402
from tests.bench.clocks import cpu_us  # noqa: E402
from tests.bench.firehose import MODEL  # noqa: E402
from tests.bench.relay import socket_load  # noqa: E402
from tests.bench.rows import Row, ahead  # noqa: E402
from tests.bench.streams import BACKEND  # noqa: E402
from tests.e2e.gateway_process import (  # noqa: E402
    CONFIG,
    GatewayProcess,
    free_port,
    listening_on,
    redis_server,
    served,
)

INSTANT = "instant"
STREAM_RATE = 200.0  # tokens/s
STREAM_TOKENS = 1_000
NUM_STREAMS = 256  # 16 to a socket: enough sockets for the kernel to spread them


class Cost(NamedTuple):
    """Is one load on one gateway, per task or per token."""

    cpu_us: float  # of all workers
    wall_us: float
    busiest: float  # worker's share of the CPU time
    event_tokens: float  # in an event, all kinds of events counted


async def measure(
    workers: list[int],
    url: str,
    body: dict[str, Any],
    *,
    turns: int = 1,
    streams: int = NUM_STREAMS,
) -> Cost:
    """Run a load; its cost per task, or per token where it streams."""
    before_us = [cpu_us(pid) for pid in workers]
    began_s = time.perf_counter()
    tasks, tokens, events = await socket_load(url, streams=streams, turns=turns, body=body)
    wall_us = (time.perf_counter() - began_s) * 1e6
    spent_us = [cpu_us(pid) - before for pid, before in zip(workers, before_us, strict=True)]
    number = tasks if body["model"] == INSTANT else tokens
    busiest = max(spent_us) / sum(spent_us)
    return Cost(sum(spent_us) / number, wall_us / number, busiest, tokens / events)


@contextlib.contextmanager
def gateway(folder: Path, url: str, num_workers: int) -> Iterator[tuple[GatewayProcess, list[int]]]:
    """Gives a gateway with so many workers, and their process ids."""
    arguments = ("--config", "lanewise.toml", "--redis", url, "--workers", str(num_workers))
    with served(folder, *arguments) as process:
        while len(workers := listening_on(process)) < num_workers:
            time.sleep(0.1)
        while process.metrics().total("lanewise_backend_up") < 2:
            time.sleep(0.1)
        yield process, workers


class Costs(NamedTuple):
    """Is one repetition on one gateway."""

    tasks: Cost
    tokens: Cost
    half: Cost  # per token, with half of the streams


async def repetition(process: GatewayProcess, workers: list[int], turns: int) -> Costs:
    """Runs tasks, then tokens."""
    short = {"model": INSTANT, "input": "Read the lines, from 17", "store": False}
    long = {
        "model": MODEL,
        "input": "Go on, from 17",
        "store": False,
        "max_output_tokens": STREAM_TOKENS,
    }
    await socket_load(process.socket_url, streams=32, turns=4, body=short)  # warm
    on = partial(measure, workers, process.socket_url)
    return Costs(
        await on(short, turns=turns), await on(long), await on(long, streams=NUM_STREAMS // 2)
    )


def run(arguments: argparse.Namespace) -> list[Row]:
    """Runs one worker and two, in turns."""
    found: dict[int, list[Costs]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory(prefix="lw-workers-") as name, redis_server(Path(name)) as url:
        folder, ports = Path(name), (free_port(), free_port())
        text = CONFIG.replace("6000", "1000000").replace("20000000", "1000000000")
        text = text.replace("max_concurrent = 256", "max_concurrent = 10000")
        text += BACKEND.format(port=ports[0], model=MODEL)
        text += BACKEND.format(port=ports[1], model=INSTANT).replace("firehose", INSTANT)
        (folder / "lanewise.toml").write_text(text)
        engine = [sys.executable, str(ROOT / "tests/bench/firehose.py"), "--port"]
        engines = [
            subprocess.Popen([*engine, str(ports[0]), "--rate", str(STREAM_RATE)]),
            subprocess.Popen([*engine, str(ports[1]), "--instant"]),
        ]
        try:
            with gateway(folder, url, 1) as one, gateway(folder, url, 2) as two:
                for _ in range(arguments.repetitions):
                    for number, (process, workers) in ((1, one), (2, two)):
                        got = asyncio.run(repetition(process, workers, arguments.turns))
                        found[number].append(got)
        finally:
            for each in engines:
                each.kill()
                each.wait()
    return rows_of(found[1], found[2])


def rows_of(one: list[Costs], two: list[Costs]) -> list[Row]:
    """Compares two workers with one: at the same load, and at the same load of each."""
    busiest = max(cost.busiest for costs in two for cost in costs)

    def row(name: str, what: str, ours: list[Cost], theirs: list[Cost], baseline: str) -> Row:
        load = f"{name}: load and engines are other processes; the busier worker had {busiest:.0%}"
        if what == "token":
            sizes = (rows.median([cost.event_tokens for cost in costs]) for costs in (ours, theirs))
            load += "; tokens in an event: {:.2g} / {:.2g}".format(*sizes)
        return Row(
            name=name,
            unit=f"CPU-us/{what}",
            values=[cost.cpu_us for cost in ours],
            baseline=baseline,
            baseline_values=[cost.cpu_us for cost in theirs],
            goal=None if theirs is same_streams else ahead(1.15),
            per=what,
            wall_us=[cost.wall_us for cost in ours],
            baseline_wall_us=[cost.wall_us for cost in theirs],
            load=load,
        )

    streamed = [costs.tokens for costs in two]
    same_streams = [costs.tokens for costs in one]
    half = [costs.half for costs in one]
    return [
        row("CPU per task, two workers", "task", [costs.tasks for costs in two],
            [costs.tasks for costs in one], "one worker"),
        row("CPU per token, two workers", "token", streamed, half,
            "one worker, with as many streams as each has"),
        row("CPU per token, two workers instead of one", "token", streamed, same_streams,
            "one worker, with all the streams"),
    ]  # fmt: skip


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--turns", type=int, default=8, help="short tasks of each stream")
    rows.add_argument(parser)
    arguments = parser.parse_args()
    rows.publish(run(arguments), arguments)


if __name__ == "__main__":
    main()
