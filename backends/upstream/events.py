"""Events as an upstream's protocol has them, from the bytes of a read: decoded together.

What is no event ends its stream. Those before it still count.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from backends.upstream.errors import Failure, broken

_Event = TypeVar("_Event")


def decoded(
    decode: Callable[[bytes], _Event], messages: Sequence[bytes], backend: str
) -> tuple[list[_Event], Failure | None]:
    """The events up to the first message that is none, and the failure which that one is."""
    events: list[_Event] = []
    try:
        for message in messages:
            events.append(decode(message))  # noqa: PERF401 -- what came before a fault is kept
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return events, broken(backend, f"the upstream sent no event: {error}")
    return events, None
