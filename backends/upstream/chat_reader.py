"""Reads an upstream's chat completion chunks: deltas, and the one end.

What counts is a finish reason. A stream without one was cut, whatever it had said.
"""

from collections.abc import Sequence

import msgspec

from backends.contract import Delta, DeltaKind, Finish, FinishReason, GenerateRequest, Usage
from backends.upstream.errors import Failure, broken, event_failure
from backends.upstream.item_order import ItemOrder, TooMuchError


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct, frozen=True):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None  # DeepSeek's name: SGLang, xAI, llama.cpp, older vLLM
    reasoning: str | None = None  # Cerebras, Ollama, newer vLLM
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _InputDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Error(msgspec.Struct, frozen=True):
    message: str | None = None
    code: str | int | None = None
    type: str | None = None
    param: str | None = None


class Chunk(msgspec.Struct, frozen=True):
    """What a server sends of an answer at once."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: _Error | str | None = None


DONE = Chunk()  # the end of a stream, which is no JSON
_decode = msgspec.json.Decoder(Chunk).decode

# As servers name them; what is not here (vLLM's "abort", OpenRouter's "error") is no clean end.
_REASONS = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "function_call": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}


def decode_chunk(message: bytes) -> Chunk:
    """A chunk from its JSON.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: It is none.
    """
    return DONE if message == b"[DONE]" else _decode(message)


class ChatReader:
    """One generation's chunks. After `finish` or `failure` is set nothing more is to be read."""

    def __init__(self, backend: str, request: GenerateRequest, wrapped: frozenset[str]) -> None:
        """`wrapped` names the custom tools that the upstream knows as functions."""
        self.finish: Finish | None = None
        self.failure: Failure | None = None  # counts behind the deltas that came with it
        self.num_events = 0
        self._backend = backend
        self._request = request
        self._wrapped = wrapped
        self._items = ItemOrder()
        self._text_key: tuple[DeltaKind, int] | None = None  # the text item that is open
        self._num_texts = 0
        self._calls: dict[int, str] = {}  # a call's index -> its id, which is its key
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None

    def read(self, events: Sequence[Chunk], now_us: int) -> list[Delta]:
        """Take in what came together; may set `finish` or `failure`."""
        is_over = False
        try:
            for chunk in events:
                self.num_events += 1
                is_over = self._take_in(chunk)
                if is_over:
                    break
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
        """The stream is over: its end, if it has said its reason."""
        if self._reason is None:
            return None
        return Finish(self._reason, self._usage or self.usage(), now_us)

    def usage(self) -> Usage:
        """What has been used as far as we can count it."""
        return Usage(
            num_input_tokens=self._request.num_prompt_tokens,
            num_output_tokens=self._items.num_tokens,
            num_reasoning_tokens=self._items.num_reasoning_tokens,
            exact=False,
        )

    def _take_in(self, chunk: Chunk) -> bool:
        """True once nothing that counts can follow."""
        if chunk is DONE:
            return True
        if chunk.error is not None:
            error = chunk.error if isinstance(chunk.error, _Error) else _Error(chunk.error)
            raise event_failure(
                self._backend, error.code, error.message, type=error.type, param=error.param
            )
        for choice in chunk.choices or ():
            if choice.index == 0:
                self._take_choice(choice)
        if chunk.usage is not None and chunk.usage.completion_tokens is not None:
            self._usage = _usage_of(chunk.usage)
            return self._reason is not None and not chunk.choices  # only [DONE] can follow
        return False

    def _take_choice(self, choice: _Choice) -> None:
        delta = choice.delta
        if delta is not None:
            self._add_text(DeltaKind.REASONING, delta.reasoning_content or delta.reasoning)
            self._add_text(DeltaKind.TEXT, delta.content)
            self._add_text(DeltaKind.TEXT, delta.refusal)
            for call in delta.tool_calls or ():
                self._add_call(call)
        if choice.finish_reason is not None:
            reason = _REASONS.get(choice.finish_reason)
            if reason is None:
                got = choice.finish_reason[:64]
                raise broken(self._backend, f"the upstream cut its answer: {got}")
            self._reason = reason
            self._items.close_all()

    def _add_text(self, kind: DeltaKind, text: str | None) -> None:
        if not text:
            return
        if self._text_key is None or self._text_key[0] is not kind:
            self._close_text()
            self._num_texts += 1
            self._text_key = (kind, self._num_texts)
            self._items.open(self._text_key, kind)
        self._items.add(self._text_key, text)

    def _close_text(self) -> None:
        if self._text_key is not None:
            self._items.close(self._text_key)
            self._text_key = None

    def _add_call(self, call: _Call) -> None:
        """A piece of a call; one with a name and a new id under a known index is another call."""
        function = call.function or _Function()
        known = self._calls.get(call.index)
        if known is None or (function.name and call.id and call.id != known):
            self._close_text()
            if known is not None:
                self._items.close(known)
            known = call.id or f"call_{self._request.id}_{call.index}"
            self._calls[call.index] = known
            name = function.name or ""
            wrapped = name in self._wrapped
            kind = DeltaKind.CUSTOM_CALL if wrapped else DeltaKind.FUNCTION_CALL
            self._items.open(known, kind, call_id=known, name=name, wrapped=wrapped)
        self._items.add(known, function.arguments or "")


def _usage_of(usage: _Usage) -> Usage:
    received, sent = usage.prompt_tokens_details, usage.completion_tokens_details
    num_input, num_output = usage.prompt_tokens or 0, usage.completion_tokens or 0
    # xAI counts reasoning apart from the completion; the total has both.
    num_output = max(num_output, (usage.total_tokens or 0) - num_input)
    return Usage(
        num_input_tokens=num_input,
        num_cached_tokens=(received.cached_tokens or 0) if received else 0,
        num_output_tokens=num_output,
        num_reasoning_tokens=(sent.reasoning_tokens or 0) if sent else 0,
    )
