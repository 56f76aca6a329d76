"""Remembers a connection's last responses, so that `store: false` chains work on it."""

from collections import OrderedDict
from functools import partial

import msgspec

from backends.contract import ContextItem
from gateway.store.stored_response import Lineage
from gateway.transport.byte_budgets import Memory, MemoryBudgets
from gateway.wire.steering import Steer

# This bound is ours; the protocol promises only the latest of each stream. It must exceed the
# streams of a connection (32 named and the default), so that each stream's latest always stays.
MAX_REMEMBERED = 64
MAX_REMEMBERED_BYTES = 256 << 20  # ours; the tenant's bound holds as well


class Remembered(msgspec.Struct):
    """Is a finished response that can be continued; contexts share their items."""

    stream_id: str | None
    items: tuple[ContextItem, ...]
    backend: str | None
    lineage: Lineage
    # Of the frames that it brought and of its output; and of those before it that are dropped,
    # since its context holds their items.
    num_bytes: int = 0
    parent_id: str | None = None
    steers: list[Steer] = []  # accepted, waiting for the outputs of its calls
    children: list[str] = []
    num_events: int = 0  # that were sent about it, those after its end included
    memory: Memory | None = None  # as it is counted for its tenant


class RecentResponses:
    """Holds the last responses of one connection, above all the latest of each stream."""

    def __init__(
        self,
        max_remembered: int = MAX_REMEMBERED,
        max_bytes: int = MAX_REMEMBERED_BYTES,
        *,
        tenant_id: str = "",
        budgets: MemoryBudgets | None = None,
    ) -> None:
        self._max_remembered = max_remembered
        self._max_bytes = max_bytes
        self._tenant_id = tenant_id
        self._budgets = budgets or MemoryBudgets(max_bytes, max_bytes)
        self._num_bytes = 0
        self._responses: OrderedDict[str, Remembered] = OrderedDict()
        self._latest: dict[str | None, str] = {}

    def remember(self, response_id: str, response: Remembered) -> None:
        """Keeps a response; evicts the oldest, preferably not its stream's latest."""
        self._responses[response_id] = response
        self._latest[response.stream_id] = response_id
        self._num_bytes += response.num_bytes
        if response.parent_id is not None:
            parent = self._responses.get(response.parent_id)
            if parent is not None:
                parent.children.append(response_id)
        drop, ids = partial(self._drop, response_id), response.lineage.ids
        memory = Memory(self._tenant_id, response.num_bytes, drop, ids)
        response.memory = memory
        self._budgets.add(memory)
        while len(self._responses) > self._max_remembered or self._num_bytes > self._max_bytes:
            kept = self._latest.values()
            oldest = next((key for key in self._responses if key not in kept), None)
            if oldest is None:
                oldest = next(iter(self._responses))
                if oldest == response_id or self._num_bytes <= self._max_bytes:
                    return  # the newest always stays
            self._drop(oldest)

    def get(self, response_id: str) -> Remembered | None:
        """Returns a response, or None if it is not remembered."""
        return self._responses.get(response_id)

    def to_continue(self, response_id: str) -> Remembered | None:
        """Returns a response that may be continued: none that goes back to a deleted one."""
        found, deleted = self._responses.get(response_id), self._budgets.deleted
        if found is None or not deleted or deleted.keys().isdisjoint(found.lineage.ids):
            return found
        self._drop(response_id)
        return None

    @property
    def ids(self) -> tuple[str, ...]:
        """Returns the responses that it holds."""
        return tuple(self._responses)

    def forget(self, response_id: str, *, only_from: str | None) -> None:
        """Drops a response, if that stream produced it."""
        response = self._responses.get(response_id)
        if response is not None and response.stream_id == only_from:
            self._drop(response_id)

    def clear(self) -> None:
        """Drops all, at the end of the connection."""
        for response in self._responses.values():
            if response.memory is not None:
                self._budgets.remove(response.memory)
        self._responses.clear()

    def _drop(self, response_id: str) -> None:
        response = self._responses.pop(response_id)
        self._num_bytes -= response.num_bytes
        if self._latest.get(response.stream_id) == response_id:
            del self._latest[response.stream_id]
        assert response.memory is not None  # set when it was remembered
        self._budgets.remove(response.memory)
        for child_id in response.children:
            child = self._responses.get(child_id)
            if child is None or child.memory is None:
                continue
            child.num_bytes += response.num_bytes  # its context holds what this one brought
            self._num_bytes += response.num_bytes
            self._budgets.grow(child.memory, response.num_bytes)
