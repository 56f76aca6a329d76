"""Is one connection as a state machine: its streams, their order, limits and recent responses.

The edge passes in decoded events and the ends of jobs; it returns actions, and does no I/O. Limits
are those of the Responses WebSocket guide unless a comment says ours.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from gateway.core.job import Ended, Job
from gateway.rejoin.recent_responses import RecentResponses, Remembered
from gateway.rejoin.unconfirmed import Unconfirmed
from gateway.session.actions import Action, Join, RedirectJob, RejoinJob, StartJob, StopJob
from gateway.session.stream_state import (
    MAX_NAMED_STREAMS,
    MAX_WAITING,
    MAX_WAITING_BYTES,
    Active,
    Losable,
    Stream,
    Waiting,
    check_idle,
    check_steers,
    redirectable,
    remembered_of,
    too_many_streams,
    too_much_waiting,
    with_steers,
)
from gateway.transport.byte_budgets import Budgets, ByteBudgets, MemoryBudgets
from gateway.wire.errors import ProtocolError, cancelled_in_queue, missing_parameter, too_many_bytes
from gateway.wire.events import (
    BadFrameError,
    ClientEvent,
    ResponseCancel,
    ResponseCreate,
    ResponseInject,
    ResponseRejoin,
    ResponseSteer,
    stream_id_of,
)
from gateway.wire.items import InputReader
from gateway.wire.requests import ParsedCreate, parse_create
from gateway.wire.response import Emit, ResponseStream, ResponseWriter
from gateway.wire.steering import Steer, failed_fields, inject_failed, parse_steer, steer_failed
from router.classify.task import Tenant

MAX_RUNNING = 16


class Session:
    """Handles one connection's events.

    `send` takes frames in order, and `emit` events of responses, with their types.
    """

    def __init__(
        self,
        tenant: Tenant,
        send: Callable[[bytes], None],
        on_dirty: Callable[[ResponseWriter], None],
        new_id: Callable[[], str],
        max_context_tokens: int | None = None,
        emit: Emit | None = None,
        *,
        in_flight: ByteBudgets | None = None,
        memory: MemoryBudgets | None = None,
        is_codex: bool = False,
        note_ended: Callable[[Unconfirmed], None] | None = None,
        remembered: Callable[[str], Remembered | None] | None = None,
    ) -> None:
        """Counts what it holds of the tenant's in `in_flight` and `memory`.

        Args:
            is_codex: The client takes a turn's state as an event, and sends it back.
            note_ended: Takes each stream's latest ended response, and forgets it in time.
            remembered: Finds a response that another connection of the client remembered.
        """
        self._note_ended = note_ended
        self._remembered_elsewhere = remembered
        self.tenant = tenant
        self._is_codex = is_codex
        self._in_flight = in_flight or Budgets().in_flight
        self._send = send
        self._emit: Emit = emit or (lambda _, *events: list(map(send, events)))
        self._on_dirty = on_dirty
        self._new_id = new_id
        self._max_context_tokens = max_context_tokens
        self._streams: dict[str | None, Stream] = {}
        self._active: dict[str, Active] = {}
        self._ready: list[Stream] = []  # idle streams whose turn comes when one ends
        self._recent = RecentResponses(tenant_id=tenant.id, budgets=memory)
        self._num_waiting = 0
        self._waiting_bytes = 0
        self._closing: ProtocolError | None = None

    def close(self, error: ProtocolError) -> None:
        """Refuses waiting requests with the error, and starts no more; running ones may end."""
        self._closing = error
        for stream in self._streams.values():
            for waiting in stream.waiting:
                self._send(error.event(stream.id))
                self._in_flight.give(self.tenant.id, waiting.num_bytes)
            stream.waiting.clear()
        self._ready.clear()

    def end(self) -> None:
        """Gives back what the connection's requests and responses took; nothing runs any more."""
        for stream in self._streams.values():
            for waiting in stream.waiting:
                self._in_flight.give(self.tenant.id, waiting.num_bytes)
            stream.waiting.clear()
            if stream.last is not None:
                stream.last.clear()
        for active in self._active.values():
            self._in_flight.give(self.tenant.id, active.num_bytes)
        self._active.clear()
        self._recent.clear()
        self._remembered_elsewhere = None  # the connection's own method, which is a cycle

    def losable(self) -> list[Losable]:
        """Returns the running responses that may go on without the connection."""
        actives = self._active.values()
        return [
            Losable(each.job, each.writer, each.num_bytes)
            for each in actives
            if not each.steers and each.job.stopped is None
        ]

    def unconfirmed(self) -> list[Unconfirmed]:
        """Returns the ended responses whose last events the client may not have received."""
        return [stream.last for stream in self._streams.values() if stream.last is not None]

    def let_go(self, job: Job) -> None:
        """Takes out a response that goes on without the connection."""
        active = self._active.pop(job.parsed.id)
        self._streams[active.job.stream_id].active = None

    def go_on(self, stream_id: str | None) -> list[Action]:
        """Starts what waits behind a response that was let go of, where the connection goes on."""
        if self._streams[stream_id].waiting:
            self._ready.append(self._streams[stream_id])
        return self._start_ready()

    def give_memory(self) -> RecentResponses:
        """Hands over the responses that the connection remembers, which forgets them."""
        recent, self._recent = self._recent, RecentResponses()
        return recent

    def join(self, job: Job, lost: Job, writer: ResponseStream, num_bytes: int) -> Join:
        """Puts a response that the client came back to in the place of the job that asked for it.

        Returns where its writer goes on.
        """
        active = self._active.pop(job.parsed.id)
        active.job, active.writer = lost, writer
        active.num_bytes += num_bytes
        self._active[lost.parsed.id] = active
        lost.stream_id = job.stream_id
        lost.refuse = lambda error: self._refuse(lost.parsed.id, error)
        if job.stopped is not None:
            lost.stop(job.stopped)
        return Join(self._emit, self._on_dirty, job.stream_id)

    def receive(
        self,
        event: ClientEvent,
        num_bytes: int,
        now_us: int,
        own_input: InputReader | None = None,
    ) -> list[Action]:
        """Handles one client event, and returns what to do; its input may have been read before."""
        if isinstance(event, ResponseCreate):
            return self._create(event, num_bytes, now_us, own_input)
        if isinstance(event, ResponseSteer):
            return self._steer(event, num_bytes, now_us)
        if isinstance(event, ResponseCancel):
            return self._cancel(event)
        if isinstance(event, ResponseRejoin):
            return self._rejoin(event)
        if isinstance(event, ResponseInject):
            self._send(inject_failed(event))
        return []

    def reject(self, bad: BadFrameError) -> None:
        """Sends the error for a frame that could not be decoded."""
        if bad.frame.get("type") == "response.steer":
            target = bad.frame.get("previous_response_id")
            message = (
                "Expected exactly 'type', 'previous_response_id' and 'input' in a steer. "
                + bad.error.message
            )
            error = ProtocolError("invalid_input", message, param=bad.error.param)
            self._refuse_steer(target, bad.frame.get("input"), error)
        else:
            self._send(bad.error.event(bad.stream_id))

    def _create(
        self, event: ResponseCreate, num_bytes: int, now_us: int, own_input: InputReader | None
    ) -> list[Action]:
        stream_id: str | None = None
        try:
            if event.stream_id is not msgspec.UNSET:
                stream_id = stream_id_of(event.stream_id)
            if event.background:
                message = "'background' is not supported on a WebSocket: use POST /v1/responses."
                raise ProtocolError("unsupported_parameter", message, param="background")
            stream = self._streams.get(stream_id)
            last = None if stream is None else stream.last
            parsed = parse_create(
                event,
                f"resp_{self._new_id()}",
                generate=event.generate is not False,
                max_tokens=self._max_context_tokens,
                own_input=own_input,
                store=self.tenant.store,
                like=last.job.parsed if last is not None and last.job is not None else None,
            )
            stream = stream or self._open_stream(stream_id)
            waiting_bytes = self._waiting_bytes + num_bytes
            if self._num_waiting >= MAX_WAITING or waiting_bytes > MAX_WAITING_BYTES:
                raise too_much_waiting()
            if not self._in_flight.take(self.tenant.id, num_bytes):
                raise too_many_bytes(self._in_flight.max_tenant_bytes)
        except ProtocolError as error:
            self._send(error.event(stream_id))
            return []
        if last is not None:  # the client goes on, so it has received that
            last.clear()
            stream.last = None
        waiting, active = Waiting(parsed, num_bytes, now_us), stream.active
        if active is None and not stream.waiting and len(self._active) < MAX_RUNNING:
            return [StartJob(self._begin(stream, waiting).job)]
        stream.waiting.append(waiting)
        self._num_waiting, self._waiting_bytes = self._num_waiting + 1, waiting_bytes
        if active is None and len(stream.waiting) == 1:
            self._ready.append(stream)
        if active is not None and not active.job.parsed.generate:
            return [StopJob(active.job, "awaited")]  # its turn has come
        return []

    def _rejoin(self, event: ResponseRejoin) -> list[Action]:
        stream_id: str | None = None
        try:
            stream_id = stream_id_of(event.stream_id)
            stream = self._streams.get(stream_id) or self._open_stream(stream_id)
            if (after := stream.ending) is None:
                check_idle(stream)
        except ProtocolError as error:
            self._send(error.event(stream_id))
            return []
        return [RejoinJob(stream_id, event.response_id, event.starting_after, after)]

    def adopt(self, lost: Job, writer: ResponseStream, stream_id: str | None) -> Join:
        """Goes on with a response of another connection; raises `ProtocolError` if it cannot."""
        stream = self._streams[stream_id]
        check_idle(stream)
        lost.stream_id = stream_id
        # It runs already, so it may be one more than `MAX_RUNNING`.
        self._active[lost.parsed.id] = stream.active = Active(lost, writer)
        lost.refuse = lambda error: self._refuse(lost.parsed.id, error)
        return Join(self._emit, self._on_dirty, stream_id)

    def _open_stream(self, stream_id: str | None) -> Stream:
        num_named = len(self._streams) - (None in self._streams)
        if stream_id is not None and num_named >= MAX_NAMED_STREAMS:
            raise too_many_streams()
        stream = self._streams[stream_id] = Stream(stream_id, deque())
        return stream

    def _cancel(self, event: ResponseCancel) -> list[Action]:
        active = self._active.get(event.response_id)
        if active is not None:
            return [StopJob(active.job, "cancelled")]
        subtask = self._subtask(event.response_id)
        if subtask is not None:
            return [RedirectJob(subtask[0].job, subtask[1], None)]
        try:
            if not event.response_id:
                return self._cancel_on(event.stream_id)
            message = f"No response '{event.response_id[:80]}' is running on this connection."
            raise ProtocolError("response_not_found", message, param="response_id")
        except ProtocolError as error:
            self._send(error.event(None))
            return []

    def _cancel_on(self, value: object) -> list[Action]:
        """Stops what runs on a stream, or takes back the first that waits: it has no id yet."""
        if (stream_id := stream_id_of(value)) is None:
            raise missing_parameter("response_id", " Or name its stream as 'stream_id'.")
        stream = self._streams.get(stream_id)
        if stream is not None and (job := stream.unended) is not None:
            return [StopJob(job, "cancelled")]
        if stream is None or not stream.waiting:
            message = f"Nothing runs or waits on stream '{stream_id}' of this connection."
            raise ProtocolError("response_not_found", message, param="stream_id")
        waiting = stream.waiting.popleft()
        self._num_waiting -= 1
        self._waiting_bytes -= waiting.num_bytes
        self._in_flight.give(self.tenant.id, waiting.num_bytes)
        if not stream.waiting and stream in self._ready:
            self._ready.remove(stream)
        self._send(cancelled_in_queue().event(stream_id))
        return []

    def _subtask(self, subtask_id: str) -> tuple[Active, int] | None:
        """Finds the response and the number of a running sub-task."""
        response_id, _, number = subtask_id.rpartition("-d")
        active = self._active.get(response_id)
        if active is None or not number.isdecimal() or len(number) > 4:
            return None
        return (active, int(number)) if int(number) in active.job.delegations else None

    def _steer(self, event: ResponseSteer, num_bytes: int, now_us: int) -> list[Action]:
        target = event.previous_response_id
        subtask = self._subtask(target) if isinstance(target, str) else None
        try:
            items = parse_steer(event, self._max_context_tokens)
            active = self._steerable(target) if subtask is None else redirectable(subtask[0])
            if not self._in_flight.take(self.tenant.id, num_bytes):
                raise too_many_bytes(self._in_flight.max_tenant_bytes)
        except ProtocolError as error:
            self._refuse_steer(target, event.input, error)
            return []
        active.num_bytes += num_bytes
        steer = Steer(f"steer_{self._new_id()}", target, items, event.input, now_us)
        active.writer.send_about("response.steer.accepted", steer.fields())
        if subtask is not None:
            active.num_redirects += 1
            return [RedirectJob(active.job, subtask[1], items)]
        active.steers.append(steer)
        if active.writer.has_calls or active.job.parsed.tool_choice.mode == "required":
            return []  # calls must be complete: steers apply after their outputs
        return [StopJob(active.job, "steered")]

    def _steerable(self, target: str) -> Active:
        active = self._active.get(target)
        if active is None or not active.writer.is_open:
            raise self._not_steerable(target)
        check_steers(active)
        return active

    def _not_steerable(self, target: str) -> ProtocolError:
        if self._recent.get(target) is not None:
            message = "The response has ended. Send a response.create that continues it."
            return ProtocolError("response_already_completed", message)
        message = f"No response {target!r:.80} on this connection."
        return ProtocolError("response_not_found", message)

    def _refuse_steer(self, target: Any, value: Any, error: ProtocolError) -> None:
        """Refuses a steer, in the next event of its target, where that is known."""
        response_id = target if isinstance(target, str) else ""
        fields = failed_fields(error, response_id, value)
        active = self._active.get(response_id)
        if active is not None and active.writer.is_open:
            active.writer.send_about("response.steer.failed", fields)
            return
        stream_id, number = active.job.stream_id if active else None, 0
        past = self._recent.get(response_id)
        if past is not None:
            stream_id, number = past.stream_id, past.num_events
            past.num_events += 1
        self._send(steer_failed(fields, stream_id, number))

    def _settle_steers(self, active: Active, ended: Ended | None) -> Active | None:
        """Starts the successor of a steered response that ended, or fails its steers."""
        if ended is None or ended.ending.status in ("failed", "cancelled"):
            self._fail_steers(active, "The response failed, so nothing can continue it.")
            return None
        if self._closing is not None:
            self._fail_steers(active, self._closing.message)
            return None
        stream = self._streams[active.job.stream_id]
        target = active.job.parsed.id
        if ended.open_calls:
            remembered = self._recent.get(target)
            assert remembered is not None  # just remembered
            remembered.steers.extend(active.steers)
            if all(each.parsed.body.previous_response_id != target for each in stream.waiting):
                for steer in active.steers:
                    fields = steer.pending_fields(ended.open_calls)
                    active.writer.send_about("response.steer.pending", fields)
                remembered.num_events = active.writer.num_events
            return None
        return self._successor(active, ended)

    def _successor(self, active: Active, ended: Ended) -> Active:
        """Starts the response that continues a steered one, with its settings."""
        parsed = active.job.parsed
        items = tuple(item for steer in active.steers for item in steer.items)
        successor = msgspec.structs.replace(
            parsed,
            id=f"resp_{self._new_id()}",
            body=msgspec.structs.replace(parsed.body, previous_response_id=parsed.id),
            input=msgspec.structs.replace(parsed.input, items=items),
            generate=True,
        )
        stream, parent = self._streams[active.job.stream_id], remembered_of(active, ended)
        started = self._activate(stream, successor, active.steers[0].arrived_us, parent)
        started.follows = active
        active.follows = None  # frees the beginning of a long chain
        return started

    def _fail_steers(self, active: Active, message: str) -> None:
        error = ProtocolError("successor_creation_failed", message)
        for steer in active.steers:
            fields = failed_fields(error, steer.response_id, steer.input, steer.id)
            active.writer.send_about("response.steer.failed", fields)

    def ended(self, job: Job, ended: Ended | None) -> list[Action]:
        """Notes that a job is over, or was refused (None), and continues its stream.

        The successor of a steered response comes first, then the stream's waiting requests.
        """
        active = self._active.pop(job.parsed.id)
        self._in_flight.give(self.tenant.id, active.num_bytes)
        stream = self._streams[job.stream_id]
        stream.active = None
        has_run = job.request is not None or job.pause is not None
        if ended is not None and self._note_ended is not None and has_run:
            stream.last = Unconfirmed(job, active.writer, ended, active.num_bytes)
            self._note_ended(stream.last)
        if ended is not None and ended.ending.status != "failed":
            self._recent.remember(job.parsed.id, remembered_of(active, ended))
        elif ended is None:
            if active.parent is not None:
                active.parent.steers.extend(active.carried)  # they wait for the next attempt
        elif (parent := job.parsed.body.previous_response_id) is not None:
            # A failed continuation drops its parent, so that the client resends the whole
            # context; a fork leaves it to the stream that it came from.
            self._recent.forget(parent, only_from=job.stream_id)
        successor = self._settle_steers(active, ended) if active.steers else None
        if successor is not None:
            return [StartJob(successor.job)]
        if stream.waiting:
            self._ready.append(stream)
        return self._start_ready() if self._ready else []

    def _start_ready(self) -> list[Action]:
        """Starts what waits; after it nothing is ready, or as many run as may."""
        actions: list[Action] = []
        while self._ready and len(self._active) < MAX_RUNNING:
            stream = self._ready.pop(0)
            waiting = stream.waiting.popleft()
            self._num_waiting -= 1
            self._waiting_bytes -= waiting.num_bytes
            actions.append(StartJob(self._begin(stream, waiting).job))
        return actions

    def _begin(self, stream: Stream, waiting: Waiting) -> Active:
        """Begins a request; its parent is looked up now, before it can be evicted."""
        parsed, parent = waiting.parsed, None
        carried: list[Steer] = []
        if (parent_id := parsed.body.previous_response_id) is not None:
            parent = self._recent.to_continue(parent_id)
            if parent is None and self._remembered_elsewhere is not None:
                parent = self._remembered_elsewhere(parent_id)
            if parent is not None and parent.steers:
                carried, parent.steers = parent.steers, []
                joined = with_steers(parsed.input, carried)
                parsed = msgspec.structs.replace(parsed, input=joined)
        active = self._activate(stream, parsed, waiting.arrived_us, parent)
        active.parent, active.carried, active.num_bytes = parent, carried, waiting.num_bytes
        return active

    def _activate(
        self,
        stream: Stream,
        parsed: ParsedCreate,
        arrived_us: int,
        parent: Remembered | None,
    ) -> Active:
        writer = ResponseStream(parsed, self._emit, stream_id=stream.id, on_dirty=self._on_dirty)
        job = Job(
            parsed,
            writer,
            self.tenant,
            arrived_us=arrived_us,
            refuse=lambda error: self._refuse(parsed.id, error),
            stream_id=stream.id,
            on_queue_position=writer.report_queue_position,
            on_turn_state=writer.send_turn_state if self._is_codex else None,
        )
        if parent is not None:
            job.bring(parent)
        active = Active(job, writer)
        self._active[parsed.id] = stream.active = active
        return active

    def _refuse(self, response_id: str, error: ProtocolError) -> None:
        """Refuses a job that could not begin, or fails the steers that it came from."""
        active = self._active[response_id]
        if active.follows is not None:
            self._fail_steers(active.follows, str(error))
        else:
            self._send(error.event(active.job.stream_id))
