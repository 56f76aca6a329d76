"""Writes one answer as a message, whole or in events.

An event is named twice, as the SDKs drop records without `event:`. One block is open at a time, and
blocks are numbered from 0. The stream ends with `message_delta` and `message_stop`, or an `error`.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from backends.contract import Delta, DeltaKind, FunctionCall, Item, Message, TextPart, Usage
from gateway.messages.call_ids import tool_use_id
from gateway.messages.errors import error_body
from gateway.messages.request import MessagesBody
from gateway.messages.thinking import signature
from gateway.wire.errors import ProtocolError
from gateway.wire.requests import ParsedCreate
from gateway.wire.response import Ending, ResponseWriter, at_once
from gateway.wire.routing import Routing

_encode = msgspec.json.encode

BlockKind = Literal["text", "thinking", "tool_use"]

_DELTAS: dict[BlockKind, tuple[bytes, bytes]] = {  # its type, and the field of its text
    "text": (b"text_delta", b"text"),
    "thinking": (b"thinking_delta", b"thinking"),
    "tool_use": (b"input_json_delta", b"partial_json"),
}
_REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
_TIERS = ("priority", "batch")  # that Anthropic's responses name, beside "standard"
_REFUSED = {"type": "refusal", "category": None, "explanation": None}


class _Block:
    """Gathers a content block, as far as it has come."""

    def __init__(self, kind: BlockKind, delta: Delta) -> None:
        self.kind = kind
        self.source = delta.index  # the engine's index of the item
        self.call_id = delta.call_id
        self.name = delta.name
        self.refuses = delta.refuses and kind == "text"
        self.sealed = ""
        self.pieces: list[str] = []

    def begun(self) -> dict[str, Any]:
        """Returns the block as it begins; its text comes in deltas."""
        return self._json("", {}, "")

    def whole(self, thinking: str) -> dict[str, Any]:
        """Returns the whole block; `thinking` is the text that the client saw."""
        text = "".join(self.pieces)
        arguments: Any = {}
        if self.kind == "tool_use":
            with contextlib.suppress(msgspec.DecodeError, RecursionError):  # it may have been cut
                arguments = msgspec.json.decode(text or "{}")
        shown = thinking if self.kind == "thinking" else text
        return self._json(shown, arguments, signature(thinking, self.sealed))

    def _json(self, text: str, arguments: Any, signed: str) -> dict[str, Any]:
        if self.kind == "text":
            return {"type": "text", "text": text, "citations": None}
        if self.kind == "thinking":
            return {"type": "thinking", "thinking": text, "signature": signed}
        call = {"type": "tool_use", "id": tool_use_id(self.call_id), "name": self.name}
        return call | {"input": arguments if isinstance(arguments, dict) else {}}

    def item(self) -> Item | None:
        """Returns the item of the next turn's context; thoughts come back by their signature."""
        text = "".join(self.pieces)
        if self.kind == "thinking":
            return None
        if self.kind == "text":
            return Message("assistant", (TextPart(text),))
        return FunctionCall(self.call_id, self.name, text or "{}")


