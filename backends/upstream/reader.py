"""Holds what the readers of both protocols share: events come in, deltas and one finish come out.

A stream that ends without a finish reason was cut, whatever it sent before.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from backends.contract import Delta, Finish, FinishReason, GenerateRequest, Usage
from backends.upstream.errors import Failure, broken
from backends.upstream.item_order import ItemOrder, TooMuchError

_Event = TypeVar("_Event")


class TokenDetails(msgspec.Struct, frozen=True):
    """Holds a server's details on the tokens that it counts."""

    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


def decoded(
    decode: Callable[[bytes], _Event], messages: Sequence[bytes], backend: str
) -> tuple[list[_Event], Failure | None]:
    """Decodes messages up to the first invalid one, and returns that one's failure."""
    events: list[_Event] = []
    try:
        for message in messages:
            events.append(decode(message))  # noqa: PERF401 -- what came before a fault is kept
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return events, broken(backend, f"the upstream sent no event: {error}")
    return events, None


class Reader:
    """Reads one generation's events, until `finish` or `failure` is set."""

    def __init__(self, backend: str, request: GenerateRequest, wrapped: frozenset[str]) -> None:
        """`wrapped` names the custom tools that the upstream knows as functions."""
        self.finish: Finish | None = None
        self.failure: Failure | None = None  # counts after the deltas that came with it
        self.response_id: str | None = None  # the upstream's own, where it names responses
        self._backend = backend
        self._request = request
        self._items = ItemOrder(wrapped)
        self._reason: FinishReason | None = None  # once the upstream has sent it
        self._usage: Usage | None = None  # as the upstream counts

    def read(self, events: Sequence[Any], now_us: int) -> list[Delta]:
        """Reads events that came together; may set `finish` or `failure`."""
        is_over = False
        try:
            is_over = self._take_in(events)
        except Failure as failure:
            self.failure = failure
        except TooMuchError as error:
            self.failure = broken(self._backend, f"the upstream sent {error}")
        deltas = self._items.take(now_us)
        if is_over:
            self.finish = self.ended(now_us)
            if self.finish is None:
                self.failure = broken(self._backend, "the upstream ended without a finish reason")
        return deltas

    def ended(self, now_us: int) -> Finish | None:
        """Returns the finish at the stream's end; None if the upstream has sent no reason."""
        if self._reason is None:
            return None
        return Finish(self._reason, self._usage or self.usage(), now_us)

    def usage(self) -> Usage:
        """Returns the usage, by our own count if the upstream has not sent one."""
        return Usage(
            num_input_tokens=self._request.num_prompt_tokens,
            num_output_tokens=self._items.num_tokens,
            num_reasoning_tokens=self._items.num_reasoning_tokens,
            exact=False,
        )

    def _take_in(self, events: Sequence[Any]) -> bool:
        """Reads events; returns True once no later event matters.

        Raises the `Failure` or `TooMuchError` of an event; the events before it count.
        """
        raise NotImplementedError

    def _count(
        self, num_input: int, num_output: int, read: TokenDetails | None, said: TokenDetails | None
    ) -> None:
        """Records the upstream's usage, with its details on input (`read`) and output (`said`)."""
        self._usage = Usage(
            num_input_tokens=num_input,
            num_cached_tokens=(read.cached_tokens or 0) if read else 0,
            num_output_tokens=num_output,
            num_reasoning_tokens=(said.reasoning_tokens or 0) if said else 0,
        )
