"""Holds what the readers of both protocols share: events come in, deltas and one finish come out.

A stream that ends without a finish reason was cut, whatever it sent before.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from backends.bounds import OutputMeter, bounded_usage
from backends.contract import Delta, Finish, FinishReason, GenerateRequest, Usage
from backends.service_tiers import TierRead
from backends.tokenizer import count
from backends.upstream.answer.errors import Failure, broken
from backends.upstream.answer.item_order import ItemOrder, TooMuchError
from backends.upstream.answer.reported_usage import Figures

# An answer may have so many events without text: some servers send one or two for each token.
SPARE_EVENTS, EVENTS_PER_TOKEN = 4_000, 4

# Some servers write "" for the arguments of a call, which clients cannot decode.
NO_ARGUMENTS = "{}"

_Event = TypeVar("_Event")
NO_EVENT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decoded(
    decode: Callable[[bytes], _Event], messages: Sequence[bytes], backend: str
) -> tuple[list[_Event], Failure | None]:
    """Decodes messages up to the first invalid one, and returns that one's failure.

    Callers decode all messages in one go, and call this only if that raises one of `NO_EVENT`.
    """
    events: list[_Event] = []
    try:
        for message in messages:
            events.append(decode(message))  # noqa: PERF401 -- what came before a fault is kept
    except NO_EVENT as error:
        return events, broken(backend, f"the upstream sent no event: {error}")
    return events, None


class Bounds(msgspec.Struct, frozen=True, gc=False):
    """Bounds an answer and its usage, beside the request's limit in tokens."""

    max_answer_bytes: int | None = None
    # What the upstream can count for the prompt once that was sent; asked only if it counts more
    # than we do.
    max_input_tokens: Callable[[], int] | None = None


NO_BOUNDS = Bounds()


