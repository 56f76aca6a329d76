"""Writes the log in a thread of its own, so that no stream waits for a blocked pipe or a full disk.

This is an edge.
"""

import os
import queue
import threading
from collections.abc import Callable

MAX_QUEUED = 10_000  # lines; about 5 MB at most
MAX_BATCH = 500  # lines in one write
CLOSE_TIMEOUT_S = 2.0  # for what is queued when the process ends

Line = Callable[[], bytes]  # makes the line, without its end: done in the thread, too


class LogWriter:
    """Writes lines to a file descriptor; drops and counts them while its reader is too slow."""

    def __init__(self, descriptor: int, tell_dropped: Callable[[int], bytes]) -> None:
        """`tell_dropped` makes the line that says how many lines are missing."""
        self._descriptor = descriptor
        self._tell_dropped = tell_dropped
        self._queue: queue.Queue[Line | None] = queue.Queue(MAX_QUEUED)
        self._num_dropped = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, line: Line) -> None:
        """Takes a line without waiting."""
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            self._num_dropped += 1

    def close(self) -> None:
        """Writes what is queued and stops; lines left after `CLOSE_TIMEOUT_S` are lost."""
        try:
            self._queue.put(None, timeout=CLOSE_TIMEOUT_S)
        except queue.Full:
            return
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            batch = [self._queue.get()]
            while batch[-1] is not None and len(batch) < MAX_BATCH and not self._queue.empty():
                batch.append(self._queue.get())  # this thread is the only reader
            is_over = batch[-1] is None
            lines = [self._made(line) for line in batch if line is not None]
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
