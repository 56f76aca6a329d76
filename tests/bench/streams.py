"""Measures how many tokens a second one gateway process relays, and what each costs.

`--streams` streams of `--rate` tokens/s each come from another process, and the gateway does its
whole work and no engine's: CPU time of its process per token between the moment when all streams
run and the moment before the first ends. `--source` says from where: `firehose.py` over the engine
link, or `token_upstream.py`, a server that sends an event per token, over one of the protocols of
upstreams. `--transport` says how clients receive them. The client cuts events out without parsing
them, notes each stream's gaps, and at the end compares each text with what was sent.

    python tests/bench/streams.py --streams 1000 --rate 1000 --seconds 15
    python tests/bench/streams.py --transport sse --source responses-ws --streams 200 --rate 100
    python tests/bench/streams.py --against ../another-checkout    # in turns with its gateway

The baseline is a bare `websockets` server on uvloop that sends a frame per token, as relays do. The
load is no limit where `client` and `source` stay well below 100 % busy and wake in time; nor is the
gateway where it stood in line for a core, because others use the machine.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows as shape  # noqa: E402
from tests.bench.clocks import Watch  # noqa: E402
from tests.bench.firehose import MODEL, STRIDE_TOKENS, Text  # noqa: E402
from tests.bench.relay import MIN_BARE_FRAMES, STREAMS_PER_SOCKET, run_bare  # noqa: E402
from tests.bench.rows import Row  # noqa: E402
from tests.bench.token_clients import Client, EventStream, Socket  # noqa: E402
from tests.e2e.gateway_process import (  # noqa: E402
    CONFIG,
    GatewayProcess,
    free_port,
    redis_server,
)

CROWD = "[connections]\nmax_per_address = 65536\nmax_per_key = 65536\n"  # all come from here
BACKEND = """
[[backends]]
kind = "link"
name = "firehose"
[backends.options]
url = "ws://127.0.0.1:{port}/v1/link"
group = "fast"
model = "{model}"
window_tokens = 1048576
max_output_tokens = 1048576
"""
UPSTREAM = """
[[backends]]
kind = "upstream"
name = "upstream"
[backends.options]
base_url = "http://127.0.0.1:{port}/v1"
protocol = "{protocol}"
upstream_model = "upstream"
model = "{model}"
group = "fast"
window_tokens = 1048576
max_output_tokens = 1048576
max_num_seqs = 4096
slow_start_s = 0
{more}
"""
SHARED_SOCKETS = "max_streams_per_socket = 16\ncancel_event = true"

SOURCES = ("link", "responses-ws", "responses", "chat")
TRANSPORTS = ("socket", "sse")
SETTLE_S = 1.0  # for what gathered while all streams began
LAG_INTERVAL_S = 0.01


def waited_us(pid: int) -> float:
    """Returns how long a process has stood in line for a core so far; proc(5), schedstat."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e3


