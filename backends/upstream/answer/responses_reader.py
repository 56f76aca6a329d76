"""Reads an upstream's Responses events up to a terminal event."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from backends.contract import DeltaKind, Finish, FinishReason, GenerateRequest
from backends.sealed_reasoning import wrap
from backends.service_tiers import TierRead
from backends.stop_sequences import StopFinder
from backends.upstream.answer.errors import Failure, WireError, broken, event_failure
from backends.upstream.answer.item_order import MAX_ITEMS
from backends.upstream.answer.reader import NO_BOUNDS, NO_EVENT, Bounds, Reader
from backends.upstream.answer.reported_usage import (
    NO_ANSWER_FIGURES,
    NO_PROMPT_FIGURES,
    Figures,
    ResponsesFigures,
    believed,
)
from backends.upstream.answer.responses_events import (
    DECODE_PIECE,
    TERMINALS,
    TEXT_TYPES,
    Event,
    UpstreamItem,
)

_ITEM_KINDS = {
    "message": DeltaKind.TEXT,
    "reasoning": DeltaKind.REASONING,
    "function_call": DeltaKind.FUNCTION_CALL,
    "custom_tool_call": DeltaKind.CUSTOM_CALL,
}
_PHASES = ("commentary", "final_answer")  # of a message; others are unknown
_REASONS = {  # of an incomplete response
    "max_output_tokens": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}


class ResponsesReader(Reader):
    """Reads one generation's events."""

    def __init__(
        self,
        backend: str,
        request: GenerateRequest,
        wrapped: frozenset[str],
        model: str | None = None,
        bounds: Bounds = NO_BOUNDS,
        tier: TierRead | None = None,
        *,
        keeps_said: bool = False,
    ) -> None:
        """`model` is our id of the model, which tags its encrypted reasoning; None drops that."""
        super().__init__(backend, request, wrapped, bounds, tier, keeps_said=keeps_said)
        self._model = model
        self._num_events = 0  # but for text that only goes on
        self._by_index: dict[int, Hashable] = {}  # output_index -> the item's key
        self._said: set[Hashable] = set()  # items with pieces received
        self._summaries: dict[Hashable, int] = {}  # item -> its latest summary's index
        self._stops: dict[Hashable, StopFinder] = {}
        # Of the latest piece of text, if a next one of its kind and item only needs to be added.
        self._latest_type: str | None = None
        self._latest_id: str | None = None
        self._decode_piece: Callable[[bytes], Any]  # as long: one that only goes on

    def ended(self, now_us: int) -> Finish | None:
        finish, figures = super().ended(now_us), self._figures
        if finish is None or figures is None or finish.reason is not FinishReason.STOP:
            return finish
        # llama.cpp reports "completed" although the token limit has cut the text.
        limit, num_output = self._request.max_output_tokens, figures.num_output or 0
        is_long = self.items.num_tokens + figures.num_hidden >= limit  # else it makes that up
        if num_output == limit or (num_output > limit and is_long):
            return msgspec.structs.replace(finish, reason=FinishReason.LENGTH)
        return finish

    @property
    def goes_on(self) -> bool:
        return self._latest_type is not None and self.items.goes_on(self._latest_id)

    def text_of(self, message: bytes) -> str:
        try:
            piece = self._decode_piece(message)
        except NO_EVENT:
            return ""
        return piece.delta if piece.item_id == self._latest_id else ""

    def _text(self, events: Sequence[Event]) -> str:
        whole = ""
        for event in events:
            text = event.delta
            if not text or event.item_id != self._latest_id or event.type != self._latest_type:
                return ""
            whole += text  # of few events, so that this is the quickest way
        return whole

    def _take_in(self, events: Sequence[Event]) -> bool:
        reason: FinishReason | None = None
        latest_type, latest_id = self._latest_type, self._latest_id
        text, num_pieces = "", 0  # of the latest item, not yet added
        for event in events:
            if event.type == latest_type and event.item_id == latest_id:
                if event.delta:
                    text += event.delta
                    num_pieces += 1
                continue
            if num_pieces:
                self.items.add(latest_id, text, num_pieces)
                text, num_pieces = "", 0
            self._latest_type = None
            self._num_events += 1
            if event.type in TEXT_TYPES:
                self._take_text(event, *TEXT_TYPES[event.type])
                latest_id = self._latest_id
            else:
                reason = self._take_event(event)
            if self._stops:
                found = (finder.found for finder in self._stops.values())
                self._stop_sequence = next(filter(None, found), None)
                if self._stop_sequence is not None:
                    reason = reason or FinishReason.STOP
            if reason is not None:
                for key in self._stops:
                    self._end_text(key)
                self.items.close_all()
                self._reason = reason
                return True
            latest_type = self._latest_type
        if num_pieces:
            self.items.add(latest_id, text, num_pieces)
        return False

    def _take_event(self, event: Event) -> FinishReason | None:
        """Reads an event without text; a terminal one returns how the response ended."""
        response, item = event.response, event.item
        if response is not None:
            self.response_id = self.response_id or response.id
            if response.service_tier is not None:
                self.tier.take(response.service_tier)
        if event.type in TERMINALS:
            return self._take_terminal(event)
        if event.type == "error":
            raise self._error(event)
        if item is not None:
            known = self.items.known.get(item.id)
            # One that is known can only be told its phase, before a piece of it is passed on.
            is_told = known is not None and (known.index >= 0 or not item.phase)
            if not is_told or event.output_index not in self._by_index:
                self._open(item, item.id, event.output_index)
            if event.type == "response.output_item.done":
                self._close(item, self._key(item.id, event.output_index))
        return None

    def _take_text(self, event: Event, kind: DeltaKind, is_delta: bool) -> None:
        key: Hashable = event.item_id
        if key not in self.items.known:
            key = self._key(event.item_id, event.output_index)
        if key not in self.items.known:
            if kind >= DeltaKind.FUNCTION_CALL:
                return  # its name and all of its text come with the item
            self._begin(key, event.output_index, kind)
        if is_delta:
            if kind is DeltaKind.REASONING:
                index = event.summary_index or 0
                if self._summaries.get(key, index) != index:
                    self.items.add(key, "\n\n")  # between two summaries of one item
                self._summaries[key] = index
            self._add(key, kind, event.delta or "")
            is_plain = kind is not DeltaKind.REASONING and not self._stops
            if is_plain and key is not None and key == event.item_id:
                self._latest_type, self._latest_id = event.type, event.item_id
                self._decode_piece = DECODE_PIECE[event.type]
        elif key not in self._said:
            whole = event.text or event.refusal or event.arguments or event.input
            self._add(key, kind, whole or "")

    def _key(self, item_id: str | None, output_index: int | None) -> Hashable:
        """Returns an item's id, or its index if the server's ids are missing or unstable."""
        if item_id is not None and item_id in self.items.known:
            return item_id
        if output_index is not None and output_index in self._by_index:
            return self._by_index[output_index]
        return output_index if item_id is None else item_id

    def _begin(self, key: Hashable, output_index: int | None, kind: DeltaKind, **more: Any) -> None:
        self.items.open(key, kind, **more)
        if output_index is None or output_index in self._by_index:
            return
        if len(self._by_index) < MAX_ITEMS:
            self._by_index[output_index] = key

    def _open(self, item: UpstreamItem, item_id: str | None, output_index: int | None) -> None:
        kind = _ITEM_KINDS.get(item.type)
        if kind is None:
            return  # a hosted tool's, which we never request
        is_text, is_call = kind is DeltaKind.TEXT, kind >= DeltaKind.FUNCTION_CALL
        self._begin(
            self._key(item_id, output_index),
            output_index,
            kind,
            call_id=item.call_id or item.id or "" if is_call else "",
            name=item.name or "" if is_call else "",
            phase=item.phase or "" if is_text and item.phase in _PHASES else "",
        )

    def _close(self, item: UpstreamItem, key: Hashable) -> None:
        kind = _ITEM_KINDS.get(item.type)
        if kind is None:
            return
        if key not in self._said:
            self._add(key, kind, _whole_text(item))
        if kind is DeltaKind.REASONING and item.encrypted_content and self._model is not None:
            self.items.seal(key, wrap(self._model, item.id or "", item.encrypted_content))
        if self._stops:
            self._end_text(key)
        self.items.close(key)

    def _add(self, key: Hashable, kind: DeltaKind, text: str) -> None:
        if not text:
            return
        self._said.add(key)
        if kind is DeltaKind.TEXT and self._request.stop:
            finder = self._stops.get(key)
            if finder is None:
                finder = self._stops[key] = StopFinder(self._request.stop)
            text = finder.feed(text)
        self.items.add(key, text)

    def _end_text(self, key: Hashable) -> None:
        finder = self._stops.get(key)
        if finder is not None and finder.found is None:
            self.items.add(key, finder.rest())

    def _take_terminal(self, event: Event) -> FinishReason:
        response = event.response
        if response is None:
            raise broken(self._backend, f"the upstream sent {event.type} without a response")
        if event.type == "response.failed":
            raise event_failure(self._backend, response.error or WireError("no reason given"))
        if not self._by_index and not self._said:
            for index, item in enumerate(response.output or ()):
                self._open(item, item.id, index)
                self._close(item, self._key(item.id, index))
        if response.usage is not None:
            self._figures = _figures(response.usage)
        if event.type == "response.incomplete":
            said = response.incomplete_details and response.incomplete_details.reason
            reason = _REASONS.get(said or "")
            if reason is None:
                message = f"the upstream cut its answer: {said or 'no reason given'}"
                raise broken(self._backend, message)
            return reason
        return FinishReason.STOP

    def _error(self, event: Event) -> Failure:
        error = event.error or WireError(event.message, event.code)
        status = event.status if isinstance(event.status, int) else None
        failure = event_failure(self._backend, error, status=status, headers=event.headers)
        failure.unused = self._num_events == 1  # as if it were an HTTP status
        return failure


def _figures(reported: Any) -> Figures:
    usage, is_odd = believed(reported, ResponsesFigures)
    details = usage.input_tokens_details or NO_PROMPT_FIGURES
    num_reasoning = (usage.output_tokens_details or NO_ANSWER_FIGURES).reasoning_tokens or 0
    return Figures(
        num_input=usage.input_tokens,
        num_output=usage.output_tokens,
        num_cached=details.cached_tokens or 0,
        num_cache_write=details.cache_write_tokens or 0,
        num_reasoning=num_reasoning,
        num_hidden=num_reasoning,
        is_odd=is_odd,
    )


def _whole_text(item: UpstreamItem) -> str:
    if item.type == "reasoning":
        parts = item.summary or item.content or ()
        if isinstance(parts, str):
            return parts
        return "\n\n".join(part.text or "" for part in parts)
    if item.type == "message":
        if isinstance(item.content, str):
            return item.content
        return "".join(part.text or part.refusal or "" for part in item.content or ())
    return item.arguments or item.input or ""
