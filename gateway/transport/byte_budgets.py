"""Bounds what tenants have in this process's memory: bytes in flight, and bytes remembered.

In flight is what is being read, waits or runs: beyond the bound a request is refused. Remembered is
what connections keep to be continued: beyond the bound the tenant's own oldest goes. Where all
tenants together have too much, whoever has most is refused, or loses its oldest, first.

What goes back to a deleted response is dropped, too. To find it means to look at all that is
remembered, so that this is done for many at a time; meanwhile `deleted` says which they are.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

import msgspec

MAX_DELETED = 1_000  # deleted responses; at more of them all memories are looked at
ASCII_WEIGHT, WIDE_WEIGHT = 1, 4  # bytes in memory of one of a text's characters, at most


def text_sizes(text: str) -> tuple[int, int]:
    """Returns a text's bytes on the wire, and what it and what is decoded from it take at most."""
    num_chars = len(text)
    if text.isascii():
        return num_chars, num_chars * ASCII_WEIGHT
    return len(text.encode(errors="replace")), num_chars * WIDE_WEIGHT


class ByteBudgets:
    """Bounds the bytes in flight, by tenant."""

    def __init__(self, max_tenant_bytes: int, max_bytes: int) -> None:
        self.max_tenant_bytes = max_tenant_bytes
        self._max_bytes = max_bytes
        self._by_tenant: dict[str, int] = {}
        self.num_bytes = 0
        self.num_refused = 0

    def take(self, tenant_id: str, num_bytes: int) -> bool:
        """Counts bytes; returns false, and counts none, if the tenant has too many.

        Nobody is refused the first ones: the bound of a message holds for those.
        """
        has = self._by_tenant.get(tenant_id, 0)
        if has and not self._fits(has + num_bytes, num_bytes):
            self.num_refused += 1
            return False
        self._by_tenant[tenant_id] = has + num_bytes
        self.num_bytes += num_bytes
        return True

    def _fits(self, would_have: int, num_bytes: int) -> bool:
        if would_have > self.max_tenant_bytes:
            return False
        if self.num_bytes + num_bytes <= self._max_bytes:
            return True
        return would_have <= self._max_bytes // len(self._by_tenant)  # a fair share, even so

    def give(self, tenant_id: str, num_bytes: int) -> None:
        """Counts bytes no more."""
        self.num_bytes -= num_bytes
        left = self._by_tenant.get(tenant_id, 0) - num_bytes
        if left > 0:
            self._by_tenant[tenant_id] = left
        else:
            self._by_tenant.pop(tenant_id, None)


class Memory(msgspec.Struct, eq=False):
    """Is something remembered for a tenant."""

    tenant_id: str
    num_bytes: int
    drop: Callable[[], None]
    ids: tuple[str, ...] = ()  # of the stored responses that it holds what was said in


class MemoryBudgets:
    """Bounds the bytes remembered, by tenant, and drops the oldest first."""

    def __init__(self, max_tenant_bytes: int, max_bytes: int) -> None:
        self._max_tenant_bytes = max_tenant_bytes
        self._max_bytes = max_bytes
        self._by_tenant: dict[str, OrderedDict[Memory, None]] = {}
        self._totals: dict[str, int] = {}
        self.num_bytes = 0
        self.num_dropped = 0
        self.deleted: dict[str, None] = {}  # ids of deleted responses, the latest last

    def delete(self, response_id: str) -> None:
        """Lets nothing be continued any more that goes back to this response."""
        self.deleted[response_id] = None
        if len(self.deleted) > MAX_DELETED:
            self._drop_deleted()
            # What runs now is remembered when it ends: the latest are looked for again.
            for old in list(islice(self.deleted, MAX_DELETED // 2)):
                del self.deleted[old]

    def _drop_deleted(self) -> None:
        deleted, own = self.deleted.keys(), self._by_tenant.values()
        all_memories = (memory for each in own for memory in each)
        for memory in [each for each in all_memories if not deleted.isdisjoint(each.ids)]:
            memory.drop()
            self.remove(memory)

    def add(self, memory: Memory) -> None:
        """Counts a memory; where that makes too much, drops older ones, the oldest first."""
        memories = self._by_tenant.get(memory.tenant_id)
        if memories is None:
            memories = self._by_tenant[memory.tenant_id] = OrderedDict()
        memories[memory] = None
        num_bytes = self._count(memory.tenant_id, memory.num_bytes)
        if num_bytes > self._max_tenant_bytes or self.num_bytes > self._max_bytes:
            self._make_room(memory)

    def grow(self, memory: Memory, num_bytes: int) -> None:
        """Counts more bytes for a memory, which took over what another had."""
        memory.num_bytes += num_bytes
        self._count(memory.tenant_id, num_bytes)

    def remove(self, memory: Memory) -> None:
        """Counts a memory no more; harmless when repeated."""
        memories = self._by_tenant.get(memory.tenant_id, OrderedDict())
        if memory not in memories:
            return
        del memories[memory]
        self._count(memory.tenant_id, -memory.num_bytes)
        if not memories:
            del self._by_tenant[memory.tenant_id], self._totals[memory.tenant_id]

    def forget(self, tenant_id: str) -> None:
        """Drops all that is remembered for a tenant."""
        while memories := self._by_tenant.get(tenant_id):
            memory = next(iter(memories))
            memory.drop()
            self.remove(memory)

    def _count(self, tenant_id: str, num_bytes: int) -> int:
        """Counts bytes, and returns how many its tenant has."""
        total = self._totals[tenant_id] = self._totals.get(tenant_id, 0) + num_bytes
        self.num_bytes += num_bytes
        return total

    def _make_room(self, newest: Memory) -> None:
        while self._totals[newest.tenant_id] > self._max_tenant_bytes:
            if not self._drop_oldest(newest.tenant_id, newest):
                break
        while self.num_bytes > self._max_bytes:
            largest = max(self._totals, key=self._totals.__getitem__)
            if not self._drop_oldest(largest, newest):
                break

    def _drop_oldest(self, tenant_id: str, newest: Memory) -> bool:
        oldest = next(iter(self._by_tenant[tenant_id]))
        if oldest is newest:
            return False
        self.num_dropped += 1
        oldest.drop()
        self.remove(oldest)
        return True


@dataclass(frozen=True, slots=True)
class Budgets:
    """Holds both kinds; by default with bounds that nobody meets."""

    in_flight: ByteBudgets = field(default_factory=lambda: ByteBudgets(1 << 40, 1 << 40))
    memory: MemoryBudgets = field(default_factory=lambda: MemoryBudgets(1 << 40, 1 << 40))
