"""Measures the gateway's CPU per relayed token and per request, on both transports.

A gateway is started, and load comes from this process: so the gateway's CPU time, read from /proc,
is its own work alone, its simulated engines' included. In the same run, on the same machine, a
bare `websockets` server relays as many frames of the same size: the floor that any Python gateway
stands on.

    python tests/bench/relay.py --streams 64 --tokens 4000

Prints a table, and with --json one JSON object for comparing runs.
"""

import argparse
import asyncio
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import websockets

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows as shape  # noqa: E402
from tests.bench.clocks import cpu_us  # noqa: E402
from tests.e2e.gateway_process import (  # noqa: E402
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    free_port,
    redis_server,
    served,
)

HEADERS = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
MIN_BARE_FRAMES = 100_000  # fewer take too little time for /proc's clock, which ticks every 10 ms
STREAMS_PER_SOCKET = 16  # the protocol's limit on what runs at once

# A server that sends what it is asked for: {"frames": n, "bytes": m}; uvloop, as the gateway has.
BARE_SERVER = """
import asyncio, json, sys
import uvloop
from websockets.asyncio.server import serve

async def relay(socket):
    async for message in socket:
        asked = json.loads(message)
        frame = "x" * asked["bytes"]
        for _ in range(asked["frames"]):
            await socket.send(frame)

async def main():
    async with serve(relay, "127.0.0.1", int(sys.argv[1]), compression=None):
        await asyncio.get_running_loop().create_future()

uvloop.run(main())
"""


class Row(NamedTuple):
    """Is one measurement."""

    name: str
    cpu_us: float
    wall_s: float
    requests: int
    tokens: int
    frames: int


async def measure(name: str, pid: int, load: Callable[[], Awaitable[tuple[int, int, int]]]) -> Row:
    """Runs a load, which tells (requests, tokens, frames)."""
    before_us, started_s = cpu_us(pid), time.perf_counter()
    requests, tokens, frames = await load()
    wall_s = time.perf_counter() - started_s
    return Row(name, cpu_us(pid) - before_us, wall_s, requests, tokens, frames)


async def socket_load(
    url: str, *, streams: int, turns: int, body: dict[str, Any]
) -> tuple[int, int, int]:
    """Runs `streams` streams over as few sockets as allowed; each takes `turns` turns."""

    async def one_socket(stream_ids: list[str]) -> tuple[int, int]:
        tokens = frames = 0
        left = dict.fromkeys(stream_ids, turns)
        async with websockets.connect(
            url, additional_headers=HEADERS, max_size=None, max_queue=None, compression=None
        ) as socket:

            async def create(stream_id: str) -> None:
                event = {"type": "response.create", "stream_id": stream_id, **body}
                await socket.send(json.dumps(event))

            for stream_id in stream_ids:
                await create(stream_id)
            while left:
                frame = await socket.recv()
                frames += 1
                assert isinstance(frame, str)
                # Parsing every delta would make the client the bottleneck.
                if not frame.startswith(('{"type":"response.completed"', '{"type":"response.inc')):
                    assert not frame.startswith('{"type":"error"'), frame
                    continue
                event = json.loads(frame)
                tokens += event["response"]["usage"]["output_tokens"]
                stream_id = event["stream_id"]
                left[stream_id] -= 1
                if left[stream_id]:
                    await create(stream_id)
                else:
                    del left[stream_id]
        return tokens, frames

    ids = [f"s{number}" for number in range(streams)]
    sockets = [ids[n : n + STREAMS_PER_SOCKET] for n in range(0, streams, STREAMS_PER_SOCKET)]
    totals = await asyncio.gather(*map(one_socket, sockets))
    return streams * turns, sum(t for t, _ in totals), sum(f for _, f in totals)


async def http_load(
    url: str, *, streams: int, turns: int, body: dict[str, Any]
) -> tuple[int, int, int]:
    """Does the same over SSE: each turn is a request, and connections are kept alive."""

    async def one_stream(http: httpx.AsyncClient) -> tuple[int, int]:
        tokens = frames = 0
        for _ in range(turns):
            async with http.stream("POST", url, json={"stream": True, **body}) as answer:
                assert answer.status_code == 200, await answer.aread()
                last = b""
                async for chunk in answer.aiter_bytes():
                    frames += chunk.count(b"\n\n")
                    last = (last + chunk)[-1_000_000:]
            tokens += json.loads(last.rpartition(b"\ndata: ")[2])["response"]["usage"][
                "output_tokens"
            ]
        return tokens, frames

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(headers=HEADERS, limits=limits, timeout=None) as http:
        totals = await asyncio.gather(*(one_stream(http) for _ in range(streams)))
    return streams * turns, sum(t for t, _ in totals), sum(f for _, f in totals)


async def bare_load(
    port: int, *, frames: int, num_bytes: int, sockets: int
) -> tuple[int, int, int]:
    """Takes as many frames from the bare server."""
    each = frames // sockets

    async def one_socket() -> None:
        async with websockets.connect(
            f"ws://127.0.0.1:{port}", max_queue=None, compression=None
        ) as socket:
            await socket.send(json.dumps({"frames": each, "bytes": num_bytes}))
            for _ in range(each):
                await socket.recv()

    await asyncio.gather(*(one_socket() for _ in range(sockets)))
    return 0, 0, each * sockets


