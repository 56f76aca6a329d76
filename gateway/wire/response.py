"""One response as a state machine: deltas in, numbered protocol events out.

States: not opened -> open -> ended. Driven by the pipeline; synchronous, without clock or socket.
Text deltas gather between flushes, so one event may hold many tokens. Sequence numbers start at 0
and rise by one with each event of this response.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from backends.contract import Compaction, Delta, DeltaKind, FunctionTool, Item, Usage
from gateway.wire.errors import ProtocolError
from gateway.wire.requests import ParsedCreate
from gateway.wire.response_json import (
    context_item,
    output_item,
    static_fields,
    text_part,
    usage_json,
)

Emit = Callable[[str, bytes], None]  # event type, JSON text

# Events that say what the next one implies; whoever writes may let them wait for it a little.
OPENING = frozenset({"response.created", "response.in_progress"})

_encode = msgspec.json.encode


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a response ended; `reason` is set for `incomplete`, `error` for `failed`."""

    status: str  # completed | incomplete | failed | cancelled
    usage: Usage
    reason: str | None = None
    error: dict[str, str] | None = None  # {code, message}, and param where a field was wrong
    retry_after_us: int | None = None  # where that is known of the error

    def fault(self) -> ProtocolError | None:
        """The error as it is told where a status still can be."""
        if self.error is None:
            return None
        return ProtocolError(
            self.error["code"],
            self.error["message"],
            param=self.error.get("param"),
            retry_after_us=self.retry_after_us,
        )


class ResponseWriter(Protocol):
    """What the pipeline drives: Responses events, or chat completion chunks."""

    def open(self, created_at: int, model: str, routing: dict[str, Any]) -> None: ...

    def push(self, delta: Delta, phase: str | None) -> None: ...

    def flush(self) -> None: ...

    def end_item(self) -> None: ...

    def update(self, routing: dict[str, Any]) -> None: ...

    def heartbeat(self) -> None: ...

    def send_about(self, event_type: str, fields: bytes) -> None: ...

    def close_items(self, ending: Ending) -> None: ...

    def answered_by(self, model: str) -> None: ...

    def finish(self, ending: Ending, completed_at: int, routing: dict[str, Any]) -> bytes: ...

    def send_terminal(self) -> None: ...

    @property
    def output(self) -> tuple[Item, ...]: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def ended(self) -> bool: ...

    @property
    def num_events(self) -> int: ...


class _OpenItem:
    """The output item that deltas go to now."""

    __slots__ = (
        "call_id",
        "head",
        "id",
        "kind",
        "name",
        "num_sent",
        "pending",
        "phase",
        "pieces",
        "sealed",
        "source",
    )

    def __init__(self, delta: Delta, item_id: str, phase: str | None) -> None:
        self.source = delta.index
        self.kind = delta.kind
        self.id = item_id
        self.phase = phase
        self.call_id = delta.call_id
        self.name = delta.name
        self.pieces: list[str] = []  # sent
        self.pending: list[str] = []  # not yet sent
        self.head = b""  # of its delta events, up to the text
        self.sealed = ""  # encrypted content of reasoning
        self.num_sent = 0


