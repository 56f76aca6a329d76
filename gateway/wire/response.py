"""Writes one response as a state machine: deltas come in, numbered protocol events go out.

States: not opened -> open -> ended. Text deltas are buffered between flushes, so one event may hold
many tokens. Sequence numbers start at 0 and rise by one with each event of this response.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from backends.contract import (
    FUNCTION_CALL,
    REASONING,
    TEXT,
    BackendGroup,
    Compaction,
    Delta,
    FunctionTool,
    Item,
    Message,
    Usage,
)
from backends.prompt import parts_text
from gateway.wire.errors import ProtocolError
from gateway.wire.item_events import (
    CREATED,
    EVENT,
    IN_PROGRESS,
    ITEM_ADDED,
    ITEM_DONE,
    KINDS,
    REFUSALS,
    suffix_of,
)
from gateway.wire.output_items import ASIDE, CompactionOutput, OpenItem, reopened, response_usage
from gateway.wire.requests import ParsedCreate
from gateway.wire.response_json import (
    BEGUN,
    IncompleteDetails,
    ResponseError,
    ResponseState,
    asked_tier,
    rejoined_json,
    start_json,
)
from gateway.wire.routing import RoutedRejoin, Routing, Unrouted
from router.waiting.fair_queue import QueuePosition

Emit = Callable[..., object]  # takes the type of the last event, and JSON texts of one or several

_encode = msgspec.json.encode


class Ending(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Says how a response ended; `reason` is set for `incomplete`, `error` for `failed`."""

    status: str  # completed | incomplete | failed | cancelled
    usage: Usage
    reason: str | None = None
    error: ResponseError | None = None
    retry_after_us: int | None = None  # where that is known of the error
    stop_sequence: str | None = None  # that ended it, where that is known

    @property
    def is_final(self) -> bool:
        """Says whether it came to its own end: nothing failed, and nobody stopped it."""
        return self.status == "completed" or self.reason in ("max_output_tokens", "content_filter")

    def fault(self) -> ProtocolError | None:
        """Returns the error, for clients whose HTTP status is not sent yet."""
        error, after_us = self.error, self.retry_after_us
        if error is None:
            return None
        return ProtocolError(error.code, error.message, param=error.param, retry_after_us=after_us)


class DeltaSource(Protocol):
    """Produces a response's deltas, and can be paused as `backends.contract.Generation`."""

    def pause(self) -> bool: ...

    def resume(self) -> None: ...


class ResponseWriter(Protocol):
    """Writes a response in one of the protocols; the pipeline calls it."""

    id: str
    is_open: bool = False  # its first event was sent
    ended: bool = False  # its terminal event was sent
    num_events: int = 0  # that were sent
    body: bytes = b""  # the whole object as JSON, as last sent
    fault: ProtocolError | None = None  # why there is no whole object, though nothing failed
    source: DeltaSource | None = None  # while it runs
    has_calls: bool = False  # one has begun: its output must come before anything goes on
    words_at_us: int = 0  # its engine's time of the first word; 0: none yet
    _on_dirty: "Callable[[ResponseWriter], None]"  # called when there is text to flush
    _pending: list[str]  # text that is not sent yet

    @property
    def output(self) -> tuple[Item, ...]: ...  # the items that are done, for the next turn

    def open(self, created_at: int, model: str, routing: Routing) -> None: ...

    def push(self, delta: Delta, phase: str | None) -> Callable[[str], None] | None:
        """Takes a delta; returns a shorter way for text that goes on with it, until the next."""
        ...

    def _more(self, text: str) -> None:
        """Buffers text that goes on with the latest delta's."""
        self._pending.append(text)
        if len(self._pending) == 1:
            self._on_dirty(self)

    def flush(self) -> None: ...

    def gathered_bytes(self) -> int:
        """Joins the text that is to be flushed, and returns its size as UTF-8."""
        if not self._pending:
            return 0
        text = "".join(self._pending)
        self._pending[:] = [text]
        return len(text) if text.isascii() else len(text.encode(errors="replace"))

    def words(self) -> tuple[str, bool]:
        """Returns the text of the answer so far, and whether a call has begun."""
        raise NotImplementedError

    def pause(self) -> bool:
        """Stops new deltas until `resume`; returns false if others would have to stop as well."""
        return self.source is None or self.source.pause()

    def resume(self) -> None:
        """Lets deltas come again; harmless if they were not paused."""
        if self.source is not None:
            self.source.resume()

    def end_item(self, *, is_cut: bool = False) -> None:
        """Ends the open item, which may be cut, while the response goes on."""
        self.flush()

    def update(self, routing: Routing) -> None:
        """Sends a changed `routing`, if the protocol has an event for it."""
        return

    def heartbeat(self) -> None:
        """Sends an event for clients with an idle timeout, such as Codex."""
        if self.is_open and not self.ended:
            self._send_heartbeat()

    def _send_heartbeat(self) -> None: ...

    def send_about(self, event_type: str, fields: bytes) -> None:
        """Sends an event about this response, if the protocol has such events."""
        return

    def close_items(self, ending: Ending) -> None: ...

    def answered_by(self, model: str) -> None: ...

    def finish(self, ending: Ending, completed_at: int, routing: Routing | None) -> bytes: ...

    def send_terminal(self) -> None: ...


