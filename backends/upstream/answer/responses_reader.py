"""Reads an upstream's Responses events up to a terminal event."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from backends.contract import (
    FUNCTION_CALL,
    REASONING,
    TEXT,
    DeltaKind,
    Finish,
    FinishReason,
    GenerateRequest,
)
from backends.sealed_reasoning import wrap
from backends.service_tiers import TierRead
from backends.upstream.answer.errors import Failure, WireError, broken, event_failure
from backends.upstream.answer.item_keys import ItemKeys
from backends.upstream.answer.reader import NO_ARGUMENTS, NO_BOUNDS, NO_EVENT, Bounds, Reader
from backends.upstream.answer.reported_usage import (
    NO_ANSWER_FIGURES,
    NO_PROMPT_FIGURES,
    Figures,
    ResponsesFigures,
    believed,
)
from backends.upstream.answer.responses_events import (
    DECODE_PIECE,
    ITEM_KINDS,
    PART_KINDS,
    PIECE_KINDS,
    REFUSAL_DELTA,
    TERMINALS,
    WHOLE_KINDS,
    Event,
    UpstreamItem,
    UpstreamResponse,
    item_texts,
    refuses,
)
from backends.upstream.answer.said_texts import SaidTexts

_ITEM_DONE = "response.output_item.done"
_ENDS = frozenset({*TERMINALS, "error"})
_PHASES = ("commentary", "final_answer")  # of a message; others are unknown
_REASONS = {  # of an incomplete response
    "max_output_tokens": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}


_STOP = FinishReason.STOP  # looked up once, as the kinds are
_head_of = attrgetter("type", "item_id")
_piece_of = attrgetter("delta")


class ResponsesReader(Reader):
    """Reads one generation's events."""

    _first: Event | None = None  # of all events
    # The id and the text of an item, if that was just told as a whole and nothing is missing.
    _whole: tuple[Hashable, str] | None = None
    # Type and item of the latest piece of text, if a next one of these only needs to be added.
    _latest: tuple[str, str | None] | None = None
    _latest_id: str | None = None  # that item's
    _decode_piece: Callable[[bytes], Any]  # as long: one that only goes on

    def __init__(
        self,
        backend: str,
        request: GenerateRequest,
        wrapped: frozenset[str],
        model: str | None = None,
        bounds: Bounds = NO_BOUNDS,
        tier: TierRead | None = None,
    ) -> None:
        """`model` is our id of the model, which tags its encrypted reasoning; None drops that."""
        super().__init__(backend, request, wrapped, bounds, tier, keeps_said=True)
        self._model = model
        self._keys = ItemKeys(self.items.known)
        self._texts = SaidTexts(self.items, request.stop)
        self._done: dict[str | None, UpstreamItem] = {}  # the items that are done, by their ids
        self._bare: set[Hashable] = set()  # calls that are done, and had no arguments yet

    def ended(self, now_us: int) -> Finish | None:
        reason, figures = self.reason, self._figures
        if reason is None:
            return None
        if figures is not None and reason is _STOP:
            # llama.cpp reports "completed" although the token limit has cut the text.
            limit, num_output = self._request.max_output_tokens, figures.num_output or 0
            is_long = self.items.num_tokens + figures.num_hidden >= limit  # else it makes that up
            if num_output == limit or (num_output > limit and is_long):
                reason = FinishReason.LENGTH
        return self._finish(reason, now_us)

    @property
    def goes_on(self) -> bool:
        return self._latest is not None and self.items.goes_on(self._latest_id)

    def text_of(self, message: bytes) -> str:
        try:
            piece = self._decode_piece(message)
        except NO_EVENT:
            return ""
        return piece.delta if piece.item_id == self._latest_id else ""

    def _text(self, events: Sequence[Event]) -> str:
        whole = ""
        latest = self._latest
        for event in events:
            text = event.delta
            if not text or (event.type, event.item_id) != latest:
                return ""
            whole += text  # of few events, so that this is the quickest way
        return whole

    def _take_in(self, events: Sequence[Event]) -> bool:
        self._first = self._first or next(iter(events), None)
        stops, reason = self._texts.stops, None
        for head, run in groupby(events, _head_of):
            if head == self._latest:
                self._add(run)
                continue
            self._latest = None
            for event in run:
                if event.type in PIECE_KINDS:
                    self._take_piece(event, PIECE_KINDS[event.type])
                    if self._latest is not None:
                        self._add((event, *run))  # noqa: B031 -- all that is left of it
                elif event.type in WHOLE_KINDS:
                    self._take_part(event, WHOLE_KINDS[event.type])
                elif event.response is not None or event.type in _ENDS:
                    reason = self._take_response(event)
                elif event.item is not None:
                    self._take_item(event, event.item)
                if stops:
                    self._stop_sequence = self._texts.found_stop()
                    reason = reason if self._stop_sequence is None else reason or _STOP
                if reason is not None:
                    self._take_end(reason)
                    return True
        return False

    def _add(self, pieces: Iterable[Event]) -> None:
        """Adds pieces that only go on with the latest text."""
        texts = [*filter(None, map(_piece_of, pieces))]
        if texts:
            self.items.add(self._latest_id, "".join(texts), len(texts))

    def _take_end(self, reason: FinishReason) -> None:
        """Ends all items, as nothing of them follows."""
        for key in self._texts.stops:
            self._texts.end(key)
        if reason is _STOP and self._bare:
            self._complete_bare()
        self.items.close_all()
        self.reason = reason

    def _take_item(self, event: Event, item: UpstreamItem) -> None:
        kind = ITEM_KINDS.get(item.type)
        if kind is None:
            return
        output_index, is_done = event.output_index, event.type == _ITEM_DONE
        key: Hashable = item.id or item.call_id
        known = self.items.known.get(key)
        if known is None:
            key = self._keys.find(item.id or item.call_id, output_index, kind, is_added=not is_done)
            if is_done:
                key = self._begun(key, output_index, kind, item_texts(item))
            self._open(item, key, kind)
            self._keys.note(key, output_index)
        elif known.index < 0 and (item.phase or refuses(item)):
            # It can be told what it is until a piece of it is passed on.
            self._open(item, key, kind)
        if is_done and not self.items.known[key].closed:
            self._close(item, key, kind)

    def _take_piece(self, event: Event, kind: DeltaKind) -> None:
        """Reads a piece of a text, unless it sets the latest: then it only needs to be added."""
        key: Hashable = event.item_id
        if key not in self.items.known:
            key = self._keys.find(event.item_id, event.output_index, kind)
            if key not in self.items.known:
                if kind >= FUNCTION_CALL:
                    return  # its name and all of its text come with the item
                self._begin(key, event.output_index, kind)
        if event.type == REFUSAL_DELTA:
            self.items.open(key, kind, refuses=True)
        index = event.summary_index or event.content_index or 0
        texts = self._texts
        if key not in texts.parts:
            texts.parts[key] = index, 0
        elif texts.parts[key][0] != index:
            texts.begin_part(key, kind, index)
        self._whole = None
        may_stop = texts.stops or (kind is TEXT and self._request.stop)
        if kind is REASONING or may_stop or key != event.item_id:
            texts.add(key, kind, event.delta or "")
        else:
            self._latest_id = event.item_id
            self._latest = event.type, event.item_id
            self._decode_piece = DECODE_PIECE[event.type]

    def _take_part(self, event: Event, kind: DeltaKind) -> None:
        """Reads the whole text of a part, of which most often nothing is missing."""
        part = event.part
        if part is None:
            whole = event.text or event.refusal or event.arguments or event.input
        else:
            whole = part.text or part.refusal
        if not whole or (event.item_id, whole) == self._whole:
            return
        if part is not None:
            kind = PART_KINDS.get(part.type, kind)
        key: Hashable = event.item_id
        if key not in self.items.known:
            key = self._keys.find(event.item_id, event.output_index, kind)
            key = self._begun(key, event.output_index, kind, [whole])
            if key not in self.items.known:
                if kind >= FUNCTION_CALL:
                    return
                self._begin(key, event.output_index, kind)
        if self.items.known[key].closed:
            return
        if event.refusal or (part is not None and part.refusal):
            self.items.open(key, kind, refuses=True)
        index = event.summary_index or event.content_index or 0
        is_whole = self._texts.complete_part(key, kind, index, whole)
        self._whole = (key, whole) if is_whole and key == event.item_id else None

    def _begun(
        self, key: Hashable, output_index: int | None, kind: DeltaKind, texts: Sequence[str]
    ) -> Hashable:
        """Returns the key of the one open item whose text these may be, if the key is new."""
        if key not in self.items.known:
            other = self._keys.only_open(output_index, kind)
            if other is not None and self._texts.may_be(other, texts):
                return other
        return key

    def _begin(self, key: Hashable, output_index: int | None, kind: DeltaKind) -> None:
        self.items.open(key, kind)
        self._keys.note(key, output_index)

    def _open(
        self, item: UpstreamItem, key: Hashable, kind: DeltaKind, before: Hashable = None
    ) -> None:
        is_text, is_call = kind is TEXT, kind >= FUNCTION_CALL
        self.items.open(
            key,
            kind,
            call_id=item.call_id or item.id or "" if is_call else "",
            name=item.name or "" if is_call else "",
            phase=item.phase or "" if is_text and item.phase in _PHASES else "",
            refuses=refuses(item) if item.content else False,
            before=before,
        )

    def _close(self, item: UpstreamItem, key: Hashable, kind: DeltaKind) -> None:
        texts = item_texts(item)
        if (key, texts[0]) != self._whole:
            self._texts.add(key, kind, self._texts.rest(key, texts) or "")
        self._whole = None
        if kind is FUNCTION_CALL and not self.items.num_given(key):
            self._bare.add(key)  # its arguments may come with the whole response
            return
        if item.id is not None:
            self._done[item.id] = item
        if kind is REASONING and item.encrypted_content and self._model is not None:
            self.items.seal(key, wrap(self._model, item.id or "", item.encrypted_content))
        if self._texts.stops:
            self._texts.end(key)
        self.items.close(key)

    def _complete_bare(self) -> None:
        """Gives calls without arguments an object without any, as clients decode it."""
        for key in self._bare:
            if not self.items.num_given(key) and not self.items.known[key].wrapped:
                self.items.add(key, NO_ARGUMENTS)

    def _take_response(self, event: Event) -> FinishReason | None:
        """Reads an event of the whole response; a terminal one returns how that ended."""
        response = event.response
        if response is not None:
            self.response_id = self.response_id or response.id
            if response.service_tier is not None:
                self.tier.take(response.service_tier)
        if event.type not in _ENDS:
            return None
        if event.type == "error":
            raise self._error(event)
        if response is None:
            raise broken(self._backend, f"the upstream sent {event.type} without a response")
        status = response.status  # which may say how a "completed" response ended
        if event.type == "response.failed" or status == "failed":
            raise event_failure(self._backend, response.error or WireError("no reason given"))
        self._take_output(response)
        if response.usage is not None:
            self._figures = _figures(response.usage)
        if event.type == "response.incomplete" or status in ("incomplete", "cancelled"):
            said = response.incomplete_details and response.incomplete_details.reason
            reason = _REASONS.get(said or "")
            if reason is None:
                message = f"the upstream cut its answer: {said or 'no reason given'}"
                raise broken(self._backend, message)
            return reason
        return _STOP

    def _take_output(self, response: UpstreamResponse) -> None:
        """Adds what the events left out of the items that the whole response has."""
        output = response.output or ()
        for item in output:
            done = self._done.get(item.id)
            if item != done and (done is None or _num_chars(item) != _num_chars(done)):
                break
        else:
            return  # all were done with as much text
        known, keys = self.items.known, self._keys.of_output(output, self._texts.may_be)
        # Something else came of these than they have: maybe the text of a new item, too.
        odd = [
            key
            for item, key in zip(output, keys, strict=True)
            if key in known and not self._texts.may_be(key, item_texts(item))
        ]
        for number, (item, key) in enumerate(zip(output, keys, strict=True)):
            kind = ITEM_KINDS.get(item.type)
            if kind is None:
                continue
            is_reasoning = kind is REASONING
            if key not in known:
                later = [each for each in keys[number + 1 :] if is_reasoning and each in known]
                if any(map(self._is_told, later)):
                    continue  # it would follow what it led to
                if kind < FUNCTION_CALL:
                    text = item_texts(item)[0]
                    if any(self._texts.has(other, text) for other in odd):
                        continue
                self._open(item, key, kind, next(iter(later), None))
            elif known[key].closed:
                is_short = not is_reasoning and self._texts.rest(key, item_texts(item))
                if not is_short or not self.items.reopen(key):
                    continue
            self._close(item, key, kind)
            if self._texts.found_stop() is not None:
                return

    def _is_told(self, key: Hashable) -> bool:
        """Returns whether an item was passed on or is about to be: a call as soon as it begins."""
        return self.items.known[key].kind >= FUNCTION_CALL or bool(self.items.num_given(key))

    def _error(self, event: Event) -> Failure:
        error = event.error or WireError(event.message, event.code)
        status = event.status if isinstance(event.status, int) else None
        failure = event_failure(self._backend, error, status=status, headers=event.headers)
        failure.unused = event is self._first  # as if it were an HTTP status
        return failure


def _num_chars(item: UpstreamItem) -> int:
    return len(item_texts(item)[0])


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
