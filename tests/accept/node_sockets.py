"""Drives openai-node's sockets, in one process of node that does as it is told."""

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import AsyncIterator
from typing import Any, Self

from tests.accept.connections import KEY
from tests.e2e.node_bin import node_bin
from tests.e2e.node_scripts import FOLDER

MAX_LINE_BYTES = 64 << 20  # an event with all of a response


class NodeSocket:
    """Is one socket; it satisfies `tests.accept.cut_turns.Wire`."""

    def __init__(self, number: int, stdin: asyncio.StreamWriter) -> None:
        self._number = number
        self._stdin = stdin
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def tell(self, **words: Any) -> None:
        """Sends node a line."""
        self._stdin.write(json.dumps({"wire": self._number, **words}).encode() + b"\n")

    async def send(self, create: dict[str, Any]) -> None:
        self.tell(create=create)

    async def receive(self) -> dict[str, Any]:
        while True:
            told = await self.told.get()
            if "lost" in told:
                raise ConnectionResetError("openai-node's socket is lost")
            if "event" in told:
                event: dict[str, Any] = told["event"]
                return event


class NodeSockets:
    """Holds the process, and its sockets by their numbers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._numbers = itertools.count(1)
        self._sockets: dict[int, NodeSocket] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        """Runs node until the context ends."""
        process = await asyncio.create_subprocess_exec(
            str(node_bin() / "node"),
            "cut_sockets.mjs",
            cwd=FOLDER,
            env={**os.environ, "OPENAI_API_KEY": KEY},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
        )
        sockets = cls(process)
        reading = asyncio.create_task(sockets._read())
        try:
            yield sockets
        finally:
            reading.cancel()
            process.kill()
            await process.wait()

    @contextlib.asynccontextmanager
    async def opened(self, port: int) -> AsyncIterator[NodeSocket]:
        """Opens a socket, and closes it at the end; raises `OSError` if it is lost at once."""
        number = next(self._numbers)
        socket = self._sockets[number] = NodeSocket(number, self._stdin)
        try:
            socket.tell(port=port)
            if "lost" in await socket.told.get():
                raise ConnectionRefusedError("openai-node could not connect")
            yield socket
        finally:
            socket.tell(close=True)
            del self._sockets[number]

    async def _read(self) -> None:
        while line := await self._stdout.readline():
            told = json.loads(line)
            socket = self._sockets.get(told["wire"])
            if socket is not None:
                socket.told.put_nowait(told)
