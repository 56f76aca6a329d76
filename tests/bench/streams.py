"""How many tokens a second one gateway process relays, and what each costs.

`--streams` streams of `--rate` tokens/s each come from `firehose.py` over the engine link, so the
gateway does its whole work and no engine's: CPU time of its process per token between the moment
when all streams run and the moment before the first ends. The client counts frames without
parsing them, notes each stream's gaps, and at the end compares each text with what was sent.

    python tests/bench/streams.py --streams 1000 --rate 1000 --seconds 15

The baseline is a bare `websockets` server on uvloop that sends a frame per token, as relays do. The
load is no limit where `client` and `engine` stay well below 100 % busy.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import os
import struct
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
from tests.e2e.gateway_process import (  # noqa: E402
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    free_port,
    redis_server,
)

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

DELTA = b'{"type":"response.output_text.delta"'
TERMINAL = (b'{"type":"response.completed"', b'{"type":"response.incomplete"')
FAILED = (b'{"type":"error"', b'{"type":"response.failed"')
SETTLE_S = 1.0  # for what gathered while all streams began


class Stream:
    """What one stream received."""

    __slots__ = ("arrived_s", "done", "gaps_ms", "texts")

    def __init__(self) -> None:
        self.texts: list[bytes] = []  # JSON strings
        self.arrived_s = 0.0  # of its last delta
        self.gaps_ms: list[int] = []
        self.done = False


class Socket(asyncio.Protocol):
    """A WebSocket client that looks at no more than it must.

    Frames of this server are unmasked and whole, so a frame is a header and its payload.
    """

    def __init__(self, host: str, stream_ids: list[str]) -> None:
        self.streams = {stream_id.encode(): Stream() for stream_id in stream_ids}
        self.num_begun = 0
        self.num_done = 0
        self.num_frames = 0
        self.num_chars = 0  # of JSON text, quotes and escapes included
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._host = host
        self._buffer = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        self._transport.write(
            f"GET /v1/responses HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {DEVELOPMENT_KEY}\r\n\r\n".encode()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self.ready, self.over):
            if not waiting.done():
                waiting.set_exception(exc or ConnectionError("the gateway closed the connection"))

    def send(self, event: dict[str, Any]) -> None:
        """One text frame, masked with zeros."""
        payload = json.dumps(event).encode()
        assert 126 <= len(payload) < 65_536
        self._transport.write(b"\x81\xfe" + struct.pack("!H", len(payload)) + b"\0\0\0\0" + payload)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        if not self.ready.done():
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            assert buffer.startswith(b"HTTP/1.1 101"), bytes(buffer[:200])
            at = end + 4
            self.ready.set_result(None)
        now_s = time.perf_counter()
        size = len(buffer)
        whole = bytes(buffer)
        while size - at >= 2:
            length, start = whole[at + 1], at + 2
            if length == 126:
                if size < at + 4:
                    break
                length, start = int.from_bytes(whole[at + 2 : at + 4]), at + 4
            elif length == 127:
                if size < at + 10:
                    break
                length, start = int.from_bytes(whole[at + 2 : at + 10]), at + 10
            if size < start + length:
                break
            if whole[at] == 0x81:
                self._take(whole[start : start + length], now_s)
            elif whole[at] == 0x89:  # a ping, of 4 bytes
                payload = whole[start : start + length]
                self._transport.write(b"\x8a" + bytes((0x80 | length,)) + b"\0\0\0\0" + payload)
            at = start + length
        del buffer[:at]

    def _take(self, frame: bytes, now_s: float) -> None:
        self.num_frames += 1
        if frame.startswith(DELTA):
            tail = frame.rindex(b',"stream_id":"')
            stream = self.streams[frame[tail + 14 : -2]]
            text = frame[frame.index(b'"delta":', 60) + 8 : tail]
            self.num_chars += len(text)
            stream.texts.append(text)
            if stream.arrived_s:
                stream.gaps_ms.append(int((now_s - stream.arrived_s) * 1e3))
            else:
                self.num_begun += 1
            stream.arrived_s = now_s
        elif frame.startswith(TERMINAL):
            self.num_done += 1
            if self.num_done == len(self.streams):
                self.over.set_result(None)
        elif frame.startswith(FAILED):
            raise AssertionError(frame[:500])


async def run(
    gateway: GatewayProcess, engine: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Open all streams, let them run, compare what came; returns the figures."""
    loop = asyncio.get_running_loop()
    ids = [str(number) for number in range(arguments.streams)]
    sockets: list[Socket] = []
    for first in range(0, len(ids), STREAMS_PER_SOCKET):
        chunk = ids[first : first + STREAMS_PER_SOCKET]
        host = f"127.0.0.1:{gateway.port}"
        _, made = await loop.create_connection(
            partial(Socket, host, chunk), "127.0.0.1", gateway.port
        )
        sockets.append(made)
        await made.ready
    num_tokens = int(arguments.rate * arguments.seconds)
    for socket in sockets:
        for stream_id in socket.streams:
            socket.send(
                {
                    "type": "response.create",
                    "stream_id": stream_id.decode(),
                    "model": MODEL,
                    "input": f"Go on from {stream_id.decode()}",
                    "max_output_tokens": num_tokens,
                    "store": False,
                }
            )
        await asyncio.sleep(0)
    while sum(socket.num_begun for socket in sockets) < len(ids):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await asyncio.sleep(SETTLE_S)
    for stream in (stream for socket in sockets for stream in socket.streams.values()):
        stream.gaps_ms.clear()  # those of the storm in which all began
        stream.arrived_s = 0.0
    watch = Watch({"gateway": gateway.process.pid, "engine": engine, "client": os.getpid()})
    chars = sum(socket.num_chars for socket in sockets)
    frames = sum(socket.num_frames for socket in sockets)
    while not any(socket.num_done for socket in sockets):
        spent_us, wall_us = watch.read()
        verdict = watch.verdict()
        now_chars = sum(socket.num_chars for socket in sockets)
        now_frames = sum(socket.num_frames for socket in sockets)
        await asyncio.sleep(0.25)
    await asyncio.gather(*(socket.over for socket in sockets))
    different, chars_per_token = check(sockets, num_tokens)
    streams = [stream for socket in sockets for stream in socket.streams.values()]
    gaps_ms = sorted(gap for stream in streams for gap in stream.gaps_ms)
    tokens = (now_chars - chars) / chars_per_token
    return {
        "streams": arguments.streams,
        "different_texts": different,
        "tokens_per_s": tokens / wall_us * 1e6,
        "cpu_us_per_token": spent_us["gateway"] / tokens,
        "cpu_us_per_frame": spent_us["gateway"] / (now_frames - frames),
        "tokens_per_frame": tokens / (now_frames - frames),
        "gap_ms_p50": gaps_ms[len(gaps_ms) // 2],
        "gap_ms_p99": gaps_ms[len(gaps_ms) * 99 // 100],
        "gap_ms_max": gaps_ms[-1],
        "load": verdict,
    }


def check(sockets: list[Socket], num_tokens: int) -> tuple[int, float]:
    """How many texts are not the engine's, and the JSON characters per token."""
    text = Text()
    num_chars = different = 0
    for socket in sockets:
        for stream_id, stream in socket.streams.items():
            got = "".join(json.loads(piece) for piece in stream.texts)
            expected = text.piece(STRIDE_TOKENS * int(stream_id), num_tokens)
            different += got != expected
            num_chars += sum(map(len, stream.texts))
    return different, num_chars / (num_tokens * sum(len(socket.streams) for socket in sockets))


def rows_of(runs: list[dict[str, Any]], bare_us: list[float], arguments: Any) -> list[Row]:
    """With the goals for a thousand streams of a thousand tokens a second."""
    asked_per_s = arguments.streams * arguments.rate
    many = f"{arguments.streams:,} streams at {arguments.rate:,.0f} tokens/s"
    load = "; ".join(dict.fromkeys(run["load"] for run in runs))

    def of(name: str) -> list[float]:
        return [run[name] for run in runs]

    return [
        Row(
            name=f"{many}: cost",
            unit="CPU-us/token",
            values=of("cpu_us_per_token"),
            baseline="bare server, a frame per token",
            baseline_values=bare_us,
            goal=shape.at_most(1, "us", aim=0.5),
            per="token",
            cpu_us=of("cpu_us_per_token"),
            wall_us=[1e6 / rate for rate in of("tokens_per_s")],
            load=load,
        ),
        Row(
            name=f"{many}: throughput",
            unit="tokens/s",
            values=of("tokens_per_s"),
            baseline="the engine's rate",
            baseline_values=[asked_per_s],
            goal=shape.at_least(0.99 * asked_per_s, "tokens/s"),
        ),
        Row(
            name=f"{many}: a stream's gap, p99",
            unit="ms",
            values=of("gap_ms_p99"),
            baseline="between engine frames",
            baseline_values=[arguments.interval_ms],
            goal=shape.at_most(100, "ms"),
        ),
        Row(
            name=f"{many}: texts that differ from the engine's",
            unit="streams",
            values=of("different_texts"),
            goal=shape.at_most(0),
        ),
    ]


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=1000.0, help="tokens/s of each stream")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each stream")
    parser.add_argument("--interval-ms", type=float, default=20.0, help="between engine frames")
    parser.add_argument("--repetitions", type=int, default=1, help="of all, baseline in between")
    parser.add_argument("--json", action="store_true", help="print every run's figures instead")
    shape.add_argument(parser)
    arguments = parser.parse_args()
    runs: list[dict[str, Any]] = []
    bare_us: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="lw-bench-") as name,
        redis_server(Path(name)) as url,
        serving(Path(name), url, arguments) as (gateway, engine),
    ):
        for _ in range(arguments.repetitions):
            runs.append(uvloop.run(run(gateway, engine, arguments)))
            bare = run_bare(Path(name), MIN_BARE_FRAMES, 180, 8)
            bare_us.append(bare.cpu_us / bare.frames)
    if arguments.json:
        print(json.dumps(runs, indent=1))
    else:
        shape.publish(rows_of(runs, bare_us, arguments), arguments)


@contextlib.contextmanager
def serving(
    folder: Path, redis_url: str, arguments: argparse.Namespace
) -> Iterator[tuple[GatewayProcess, int]]:
    """A gateway with the firehose linked; gives it and the firehose's process id."""
    port = free_port()
    firehose = subprocess.Popen(
        [
            *(sys.executable, str(Path(__file__).with_name("firehose.py"))),
            *("--port", str(port), "--rate", str(arguments.rate)),
            *("--interval-ms", str(arguments.interval_ms)),
        ]
    )
    config = folder / "lanewise.toml"
    limits = CONFIG.replace("6000", "1000000").replace("20000000", "1000000000000")
    limits = limits.replace("max_concurrent = 256", "max_concurrent = 100000")
    config.write_text(limits + BACKEND.format(port=port, model=MODEL))
    gateway = GatewayProcess(folder, "--config", str(config), "--redis", redis_url)
    try:
        gateway.wait_until_ready()
        while not gateway.metrics().total("lanewise_backend_up"):
            time.sleep(0.05)
        yield gateway, firehose.pid
    except BaseException:
        print(gateway.log[-3000:])
        raise
    finally:
        gateway.stop()
        firehose.terminate()
        firehose.wait()


if __name__ == "__main__":
    main()
