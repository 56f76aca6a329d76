"""Holds idle WebSocket clients, as many as asked: each answers pings and waits.

Reads commands from standard input and answers each with a line of JSON: `open N`, `drop N`, and
`storm N`, which drops N and opens them again all at once, each within the same moment.
"""

import argparse
import asyncio
import base64
import json
import os
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.e2e.gateway_process import DEVELOPMENT_KEY  # noqa: E402

SOCKETS_PER_ADDRESS = 10_000  # of the 28,000 ports that Linux gives out by default
AT_ONCE = 50  # handshakes under way while a crowd is opened; a storm knows no such bound


class Idle(asyncio.Protocol):
    """Is one of them; it looks at nothing but the handshake's answer and pings."""

    def __init__(self, crowd: "Crowd") -> None:
        self._crowd = crowd
        self._buffer = b""
        self.transport: Any = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        self.transport.write(
            f"GET /v1/responses HTTP/1.1\r\nHost: {self._crowd.host}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"User-Agent: crowd\r\nAuthorization: Bearer {DEVELOPMENT_KEY}\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self.opened.done():
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            assert head.startswith(b"HTTP/1.1 101"), head[:100]
            self._buffer = rest
            self.opened.set_result(None)
        while len(self._buffer) >= 2 and len(self._buffer) >= 2 + self._buffer[1]:
            opcode, size = self._buffer[0], self._buffer[1]
            payload, self._buffer = self._buffer[2 : 2 + size], self._buffer[2 + size :]
            if opcode == 0x89:
                self.transport.write(b"\x8a" + bytes((0x80 | size,)) + b"\0\0\0\0" + payload)

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.sockets.pop(self, None)
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionError("closed before it was open"))
        elif not self.transport.is_closing():
            self._crowd.num_lost += 1


class Crowd:
    """Holds all of them."""

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        self.host = f"127.0.0.1:{port}"
        self.sockets: dict[Idle, None] = {}
        self.num_lost = 0  # that we did not drop
        self._port = port
        self._tls: dict[str, Any] = {}
        if context is not None:
            self._tls = {"ssl": context, "server_hostname": "127.0.0.1"}
        self._num_opened = 0

    async def open(self, number: int, at_once: int = AT_ONCE) -> None:
        """Opens so many more."""
        free = asyncio.Semaphore(at_once)

        async def one() -> None:
            async with free:
                self._num_opened += 1
                address = self._num_opened // SOCKETS_PER_ADDRESS % 200
                made = Idle(self)
                await asyncio.get_running_loop().create_connection(
                    lambda: made,
                    "127.0.0.1",
                    self._port,
                    local_addr=(f"127.0.0.{2 + address}", 0),
                    **self._tls,
                )
                await made.opened
                self.sockets[made] = None

        await asyncio.gather(*(one() for _ in range(number)))

    def drop(self, number: int) -> None:
        """Drops so many, without a goodbye."""
        for socket in list(self.sockets)[:number]:
            socket.transport.abort()

    async def obey(self, command: str) -> dict[str, Any]:
        """Obeys one line, and returns what came of it."""
        what, number = command.split()
        began_s = time.perf_counter()
        if what in ("drop", "storm"):
            self.drop(int(number))
        if what in ("open", "storm"):
            await self.open(int(number), AT_ONCE if what == "open" else int(number))
        took_s = time.perf_counter() - began_s
        return {"took_s": took_s, "num_open": len(self.sockets), "lost": self.num_lost}


async def run(port: int, context: ssl.SSLContext | None) -> None:
    """Obey until standard input ends."""
    crowd = Crowd(port, context)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await crowd.obey(line)), flush=True)


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--ca", help="PEM of the authority to trust; with it, over TLS")
    asked = parser.parse_args()
    context = ssl.create_default_context(cafile=asked.ca) if asked.ca else None
    uvloop.run(run(asked.port, context))


if __name__ == "__main__":
    main()