class ResponseStream(ResponseWriter):
    """Writes one response as Responses events; `emit` takes each event at once."""

    def __init__(
        self,
        parsed: ParsedCreate,
        emit: Emit,
        *,
        stream_id: str | None = None,
        on_dirty: Callable[[ResponseWriter], None] | None = None,
    ) -> None:
        self.id = parsed.id
        self._on_dirty = on_dirty or at_once
        self._parsed = parsed
        self._emit = emit
        self._suffix = suffix_of(stream_id)
        self._start = b""
        self._model = ""
        self._asked_tier = asked_tier(parsed.body.service_tier)
        self._item: OpenItem | None = None
        self._pending = []  # text of the open item
        self._items: list[msgspec.Raw] = []  # done ones, as on the wire
        self._output: list[Item] = []
        self.done_numbers: list[int] = []  # of the events that ended them
        self._final = ""  # the type of the terminal event

    def open(self, created_at: int, model: str, routing: Routing) -> None:
        """Sends `response.created` and `response.in_progress`."""
        self.is_open = True
        self._start, self._model = start_json(self._parsed, created_at), model
        self.body = self._running(routing)
        self._send_begun(self.body)

    def _send_begun(self, body: bytes) -> None:
        number, suffix = self.num_events, self._suffix
        self.num_events = number + 2
        created = CREATED % (number, body, suffix)
        self._emit("response.in_progress", created, IN_PROGRESS % (number + 1, body, suffix))

    def send_turn_state(self, state: str) -> None:
        """Sends what Codex is to send back with its turn's other requests; no event of ours."""
        fields = b'{"type":"response.metadata","headers":{"x-codex-turn-state":%b}%b'
        self._emit("response.metadata", fields % (_encode(state), self._suffix))

    def push(self, delta: Delta, phase: str | None = None) -> Callable[[str], None] | None:
        """Sends the first piece of an item at once, and buffers later ones.

        `phase` is the strategy's: what it calls commentary is no part of the next turn's context.
        """
        item = self._item
        if item is None or item.source != delta.index:
            if item is not None:
                self._close_item("completed")
            item = self._open_item(delta, phase)
        if delta.sealed and not item.is_aside:
            item.sealed = delta.sealed
        if delta.text:
            self._pending.append(delta.text)
            if not item.pieces:
                self.flush()
            elif len(self._pending) == 1:
                self._on_dirty(self)
        return self._more if item.pieces else None

    def flush(self) -> None:
        """Sends the buffered text as one delta event."""
        item = self._item
        if not self._pending:
            return
        assert item is not None
        if not item.pieces and item.kind is REASONING:
            where = self.num_events, item.id.encode(), item.index, self._suffix
            self.num_events += 1
            added = KINDS[REASONING].part_added % where
            self._emit("response.reasoning_summary_part.added", added)
        text = "".join(self._pending)
        self._pending.clear()
        item.pieces.append(text)
        number = self.num_events
        self.num_events = number + 1
        self._emit(item.delta_type, item.delta_format % (number, _encode(text)))

    def words(self) -> tuple[str, bool]:
        texts = [parts_text(item.content) for item in self._output if isinstance(item, Message)]
        item = self._item
        if item is not None and item.kind is TEXT:
            texts.append("".join((*item.pieces, *self._pending)))
        return "\n\n".join(texts), self.has_calls

    def end_item(self, *, is_cut: bool = False) -> None:
        if self._item is not None and not (is_cut and self.calls):  # see `close_items`
            self._close_item("incomplete" if is_cut else "completed")

    def add_compaction(self, item: Compaction) -> None:
        """Writes a whole compaction item; no item may be open."""
        whole = _encode(CompactionOutput(item.id, "compaction", item.encrypted_content))
        self._send_compaction(item.id, len(self._items), whole)
        self._items.append(msgspec.Raw(whole))
        self.done_numbers.append(self.num_events - 1)
        self._output.append(item)

    def _send_compaction(self, item_id: str | None, index: int, whole: bytes) -> None:
        position = b'"output_index":%d' % index
        added = CompactionOutput(item_id, "compaction", "")
        self._event("response.output_item.added", position + b',"item":' + _encode(added))
        named = b',"item_id":' + _encode(item_id)
        self._event("response.compaction.compacting", position + named)
        self._event("response.output_item.done", position + b',"item":' + whole)

    def update(self, routing: Routing) -> None:
        if self.is_open and not self.ended:
            self.body = self._running(routing)
            self._send_heartbeat()

    def _send_heartbeat(self) -> None:
        self._event("response.in_progress", b'"response":' + self.body)

    def close_items(self, ending: Ending) -> None:
        """Ends the open item; a steered one is `completed`, unless it is a call.

        A call of a failed response is dropped instead: clients run a call once its item is done,
        whatever its status, and would run it again when they repeat the request.
        """
        if ending.status == "failed" and self.calls:
            self._item = None
            self._pending.clear()
        elif self._item is not None:
            cut = ending.status != "completed" and (ending.reason != "steered" or self.calls)
            self._close_item("incomplete" if cut else "completed")

    def answered_by(self, model: str) -> None:
        """Sets the model that answered, which a strategy decides late."""
        self._model = model

    def finish(self, ending: Ending, completed_at: int, routing: Routing | None) -> bytes:
        """Makes the final response object; `routing` is None if the gateway failed."""
        status, reason, usage = ending.status, ending.reason, ending.usage
        self._final = f"response.{'incomplete' if status == 'cancelled' else status}"
        state = ResponseState(
            output=self._items,
            model=self._model,
            service_tier=usage.service_tier or self._asked_tier,
            status=status,
            completed_at=completed_at if status == "completed" else None,
            error=ending.error,
            incomplete_details=IncompleteDetails(reason) if status == "incomplete" else None,
            usage=response_usage(usage),
            routing=routing or Unrouted(),
        )
        self.body = b"%b,%b" % (self._start, _encode(state)[1:])
        return self.body

    def send_terminal(self) -> None:
        """Sends the terminal event."""
        assert self._final
        assert not self.ended
        self.ended = True
        self._event(self._final, b'"response":' + self.body)

    def send_about(self, event_type: str, fields: bytes) -> None:
        self._event(event_type, fields)

    def report_queue_position(self, group: BackendGroup, position: QueuePosition) -> None:
        """Sends the position in a pool's queue, if the client asked for it (ours)."""
        fields = {
            "response_id": self.id,
            "group": group,
            "place": position.position,
            "expected_wait_ms": -(-position.expected_us // 1_000),
        }
        self._event("response.waiting", _encode(fields)[1:-1])

    @property
    def done_items(self) -> tuple[msgspec.Raw, ...]:
        """Returns the finished items as the client was sent them, asides included."""
        return tuple(self._items)

    @property
    def calls(self) -> bool:
        """Says whether the open item is a call."""
        return self._item is not None and self._item.kind >= FUNCTION_CALL

    def leave(self) -> None:
        """Goes on without a client: events are numbered and not sent, until `join`."""
        self._emit, self._on_dirty = _unheard, _unheard

    def join(
        self,
        emit: Emit,
        on_dirty: Callable[[ResponseWriter], None],
        stream_id: str | None,
        num_held: int,
        rejoined: RoutedRejoin,
    ) -> None:
        """Goes on with a client that holds the first finished items: it gets the others.

        A finished item comes with its text in one delta, the open one with what it has so far.
        """
        self.flush()
        self._emit, self._on_dirty = emit, on_dirty
        self._suffix = suffix_of(stream_id)
        if not self.is_open:
            return
        created = rejoined_json(self.body, rejoined, self._items[:num_held])
        self.body = rejoined_json(self.body, rejoined) if self._final else created
        self._send_begun(created)
        for index in range(num_held, len(self._items)):
            self._send_again(index)
        item = self._item
        if item is not None:
            text = "".join(item.pieces)
            item.pieces, self._pending = [], [text] if text else []
            self._send_added(item, len(self._items))
            self.flush()
        if self.ended:
            self._event(self._final, b'"response":' + self.body)

    def _send_again(self, index: int) -> None:
        """Sends a finished item whole."""
        whole = bytes(self._items[index])
        item, text = reopened(whole)
        if item is None:
            self._send_compaction(text or None, index, whole)
        else:
            self._send_added(item, index)
            self._pending = [text] if text else []
            running, self._item = self._item, item
            self.flush()
            self._item = running
            self._send_done(item, index, text, whole)
        self.done_numbers[index] = self.num_events - 1

    @property
    def output(self) -> tuple[Item, ...]:
        """Returns the finished items, as context for the next turn."""
        return tuple(self._output)

    def _open_item(self, delta: Delta, phase: str | None) -> OpenItem:
        index = len(self._items)
        kind, is_aside = delta.kind, phase == "commentary"
        if is_aside and not self._parsed.shows_commentary:
            kind = REASONING  # clients show it apart, and no SDK takes it for the answer
        number = f"{self.id.removeprefix('resp_')}{index:04x}{ASIDE if is_aside else ''}"
        item_id = f"{KINDS[kind].id_prefix}_{number}"
        phase, name = phase or delta.phase or None, delta.name
        item = OpenItem(delta.index, kind, item_id, phase, delta.call_id, name)
        item.is_aside, item.refuses = is_aside, delta.refuses and kind is TEXT
        if kind >= FUNCTION_CALL:
            tools = (each for each in self._parsed.tools if isinstance(each, FunctionTool))
            namespaces = {tool.name: tool.namespace for tool in tools}
            self.has_calls, item.namespace = True, namespaces.get(name)
        if not self.words_at_us and kind is not REASONING:
            self.words_at_us = delta.at_us
        self._item = item
        self._send_added(item, index)
        return item

    def _send_added(self, item: OpenItem, index: int) -> None:
        number, suffix = self.num_events, self._suffix
        self.num_events = number + 1
        events = REFUSALS if item.refuses else KINDS[item.kind]
        added = ITEM_ADDED % (number, index, _encode(item.output("in_progress", None)), suffix)
        item_id, item.index, item.delta_type = item.id.encode(), index, events.delta
        escaped = suffix.replace(b"%", b"%%")  # it may have the client's name of a stream
        item.delta_format = events.delta_format % (item_id, index, escaped)
        if item.kind is TEXT:
            self.num_events = number + 2
            part = events.part_added % (number + 1, item_id, index, suffix)
            self._emit("response.content_part.added", added, part)
        else:
            self._emit("response.output_item.added", added)

    def _close_item(self, status: str) -> None:
        item = self._item
        assert item is not None
        self.flush()
        text = "".join(item.pieces)
        done = _encode(item.output(status, text))
        self._send_done(item, len(self._items), text, done)
        self._items.append(msgspec.Raw(done))
        self.done_numbers.append(self.num_events - 1)
        if not item.is_aside:
            self._output.append(item.context_item(text, is_cut=status == "incomplete"))
        self._item = None

    def _send_done(self, item: OpenItem, index: int, text: str, done: bytes) -> None:
        number, suffix, ended = self.num_events, self._suffix, []
        if text or item.kind is not REASONING:
            events = REFUSALS if item.refuses else KINDS[item.kind]
            item_id, written = item.id.encode(), _encode(text)
            more = b',"name":' + _encode(item.name) if item.kind is FUNCTION_CALL else b""
            ended.append(events.done % (number, item_id, index, more, written, suffix))
            if events.part_done:
                ended.append(events.part_done % (number + 1, item_id, index, written, suffix))
        number += len(ended)
        self.num_events = number + 1
        whole = ITEM_DONE % (number, index, done, suffix)
        self._emit("response.output_item.done", *ended, whole)

    def _event(self, event_type: str, fields: bytes) -> None:
        number = self.num_events
        self.num_events = number + 1
        self._emit(event_type, EVENT % (event_type.encode(), number, fields, self._suffix))

    def _running(self, routing: Routing) -> bytes:
        """Writes the object of a response that goes on."""
        state = msgspec.structs.replace(
            BEGUN,
            output=self._items,
            model=self._model,
            service_tier=self._asked_tier,
            routing=routing,
        )
        return b"%b,%b" % (self._start, _encode(state)[1:])


def at_once(writer: ResponseWriter) -> None:
    """Sends text as it comes, where nobody gathers it."""
    writer.flush()


def _unheard(*_: object) -> None:
    """Takes what nobody hears."""


def unheard(parsed: ParsedCreate) -> ResponseStream:
    """Makes a writer without a client, which buffers text until its item ends."""
    return ResponseStream(parsed, _unheard, on_dirty=_unheard)