class ResponseStream:
    """Writes one response as Responses events; `emit` takes each event at once."""

    def __init__(
        self,
        parsed: ParsedCreate,
        emit: Emit,
        *,
        stream_id: str | None = None,
        on_dirty: Callable[["ResponseStream"], None] | None = None,
    ) -> None:
        self.id = parsed.id
        self._is_open = False
        self._ended = False
        self._parsed = parsed
        self._emit = emit
        self._on_dirty = on_dirty
        self._suffix = b"}" if stream_id is None else b',"stream_id":' + _encode(stream_id) + b"}"
        self._sequence_number = 0
        self._static = b""
        self._model = ""
        self._item: _OpenItem | None = None
        self._items: list[bytes] = []  # done ones, as on the wire
        self._output: list[Item] = []
        self._final: tuple[str, bytes] | None = None
        self._has_calls = False
        self._body = b""  # the response object as last sent, for heartbeats
        self._namespaces = {
            tool.name: tool.namespace for tool in parsed.tools if isinstance(tool, FunctionTool)
        }

    # -- driven by the pipeline ------------------------------------------------------------

    def open(self, created_at: int, model: str, routing: dict[str, Any]) -> None:
        """`response.created` and `response.in_progress`."""
        self._is_open = True
        self._static = static_fields(self._parsed, created_at)
        self._model = model
        body = self._response("in_progress", None, None, None, routing, None)
        self._event("response.created", b'"response":' + body)
        self._event("response.in_progress", b'"response":' + body)
        self._body = body

    def push(self, delta: Delta, phase: str | None = None) -> None:
        """A piece of output: the first of an item goes out at once, later ones with the flush."""
        item = self._item
        if item is None or item.source != delta.index:
            if item is not None:
                self._close_item("completed")
            item = self._open_item(delta, phase)
        if delta.sealed:
            item.sealed = delta.sealed
        if delta.text:
            item.pending.append(delta.text)
            if item.num_sent == 0 or self._on_dirty is None:
                self.flush()
            elif len(item.pending) == 1:
                self._on_dirty(self)

    def flush(self) -> None:
        """Send what has gathered, as one delta event."""
        item = self._item
        if item is None or not item.pending:
            return
        if item.kind is DeltaKind.REASONING and item.num_sent == 0:
            place = item.head.removesuffix(b',"delta":')
            part = b',"part":{"type":"summary_text","text":""}'
            self._event("response.reasoning_summary_part.added", place + part)
        text = "".join(item.pending) if len(item.pending) > 1 else item.pending[0]
        item.pending.clear()
        item.pieces.append(text)
        item.num_sent += 1
        self._event(_DELTA_TYPES[item.kind], item.head + _encode(text))

    def end_item(self) -> None:
        """The item in hand is whole, though the response goes on."""
        if self._item is not None:
            self._close_item("completed")

    def add_compaction(self, item: Compaction) -> None:
        """An output item that is whole when it is known; nothing else may be open."""
        place = b'"output_index":' + str(len(self._items)).encode()
        whole = {"id": item.id, "type": "compaction", "encrypted_content": item.encrypted_content}
        added = _encode(whole | {"encrypted_content": ""})
        self._event("response.output_item.added", place + b',"item":' + added)
        named = b',"item_id":' + _encode(item.id)
        self._event("response.compaction.compacting", place + named)
        self._event("response.output_item.done", place + b',"item":' + _encode(whole))
        self._items.append(_encode(whole))
        self._output.append(item)

    def update(self, routing: dict[str, Any]) -> None:
        """Say what has changed in `routing`: `response.in_progress` again."""
        if self._is_open and not self._ended:
            self._body = self._response("in_progress", None, None, None, routing, None)
            self.heartbeat()

    def heartbeat(self) -> None:
        """An event for clients that count silence; Codex's idle timer sees only events."""
        if self._is_open and not self._ended:
            self._event("response.in_progress", b'"response":' + self._body)

    def close_items(self, ending: Ending) -> None:
        """End the open item. A steered one ends cleanly: what was said stays said."""
        if self._item is not None:
            cut = ending.status != "completed" and ending.reason != "steered"
            self._close_item("incomplete" if cut else "completed")

    def answered_by(self, model: str) -> None:
        """Name the model whose answer it became, where a race left that open at first."""
        self._model = model

    def finish(self, ending: Ending, completed_at: int, routing: dict[str, Any]) -> bytes:
        """The final response object as JSON; `send_terminal` sends it."""
        done_at = completed_at if ending.status == "completed" else None
        incomplete = {"reason": ending.reason} if ending.status == "incomplete" else None
        body = self._response(
            ending.status, done_at, ending.error, incomplete, routing, ending.usage
        )
        event = "incomplete" if ending.status == "cancelled" else ending.status
        self._final = (f"response.{event}", body)
        self._body = body
        return body

    def send_terminal(self) -> None:
        """The one terminal event."""
        assert self._final is not None
        assert not self._ended
        self._ended = True
        self._event(self._final[0], b'"response":' + self._final[1])

    def send_about(self, event_type: str, fields: bytes) -> None:
        """An event about this response; takes its next number."""
        self._event(event_type, fields)

    @property
    def output(self) -> tuple[Item, ...]:
        """The items that are done, as context for the next turn."""
        return tuple(self._output)

    @property
    def has_calls(self) -> bool:
        """Whether a call has begun: its output must come before anything can go on."""
        return self._has_calls

    @property
    def body(self) -> bytes:
        """The response object as JSON, as it stands."""
        return self._body

    @property
    def is_open(self) -> bool:
        """Whether its first event was sent."""
        return self._is_open

    @property
    def ended(self) -> bool:
        """Whether its terminal event was sent."""
        return self._ended

    @property
    def num_events(self) -> int:
        """How many events it has sent."""
        return self._sequence_number

    # -- items -----------------------------------------------------------------------------

    def _open_item(self, delta: Delta, phase: str | None) -> _OpenItem:
        index = str(len(self._items)).encode()
        item_id = (
            f"{_ID_PREFIXES[delta.kind]}_{self.id.removeprefix('resp_')}{len(self._items):04x}"
        )
        item = self._item = _OpenItem(delta, item_id, phase or delta.phase or None)
        self._has_calls = self._has_calls or delta.kind >= DeltaKind.FUNCTION_CALL
        added = (
            b'"output_index":' + index + b',"item":' + self._item_json(item, "in_progress", None)
        )
        self._event("response.output_item.added", added)
        place = b'"item_id":"' + item_id.encode() + b'","output_index":' + index
        if delta.kind is DeltaKind.TEXT:
            place += b',"content_index":0'
            part = b',"part":' + _encode(text_part(""))
            self._event("response.content_part.added", place + part)
            place += b',"logprobs":[]'
        elif delta.kind is DeltaKind.REASONING:
            place += b',"summary_index":0'
        item.head = place + b',"delta":'
        return item

    def _close_item(self, status: str) -> None:
        item = self._item
        assert item is not None
        self.flush()
        text = "".join(item.pieces)
        place = item.head.removesuffix(b',"delta":')
        if item.kind is DeltaKind.TEXT:
            self._event("response.output_text.done", place + b',"text":' + _encode(text))
            part = b',"part":' + _encode(text_part(text))
            place = place.removesuffix(b',"logprobs":[]')
            self._event("response.content_part.done", place + part)
        elif item.kind is DeltaKind.REASONING and text:
            done_text = place + b',"text":' + _encode(text)
            self._event("response.reasoning_summary_text.done", done_text)
            part = b',"part":' + _encode({"type": "summary_text", "text": text})
            self._event("response.reasoning_summary_part.done", place + part)
        elif item.kind is DeltaKind.FUNCTION_CALL:
            named = place + b',"name":' + _encode(item.name)
            arguments = named + b',"arguments":' + _encode(text)
            self._event("response.function_call_arguments.done", arguments)
        elif item.kind is DeltaKind.CUSTOM_CALL:
            self._event(
                "response.custom_tool_call_input.done", place + b',"input":' + _encode(text)
            )
        done = self._item_json(item, status, text)
        index = str(len(self._items)).encode()
        self._event("response.output_item.done", b'"output_index":' + index + b',"item":' + done)
        self._items.append(done)
        self._output.append(
            context_item(
                item.kind,
                item.id,
                text,
                phase=item.phase,
                call_id=item.call_id,
                name=item.name,
                namespace=self._namespaces.get(item.name),
                sealed=item.sealed,
            )
        )
        self._item = None

    def _item_json(self, item: _OpenItem, status: str, text: str | None) -> bytes:
        return _encode(
            output_item(
                item.kind,
                item.id,
                status,
                text,
                phase=item.phase,
                call_id=item.call_id,
                name=item.name,
                namespace=self._namespaces.get(item.name),
                sealed=item.sealed,
            )
        )

    # -- the wire --------------------------------------------------------------------------

    def _event(self, event_type: str, fields: bytes) -> None:
        number = self._sequence_number
        self._sequence_number = number + 1
        event = b'{"type":"%b","sequence_number":%d,%b%b'
        self._emit(event_type, event % (event_type.encode(), number, fields, self._suffix))

    def _response(
        self,
        status: str,
        completed_at: int | None,
        error: dict[str, str] | None,
        incomplete: dict[str, str | None] | None,
        routing: dict[str, Any],
        usage: Usage | None,
    ) -> bytes:
        changing = {
            "model": self._model,
            "status": status,
            "completed_at": completed_at,
            "error": error,
            "incomplete_details": incomplete,
            "usage": None if usage is None else usage_json(usage),
            "routing": routing,
        }
        output = b',"output":[' + b",".join(self._items) + b"],"
        return self._static + output + _encode(changing)[1:]


_DELTA_TYPES = {
    DeltaKind.TEXT: "response.output_text.delta",
    DeltaKind.REASONING: "response.reasoning_summary_text.delta",
    DeltaKind.FUNCTION_CALL: "response.function_call_arguments.delta",
    DeltaKind.CUSTOM_CALL: "response.custom_tool_call_input.delta",
}
_ID_PREFIXES = {
    DeltaKind.TEXT: "msg",
    DeltaKind.REASONING: "rs",
    DeltaKind.FUNCTION_CALL: "fc",
    DeltaKind.CUSTOM_CALL: "ctc",
}


def emitting(send: Callable[[bytes], None], hold: Callable[[bytes], None]) -> Emit:
    """Each event to whom it is for: `hold` takes those of `OPENING`."""
    return lambda kind, event: hold(event) if kind in OPENING else send(event)


def unheard(parsed: ParsedCreate) -> ResponseStream:
    """A response whose events nobody hears: it is read when it is whole."""
    return ResponseStream(parsed, _unheard, on_dirty=_unflushed)


def _unheard(event_type: str, data: bytes) -> None:
    """Takes the events."""


def _unflushed(stream: ResponseStream) -> None:
    """Lets text gather until its item ends."""
