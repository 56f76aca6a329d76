"""Writes one answer as a chat completion, whole or in chunks.

An edge: it calls other edges.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from backends.contract import (
    CustomToolCall,
    Delta,
    DeltaKind,
    FunctionCall,
    Item,
    Message,
    TextPart,
    Usage,
)
from gateway.wire.chat_request import ChatBody
from gateway.wire.requests import ParsedCreate
from gateway.wire.response import Ending

_encode = msgspec.json.encode

# Not of OpenAI's protocol: what DeepSeek's and vLLM's servers call what a model says before its
# answer, and chat clients show apart (their documentation, 2026).
COMMENTARY = "reasoning_content"


class ChatStream:
    """Writes one answer as chat completion chunks, sent as it comes if it is streamed.

    Reasoning has no place in this protocol: its tokens show in the usage only. Nor have phases: the
    content is the answer, and commentary goes where chat clients look for what came before it.
    """

    def __init__(
        self,
        parsed: ParsedCreate,
        chat: ChatBody,
        emit: Callable[[bytes], None] | None = None,
        on_dirty: Callable[["ChatStream"], None] | None = None,
    ) -> None:
        """Without `emit`, nobody reads along; `on_dirty`: text has gathered, flush it in time."""
        self.id = f"chatcmpl-{parsed.id.removeprefix('resp_')}"
        self._parsed = parsed
        self._emit = emit
        self._on_dirty = on_dirty
        self._include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
        self._head: dict[str, Any] = {}
        self._routing: dict[str, Any] = {}
        self._texts: list[str] = []
        self._comments: list[str] = []
        self._pending: list[str] = []
        self._is_comment = False  # what is pending
        self._calls: list[dict[str, Any]] = []
        self._source = -1  # the engine's index of the item being written
        self._num_events = 0
        self._is_open = False
        self._ended = False
        self._ending: Ending | None = None
        self.body = b""

    def open(self, created_at: int, model: str, routing: dict[str, Any]) -> None:
        """The first chunk: the role."""
        self._is_open = True
        self._head = {"id": self.id, "created": created_at, "model": model}
        self._routing = routing
        self._chunk({"role": "assistant", "content": "", "refusal": None})

    def push(self, delta: Delta, phase: str | None) -> None:
        """A piece of text goes out with the flush, a piece of a call at once."""
        if delta.kind is DeltaKind.REASONING:
            return
        if delta.kind is DeltaKind.TEXT:
            is_comment = phase == "commentary"
            if is_comment != self._is_comment:
                self.flush()
                self._is_comment = is_comment
            said = self._comments if is_comment else self._texts
            new_paragraph = delta.index != self._source and bool(said)
            self._source = delta.index
            self._pending.append("\n\n" + delta.text if new_paragraph else delta.text)
            if not said or self._on_dirty is None:
                self.flush()
            else:
                self._on_dirty(self)
            return
        self.flush()
        kind, field = _CALL_FIELDS[delta.kind]
        if delta.index != self._source:
            self._source = delta.index
            call = {"id": delta.call_id, "type": kind, kind: {"name": delta.name, field: ""}}
            self._calls.append(call)
            self._chunk({"tool_calls": [{"index": len(self._calls) - 1, **call}]})
        self._calls[-1][kind][field] += delta.text
        piece = {"index": len(self._calls) - 1, kind: {field: delta.text}}
        self._chunk({"tool_calls": [piece]})

    def flush(self) -> None:
        """Send the text that has gathered as one chunk."""
        if self._pending:
            text = "".join(self._pending)
            self._pending.clear()
            if self._is_comment:
                self._comments.append(text)
                self._chunk({COMMENTARY: text})
            else:
                self._texts.append(text)
                self._chunk({"content": text})

    def end_item(self) -> None:
        """Nothing marks the end of an item here."""
        self.flush()

    def update(self, routing: dict[str, Any]) -> None:
        """Only the first chunk and the whole answer have a place for it."""

    def send_about(self, event_type: str, fields: bytes) -> None:
        """Chunks have no such events."""

    def heartbeat(self) -> None:
        """A chunk without content, for clients that count silence."""
        if self._is_open and not self._ended:
            self._chunk({})

    def close_items(self, ending: Ending) -> None:
        """Send what is left. Commentary that nothing followed stands as the answer."""
        self.flush()
        if ending.status == "completed" and not self._texts and not self._calls:
            self._is_comment = False
            self._pending = self._comments[:]
            self.flush()

    def answered_by(self, model: str) -> None:
        """Name the model whose answer it became; chunks already sent keep the one they named."""
        self._head["model"] = model

    def finish(self, ending: Ending, completed_at: int, routing: dict[str, Any]) -> bytes:
        """The whole answer as a `chat.completion`."""
        self._ending = ending
        message: dict[str, Any] = {"role": "assistant", "refusal": None, "annotations": []}
        text = "".join(self._texts)
        message["content"] = None if self._calls and not text else text
        if self._comments:
            message[COMMENTARY] = "".join(self._comments)
        if self._calls:
            message["tool_calls"] = self._calls
        choice = {"index": 0, "message": message, "logprobs": None}
        choice["finish_reason"] = self._finish_reason(ending)
        self.body = _encode(
            {
                **self._head,
                "object": "chat.completion",
                "choices": [choice],
                "usage": _usage(ending.usage),
                "service_tier": "default",
                "system_fingerprint": None,
                "routing": routing,
            }
        )
        return self.body

    def send_terminal(self) -> None:
        """The finish reason, the usage if asked for, and the end of the stream."""
        assert self._ending is not None
        self._ended = True
        fault = self._ending.fault()
        if fault is not None:
            self._send(fault.body())
        else:
            self._chunk({}, self._finish_reason(self._ending))
            if self._include_usage:
                tail = {"object": "chat.completion.chunk", "choices": []}
                self._send({**self._head, **tail, "usage": _usage(self._ending.usage)})
        if self._emit is not None:
            self._emit(b"data: [DONE]\n\n")

    def _finish_reason(self, ending: Ending) -> str:
        if ending.reason == "max_output_tokens":
            return "length"
        if ending.reason == "content_filter":
            return "content_filter"
        return "tool_calls" if self._calls else "stop"

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        chunk |= {"service_tier": "default", "system_fingerprint": None}
        if self._include_usage:
            chunk["usage"] = None
        if self._num_events == 0:
            chunk["routing"] = self._routing
        self._send(chunk)

    def _send(self, chunk: dict[str, Any]) -> None:
        self._num_events += 1
        if self._emit is not None:
            self._emit(b"data: " + _encode(chunk) + b"\n\n")

    @property
    def output(self) -> tuple[Item, ...]:
        """What was said; chat completions are not stored, so nobody continues from it."""
        texts = (Message("assistant", (TextPart("".join(self._texts)),)),) if self._texts else ()
        return (*texts, *(_call_of(call) for call in self._calls))

    @property
    def is_open(self) -> bool:
        """Whether its first chunk was made."""
        return self._is_open

    @property
    def ended(self) -> bool:
        """Whether its last chunk was made."""
        return self._ended

    @property
    def num_events(self) -> int:
        """How many chunks it has made."""
        return self._num_events


_CALL_FIELDS = {
    DeltaKind.FUNCTION_CALL: ("function", "arguments"),
    DeltaKind.CUSTOM_CALL: ("custom", "input"),
}


def _call_of(call: dict[str, Any]) -> Item:
    if call["type"] == "custom":
        return CustomToolCall(call["id"], call["custom"]["name"], call["custom"]["input"])
    return FunctionCall(call["id"], call["function"]["name"], call["function"]["arguments"])


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.num_input_tokens,
        "completion_tokens": usage.num_output_tokens,
        "total_tokens": usage.num_input_tokens + usage.num_output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.num_cached_tokens,
            "audio_tokens": 0,
            "cache_write_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.num_reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
