"""Writes one answer as a chat completion, whole or in chunks."""

from collections.abc import Callable, Mapping

import msgspec

from backends.contract import (
    CustomToolCall,
    Delta,
    DeltaKind,
    FunctionCall,
    Item,
    Message,
    RefusalPart,
    TextPart,
    Usage,
)
from gateway.chat.request import ChatBody
from gateway.chat.terms import ChatTerms
from gateway.wire.requests import ParsedCreate
from gateway.wire.response import Ending, ResponseWriter, at_once
from gateway.wire.response_json import asked_tier
from gateway.wire.routing import Routing, Unrouted

Json = dict[str, object]

_encode = msgspec.json.encode

# DeepSeek's and vLLM's name, not OpenAI's, for what a model says before its answer; chat clients
# show it separately (their documentation, 2026).
COMMENTARY = "reasoning_content"


class _Call(msgspec.Struct):
    """Gathers a tool call, as far as it has come."""

    delta: Delta  # its first: id, name and kind
    text: str = ""  # arguments or input

    @property
    def kind(self) -> str:
        return "function" if self.delta.kind is DeltaKind.FUNCTION_CALL else "custom"

    def fields(self, text: str) -> Json:
        """Returns the part of the call that holds `text`."""
        return {"arguments" if self.kind == "function" else "input": text}

    def json(self) -> Json:
        called = {"name": self.delta.name, **self.fields(self.text)}
        return {"id": self.delta.call_id, "type": self.kind, self.kind: called}

    def item(self) -> Item:
        if self.kind == "function":
            return FunctionCall(self.delta.call_id, self.delta.name, self.text)
        return CustomToolCall(self.delta.call_id, self.delta.name, self.text)


_Around = tuple[bytes, bytes, Callable[[bytes], None]]


