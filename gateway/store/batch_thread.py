"""Works off a bounded queue in batches in a thread of its own, so that no stream waits for a disk.

This is an edge.
"""

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_BATCH = 500  # items that are handled at once


class BatchThread(Generic[T]):
    """Hands what it is given to `handle`, which runs in the thread and must not raise."""

    def __init__(self, name: str, handle: Callable[[list[T]], None], max_queued: int) -> None:
        """Starts at once; the thread does not keep the process alive."""
        self._handle = handle
        self._queue: queue.Queue[T | None] = queue.Queue(max_queued)  # None is its end
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T) -> bool:
        """Takes an item without waiting; returns False where the queue is full."""
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            return False
        return True

    def close(self, timeout_s: float) -> bool:
        """Handles what is queued, and stops; returns False where that takes longer."""
        try:
            self._queue.put(None, timeout=timeout_s)
        except queue.Full:
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        is_over = False
        while not is_over:
            batch = [self._queue.get()]
            while batch[-1] is not None and len(batch) < MAX_BATCH and not self._queue.empty():
                batch.append(self._queue.get())  # this thread is the only reader
            is_over = batch[-1] is None
            if items := [item for item in batch if item is not None]:
                self._handle(items)
