"""Works off a bounded queue in batches in a thread of its own, so that no stream waits for a disk.

This is an edge.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_BATCH = 500  # items that are handled at once
# An item waits so long for others: to wake the thread for each one costs the event loop, which
# shares the interpreter with it, a tenth of a short task (230 of 1,770 CPU-us, 2026-11-23).
GATHER_S = 0.1


class BatchThread(Generic[T]):
    """Hands what it is given to `handle`, which runs in the thread and must not raise."""

    def __init__(self, name: str, handle: Callable[[list[T]], None], max_queued: int) -> None:
        """Starts at once; the thread does not keep the process alive."""
        self._handle = handle
        self._max_queued = max_queued
        self._queue: deque[T] = deque()
        self._is_idle = False  # the thread waits for `_wake`
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._hurried = threading.Event()  # an item is not to wait for others
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T, *, at_once: bool = False) -> bool:
        """Takes an item without waiting; returns False where the queue is full or closed.

        With `at_once` it is handled as soon as the thread can, and all before it.
        """
        if len(self._queue) >= self._max_queued or self._closing.is_set():
            return False
        self._queue.append(item)
        if at_once:
            self._hurried.set()
        if self._is_idle:
            self._is_idle = False
            self._wake.set()
        return True

    def close(self, timeout_s: float) -> bool:
        """Handles what is queued, and stops; returns False where that takes longer."""
        self._closing.set()
        self._hurried.set()
        self._wake.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while self._queue or not self._closing.is_set():
            if not self._queue:
                self._wait()
            self._hurried.wait(GATHER_S)
            self._hurried.clear()
            while size := min(len(self._queue), MAX_BATCH):
                self._handle([self._queue.popleft() for _ in range(size)])

    def _wait(self) -> None:
        """Waits for an item or the end; one that comes as it begins to is not missed."""
        self._wake.clear()
        self._is_idle = True
        if not self._queue and not self._closing.is_set():
            self._wake.wait()
        self._is_idle = False
