"""Reads an upstream's chat completion chunks; a finish reason is the end."""

from collections.abc import Sequence
from typing import Any

from backends.contract import DeltaKind, FinishReason, GenerateRequest
from backends.service_tiers import TierRead
from backends.upstream.answer.chat_calls import ChatCalls
from backends.upstream.answer.chat_chunks import (
    DONE,
    Chunk,
    ChunkCall,
    ChunkChoice,
    ChunkDelta,
    decode_plain,
)
from backends.upstream.answer.errors import WireError, broken, event_failure
from backends.upstream.answer.reader import NO_BOUNDS, NO_EVENT, Bounds, Reader
from backends.upstream.answer.reported_usage import (
    NO_COMPLETION_FIGURES,
    NO_PROMPT_FIGURES,
    ChatFigures,
    Figures,
    believed,
)

# In lower case, as gateways before Gemini say "STOP" and "MAX_TOKENS". Some pass on what their
# model says: TGI's "eos_token", Claude's "end_turn", "tool_use" and "refusal", Mistral's
# "model_length", Gemini's "SAFETY" and its like, also as "content_filter: SAFETY".
# Other reasons (vLLM's "abort", OpenRouter's "error") are not a clean end.
_REASONS = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "function_call": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "tool_use": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
    "image_safety": FinishReason.CONTENT_FILTER,
    "prohibited_content": FinishReason.CONTENT_FILTER,
    "recitation": FinishReason.CONTENT_FILTER,
    "blocklist": FinishReason.CONTENT_FILTER,
    "spii": FinishReason.CONTENT_FILTER,
}


