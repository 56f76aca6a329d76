"""Remembers a connection's last responses, so that `store: false` chains work on it."""

from collections import OrderedDict

import msgspec

from backends.contract import ContextItem
from gateway.wire.steering import Steer
from gateway.wire.stored_response import Lineage

# Ours; the protocol promises only the latest of each stream. It must exceed the streams of a
# connection (32 named and the default), so that each stream's latest always stays.
MAX_REMEMBERED = 64
# Ours. Shared items are counted in each context, so the memory in use is less.
MAX_REMEMBERED_BYTES = 256 << 20


class Remembered(msgspec.Struct):
    """A finished response that can be continued; contexts share their items."""

    stream_id: str | None
    items: tuple[ContextItem, ...]
    backend: str | None
    lineage: Lineage
    num_bytes: int = 0  # of the frames its context came in, and of its output
    steers: list[Steer] = []  # accepted, waiting for the outputs of its calls


class RecentResponses:
    """Holds the last responses of one connection, above all the latest of each stream."""

    def __init__(
        self, max_remembered: int = MAX_REMEMBERED, max_bytes: int = MAX_REMEMBERED_BYTES
    ) -> None:
        self._max_remembered = max_remembered
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._responses: OrderedDict[str, Remembered] = OrderedDict()
        self._latest: dict[str | None, str] = {}

    def remember(self, response_id: str, response: Remembered) -> None:
        """Keeps a response; evicts the oldest, preferably not its stream's latest."""
        self._responses[response_id] = response
        self._latest[response.stream_id] = response_id
        self._num_bytes += response.num_bytes
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

    def forget(self, response_id: str, *, only_from: str | None) -> None:
        """Drops a response, if that stream produced it."""
        response = self._responses.get(response_id)
        if response is not None and response.stream_id == only_from:
            self._drop(response_id)

    def _drop(self, response_id: str) -> None:
        response = self._responses.pop(response_id)
        self._num_bytes -= response.num_bytes
        if self._latest.get(response.stream_id) == response_id:
            del self._latest[response.stream_id]