class MessageStream(ResponseWriter):
    """Writes one answer as Messages events, sent as they come if it is streamed.

    Reasoning, and commentary of a strategy, are thinking blocks where the client wants such blocks.
    """

    def __init__(
        self,
        parsed: ParsedCreate,
        body: MessagesBody,
        emit: Callable[[bytes], None] | None = None,
        on_dirty: Callable[[ResponseWriter], None] | None = None,
    ) -> None:
        """Streams to `emit`; without it, only the whole message is made."""
        self.id = f"msg_{parsed.id.removeprefix('resp_')}"
        self._emit = emit
        self._on_dirty = on_dirty or at_once
        self._model = body.model  # clients book costs by the name that they asked for
        self._wants_thinking = body.wants_thinking
        self._shows_thinking = body.thinking is not None and body.thinking.is_shown
        self._is_warm_up = not parsed.generate
        self._num_prompt_tokens = 0
        self._block: _Block | None = None
        self._blocks: list[_Block] = []  # done ones
        self._pending = []
        self._last: dict[str, Any] = {}  # the fields of `message_delta`

    def open(self, created_at: int, model: str, routing: Routing) -> None:
        """Sends `message_start`, and a ping, since proxies wait for more than headers."""
        self.is_open = True
        self._num_prompt_tokens = routing.context.used_tokens
        usage = _usage(Usage(self._num_prompt_tokens))
        start = self._message([], {"stop_reason": None, "stop_sequence": None}, usage)
        self._event(b"message_start", b'"message":' + _encode(start))
        self._send_heartbeat()

    def push(self, delta: Delta, phase: str | None) -> Callable[[str], None] | None:
        """Sends the first piece of a block at once, and buffers later ones."""
        kind = _block_kind(delta, phase)
        if kind == "thinking" and not self._wants_thinking:
            return None
        block = self._block
        if block is None or block.source != delta.index or block.kind != kind:
            self.end_item()
            block = self._block = _Block(kind, delta)
            if not self.words_at_us and kind != "thinking":
                self.words_at_us = delta.at_us
            number = b'"index":%d,"content_block":' % len(self._blocks)
            self._event(b"content_block_start", number + _encode(block.begun()))
        block.sealed = delta.sealed or block.sealed
        if not delta.text or (kind == "thinking" and not self._shows_thinking):
            return None
        self._pending.append(delta.text)
        if not block.pieces:
            self.flush()
        elif len(self._pending) == 1:
            self._on_dirty(self)
        return self._more

    def flush(self) -> None:
        """Sends the buffered text as one delta."""
        block = self._block
        if block is None or not self._pending:
            return
        text = "".join(self._pending)
        self._pending.clear()
        block.pieces.append(text)
        self._delta(*_DELTAS[block.kind], text)

    def words(self) -> tuple[str, bool]:
        blocks = self._blocks if self._block is None else [*self._blocks, self._block]
        texts = ["".join(block.pieces) for block in blocks if block.kind == "text"]
        if self._pending and blocks[-1].kind == "text":
            texts[-1] += "".join(self._pending)
        return "\n\n".join(texts), any(block.kind == "tool_use" for block in blocks)

    def end_item(self, *, is_cut: bool = False) -> None:
        block = self._block
        if block is None:
            return
        self.flush()
        if block.kind == "thinking":
            signed = signature("".join(block.pieces), block.sealed)
            self._delta(b"signature_delta", b"signature", signed)
        self._event(b"content_block_stop", b'"index":%d' % len(self._blocks))
        self._blocks.append(block)
        self._block = None

    def _send_heartbeat(self) -> None:
        self._event(b"ping", b"")

    def close_items(self, ending: Ending) -> None:
        """Ends the open block."""
        self.end_item()

    def answered_by(self, model: str) -> None:
        """Does nothing: the message has the model that was asked for."""

    def finish(self, ending: Ending, completed_at: int, routing: Routing | None) -> bytes:
        """Makes the whole message."""
        self.fault = ending.fault() or (None if ending.is_final else self.fault)
        if self.fault is None and ending.status == "incomplete" and ending.reason not in _REASONS:
            self.fault = ProtocolError("response_cancelled", "The request was cancelled.")
        reason = _REASONS.get(ending.reason or "", "end_turn")
        if self._is_warm_up:
            reason = "max_tokens"
        elif reason == "end_turn" and any(block.kind == "tool_use" for block in self._blocks):
            reason = "tool_use"
        elif reason == "end_turn" and any(block.refuses for block in self._blocks):
            reason = "refusal"
        delta: dict[str, Any] = {"stop_reason": reason, "stop_sequence": None}
        if ending.stop_sequence is not None and reason == "end_turn":
            delta |= {"stop_reason": "stop_sequence", "stop_sequence": ending.stop_sequence}
        if reason == "refusal":
            delta["stop_details"] = _REFUSED
        used = ending.usage  # of the conversation: clients read from it how full their context is
        if not used.num_input_tokens:
            used = msgspec.structs.replace(used, num_input_tokens=self._num_prompt_tokens)
        usage = _usage(used)
        self._last = {"delta": delta, "usage": usage}
        content = [block.whole("".join(block.pieces)) for block in self._blocks]
        self.body = _encode(self._message(content, delta, usage))
        return self.body

    def send_terminal(self) -> None:
        """Sends the reason for the end and the usage, or the error."""
        self.ended = True
        if self.fault is not None:
            self._event(b"error", _encode(error_body(self.fault))[1:-1], typed=False)
            return
        self._event(b"message_delta", _encode(self._last)[1:-1])
        self._event(b"message_stop", b"")

    @property
    def output(self) -> tuple[Item, ...]:
        """Returns the output items as the client's next request will bring them."""
        return tuple(filter(None, (block.item() for block in self._blocks)))

    def _message(
        self, content: list[dict[str, Any]], ended: dict[str, Any], usage: dict[str, Any]
    ) -> dict[str, Any]:
        head = {"id": self.id, "type": "message", "role": "assistant", "model": self._model}
        return {**head, "content": content, **ended, "usage": usage}

    def _delta(self, kind: bytes, field: bytes, text: str) -> None:
        if self._emit is not None:
            fields = b'"index":%d,"delta":{"type":"%b","%b":%b}'
            filled = fields % (len(self._blocks), kind, field, _encode(text))
            self._event(b"content_block_delta", filled)

    def _event(self, name: bytes, fields: bytes, *, typed: bool = True) -> None:
        self.num_events += 1
        if self._emit is None:
            return
        head = b'"type":"%b"' % name if typed else b""
        comma = b"," if head and fields else b""
        self._emit(b"event: %b\ndata: {%b%b%b}\n\n" % (name, head, comma, fields))


def _block_kind(delta: Delta, phase: str | None) -> BlockKind:
    if delta.kind is DeltaKind.TEXT:
        return "thinking" if phase == "commentary" else "text"
    return "thinking" if delta.kind is DeltaKind.REASONING else "tool_use"


def _usage(used: Usage) -> dict[str, Any]:
    """Writes a usage; Anthropic's `input_tokens` are those that no cache had, nor was written."""
    num_cached = min(used.num_cached_tokens, used.num_input_tokens)
    num_written = min(used.num_cache_write_tokens, used.num_input_tokens - num_cached)
    num_thought = min(used.num_reasoning_tokens, used.num_output_tokens)
    return {
        "input_tokens": used.num_input_tokens - num_cached - num_written,
        "cache_creation_input_tokens": num_written,
        "cache_read_input_tokens": num_cached,
        "output_tokens": used.num_output_tokens,
        "output_tokens_details": {"thinking_tokens": num_thought},
        "service_tier": used.service_tier if used.service_tier in _TIERS else "standard",
    }
