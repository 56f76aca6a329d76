"""Finds the stream of an upstream's sockets that is best for a turn, without a look at each."""

from collections.abc import Iterable
from itertools import chain
from typing import Generic, Protocol, TypeVar

from backends.upstream.chain import Chain, ChainKey, Turn


class _Usable(Protocol):
    @property
    def usable(self) -> bool: ...


class FreeStream(Protocol):
    """Is a stream, with the response that its server remembers."""

    chain: Chain | None

    @property
    def socket(self) -> _Usable: ...

    def __hash__(self) -> int: ...


_Stream = TypeVar("_Stream", bound=FreeStream)


class FreeStreams(Generic[_Stream]):
    """Holds the streams that can take a turn, and finds the best without a look at each."""

    def __init__(self) -> None:
        self._by_chain: dict[ChainKey, dict[_Stream, None]] = {}
        # Both hold streams in the order in which they became free.
        self._chained: dict[_Stream, None] = {}
        self._fresh: dict[_Stream, None] = {}  # without a chain

    def add(self, stream: _Stream) -> None:
        if stream.chain is None:
            self._fresh[stream] = None
        else:
            self._chained[stream] = None
            self._by_chain.setdefault(stream.chain.key, {})[stream] = None

    def remove(self, stream: _Stream) -> None:
        """Takes a stream out; harmless if it is not free."""
        self._fresh.pop(stream, None)
        if stream in self._chained and stream.chain is not None:
            del self._chained[stream]
            key = stream.chain.key
            del self._by_chain[key][stream]
            if not self._by_chain[key]:
                del self._by_chain[key]

    def best(self, turn: Turn) -> _Stream | None:
        """Finds the stream with most of the context, else one without a chain, else the idlest."""
        for key in turn.followed_keys() if self._by_chain else ():
            for stream in reversed(self._by_chain.get(key, {})):
                if stream.chain is not None and turn.follows(stream.chain) and stream.socket.usable:
                    return stream
        return _first_usable(chain(reversed(self._fresh), self._chained))

    def fresh(self) -> _Stream | None:
        """Finds one without a chain: the latest, so that the others may expire."""
        return _first_usable(reversed(self._fresh))


def _first_usable(streams: Iterable[_Stream]) -> _Stream | None:
    for stream in streams:
        if stream.socket.usable:
            return stream
    return None