class Lag:
    """Says how late this process's own event loop wakes."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            before_s = time.perf_counter()
            await asyncio.sleep(LAG_INTERVAL_S)
            self.late_ms.append((time.perf_counter() - before_s - LAG_INTERVAL_S) * 1e3)

    def p99_ms(self) -> float:
        """Returns it, and measures no more from now on."""
        self._watching.cancel()
        return sorted(self.late_ms)[len(self.late_ms) * 99 // 100]


async def connect(gateway: GatewayProcess, arguments: argparse.Namespace) -> list[Client]:
    """Opens as many connections as the streams need."""
    loop = asyncio.get_running_loop()
    ids = [str(number) for number in range(arguments.streams)]
    kind, size = (Socket, STREAMS_PER_SOCKET)
    if arguments.transport == "sse":
        kind, size = EventStream, 1
    clients: list[Client] = []
    for first in range(0, len(ids), size):
        make = partial(kind, f"127.0.0.1:{gateway.port}", ids[first : first + size])
        _, made = await loop.create_connection(make, "127.0.0.1", gateway.port)
        clients.append(made)
        await made.ready
    return clients


async def run(
    gateway: GatewayProcess, source: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Open all streams, let them run, compare what came; returns the figures."""
    clients = await connect(gateway, arguments)
    num_tokens = int(arguments.rate * arguments.seconds)
    body = {"model": MODEL, "max_output_tokens": num_tokens, "store": False}
    for client in clients:
        client.begin(body, "Go on from ")
        await asyncio.sleep(0)
    while sum(client.num_begun for client in clients) < arguments.streams:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await asyncio.sleep(SETTLE_S)
    streams = [stream for client in clients for stream in client.streams.values()]
    for stream in streams:
        stream.restart()  # the gaps so far are those of the storm in which all began
    watch = Watch({"gateway": gateway.process.pid, "source": source, "client": os.getpid()})
    lag = Lag()
    waited_before_us = waited_us(gateway.process.pid)
    chars = sum(client.num_chars for client in clients)
    events = sum(client.num_events for client in clients)
    waited = 0.0
    spent_us, wall_us, verdict, now_chars, now_events = {"gateway": 0.0}, 1.0, "", chars, events
    while not any(client.num_done for client in clients):
        spent_us, wall_us = watch.read()
        verdict = watch.verdict()
        waited = (waited_us(gateway.process.pid) - waited_before_us) / wall_us
        now_chars = sum(client.num_chars for client in clients)
        now_events = sum(client.num_events for client in clients)
        await asyncio.sleep(0.25)
    late_ms = lag.p99_ms()
    gaps_ms = sorted(gap for stream in streams for gap in stream.gaps_ms)
    if not gaps_ms:
        raise SystemExit(
            f"streams ended before all {arguments.streams} had begun: the machine is too busy for "
            f"--seconds {arguments.seconds:g}; give more"
        )
    await asyncio.gather(*(client.over for client in clients))
    different, chars_per_token = check(clients, num_tokens)
    tokens = max((now_chars - chars) / chars_per_token, 1)
    return {
        "different_texts": different,
        "tokens_per_s": tokens / wall_us * 1e6,
        "cpu_us_per_token": spent_us["gateway"] / tokens,
        "cpu_us_per_event": spent_us["gateway"] / max(now_events - events, 1),
        "tokens_per_event": tokens / max(now_events - events, 1),
        "gap_ms_p50": gaps_ms[len(gaps_ms) // 2],
        "gap_ms_p99": gaps_ms[len(gaps_ms) * 99 // 100],
        "gap_ms_max": gaps_ms[-1],
        "load": f"{verdict}, gateway in line for a core {waited:.0%} of the time, "
        f"client wakes late by {late_ms:.0f} ms p99",
    }


def check(clients: list[Client], num_tokens: int) -> tuple[int, float]:
    """Returns how many texts are not the source's, and the JSON characters per token."""
    text = Text()
    num_chars = different = num_streams = 0
    for client in clients:
        for stream_id, stream in client.streams.items():
            got = "".join(json.loads(piece) for piece in stream.texts)
            expected = text.piece(STRIDE_TOKENS * int(stream_id), num_tokens)
            different += got != expected
            num_chars += sum(map(len, stream.texts))
            num_streams += 1
    return different, num_chars / (num_tokens * num_streams)


def rows_of(
    runs: list[dict[str, Any]],
    against: list[dict[str, Any]],
    bare_us: list[float],
    arguments: argparse.Namespace,
) -> list[Row]:
    """Returns the rows, with goals for a thousand streams of a thousand tokens a second."""
    asked_per_s = arguments.streams * arguments.rate
    is_link = arguments.source == "link"
    to = {"socket": "WebSocket", "sse": "SSE"}[arguments.transport]
    many = f"{arguments.source} to {to}, {arguments.streams:,} streams at {arguments.rate:,.0f}/s"
    load = "; ".join(dict.fromkeys(run["load"] for run in runs))
    before = f"the gateway in {arguments.against}" if against else "bare server, a frame per token"
    was_us = [run["cpu_us_per_token"] for run in against] or bare_us

    def of(name: str) -> list[float]:
        return [run[name] for run in runs]

    made = [
        Row(
            name=f"{many}: cost",
            unit="CPU-us/token",
            values=of("cpu_us_per_token"),
            baseline=before,
            baseline_values=was_us,
            goal=shape.at_most(1, "us", aim=0.5) if is_link else None,
            per="token",
            cpu_us=of("cpu_us_per_token"),
            wall_us=[1e6 / rate for rate in of("tokens_per_s")],
            load=load,
        ),
        Row(
            name=f"{many}: tokens in an event",
            unit="tokens",
            values=of("tokens_per_event"),
            baseline=before if against else "",
            baseline_values=[run["tokens_per_event"] for run in against],
        ),
        Row(
            name=f"{many}: a stream's gap, p99",
            unit="ms",
            values=of("gap_ms_p99"),
            baseline=before if against else "",
            baseline_values=[run["gap_ms_p99"] for run in against],
            goal=shape.at_most(100, "ms"),
        ),
        Row(
            name=f"{many}: texts that differ from the source's",
            unit="streams",
            values=of("different_texts"),
            goal=shape.at_most(0),
        ),
    ]
    if is_link:
        throughput = Row(
            name=f"{many}: throughput",
            unit="tokens/s",
            values=of("tokens_per_s"),
            baseline="the engine's rate",
            baseline_values=[asked_per_s],
            goal=shape.at_least(0.99 * asked_per_s, "tokens/s"),
        )
        made.insert(1, throughput)
    return made


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=1000.0, help="tokens/s of each stream")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each stream")
    parser.add_argument("--interval-ms", type=float, default=20.0, help="between engine frames")
    parser.add_argument("--source", choices=SOURCES, default="link", help="where tokens come from")
    parser.add_argument("--transport", choices=TRANSPORTS, default="socket")
    parser.add_argument("--repetitions", type=int, default=1, help="of all, baseline in between")
    parser.add_argument("--against", type=Path, help="another checkout, whose gateway is baseline")
    parser.add_argument("--json", action="store_true", help="print every run's figures instead")
    shape.add_argument(parser)
    arguments = parser.parse_args()
    runs: list[dict[str, Any]] = []
    against: list[dict[str, Any]] = []
    bare_us: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="lw-bench-") as name,
        redis_server(Path(name)) as url,
    ):
        for _ in range(arguments.repetitions):
            if arguments.against is not None:
                against.append(measure(Path(name), url, arguments, arguments.against))
            else:
                bare = run_bare(Path(name), MIN_BARE_FRAMES, 180, 8)
                bare_us.append(bare.cpu_us / bare.frames)
            runs.append(measure(Path(name), url, arguments, ROOT))
    if arguments.json:
        print(json.dumps({"before": against, "now": runs}, indent=1))
    else:
        shape.publish(rows_of(runs, against, bare_us, arguments), arguments)


