"""Writes and reads the frames between a supervisor and its workers: msgpack, each after its length.

The supervisor begins with `Begin`; a worker sends `Serving` once it serves, and `Farewell` when it
ends normally. Either side may send a `Query`, which the other answers with a `Reply`; so does a
process that gets a changed configuration in a `Reload`.
"""

import msgspec


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """Gives a new process its configuration and its role."""

    config: bytes  # JSON
    number: int  # 1, 2 and so on; 0: the engines
    listeners: tuple[int, ...]  # listening sockets' descriptors; none: the worker makes them
    key: str  # to the shared engines
    engines: bytes = b"[]"  # JSON: the backends that the shared engines serve, as configured
    is_successor: bool = False  # the worker before it goes on until this one serves


class Serving(msgspec.Struct, frozen=True, array_like=True, tag="serving"):
    """Says that the worker serves."""


class Farewell(msgspec.Struct, frozen=True, array_like=True, tag="farewell"):
    """Ends a worker's channel, and leaves its metrics."""

    metrics: bytes


class Query(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """Asks for what a word names."""

    id: int
    word: str


class Reload(msgspec.Struct, frozen=True, array_like=True, tag="reload"):
    """Gives a process a changed configuration; the `Reply` is what is wrong with it, or empty."""

    id: int
    config: bytes  # JSON; empty: the new configuration was wrong, and is to be counted
    engines: bytes = b"[]"  # as in `Begin`


class Reply(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """Answers the query or reload of that id."""

    id: int
    body: bytes


Frame = Begin | Serving | Farewell | Query | Reload | Reply
