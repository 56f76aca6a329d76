"""Lets a connection's reads give way to the loop, and belong to an exchange that is alone on it.

That one can pause them: then the server cannot send more than the sockets' buffers hold. And it can
have messages passed to it directly. This is an edge.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

# A read of this size fills most of uvloop's buffer of 256 KiB, so that more is waiting. libuv reads
# up to 32 times in a row (`uv__read`, libuv 1.48), which would be 8 MiB in one turn of the loop.
LARGE_READ_BYTES = 128 << 10


class Pausable(Protocol):
    """Is a connection that gives way after each large read."""

    reading: "ReadHold | None"

    @property
    def transport(self) -> asyncio.Transport: ...


def give_way(connection: Pausable) -> None:
    """Lets the loop turn before the next read, so that what came is looked at first."""
    if _may_read(connection):
        connection.transport.pause_reading()
        asyncio.get_running_loop().call_soon(_read_on, connection)


def _read_on(connection: Pausable) -> None:
    if _may_read(connection):
        connection.transport.resume_reading()


def _may_read(connection: Pausable) -> bool:
    reading = connection.reading
    return not (connection.transport.is_closing() or (reading is not None and reading.is_paused))


class ReadHold(msgspec.Struct, eq=False):
    """Belongs to one request; `own` while a connection carries it alone, then `disown`."""

    is_paused: bool = False
    # Takes a message that came alone and has at most `LONE_BYTES`; returns false if it did nothing,
    # and the message has to go the usual way, as all do while this is None.
    take_one: Callable[[bytes], bool] | None = None
    _connection: Pausable | None = None

    def own(self, connection: Pausable) -> None:
        self._connection = connection
        connection.reading = self

    def disown(self) -> None:
        """Gives the connection back, reading."""
        if self.is_paused:
            self.resume()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.reading = None

    def pause(self) -> bool:
        """Stops reading until `resume`; returns false if no connection is its own."""
        if self._connection is None:
            return False
        self.is_paused = True
        if not self._connection.transport.is_closing():
            self._connection.transport.pause_reading()
        return True

    def resume(self) -> None:
        """Reads on; harmless if it is not paused."""
        self.is_paused = False
        if self._connection is not None and not self._connection.transport.is_closing():
            self._connection.transport.resume_reading()