async def run_gateway(gateway: GatewayProcess, streams: int, tokens: int, turns: int) -> list[Row]:
    """Measures long answers for the cost of a token, short ones for the cost of a request."""
    pid = gateway.process.pid
    http = f"{gateway.base_url}/responses"
    long: dict[str, Any] = {
        "model": "lanewise-fast",
        "input": f"Write a guide of {tokens} tokens.",
        "max_output_tokens": tokens,
        "store": False,
    }
    short = {**long, "input": "Say hello.", "max_output_tokens": 16}
    await socket_load(gateway.socket_url, streams=4, turns=4, body=short)  # warm
    return [
        await measure(
            "tokens, WebSocket",
            pid,
            lambda: socket_load(gateway.socket_url, streams=streams, turns=1, body=long),
        ),
        await measure(
            "tokens, SSE", pid, lambda: http_load(http, streams=streams, turns=1, body=long)
        ),
        await measure(
            "requests, WebSocket",
            pid,
            lambda: socket_load(gateway.socket_url, streams=16, turns=turns, body=short),
        ),
        await measure(
            "requests, SSE", pid, lambda: http_load(http, streams=16, turns=turns, body=short)
        ),
    ]


async def bare_row(pid: int, port: int, frames: int, num_bytes: int, sockets: int) -> Row:
    """Measures the baseline, once the server listens."""
    for _ in range(100):
        try:
            await bare_load(port, frames=sockets, num_bytes=num_bytes, sockets=sockets)
            break
        except OSError:
            await asyncio.sleep(0.1)
    return await measure(
        "bare websockets server",
        pid,
        lambda: bare_load(port, frames=frames, num_bytes=num_bytes, sockets=sockets),
    )


def run_bare(folder: Path, frames: int, num_bytes: int, sockets: int) -> Row:
    """Measures the baseline, in a process of its own."""
    script = folder / "bare.py"
    script.write_text(BARE_SERVER)
    port = free_port()
    server = subprocess.Popen([sys.executable, str(script), str(port)])
    try:
        return asyncio.run(bare_row(server.pid, port, frames, num_bytes, sockets))
    finally:
        server.terminate()
        server.wait()


def table(rows: list[Row]) -> str:
    """Writes the rows for people."""
    head = f"{'':24}{'CPU us/token':>14}{'CPU us/request':>16}{'CPU us/frame':>14}"
    lines = [f"{head}{'tokens':>10}{'requests':>10}{'frames':>9}{'tokens/s':>11}{'busy':>7}"]
    for row in rows:
        per_token = f"{row.cpu_us / row.tokens:.2f}" if row.tokens else "-"
        per_request = f"{row.cpu_us / row.requests:,.0f}" if row.requests else "-"
        lines.append(
            f"{row.name:24}{per_token:>14}{per_request:>16}"
            f"{row.cpu_us / row.frames:>14.1f}{row.tokens:>10,}{row.requests:>10,}{row.frames:>9,}"
            f"{row.tokens / row.wall_s:>11,.0f}{row.cpu_us / 1e6 / row.wall_s:>7.0%}"
        )
    return "\n".join(lines)


def rows_of(runs: list[list[Row]]) -> list[shape.Row]:
    """Compares a token with the bare server's frames; streams.py and tasks.py have the goals."""
    made = []
    for at, over in ((0, "WebSocket"), (1, "SSE")):
        ours = [rows[at] for rows in runs]
        made.append(
            shape.Row(
                name=f"a token of the simulated wafer, engine included, over {over}",
                unit="CPU-us/token",
                values=[row.cpu_us / row.tokens for row in ours],
                baseline="bare server, a frame per token",
                baseline_values=[rows[-1].cpu_us / rows[-1].frames for rows in runs],
                goal=shape.ahead(),
                per="token",
                cpu_us=[row.cpu_us / row.tokens for row in ours],
                wall_us=[row.wall_s * 1e6 / row.tokens for row in ours],
            )
        )
    return made


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=64, help="long answers at once")
    parser.add_argument("--tokens", type=int, default=4000, help="of each long answer")
    parser.add_argument("--turns", type=int, default=50, help="short turns of each of 16 streams")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--repetitions", type=int, default=1, help="of all; kept with --rows")
    shape.add_argument(parser)
    arguments = parser.parse_args()
    runs = [run(arguments) for _ in range(arguments.repetitions)]
    rows = runs[-1]
    if arguments.rows is not None:
        shape.publish(rows_of(runs), arguments)
    elif arguments.json:
        machine = {"machine": platform.platform(), "python": platform.python_version()}
        print(json.dumps({**machine, "rows": [row._asdict() for row in rows]}))
    else:
        print(table(rows))


def run(arguments: argparse.Namespace) -> list[Row]:
    """Runs a gateway's rows, and the bare server's behind them."""
    with tempfile.TemporaryDirectory(prefix="lw-bench-") as name, redis_server(Path(name)) as url:
        folder = Path(name)
        config = folder / "lanewise.toml"
        config.write_text(CONFIG.replace("6000", "1000000").replace("20000000", "1000000000"))
        with served(folder, "--config", str(config), "--redis", url) as gateway:
            rows = asyncio.run(
                run_gateway(gateway, arguments.streams, arguments.tokens, arguments.turns)
            )
        sockets = -(-arguments.streams // STREAMS_PER_SOCKET)
        rows.append(run_bare(folder, max(rows[0].frames, MIN_BARE_FRAMES), 250, sockets))
    return rows


if __name__ == "__main__":
    main()
