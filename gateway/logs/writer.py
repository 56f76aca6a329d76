"""Writes the log in a thread of its own, so that no stream waits for a blocked pipe or a full disk.

This is an edge.
"""

import os
from collections.abc import Callable

from gateway.store.batch_thread import BatchThread

MAX_QUEUED = 10_000  # lines; about 5 MB at most
CLOSE_TIMEOUT_S = 2.0  # for what is queued when the process ends

Line = Callable[[], bytes]  # makes the line, without its end: done in the thread, too


class LogWriter:
    """Writes lines to a file descriptor; drops and counts them while its reader is too slow."""

    def __init__(self, descriptor: int, tell_dropped: Callable[[int], bytes]) -> None:
        """Takes as `tell_dropped` what makes the line that says how many lines are missing."""
        self._descriptor = descriptor
        self._tell_dropped = tell_dropped
        self._num_dropped = 0
        self._thread = BatchThread("log", self._take, MAX_QUEUED)

    def write(self, line: Line, *, at_once: bool = True) -> None:
        """Takes a line without waiting; one that is not wanted at once waits for others."""
        if not self._thread.put(line, at_once=at_once):
            self._num_dropped += 1

    def close(self) -> None:
        """Writes what is queued and stops; lines left after `CLOSE_TIMEOUT_S` are lost."""
        self._thread.close(CLOSE_TIMEOUT_S)

    def _take(self, batch: list[Line]) -> None:
        lines = [self._made(line) for line in batch]
        if num_dropped := self._num_dropped:
            self._num_dropped -= num_dropped
            lines.append(self._tell_dropped(num_dropped))
        self._write(b"".join(line + b"\n" for line in lines))

    def _made(self, line: Line) -> bytes:
        try:
            return line()
        except Exception as error:  # the log goes on, whatever stood in the line
            return f"a line of the log could not be written: {error!r}".encode(errors="replace")

    def _write(self, content: bytes) -> None:
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            return  # nobody can be told: the log itself is gone
