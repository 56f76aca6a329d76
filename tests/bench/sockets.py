"""Measures ten thousand idle WebSockets in one gateway process, and a storm of reconnects.

A crowd of `--idle` sockets (a process of its own, `crowd.py`) is opened; then a part of it is
dropped and opened again all at once. Measured at the gateway's process: memory per socket, turns on
one active socket without and with the crowd on an engine that answers at once, so that all of a
turn is the gateway's, and the gaps of `--streams` streams before and during the storm. A turn is
also shown less the time that the gateway stood in line for a core in it, which is the machine's.

    python tests/bench/sockets.py --idle 10000 --storm 1000 [--tls]
"""

import argparse
import asyncio
import json
import resource
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trustme
import uvloop

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows  # noqa: E402
from tests.bench.firehose import MODEL  # noqa: E402
from tests.bench.relay import cpu_us  # noqa: E402
from tests.bench.rows import Row, at_most  # noqa: E402
from tests.bench.streams import BACKEND, CROWD  # noqa: E402
from tests.bench.streams import waited_us as waited_so_far_us  # noqa: E402
from tests.bench.token_clients import Socket, Stream  # noqa: E402
from tests.e2e.gateway_process import (  # noqa: E402
    CONFIG,
    GatewayProcess,
    free_port,
    redis_server,
)

INSTANT = "instant"
STREAM_RATE = 100.0  # tokens/s
ROUND_S = 20.0  # of pings: by then each socket has had one
TLS = "[server]\ntls_cert_path = 'server.pem'\ntls_key_path = 'server.key'\n"


class Turn(NamedTuple):
    """Is one turn on the active socket."""

    took_ms: float
    waited_ms: float  # of that the gateway, for a core


class Turns(list[Turn]):
    """Holds some turns, and computes their percentiles."""

    def at(self, share: float) -> float:
        return quantile(sorted(turn.took_ms for turn in self), share)

    def in_gateway_at(self, share: float) -> float:
        """Returns it less the time for which the gateway waited for a core."""
        return quantile(sorted(turn.took_ms - turn.waited_ms for turn in self), share)

    @property
    def waited_share(self) -> float:
        return sum(turn.waited_ms for turn in self) / sum(turn.took_ms for turn in self)