class ChatStream(ResponseWriter):
    """Writes one answer as chat completion chunks, sent as it comes if it is streamed.

    The protocol has no reasoning and no phases: reasoning tokens are in the usage only, the content
    is the answer, and commentary goes into the field that chat clients show as reasoning.
    """

    def __init__(
        self,
        parsed: ParsedCreate,
        chat: ChatBody,
        terms: ChatTerms,
        emit: Callable[[bytes], None] | None = None,
        on_dirty: Callable[[ResponseWriter], None] | None = None,
    ) -> None:
        """Streams to `emit`; without it, only the whole answer is made.

        `terms` has the words of an error that comes amid the stream.
        """
        self._terms = terms
        self.id = f"chatcmpl-{parsed.id.removeprefix('resp_')}"
        self._on_dirty = on_dirty or at_once
        self._emit = emit
        self._include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
        self._head: Json = {}
        self._tier = asked_tier(chat.service_tier)  # until it is known which one was used
        # Of a chunk, the same for each text; and what sends it.
        self._around_text: _Around | None = None
        self._routing: Routing | None = None
        self._texts: list[str] = []
        self._comments: list[str] = []
        self._refusals: list[str] = []
        self._pending = []
        self._said = self._texts  # or which of the others what is pending goes to
        self._calls: list[_Call] = []
        self._source = -1  # the engine's index of the item being written
        self._ending: Ending | None = None

    def open(self, created_at: int, model: str, routing: Routing) -> None:
        """Sends the first chunk: the role."""
        self.is_open = True
        self._head = {"id": self.id, "created": created_at, "model": model}
        self._routing = routing
        self._chunk({"role": "assistant", "content": "", "refusal": None})

    def push(self, delta: Delta, phase: str | None) -> Callable[[str], None] | None:
        """Sends a piece of a call at once, and buffers text until the flush."""
        if delta.kind is DeltaKind.REASONING:
            return None
        if delta.kind is DeltaKind.TEXT:
            said = self._refusals if delta.refuses else self._texts
            if phase == "commentary":
                said = self._comments
            if said is not self._said:
                self.flush()
                self._said = said
            self.words_at_us = self.words_at_us or delta.at_us
            new_paragraph = delta.index != self._source and bool(said)
            self._source = delta.index
            self._pending.append("\n\n" + delta.text if new_paragraph else delta.text)
            if not said:
                self.flush()
            else:
                self._on_dirty(self)
            return self._more
        self.flush()
        index = len(self._calls) - 1
        if delta.index != self._source:
            self._source = delta.index
            index += 1
            self._calls.append(_Call(delta))
            self._chunk({"tool_calls": [{"index": index, **self._calls[-1].json()}]})
        call = self._calls[-1]
        call.text += delta.text
        self._chunk({"tool_calls": [{"index": index, call.kind: call.fields(delta.text)}]})
        self._on_dirty(self)  # so that it is paused if nobody reads
        return None

    def flush(self) -> None:
        """Sends the buffered text as one chunk."""
        if self._pending:
            text = "".join(self._pending)
            self._pending.clear()
            self._said.append(text)
            if self._said is self._texts:
                around = self._around_text or self._made_around()
                if around is None:
                    self._chunk({"content": text})
                else:
                    before, after, emit = around
                    self.num_events += 1
                    emit(before + _encode(text) + after)
            else:
                self._chunk({COMMENTARY if self._said is self._comments else "refusal": text})

    def words(self) -> tuple[str, bool]:
        pending = () if self._said is self._comments else self._pending
        return "".join((*self._texts, *self._refusals, *pending)), bool(self._calls)

    def _send_heartbeat(self) -> None:
        self._chunk({})

    def close_items(self, ending: Ending) -> None:
        """Sends what is left."""
        self.flush()

    def answered_by(self, model: str) -> None:
        """Sets the model of later chunks."""
        self._head["model"] = model
        self._around_text = None

    def finish(self, ending: Ending, completed_at: int, routing: Routing | None) -> bytes:
        """Makes the whole answer, a `chat.completion`."""
        self._ending = ending
        self.fault = ending.fault() or (None if ending.is_final else self.fault)
        text, refusal = "".join(self._texts), "".join(self._refusals) or None
        message: Json = {"role": "assistant", "refusal": refusal, "annotations": []}
        message["content"] = None if (self._calls or refusal) and not text else text
        if self._comments:
            message[COMMENTARY] = "".join(self._comments)
        if self._calls:
            message["tool_calls"] = [call.json() for call in self._calls]
        reason = self._finish_reason(ending)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        self.body = _encode(
            {
                **self._head,
                "object": "chat.completion",
                "choices": [choice],
                "usage": _usage(ending.usage),
                "service_tier": ending.usage.service_tier or self._tier,
                "system_fingerprint": None,
                "routing": routing or Unrouted(),
            }
        )
        return self.body

    def send_terminal(self) -> None:
        """Sends the finish reason, the usage if requested, and the end of the stream."""
        assert self._ending is not None
        self.ended = True
        if self.fault is not None:
            self._send(self._terms.told(self.fault).body())
        else:
            self._chunk({}, self._finish_reason(self._ending))
            if self._include_usage:
                tail = {"object": "chat.completion.chunk", "choices": []}
                self._send({**self._head, **tail, "usage": _usage(self._ending.usage)})
        if self._emit is not None:
            self._emit(b"data: [DONE]\n\n")

    def _finish_reason(self, ending: Ending) -> str:
        if ending.reason == "content_filter":
            return "content_filter"
        if ending.status == "incomplete":  # chat completions have no other word for "cut short"
            return "length"
        return "tool_calls" if self._calls else "stop"

    def _made_around(self) -> _Around | None:
        """Makes what is around each text in its chunk, once; None: there are no more chunks."""
        if self._emit is None or self.num_events == 0:
            return None
        whole = _encode(self._chunk_of({"content": ""}))
        before, name, after = whole.partition(b'"content":""')
        self._around_text = b"data: " + before + name[:-2], after + b"\n\n", self._emit
        return self._around_text

    def _chunk(self, delta: Json, finish_reason: str | None = None) -> None:
        self._send(self._chunk_of(delta, finish_reason))

    def _chunk_of(self, delta: Json, finish_reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        served = self._ending and self._ending.usage.service_tier
        chunk |= {"service_tier": served or self._tier, "system_fingerprint": None}
        if self._include_usage:
            chunk["usage"] = None
        if self.num_events == 0:
            chunk["routing"] = self._routing
        return chunk

    def _send(self, chunk: Mapping[str, object]) -> None:
        self.num_events += 1
        if self._emit is not None:
            self._emit(b"data: " + _encode(chunk) + b"\n\n")

    @property
    def output(self) -> tuple[Item, ...]:
        """Returns the output items; chat completions are never continued."""
        said: list[Item] = []
        if self._texts:
            said.append(Message("assistant", (TextPart("".join(self._texts)),)))
        if self._refusals:
            said.append(Message("assistant", (RefusalPart("".join(self._refusals)),)))
        return (*said, *(call.item() for call in self._calls))


def _usage(usage: Usage) -> Json:
    cached = {"cached_tokens": usage.num_cached_tokens, "audio_tokens": 0}
    cached["cache_write_tokens"] = usage.num_cache_write_tokens
    reasoning = {"reasoning_tokens": usage.num_reasoning_tokens, "audio_tokens": 0}
    predicted = {
        "accepted_prediction_tokens": usage.num_accepted_tokens,
        "rejected_prediction_tokens": usage.num_rejected_tokens,
    }
    return {
        "prompt_tokens": usage.num_input_tokens,
        "completion_tokens": usage.num_output_tokens,
        "total_tokens": usage.num_input_tokens + usage.num_output_tokens,
        "prompt_tokens_details": cached,
        "completion_tokens_details": reasoning | predicted,
    }