def measure(
    folder: Path, redis_url: str, arguments: argparse.Namespace, tree: Path
) -> dict[str, Any]:
    """Runs once with the gateway of a checkout."""
    with serving(folder, redis_url, arguments, tree) as (gateway, source):
        return uvloop.run(run(gateway, source, arguments))


@contextlib.contextmanager
def serving(
    folder: Path, redis_url: str, arguments: argparse.Namespace, tree: Path
) -> Iterator[tuple[GatewayProcess, int]]:
    """Runs a gateway with the source as its backend; gives it and the source's process id."""
    port = free_port()
    is_link = arguments.source == "link"
    script = "firehose.py" if is_link else "token_upstream.py"
    command = [sys.executable, str(Path(__file__).with_name(script)), "--port", str(port)]
    command += ["--rate", str(arguments.rate)]
    if is_link:
        command += ["--interval-ms", str(arguments.interval_ms)]
        backend = BACKEND.format(port=port, model=MODEL)
    else:
        more = SHARED_SOCKETS if arguments.source == "responses-ws" else ""
        backend = UPSTREAM.format(port=port, model=MODEL, protocol=arguments.source, more=more)
    source = subprocess.Popen(command)
    config = folder / "lanewise.toml"
    limits = CONFIG.replace("6000", "1000000").replace("20000000", "1000000000000")
    limits = limits.replace("max_concurrent = 256", "max_concurrent = 100000")
    config.write_text(CROWD + limits + backend)
    paths = {"PYTHONPATH": str(tree)}
    gateway = GatewayProcess(folder, "--config", str(config), "--redis", redis_url, environ=paths)
    try:
        gateway.wait_until_ready()
        name = "firehose" if is_link else "upstream"
        while not gateway.metrics().total("lanewise_backend_up", backend=name):
            time.sleep(0.05)
        yield gateway, source.pid
    except BaseException:
        print(gateway.log[-3000:])
        raise
    finally:
        gateway.stop()
        source.terminate()
        source.wait()


if __name__ == "__main__":
    main()
