"""Keeps the latest response of a stream: its client may have lost the connection before its end."""

from collections.abc import Callable
from functools import partial

import msgspec

from gateway.core.job import Ended, Job
from gateway.transport.byte_budgets import Memory, MemoryBudgets
from gateway.wire.response import ResponseStream

SMALL_BYTES = 64 << 10  # of a request; what is not larger is bounded by its number alone


class Unconfirmed(msgspec.Struct, eq=False):
    """Is the latest response of a stream, whose client may not have received its end."""

    job: Job | None
    writer: ResponseStream | None
    ended: Ended | None
    num_bytes: int
    ended_us: int = 0
    uncount: Callable[[], None] | None = None

    def count(self, memories: MemoryBudgets) -> None:
        """Counts a large response as its tenant's memory, until it is cleared."""
        if self.num_bytes > SMALL_BYTES and self.job is not None:
            memory = Memory(self.job.tenant.id, self.num_bytes, self.clear)
            self.uncount = partial(memories.remove, memory)
            memories.add(memory)

    def clear(self) -> None:
        """Forgets the response: it was received or is old, or its tenant has too much in memory."""
        self.job = self.writer = self.ended = None
        if self.uncount is not None:
            self.uncount()
            self.uncount = None
