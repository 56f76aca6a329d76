"""Joins what is written to a transport in one turn of the event loop: a head and a short body.

uvicorn writes them one by one, and each write is a call to the system that also wakes the client.
This is an edge.
"""

import asyncio
from typing import Any

MAX_GATHERED_BYTES = 64 << 10  # beyond it is written at once, so that the transport says it is full


class GatheredWrites:
    """Is a transport, but for writes that leave at the end of the turn."""

    def __init__(self, transport: asyncio.Transport) -> None:
        """Gathers for that transport, which nobody else may write to until `flush`."""
        self.bare = transport
        self.is_closing = transport.is_closing
        self.pieces: list[bytes] = []  # that were gathered
        self._loop = asyncio.get_running_loop()
        self._num_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)

    def write(self, piece: bytes) -> None:
        """Takes more bytes."""
        if not self.pieces:
            self._loop.call_soon(self.flush)
        self.pieces.append(piece)
        self._num_bytes += len(piece)
        if self._num_bytes > MAX_GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what was gathered."""
        if self.pieces:
            content = b"".join(self.pieces)
            self.pieces.clear()
            self._num_bytes = 0
            self.bare.write(content)

    def close(self) -> None:
        """Closes the transport behind what was gathered."""
        self.flush()
        self.bare.close()