class Crowd:
    """Is the process that holds the idle sockets."""

    def __init__(self, port: int, folder: Path, *, tls: bool) -> None:
        command = [sys.executable, str(Path(__file__).with_name("crowd.py")), str(port)]
        self._process = subprocess.Popen(
            [*command, *(["--ca", str(folder / "ca.pem")] if tls else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def order(self, what: str, number: int) -> dict[str, Any]:
        """Have it done; what it says of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what} {number}\n")
        self._process.stdin.flush()
        said: dict[str, Any] = json.loads(await asyncio.to_thread(self._process.stdout.readline))
        return said

    def end(self) -> None:
        """Ends the process, and its sockets with it."""
        self._process.kill()
        self._process.wait()


def rss_kib(pid: int) -> int:
    """Returns resident memory; proc(5)."""
    line = next(
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line
    )
    return int(line.split()[1])


async def connect(gateway: GatewayProcess, made: Socket) -> Socket:
    """Open a socket of the measuring side."""
    loop = asyncio.get_running_loop()
    tls = {"ssl": gateway.trusting, "server_hostname": "127.0.0.1"} if gateway.trusting else {}
    await loop.create_connection(lambda: made, "127.0.0.1", gateway.port, **tls)  # type: ignore[arg-type]
    await made.ready
    return made


class Active(Socket):
    """Takes one turn after another."""

    def __init__(self, host: str, gateway_pid: int) -> None:
        super().__init__(host, ["active"])
        self._gateway_pid = gateway_pid
        self.ended: asyncio.Future[None] | None = None

    def _take(self, event: bytes, stream: Stream | None, now_s: float) -> None:
        if event.startswith((b'{"type":"response.completed"', b'{"type":"response.incomplete"')):
            assert self.ended is not None
            self.ended.set_result(None)
        else:
            assert not event.startswith((b'{"type":"error"', b'{"type":"response.failed"')), event

    async def turn(self) -> Turn:
        """Times a turn from sending to the terminal event."""
        self.ended = asyncio.get_running_loop().create_future()
        waited_us = waited_so_far_us(self._gateway_pid)
        began_s = time.perf_counter()
        self.send(
            {
                "type": "response.create",
                "stream_id": "active",
                "model": INSTANT,
                "input": "Read the lines that matter, from 17",
                "store": False,
            }
        )
        await self.ended
        took_ms = (time.perf_counter() - began_s) * 1e3
        return Turn(took_ms, (waited_so_far_us(self._gateway_pid) - waited_us) / 1e3)


async def take_turns(active: Active, number: int) -> Turns:
    """Takes so many, a little apart, so that not all meet the same moment."""
    took = Turns()
    for _ in range(number):
        took.append(await active.turn())
        await asyncio.sleep(0.004)
    return took


def start_streams(socket: Socket, seconds: float) -> None:
    """Starts all streams of a socket, for so long."""
    for stream_id in socket.streams:
        socket.send(
            {
                "type": "response.create",
                "stream_id": stream_id,
                "model": MODEL,
                "input": f"Go on, please, from {stream_id}",
                "max_output_tokens": int(STREAM_RATE * seconds),
                "store": False,
            }
        )


def gaps(socket: Socket) -> list[int]:
    """Returns those of all streams since the last time, in ms."""
    found = sorted(gap for stream in socket.streams.values() for gap in stream.gaps_ms)
    for stream in socket.streams.values():
        stream.gaps_ms.clear()
    return found


def quantile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


async def measure(
    gateway: GatewayProcess, crowd: Crowd, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Measures all phases, in order; returns the figures by name."""
    pid, host = gateway.process.pid, f"127.0.0.1:{gateway.port}"
    active = Active(host, pid)
    await connect(gateway, active)
    await take_turns(active, 200)  # warm
    await crowd.order("open", 100)
    await asyncio.sleep(1)
    found: dict[str, Any] = {"turns_without": await take_turns(active, arguments.turns)}
    empty_kib, before_us = rss_kib(pid), cpu_us(pid)
    opened = await crowd.order("open", arguments.idle)
    found["open_s"] = opened["took_s"]
    found["handshake_us"] = (cpu_us(pid) - before_us) / arguments.idle
    await asyncio.sleep(ROUND_S * 1.2)  # so that each has been pinged
    found["kib_per_socket"] = (rss_kib(pid) - empty_kib) / arguments.idle
    before_us, began_s = cpu_us(pid), time.perf_counter()
    await asyncio.sleep(ROUND_S / 2)
    found["idle_cpu_share"] = (cpu_us(pid) - before_us) / 1e6 / (time.perf_counter() - began_s)
    found["turns_with"] = await take_turns(active, arguments.turns)

    streaming = await connect(gateway, Socket(host, [str(n) for n in range(arguments.streams)]))
    start_streams(streaming, 600)
    await asyncio.sleep(2)
    gaps(streaming)
    await asyncio.sleep(5)
    found["gaps_before_ms"] = gaps(streaming)
    full_kib = rss_kib(pid)
    storm = asyncio.create_task(crowd.order("storm", arguments.storm))
    turns = Turns()
    while not storm.done():
        turns.append(await active.turn())
    said = await storm
    await asyncio.sleep(0.5)
    found["gaps_during_ms"] = gaps(streaming)
    found["turns_during"] = turns
    found["storm_s"], found["storm_lost"] = said["took_s"], said["lost"]
    await asyncio.sleep(2)
    found["storm_kib"] = rss_kib(pid) - full_kib
    found["connections"] = gateway.metrics().total("lanewise_ws_connections")
    await crowd.order("drop", arguments.idle)
    await asyncio.sleep(5)
    found["left_kib"] = rss_kib(pid) - empty_kib
    await crowd.order("open", arguments.idle)
    await asyncio.sleep(2)
    found["again_kib"] = rss_kib(pid) - full_kib
    return found


def rows_of(found: dict[str, Any], arguments: argparse.Namespace) -> list[Row]:
    """Returns what was found, as the table shows it."""
    crowd = f"{arguments.idle:,} idle sockets{' over TLS' if arguments.tls else ''}"
    without, beside, during = (found[f"turns_{which}"] for which in ("without", "with", "during"))
    load = f"crowd, client and engine in processes of their own; {found['storm_lost']} lost"
    load += "; the gateway stood in line for a core for " + ", ".join(
        f"{turns.waited_share:.0%} of the turns' time {when}"
        for turns, when in ((without, "without the crowd"), (beside, "beside it"),
                            (during, "in the storm"))
    )  # fmt: skip
    made = partial(Row, load=load)
    memory = None if arguments.tls else at_most(25, "KiB")
    return [
        made(name=f"memory per socket, {crowd}", unit="KiB", values=[found["kib_per_socket"]],
             goal=memory),
        made(name=f"turn p50 beside {crowd}", unit="ms", values=[beside.at(0.5)],
             baseline="none of them", baseline_values=[without.at(0.5)]),
        made(name=f"turn p99 beside {crowd}", unit="ms", values=[beside.at(0.99)],
             baseline="none of them", baseline_values=[without.at(0.99)], goal=at_most(5, "ms")),
        made(name=f"turn p99 beside {crowd}, less waits for a core", unit="ms",
             values=[beside.in_gateway_at(0.99)], baseline="none of them",
             baseline_values=[without.in_gateway_at(0.99)]),
        made(name=f"one handshake, {crowd}", unit="CPU-us", values=[found["handshake_us"]]),
        made(name=f"pings, {crowd}", unit="% of a core", values=[found["idle_cpu_share"] * 100]),
        made(name=f"storm of {arguments.storm:,}: all back after", unit="s",
             values=[found["storm_s"]], goal=at_most(10, "s")),
        made(name="streams' gap p99 in the storm", unit="ms",
             values=[quantile(found["gaps_during_ms"], 0.99)], baseline="before it",
             baseline_values=[quantile(found["gaps_before_ms"], 0.99)], goal=at_most(100, "ms")),
        made(name="streams' longest gap in the storm", unit="ms",
             values=[found["gaps_during_ms"][-1]], baseline="before it",
             baseline_values=[found["gaps_before_ms"][-1]]),
        made(name="turn p99 in the storm", unit="ms", values=[during.at(0.99)],
             baseline="before it", baseline_values=[beside.at(0.99)]),
        made(name="turn p99 in the storm, less waits for a core", unit="ms",
             values=[during.in_gateway_at(0.99)], baseline="before it",
             baseline_values=[beside.in_gateway_at(0.99)]),
        made(name="memory that the storm left", unit="KiB per socket dropped",
             values=[found["storm_kib"] / arguments.storm]),
        made(name="memory when all came again, against the first time",
             unit="KiB per socket", values=[found["again_kib"] / arguments.idle]),
    ]  # fmt: skip


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Start everything, measure, stop everything."""
    with tempfile.TemporaryDirectory(prefix="lw-sockets-") as name, redis_server(Path(name)) as url:
        folder, ports = Path(name), (free_port(), free_port())
        text = CROWD + CONFIG.replace("6000", "1000000").replace("20000000", "1000000000")
        text += BACKEND.format(port=ports[0], model=MODEL)
        text += BACKEND.format(port=ports[1], model=INSTANT).replace("firehose", INSTANT)
        trusting = None
        if arguments.tls:
            authority = trustme.CA()
            issued = authority.issue_cert("127.0.0.1")
            issued.private_key_pem.write_to_path(folder / "server.key")
            for n, blob in enumerate(issued.cert_chain_pems):
                blob.write_to_path(folder / "server.pem", append=n > 0)
            authority.cert_pem.write_to_path(folder / "ca.pem")
            trusting = trust_in(authority)
            text = TLS + text
        (folder / "lanewise.toml").write_text(text)
        engine = [sys.executable, str(ROOT / "tests/bench/firehose.py"), "--port"]
        engines = [
            subprocess.Popen([*engine, str(ports[0]), "--rate", str(STREAM_RATE)]),
            subprocess.Popen([*engine, str(ports[1]), "--instant"]),
        ]
        gateway = GatewayProcess(
            folder, "--config", "lanewise.toml", "--redis", url, trusting=trusting
        )
        crowd = None
        try:
            gateway.wait_until_ready()
            while gateway.metrics().total("lanewise_backend_up") < 2:
                time.sleep(0.1)
            crowd = Crowd(gateway.port, folder, tls=arguments.tls)
            return uvloop.run(measure(gateway, crowd, arguments))
        finally:
            if crowd is not None:
                crowd.end()
            for each in (*engines, gateway.process):
                each.kill()
                each.wait()


def trust_in(authority: trustme.CA) -> Any:
    """Trusts the bench's own certificate."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--storm", type=int, default=1_000)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--turns", type=int, default=1_000)
    parser.add_argument("--tls", action="store_true", help="over TLS")
    rows.add_argument(parser)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # what is started here inherits it
    if arguments.idle + 500 > most:
        parser.error(f"--idle {arguments.idle}: at most {most} open files are allowed here")
    rows.publish(rows_of(run(arguments), arguments), arguments)


if __name__ == "__main__":
    main()