class ChatReader(Reader):
    """Reads one generation's chunks."""

    # The text item that is open has a kind and a number, and may be a refusal.
    _text_key: tuple[DeltaKind, int, bool] | None = None
    _num_texts = 0
    _calls: ChatCalls | None = None  # once there is one
    _latest_tier: Any = None  # as chunks say it, some servers' each one

    def __init__(
        self,
        backend: str,
        request: GenerateRequest,
        wrapped: frozenset[str],
        bounds: Bounds = NO_BOUNDS,
        tier: TierRead | None = None,
        *,
        echo: str = "",
    ) -> None:
        """Drops `echo`, which the answer's text repeats first."""
        super().__init__(backend, request, wrapped, bounds, tier)
        self._num_echoed_chars = len(echo)  # still to be dropped

    @property
    def goes_on(self) -> bool:
        return self._is_text_open() and self.items.goes_on(self._text_key)

    def _is_text_open(self) -> bool:
        key = self._text_key
        is_text = key is not None and key[0] is DeltaKind.TEXT and not key[2]
        return is_text and self.reason is None and not self._num_echoed_chars

    def text_of(self, message: bytes) -> str:
        try:
            chunk = decode_plain(message)
        except NO_EVENT:
            return ""
        return chunk.choices[0].delta.content if chunk.service_tier == self._latest_tier else ""

    def _text(self, events: Sequence[Chunk]) -> str:
        text, num_chunks = self._plain_text(events, 0)
        return text if num_chunks == len(events) else ""

    def _plain_text(self, chunks: Sequence[Chunk], start: int) -> tuple[str, int]:
        """Returns the text of the chunks from there on that say nothing else, and their number."""
        text, tier = "", self._latest_tier
        for number in range(start, len(chunks)):
            chunk = chunks[number]
            if not chunk.choices or (delta := chunk.choices[0].delta) is None or not delta.content:
                return text, number - start
            if chunk != Chunk([ChunkChoice(0, ChunkDelta(delta.content))], service_tier=tier):
                return text, number - start
            text += delta.content
        return text, len(chunks) - start

    def _take_in(self, events: Sequence[Chunk]) -> bool:
        number = 0
        while number < len(events):
            if self._is_text_open():
                text, num_chunks = self._plain_text(events, number)
                if text:
                    self.items.add(self._text_key, text, num_chunks)
                    number += num_chunks
                    continue
            if self._take_chunk(events[number]):
                return True
            number += 1
        return False

    def _take_chunk(self, chunk: Chunk) -> bool:
        """Reads a chunk; returns True if only the mark of the end can follow, or this is it."""
        if chunk is DONE:
            return True
        if chunk.error is not None:
            error = WireError(chunk.error) if isinstance(chunk.error, str) else chunk.error
            raise event_failure(self._backend, error)
        if chunk.message and chunk.choices is None:
            error = WireError(chunk.message, chunk.code, chunk.type)
            raise event_failure(self._backend, error)
        if chunk.service_tier is not None:
            self._latest_tier = chunk.service_tier
            self.tier.take(chunk.service_tier)
        for choice in chunk.choices or ():
            if choice.index == 0:
                self._take_choice(choice)
        if chunk.usage is None:
            return False
        is_told = self._take_usage(chunk.usage)
        return is_told and self.reason is not None

    def _take_usage(self, reported: Any) -> bool:
        """Notes the usage; returns False if it says nothing about the completion."""
        usage, is_odd = believed(reported, ChatFigures)
        num_input, total = usage.prompt_tokens, usage.total_tokens
        num_shown = num_output = usage.completion_tokens
        if num_output is None and not is_odd:
            return False
        if num_output is not None and num_input is not None and total is not None:
            # xAI counts reasoning outside the completion; the total has both.
            num_output = max(num_output, total - num_input)
        of_input = usage.prompt_tokens_details or NO_PROMPT_FIGURES
        of_output = usage.completion_tokens_details or NO_COMPLETION_FIGURES
        num_reasoning = of_output.reasoning_tokens or 0
        self._figures = Figures(
            num_input=num_input,
            num_output=num_output,
            num_cached=of_input.cached_tokens or 0,
            num_cache_write=of_input.cache_write_tokens or 0,
            num_reasoning=num_reasoning,
            num_hidden=max(num_reasoning, (num_output or 0) - (num_shown or 0)),
            num_accepted=of_output.accepted_prediction_tokens or 0,
            num_rejected=of_output.rejected_prediction_tokens or 0,
            is_odd=is_odd,
        )
        return True

    def _take_choice(self, choice: ChunkChoice) -> None:
        delta = choice.message if choice.delta is None else choice.delta
        if delta is not None:
            self._take_delta(delta)
        reason = self.reason
        if choice.finish_reason:  # some servers write "" until the end
            if choice.stop_reason in self._request.stop:
                self._stop_sequence = choice.stop_reason
            reason = _REASONS.get(choice.finish_reason.partition(":")[0].lower())
            if reason is None:
                got = choice.finish_reason[:64]
                raise broken(self._backend, f"the upstream cut its answer: {got}")
        if reason is not None:  # what comes behind it counts, too, until the end
            if self._calls is not None:
                self._calls.end(is_whole=reason is FinishReason.STOP)
            self.items.close_all()
            self.reason = reason

    def _take_delta(self, delta: ChunkDelta) -> None:
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self._add_text(DeltaKind.REASONING, thought)
        text = self._unechoed(delta.content)
        if text:
            self._add_text(DeltaKind.TEXT, text)
        if delta.refusal:
            self._add_text(DeltaKind.TEXT, delta.refusal, refuses=True)
        calls = delta.tool_calls
        if delta.function_call is not None and not calls:
            calls = [ChunkCall(function=delta.function_call)]
        for call in calls or ():
            if self._calls is None:
                self._calls = ChatCalls(self._backend, self._request, self.items)
            if self._calls.add(call):
                self._close_text()

    def _unechoed(self, text: str | None) -> str | None:
        if self._num_echoed_chars and text:
            num_dropped = min(self._num_echoed_chars, len(text))
            self._num_echoed_chars -= num_dropped
            return text[num_dropped:]
        return text

    def _add_text(self, kind: DeltaKind, text: str, *, refuses: bool = False) -> None:
        key = self._text_key
        is_other = key is None or key[0] is not kind or key[2] is not refuses
        if key is None or is_other or not self.items.reopen(key):
            self._close_text()
            if self._calls is not None:
                self._calls.open_named()
            self._num_texts += 1
            key = self._text_key = (kind, self._num_texts, refuses)
            self.items.open(key, kind, refuses=refuses)
        self.items.add(key, text)

    def _close_text(self) -> None:
        if self._text_key is not None:
            self.items.close(self._text_key)
            self._text_key = None