class Reader:
    """Reads one generation's events, until `finish` or `failure` is set."""

    finish: Finish | None = None
    failure: Failure | None = None  # counts after the deltas that came with it
    # Once the upstream has sent it: the answer is whole, and only its usage may be missing.
    reason: FinishReason | None = None
    response_id: str | None = None  # the upstream's own, where it names responses
    _stop_sequence: str | None = None  # that ended the text, where that is known
    _figures: Figures | None = None  # as the upstream counts, still to be bounded

    def __init__(
        self,
        backend: str,
        request: GenerateRequest,
        wrapped: frozenset[str],
        bounds: Bounds = NO_BOUNDS,
        tier: TierRead | None = None,
        *,
        keeps_said: bool = False,
    ) -> None:
        """`wrapped` names the custom tools that the upstream knows as functions.

        `items.said` can be asked if it `keeps_said`.
        """
        self.tier = tier or TierRead()
        self._backend = backend
        self._request = request
        self._max_input_tokens = bounds.max_input_tokens
        max_tokens = request.max_output_tokens
        self._num_idle_events_left = SPARE_EVENTS + EVENTS_PER_TOKEN * max_tokens
        self.meter = meter = OutputMeter(max_tokens, bounds.max_answer_bytes)
        num_free_tokens = meter.num_free_tokens()
        most = num_free_tokens if num_free_tokens < max_tokens else max_tokens
        self.items = ItemOrder(wrapped, meter, keeps_said, most)

    @property
    def is_overrun(self) -> bool:
        """Returns whether the upstream went on beyond the limit; what it says then is dropped."""
        return self.meter.is_over

    def text_of(self, message: bytes) -> str:
        """Returns the text of a message that only goes on with the open item; "" if it does not.

        It may be asked only once `goes_on` says so, until the next `read`. Whoever passes the text
        on does it as `ItemOrder.goes_on` says.
        """
        raise NotImplementedError

    def more(self, events: Sequence[Any]) -> tuple[str, int] | None:
        """Returns the text of events that only go on with the open item, and its tokens.

        None if they do not, or the meter must see the text: then nothing was read, and `read` does
        it, which is the plain twin. It may be asked only once `goes_on` says so.
        """
        text = self._text(events)
        if not text:
            return None
        num_tokens = count(text)
        if num_tokens < len(events):
            num_tokens = len(events)
        items = self.items
        passed_tokens = items.num_tokens + num_tokens
        if passed_tokens > items.max_unmeasured_tokens:
            return None
        items.num_tokens = passed_tokens
        items.unmeasured.append(text)
        return text, num_tokens

    @property
    def goes_on(self) -> bool:
        """Says whether `more` and `text_of` may be asked, until the next `read`."""
        raise NotImplementedError

    def _text(self, events: Sequence[Any]) -> str:
        """Returns the text of events that only go on with the open item; "" if one does not."""
        raise NotImplementedError

    def read(self, events: Sequence[Any], now_us: int) -> list[Delta]:
        """Reads events that came together; may set `finish` or `failure`."""
        is_over = False
        try:
            is_over = self._take_in(events)
        except Failure as failure:
            self.failure = failure
        except TooMuchError:
            deltas = self.items.take(now_us)
            self.finish = self.cut(now_us)
            return deltas
        deltas = self.items.take(now_us)
        if not deltas:
            self._num_idle_events_left -= len(events)
            if self._num_idle_events_left < 0:
                self.items.stop()
        if self.meter.is_over:
            self.failure, self.finish = None, self.cut(now_us)
        elif is_over:
            self.finish = self.ended(now_us)
            if self.finish is None:
                self.failure = broken(self._backend, "the upstream ended without a finish reason")
        return deltas

    def cut(self, now_us: int) -> Finish:
        """Ends the answer here, as its upstream goes on beyond its limits."""
        self.items.stop()
        self.reason = FinishReason.LENGTH
        return self._finish(self.reason, now_us)

    def ended(self, now_us: int) -> Finish | None:
        """Returns the finish at the stream's end; None if the upstream has sent no reason."""
        return None if self.reason is None else self._finish(self.reason, now_us)

    def _finish(self, reason: FinishReason, now_us: int) -> Finish:
        """Makes the finish, for a reason that may be another than the upstream's own."""
        figures = self._figures
        usage = self.usage() if figures is None else self._charged(figures)
        stop = self._stop_sequence if self.reason is FinishReason.STOP else None
        return Finish(reason, usage, now_us, None, stop)

    def usage(self) -> Usage:
        """Returns the usage, by our own count if the upstream has not sent one."""
        return Usage(
            num_input_tokens=self._request.num_prompt_tokens,
            num_output_tokens=self.items.num_tokens,
            num_reasoning_tokens=self.items.num_reasoning_tokens,
            exact=False,
            service_tier=self.tier.billed,
        )

    def _take_in(self, events: Sequence[Any]) -> bool:
        """Reads events; returns True once no later event matters.

        Raises the `Failure` or `TooMuchError` of an event; the events before it count.
        """
        raise NotImplementedError

    def _charged(self, figures: Figures) -> Usage:
        """Bounds what the upstream reports by what was sent to it, and by what it streamed."""
        request, items, meter = self._request, self.items, self.meter
        own_input, own_output = request.num_prompt_tokens, items.num_tokens
        num_input, num_output = figures.num_input, figures.num_output
        usage = Usage(
            num_input_tokens=own_input if num_input is None else num_input,
            num_cached_tokens=figures.num_cached,
            num_output_tokens=own_output if num_output is None else num_output,
            num_reasoning_tokens=figures.num_reasoning,
            exact=num_input is not None and num_output is not None,
            bounded=figures.is_odd,
            num_accepted_tokens=figures.num_accepted,
            num_rejected_tokens=figures.num_rejected,
            num_cache_write_tokens=figures.num_cache_write,
            service_tier=self.tier.billed,
        )
        max_input = usage.num_input_tokens
        if max_input > own_input and self._max_input_tokens is not None:
            max_input = self._max_input_tokens()
        least_bytes: int | None = own_output  # a token that was let through has one at least
        if meter.is_over or usage.num_output_tokens > own_output:
            items.measure()
            least_bytes = None
        return bounded_usage(
            usage, meter, max_input, figures.num_hidden, request.prediction, least_bytes
        )
