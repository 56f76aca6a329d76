"""Offers a TCP proxy that resets connections after so many bytes from the server."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Self

Limit = Callable[[], int | None]  # of the next connection, in bytes; None: it is not cut


class CuttingProxy:
    """Listens on loopback; `ports` are tried in turn, one for each connection."""

    def __init__(self, ports: list[int], limit: Limit) -> None:
        self._ports = ports
        self._limit = limit
        self.num_connections = 0
        self.num_cut = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, ports: list[int], limit: Limit) -> AsyncIterator[Self]:
        """Serves until the context ends."""
        proxy = cls(ports, limit)
        server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()
            for task in list(proxy._tasks):
                task.cancel()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        port = self._ports[self.num_connections % len(self._ports)]
        self.num_connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            reset(writer)
            self._tasks.discard(task)
            return
        up = asyncio.create_task(_copy(reader, far_writer, None))
        down = asyncio.create_task(_copy(far_reader, writer, self._limit()))
        try:
            with contextlib.suppress(asyncio.CancelledError):  # the proxy ends
                await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if down.done() and not down.cancelled() and down.exception() is None and down.result():
                self.num_cut += 1
                reset(writer)
                reset(far_writer)
        finally:
            up.cancel()
            down.cancel()
            for each in (writer, far_writer):  # before the wait, which the proxy's end may cancel
                each.close()
            await asyncio.gather(up, down, return_exceptions=True)
            self._tasks.discard(task)


def reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with an RST."""
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None
) -> bool:
    """Copies until the end, or so many bytes; returns whether it was cut there."""
    num_bytes = 0
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            if limit is not None and num_bytes + len(data) >= limit:
                writer.write(data[: limit - num_bytes])
                await writer.drain()
                await asyncio.sleep(0.005)  # for the client to read what came before the reset
                return True
            num_bytes += len(data)
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    return False
