"""Lets the receiver of an exchange pause the connection that carries it and nothing else.

While it is paused the server cannot send more than the sockets' buffers hold. This is an edge.
"""

import asyncio
from typing import Protocol

# A read of this size fills most of uvloop's buffer of 256 KiB, so that more is waiting. libuv reads
# up to 32 times in a row (`uv__read`, libuv 1.48), which would be 8 MiB in one turn of the loop.
LARGE_READ_BYTES = 128 << 10


class Pausable(Protocol):
    """A connection; it calls `give_way` of its `reading` after each large read."""

    reading: "ReadPause | None"

    @property
    def transport(self) -> asyncio.Transport: ...


class ReadPause:
    """Belongs to one request; `own` while a connection carries it alone, then `disown`."""

    def __init__(self) -> None:
        self.is_paused = False
        self._connection: Pausable | None = None

    def own(self, connection: Pausable) -> None:
        self._connection = connection
        connection.reading = self

    def disown(self) -> None:
        """Gives the connection back, reading."""
        self.resume()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.reading = None

    def pause(self) -> bool:
        """Stops reading until `resume`; returns false if no connection is its own."""
        if self._connection is None:
            return False
        self.is_paused = True
        self._stop()
        return True

    def resume(self) -> None:
        """Reads on; harmless if it is not paused."""
        self.is_paused = False
        if self._connection is not None and not self._connection.transport.is_closing():
            self._connection.transport.resume_reading()

    def give_way(self) -> None:
        """Lets the loop turn before the next read, so that what came is looked at first."""
        if not self.is_paused:
            self._stop()
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self.is_paused:
            self.resume()

    def _stop(self) -> None:
        if self._connection is not None and not self._connection.transport.is_closing():
            self._connection.transport.pause_reading()
