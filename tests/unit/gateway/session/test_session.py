"""Tests a connection as a state machine: order, bounds, memory, steering in all its variants."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from backends.contract import (
    ContextItem,
    CustomToolCallOutput,
    FunctionCallOutput,
    Item,
    Message,
    TextPart,
    Usage,
)
from backends.prompt import measure
from gateway.core.job import Ended, Job
from gateway.rejoin.recent_responses import MAX_REMEMBERED, RecentResponses, Remembered
from gateway.rejoin.unconfirmed import SMALL_BYTES, Unconfirmed
from gateway.session.actions import Action, RedirectJob, RejoinJob, StartJob, StopJob
from gateway.session.session import MAX_RUNNING, Session
from gateway.session.stream_state import (
    MAX_NAMED_STREAMS,
    MAX_PENDING_STEERS,
    MAX_REDIRECTS,
    MAX_WAITING,
    MAX_WAITING_BYTES,
)
from gateway.store.stored_response import Lineage
from gateway.task.ending import open_calls
from gateway.transport import byte_budgets
from gateway.transport.byte_budgets import ByteBudgets, MemoryBudgets
from gateway.wire.errors import ProtocolError
from gateway.wire.events import BadFrameError, decode_event
from gateway.wire.response import Ending, ResponseStream
from gateway.wire.response_json import ResponseError
from tests.e2e.events import Event, check_event, check_response
from tests.unit.gateway.doubles import TENANT, Transcript, call, numbered_ids, text

DONE = Ending(status="completed", usage=Usage(5, 0, 5, 0))
STEERED = Ending(status="incomplete", reason="steered", usage=Usage())
LENGTH = Ending(status="incomplete", reason="max_output_tokens", usage=Usage())
FAILED = Ending(status="failed", error=ResponseError("server_error", "x"), usage=Usage())
OVERLOADED = ProtocolError("server_is_overloaded", "Full.", retry_after_us=1)
REFUSED: ProtocolError = ProtocolError("rate_limit_exceeded", "Wait.", retry_after_us=1)


class Peer:
    """Plays both sides of a session: the client's frames, and the pipeline that runs its jobs."""

    def __init__(
        self,
        in_flight: ByteBudgets | None = None,
        note_ended: Callable[[Unconfirmed], None] | None = None,
    ) -> None:
        self.heard = Transcript()
        self.running: list[Job] = []
        self.stops: list[StopJob] = []
        self.redirects: list[RedirectJob] = []
        self.rejoins: list[RejoinJob] = []
        self.now_us = 0
        self.session = Session(
            TENANT,
            self.heard.send,
            lambda stream: None,
            numbered_ids(),
            in_flight=in_flight,
            note_ended=note_ended,
        )

    def send(self, num_bytes: int = 1, **frame: Any) -> list[Event]:
        """Sends one client frame; returns what was answered."""
        self.heard.take()
        try:
            event = decode_event(json.dumps(frame))
        except BadFrameError as bad:
            self.session.reject(bad)
        else:
            self._act(self.session.receive(event, num_bytes, self.now_us))
        return self._answered()

    def create(self, ask: str = "Hi.", *, num_bytes: int = 1, **fields: Any) -> list[Event]:
        frame = {"type": "response.create", "model": "auto", "input": ask, "store": False}
        return self.send(num_bytes, **(frame | fields))

    def steer(self, target: Any, value: Any = "Shorter.", **extra: Any) -> list[Event]:
        return self.send(type="response.steer", previous_response_id=target, input=value, **extra)

    def open(self, job: Job) -> None:
        job.writer.open(100, "m", {})

    def end(self, job: Job, ending: Ending = DONE, said: str | None = None) -> list[Event]:
        """Run a job to its end; it says its own id, or ends in what was pushed before."""
        self.heard.take()
        if not job.writer.is_open:
            self.open(job)
        if said is not None:
            job.writer.push(text(said), None)
        job.writer.close_items(ending)
        job.writer.finish(ending, 101, {})
        job.writer.send_terminal()
        output = tuple(measure(item) for item in job.writer.output)
        own = tuple(item for item in job.parsed.input.items if isinstance(item, ContextItem))
        ended = Ended(
            ending=ending,
            items=(*(job.parent or ()), *own, *output),
            backend="wafer",
            lineage=Lineage(),
            open_calls=open_calls(job.writer.output),
        )
        self.running.remove(job)
        self._act(self.session.ended(job, ended))
        return self._answered()

    def refuse(self, job: Job, error: ProtocolError = OVERLOADED) -> list[Event]:
        self.heard.take()
        job.refuse(error)
        self.running.remove(job)
        self._act(self.session.ended(job, None))
        return self._answered()

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, StartJob):
                self.running.append(action.job)
            elif isinstance(action, StopJob):
                self.stops.append(action)
            elif isinstance(action, RejoinJob):
                self.rejoins.append(action)
            else:
                self.redirects.append(action)

    def _answered(self) -> list[Event]:
        events = self.heard.take()
        for event in events:
            check_event(event)
        return events

    @property
    def only(self) -> Job:
        (job,) = self.running
        return job


def asks(job: Job) -> list[str]:
    """Returns the texts of a job's own input."""
    return [_text(entry.item) for entry in job.parsed.input.items if isinstance(entry, ContextItem)]


def context(job: Job) -> list[str]:
    return [_text(entry.item) for entry in job.parent or ()]


def _text(item: Item) -> str:
    if isinstance(item, FunctionCallOutput | CustomToolCallOutput):
        return f"output {item.call_id}"
    if not isinstance(item, Message):
        return type(item).__name__
    return "".join(part.text for part in item.content if isinstance(part, TextPart))


def codes(events: list[Event]) -> list[str]:
    return [event["error"]["code"] for event in events]


# -- streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [{}, {"stream_id": "s"}])
def test_a_stream_is_first_in_first_out(named: dict[str, Any]) -> None:
    peer = Peer()
    for ask in ("one", "two", "three"):
        peer.create(ask, **named)
    seen = []
    while peer.running:
        seen += asks(peer.only)
        peer.end(peer.only)
    assert seen == ["one", "two", "three"]


def test_streams_run_side_by_side() -> None:
    peer = Peer()
    peer.create("default")
    peer.create("a1", stream_id="a")
    peer.create("a2", stream_id="a")
    peer.create("b1", stream_id="b")
    assert [asks(job) for job in peer.running] == [["default"], ["a1"], ["b1"]]
    peer.end(peer.running[1])
    assert [asks(job) for job in peer.running] == [["default"], ["b1"], ["a2"]]


def test_events_name_their_stream_and_the_default_stream_has_none() -> None:
    peer = Peer()
    peer.create("x", stream_id="a")
    peer.create("y")
    named, default = peer.running
    assert {event["stream_id"] for event in peer.end(named, said="x")} == {"a"}
    assert all("stream_id" not in event for event in peer.end(default, said="y"))


def test_a_lost_response_comes_back_beside_16_that_run() -> None:
    """It runs already: where it is refused, the client asks for all of it once more."""
    before, peer = Peer(), Peer()
    for _ in range(2 * MAX_RUNNING):  # so that its id is another than those of the new connection
        before.create()
        before.end(before.only)
    before.create("lost")
    lost = before.only
    for number in range(MAX_RUNNING):
        peer.create(f"{number}", stream_id=f"s{number}")
    asked = {"response_id": lost.parsed.id, "starting_after": 0, "stream_id": "back"}
    assert peer.send(type="response.rejoin", **asked) == []
    peer.session.adopt(lost, lost.writer, "back")
    assert len(peer.session._active) == MAX_RUNNING + 1
    peer.create("late", stream_id="late")
    peer.end(peer.running[0])
    assert len(peer.session._active) == MAX_RUNNING, "what is new waits for one of the 16 places"
    peer.end(peer.running[0])
    assert asks(peer.running[-1]) == ["late"]


def test_a_response_comes_back_to_a_stream_whose_last_one_is_being_settled() -> None:
    peer = Peer()
    asked: dict[str, Any] = {"type": "response.rejoin", "response_id": "resp_lost"}
    asked["starting_after"] = 0
    peer.create()
    ending = peer.only
    peer.open(ending)
    assert codes(peer.send(**asked)) == ["invalid_value"], "it runs"
    ending.writer.close_items(DONE)
    ending.writer.finish(DONE, 101, {})
    ending.writer.send_terminal()
    assert peer.send(**asked) == []
    assert [each.after for each in peer.rejoins] == [ending]
    peer.create("next")
    assert codes(peer.send(**asked)) == ["invalid_value"], "the next one waits for its turn"


def test_at_most_16_run_and_those_that_wait_take_turns() -> None:
    peer = Peer()
    for number in range(MAX_RUNNING):
        assert peer.create(f"{number}", stream_id=f"s{number}") == []
    peer.create("again", stream_id="s0")
    assert peer.create("late", stream_id="late") == []
    assert peer.create("later", stream_id="late") == []
    assert len(peer.running) == len(peer.session._active) == MAX_RUNNING
    peer.end(peer.running[0])
    assert asks(peer.running[-1]) == ["late"], "who waited for a place comes before the stream"
    assert len(peer.running) == MAX_RUNNING
    peer.end(peer.running[0])
    assert asks(peer.running[-1]) == ["again"]
    while peer.running:
        peer.end(peer.running[0])
    assert peer.session._active == {}


def test_the_33rd_named_stream_is_refused_and_the_others_go_on() -> None:
    peer = Peer()
    peer.create()
    for number in range(MAX_NAMED_STREAMS):
        assert peer.create(stream_id=f"s{number}") == []
    (error,) = peer.create(stream_id="new")
    assert (error["error"]["code"], error["stream_id"], error["status"]) == (
        "websocket_stream_limit_reached",
        "new",
        400,
    )
    assert peer.create(stream_id="s3") == []
    assert peer.create() == []
    while peer.running:
        peer.end(peer.running[0])
    assert codes(peer.create(stream_id="new")) == ["websocket_stream_limit_reached"], "for life"


def test_an_invalid_create_uses_no_name() -> None:
    peer = Peer()
    for number in range(MAX_NAMED_STREAMS + 1):
        (error,) = peer.create(input=[], stream_id=f"s{number}")
        assert error["stream_id"] == f"s{number}"
    assert peer.create(stream_id="good") == []


def test_waiting_creates_are_bounded_by_number() -> None:
    peer = Peer()
    peer.create("running")
    for _ in range(MAX_WAITING):
        assert peer.create("waiting") == []
    (error,) = peer.create("too many")
    assert error["error"]["code"] == "rate_limit_exceeded"
    assert error["error"]["headers"]["retry-after"] == "1"
    peer.end(peer.only)
    assert peer.create("fits again") == []


def test_waiting_creates_are_bounded_by_size() -> None:
    peer = Peer()
    peer.create("running", num_bytes=MAX_WAITING_BYTES)
    assert peer.create("half", num_bytes=MAX_WAITING_BYTES // 2) == []
    assert codes(peer.create("too big", num_bytes=MAX_WAITING_BYTES // 2 + 1)) == [
        "rate_limit_exceeded"
    ]
    assert peer.create("fits", num_bytes=MAX_WAITING_BYTES // 2) == []
    peer.end(peer.only)
    assert codes(peer.create("too big", num_bytes=MAX_WAITING_BYTES // 2 + 1)) == [
        "rate_limit_exceeded"
    ]


# fields, code, stream_id of the error
BAD_CREATES: list[tuple[dict[str, Any], str, str | None]] = [
    ({"stream_id": "no spaces"}, "invalid_stream_id", None),
    ({"stream_id": "s", "background": True}, "unsupported_parameter", "s"),
    ({"stream_id": "s", "conversation": "c"}, "unsupported_parameter", "s"),
    ({"stream_id": "s", "input": 5}, "invalid_type", "s"),
    ({"input": []}, "missing_required_parameter", None),
    ({"stream_id": "s", "tool_choice": {"type": "function", "name": ["x"]}}, "invalid_type", "s"),
]


@pytest.mark.parametrize(("fields", "code", "stream_id"), BAD_CREATES)
def test_bad_creates_are_answered_and_touch_nothing(
    fields: dict[str, Any], code: str, stream_id: str | None
) -> None:
    peer = Peer()
    (error,) = peer.create(**fields)
    assert (error["error"]["code"], error.get("stream_id")) == (code, stream_id)
    assert peer.running == []
    peer.create("good")
    assert asks(peer.only) == ["good"]


def test_a_refused_job_lets_its_stream_go_on() -> None:
    peer = Peer()
    peer.create("one", stream_id="s")
    peer.create("two", stream_id="s")
    (error,) = peer.refuse(peer.only, REFUSED)
    assert (error["error"]["code"], error["stream_id"]) == ("rate_limit_exceeded", "s")
    assert asks(peer.only) == ["two"]


@pytest.mark.parametrize("background", [False, None])
def test_fields_without_meaning_on_a_socket_are_ignored(background: bool | None) -> None:
    peer = Peer()
    assert peer.create(stream=True, background=background, client_metadata={"x": 1}) == []
    assert peer.only.parsed.generate


def test_warm_ups() -> None:
    peer = Peer()
    peer.create(input=[], generate=False)
    warm_up = peer.only
    assert not warm_up.parsed.generate
    peer.end(warm_up)
    peer.create("go", previous_response_id=warm_up.parsed.id)
    assert peer.only.parent == ()


def test_a_turn_does_not_wait_for_its_own_warm_up() -> None:
    peer = Peer()
    peer.create(input=[], generate=False)
    warm_up = peer.only
    peer.create("another conversation", stream_id="elsewhere")
    assert peer.stops == []
    peer.create("go", previous_response_id=warm_up.parsed.id)
    assert [(stop.job, stop.reason) for stop in peer.stops] == [(warm_up, "awaited")]
    peer.end(warm_up)
    assert [asks(job) for job in peer.running] == [["another conversation"], ["go"]]


def test_what_older_clients_send_and_what_we_do_not_host() -> None:
    peer = Peer()
    assert peer.send(type="response.processed", response_id="r") == []
    (failed,) = peer.send(type="response.inject", response_id="r", input=[OUTPUT])
    assert failed["type"] == "response.inject.failed"
    assert (failed["response_id"], failed["input"]) == ("r", [OUTPUT])
    assert failed["error"]["code"] == "response_not_found"
    assert codes(peer.send(type="response.append", stream_id="s")) == ["unknown_event_type"]


# -- chaining ----------------------------------------------------------------------------------


def test_a_chain_continues_from_memory() -> None:
    peer = Peer()
    peer.create("one")
    first = peer.only
    assert (first.parent, first.last_backend) == (None, None)
    peer.end(first, said="eins")
    peer.create("two", previous_response_id=first.parsed.id)
    second = peer.only
    assert context(second) == ["one", "eins"]
    assert second.last_backend == "wafer"
    peer.end(second, LENGTH, said="zwei")
    peer.create("three", previous_response_id=second.parsed.id)
    assert context(peer.only) == ["one", "eins", "two", "zwei"], "incomplete ones can be parents"


def test_pipelined_turns_bind_the_parent_when_they_start() -> None:
    peer = Peer()
    peer.create("one")
    first = peer.only
    peer.create("two", previous_response_id=first.parsed.id)
    peer.end(first, said="eins")
    assert context(peer.only) == ["one", "eins"]


def test_a_stream_is_no_memory_of_its_own() -> None:
    peer = Peer()
    peer.create("one", stream_id="s")
    peer.end(peer.only)
    peer.create("two", stream_id="s")
    assert peer.only.parent is None


def test_what_is_not_remembered_is_left_to_the_store() -> None:
    peer = Peer()
    peer.create("one", previous_response_id="resp_elsewhere")
    assert peer.only.parent is None
    assert peer.only.parsed.body.previous_response_id == "resp_elsewhere"


def test_a_response_that_runs_on_another_stream_is_no_parent() -> None:
    peer = Peer()
    peer.create("one", stream_id="a")
    peer.create("fork", stream_id="b", previous_response_id=peer.only.parsed.id)
    assert peer.running[1].parent is None


def test_a_fork_is_bound_at_its_start() -> None:
    peer = Peer()
    peer.create("one", stream_id="a")
    first = peer.only
    peer.end(first, said="eins")
    peer.create("fork", stream_id="b", previous_response_id=first.parsed.id)
    fork = peer.only
    # The source stream moves on so far that it forgets the parent.
    last = first.parsed.id
    for _ in range(MAX_REMEMBERED + 1):
        peer.create("more", stream_id="a", previous_response_id=last)
        job = peer.running[-1]
        last = job.parsed.id
        peer.end(job)
    assert context(fork) == ["one", "eins"]
    peer.create("late fork", stream_id="c", previous_response_id=first.parsed.id)
    assert peer.running[-1].parent is None, "and now it is gone"


def test_instructions_and_tools_are_not_inherited_by_a_continuation() -> None:
    peer = Peer()
    peer.create("one", instructions="Sing.", tools=[{"type": "function", "name": "f"}])
    peer.end(peer.only)
    peer.create("two", previous_response_id=f"resp_{1:048x}")
    assert peer.only.parsed.body.instructions is None
    assert peer.only.parsed.tools == ()


def test_a_continuation_that_fails_takes_its_parent_with_it() -> None:
    peer = Peer()
    peer.create("one", stream_id="a")
    first = peer.only
    peer.end(first)
    peer.create("two", stream_id="a", previous_response_id=first.parsed.id)
    second = peer.only
    peer.end(second, FAILED)
    for gone in (first, second):
        peer.create("again", stream_id="a", previous_response_id=gone.parsed.id)
        assert peer.only.parent is None
        peer.end(peer.only)


def test_a_fork_that_fails_leaves_the_parent_to_its_stream() -> None:
    peer = Peer()
    peer.create("one", stream_id="a")
    first = peer.only
    peer.end(first)
    peer.create("fork", stream_id="b", previous_response_id=first.parsed.id)
    peer.end(peer.only, FAILED)
    peer.create("two", stream_id="a", previous_response_id=first.parsed.id)
    assert context(peer.only) == ["one"]


def test_a_continuation_that_is_refused_may_be_sent_again() -> None:
    peer = Peer()
    peer.create("one")
    first = peer.only
    peer.end(first)
    peer.create("two", previous_response_id=first.parsed.id)
    peer.refuse(peer.only)
    peer.create("two", previous_response_id=first.parsed.id)
    assert context(peer.only) == ["one"]


# -- cancelling --------------------------------------------------------------------------------


def test_cancel_stops_a_running_response() -> None:
    peer = Peer()
    peer.create("one", stream_id="s")
    job = peer.only
    assert peer.send(type="response.cancel", response_id=job.parsed.id) == []
    assert peer.stops == [StopJob(job, "cancelled")]
    peer.end(job)
    (error,) = peer.send(type="response.cancel", response_id=job.parsed.id)
    assert error["error"]["code"] == "response_not_found"
    assert (error["error"]["param"], "stream_id" in error) == ("response_id", False)


def test_a_cancel_of_a_stream_stops_what_runs_there_first() -> None:
    peer = Peer()
    peer.create("one", stream_id="s")
    peer.create("two", stream_id="s")
    peer.create("other", stream_id="o")
    one = peer.running[0]
    assert peer.send(type="response.cancel", stream_id="s") == []
    assert peer.stops == [StopJob(one, "cancelled")]
    peer.open(one)
    one.writer.ended = True  # the client has its last event, and it is being settled
    (error,) = peer.send(type="response.cancel", stream_id="s")
    assert (error["error"]["code"], error["stream_id"]) == ("response_cancelled", "s")
    assert len(peer.stops) == 1, "what waits is taken back, and what has ended is let be"
    one.writer.ended = False
    peer.end(one)
    assert [asks(job) for job in peer.running] == [["other"]]


def test_a_cancel_of_a_stream_takes_back_what_has_no_place_yet() -> None:
    in_flight = ByteBudgets(100, 100)
    peer = Peer(in_flight)
    for number in range(MAX_RUNNING):
        peer.create(stream_id=f"s{number}")
    for ask in ("one", "two"):
        assert peer.create(ask, stream_id="late", num_bytes=10) == []
    for ask in ("one", "two"):
        assert len(peer.running) == MAX_RUNNING
        (error,) = peer.send(type="response.cancel", stream_id="late")
        assert (error["error"]["code"], error["stream_id"]) == ("response_cancelled", "late"), ask
    assert in_flight.take(TENANT.id, 100 - MAX_RUNNING), "their bytes were given back"
    (error,) = peer.send(type="response.cancel", stream_id="late")
    assert (error["error"]["code"], error["error"]["param"]) == ("response_not_found", "stream_id")
    peer.end(peer.running[0])
    assert len(peer.running) == MAX_RUNNING - 1
    peer.create("three", stream_id="late")
    assert asks(peer.running[-1]) == ["three"]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({}, "missing_required_parameter", "response_id"),
        ({"response_id": ""}, "missing_required_parameter", "response_id"),
        ({"stream_id": "never"}, "response_not_found", "stream_id"),
        ({"stream_id": "no spaces"}, "invalid_stream_id", "stream_id"),
        ({"stream_id": None}, "invalid_stream_id", "stream_id"),
        ({"response_id": "resp_x", "stream_id": "s"}, "response_not_found", "response_id"),
    ],
)
def test_a_cancel_of_nothing_is_answered(fields: dict[str, Any], code: str, param: str) -> None:
    peer = Peer()
    peer.create(stream_id="s")
    (error,) = peer.send(type="response.cancel", **fields)
    assert (error["error"]["code"], error["error"]["param"]) == (code, param)
    assert "stream_id" not in error
    assert peer.stops == []


# -- sub-tasks of a response ---------------------------------------------------------------------


def handing(peer: Peer, **fields: Any) -> tuple[Job, str]:
    """Returns a response with its second sub-task under way, and that one's id."""
    job = running(peer, **fields)
    job.delegations = frozenset((2,))
    return job, f"{job.parsed.id}-d2"


def test_one_sub_task_is_cancelled() -> None:
    peer = Peer()
    job, subtask_id = handing(peer, stream_id="s")
    assert peer.send(type="response.cancel", response_id=subtask_id) == []
    assert peer.redirects == [RedirectJob(job, 2, None)]
    assert peer.stops == []


def test_one_sub_task_is_steered() -> None:
    peer = Peer()
    job, subtask_id = handing(peer, stream_id="s")
    (accepted,) = peer.steer(subtask_id)
    assert accepted["type"] == "response.steer.accepted"
    assert accepted["steer"]["previous_response_id"] == subtask_id
    assert accepted["stream_id"] == "s"
    (redirect,) = peer.redirects
    assert (redirect.job, redirect.number) == (job, 2)
    assert redirect.items == (measure(Message("user", (TextPart("Shorter."),))),)
    assert peer.stops == []
    peer.end(job)
    assert peer.running == [], "no successor: the response itself went on"


@pytest.mark.parametrize("tail", ["-d1", "-d3", "-d", "-dx", "-d²", "-d99999", "-2", ""])
def test_other_sub_tasks_are_not_found(tail: str) -> None:
    peer = Peer()
    handing(peer)
    target = "resp_other-d2" if not tail else f"{peer.only.parsed.id}{tail}"
    (failed,) = peer.steer(target)
    assert failed["error"]["code"] == "response_not_found"
    (error,) = peer.send(type="response.cancel", response_id=target)
    assert error["error"]["code"] == "response_not_found"
    assert peer.redirects == []


def test_sub_tasks_are_steered_a_bounded_number_of_times() -> None:
    peer = Peer()
    _, subtask_id = handing(peer)
    for _ in range(MAX_REDIRECTS):
        (accepted,) = peer.steer(subtask_id)
        assert accepted["type"] == "response.steer.accepted"
    (failed,) = peer.steer(subtask_id)
    assert failed["error"]["code"] == "too_many_pending_steers"
    assert len(peer.redirects) == MAX_REDIRECTS


def test_a_bad_steer_of_a_sub_task_is_refused() -> None:
    peer = Peer()
    _, subtask_id = handing(peer)
    (failed,) = peer.steer(subtask_id, "")
    assert failed["error"]["code"] == "invalid_input"
    assert peer.redirects == []


# -- steering ----------------------------------------------------------------------------------


def running(peer: Peer, said: str | None = "Well", **fields: Any) -> Job:
    """Returns a response under way, having said something."""
    peer.create(fields.pop("ask", "one"), **fields)
    job = peer.running[-1]
    peer.open(job)
    if said is not None:
        job.writer.push(text(said), None)
    return job


@pytest.mark.parametrize("named", [{}, {"stream_id": "s"}])
def test_a_steer_is_accepted_and_followed_by_a_successor(named: dict[str, str]) -> None:
    peer = Peer()
    first = running(peer, instructions="Sing.", metadata={"a": "b"}, max_output_tokens=9, **named)
    peer.now_us = 77
    (accepted,) = peer.steer(first.parsed.id)
    assert accepted["type"] == "response.steer.accepted"
    assert accepted["steer"]["previous_response_id"] == first.parsed.id
    assert accepted.get("stream_id") == named.get("stream_id")
    assert peer.stops == [StopJob(first, "steered")]
    events = peer.end(first, STEERED)
    assert events[-1]["type"] == "response.incomplete"
    assert accepted["sequence_number"] < events[0]["sequence_number"]
    second = peer.only
    assert second.parsed.id != first.parsed.id
    assert context(second) == ["one", "Well"]
    assert asks(second) == ["Shorter."]
    assert second.stream_id == named.get("stream_id")
    assert second.arrived_us == 77, "its time runs from the steer"
    for field in ("instructions", "metadata", "max_output_tokens", "store", "model"):
        assert getattr(second.parsed.body, field) == getattr(first.parsed.body, field)
    events = peer.end(second, said="ok")
    assert events[0]["response"]["previous_response_id"] == first.parsed.id
    check_response(events)
    peer.create("three", previous_response_id=second.parsed.id)
    assert context(peer.only) == ["one", "Well", "Shorter.", "ok"]


def test_a_steered_response_may_end_by_itself() -> None:
    peer = Peer()
    first = running(peer)
    peer.steer(first.parsed.id)
    assert peer.end(first, DONE)[-1]["type"] == "response.completed"
    assert asks(peer.only) == ["Shorter."]


def test_several_steers_end_in_one_successor_in_order() -> None:
    peer = Peer()
    first = running(peer)
    peer.now_us = 1
    (one,) = peer.steer(first.parsed.id, "A")
    peer.now_us = 2
    (two,) = peer.steer(first.parsed.id, [{"role": "user", "content": "B"}])
    assert one["steer"]["id"] != two["steer"]["id"]
    assert two["sequence_number"] == one["sequence_number"] + 1
    peer.end(first, STEERED)
    assert asks(peer.only) == ["A", "B"]
    assert peer.only.arrived_us == 1


def test_the_successor_runs_before_what_waits() -> None:
    peer = Peer()
    first = running(peer, stream_id="s")
    peer.create("queued", stream_id="s")
    peer.steer(first.parsed.id)
    peer.end(first, STEERED)
    assert asks(peer.only) == ["Shorter."]
    peer.end(peer.only)
    assert asks(peer.only) == ["queued"]


def test_the_successor_takes_the_place_of_the_steered_one() -> None:
    peer = Peer()
    for number in range(MAX_RUNNING):
        running(peer, stream_id=f"s{number}")
    peer.create("waiting", stream_id="w")
    first = peer.running[0]
    peer.steer(first.parsed.id)
    peer.end(first, STEERED)
    assert len(peer.running) == MAX_RUNNING
    assert asks(peer.running[-1]) == ["Shorter."]


def test_a_successor_can_be_steered_again() -> None:
    peer = Peer()
    first = running(peer)
    peer.steer(first.parsed.id, "A")
    peer.end(first, STEERED)
    second = peer.only
    peer.open(second)
    peer.steer(second.parsed.id, "B")
    peer.end(second, STEERED)
    assert context(peer.only) == ["one", "Well", "A"]
    assert asks(peer.only) == ["B"]


USER: dict[str, Any] = {"role": "user", "content": "x"}

# input, extra fields
BAD_STEERS: list[tuple[Any, dict[str, Any]]] = [
    ("", {}),
    ([], {}),
    (None, {}),
    (5, {}),
    ({}, {}),
    (["x"], {}),
    ([USER, {"role": "assistant", "content": "x"}], {}),
    ([{"role": "user"}], {}),
    ([{"role": "user", "content": ""}], {}),
    ([{"role": "user", "content": []}], {}),
    ([{"role": "user", "content": [{"type": "input_audio"}]}], {}),
    ([{"role": "user", "content": [{"type": "input_image", "image_url": "a picture"}]}], {}),
    ([{"type": None, "role": "user", "content": "x"}], {}),
    ([{"type": "function_call_output", "call_id": "c", "output": "x"}], {}),
    ([{"type": "item_reference", "id": "msg_1"}], {}),
    ("x", {"stream_id": "s"}),
    ("x", {"model": "auto"}),
]


@pytest.mark.parametrize(("value", "extra"), BAD_STEERS)
@pytest.mark.parametrize("named", [{}, {"stream_id": "s"}])
def test_bad_steers_fail_and_the_response_runs_on(
    value: Any, extra: dict[str, Any], named: dict[str, str]
) -> None:
    peer = Peer()
    job = running(peer, **named)
    peer.heard.take()
    frame = {"type": "response.steer", "previous_response_id": job.parsed.id, "input": value}
    event = decode(frame | extra)
    if isinstance(event, BadFrameError):
        peer.session.reject(event)
    else:
        peer.session.receive(event, 1, 0)
    (failed,) = peer.heard.take()
    assert failed["type"] == "response.steer.failed"
    assert failed["error"]["code"] == "invalid_input"
    assert failed["error"]["message"].rstrip(".") + "." == failed["error"]["message"]
    (param,) = extra or ("input",)
    assert failed["error"]["param"].startswith(param)
    assert failed["steer"] == {"previous_response_id": job.parsed.id, "input": value}
    assert failed.get("stream_id") == named.get("stream_id")
    assert failed["sequence_number"] == job.writer.num_events - 1, "one of its target's events"
    assert peer.stops == []
    peer.end(job)
    assert peer.running == []


def decode(frame: dict[str, Any]) -> Any:
    try:
        return decode_event(json.dumps(frame))
    except BadFrameError as bad:
        return bad


def test_steers_without_a_running_target_fail() -> None:
    peer = Peer()
    (failed,) = peer.steer("resp_unknown")
    assert failed["error"]["code"] == "response_not_found"
    assert (failed["sequence_number"], "stream_id" in failed) == (0, False)
    (failed,) = peer.steer(5)
    assert failed["error"]["code"] == "invalid_input"
    (failed,) = peer.send(type="response.steer", input="x")
    assert failed["error"]["code"] == "invalid_input"
    job = running(peer, stream_id="s")
    last = peer.end(job)[-1]["sequence_number"]
    for number in (last + 1, last + 2):
        (failed,) = peer.steer(job.parsed.id)
        assert (failed["error"]["code"], failed["stream_id"]) == ("response_already_completed", "s")
        assert failed["sequence_number"] == number, "the next of its target"


def test_a_response_that_has_not_begun_cannot_be_steered() -> None:
    peer = Peer()
    peer.create("one")
    (failed,) = peer.steer(peer.only.parsed.id)
    assert failed["error"]["code"] == "response_not_found", "the client cannot know it yet"


def test_steers_are_bounded() -> None:
    peer = Peer()
    job = running(peer)
    for _ in range(MAX_PENDING_STEERS):
        (event,) = peer.steer(job.parsed.id)
        assert event["type"] == "response.steer.accepted"
    (failed,) = peer.steer(job.parsed.id)
    assert failed["error"]["code"] == "too_many_pending_steers"
    peer.end(job, STEERED)
    assert len(asks(peer.only)) == MAX_PENDING_STEERS


def test_the_steers_of_a_response_that_failed_fail() -> None:
    peer = Peer()
    job = running(peer, stream_id="s")
    (accepted,) = peer.steer(job.parsed.id, "A")
    events = peer.end(job, FAILED)
    assert [event["type"] for event in events[-2:]] == ["response.failed", "response.steer.failed"]
    failed = events[-1]
    assert failed["error"]["code"] == "successor_creation_failed"
    assert failed["steer"] == accepted["steer"] | {"input": "A"}
    assert failed["sequence_number"] == events[-2]["sequence_number"] + 1
    assert failed["stream_id"] == "s"
    assert peer.running == []


def test_the_steers_of_a_successor_that_is_refused_fail() -> None:
    peer = Peer()
    first = running(peer)
    peer.create("queued")
    (one,) = peer.steer(first.parsed.id, "A")
    (two,) = peer.steer(first.parsed.id, "B")
    terminal = peer.end(first, STEERED)[-1]
    events = peer.refuse(peer.only)
    assert [event["type"] for event in events] == ["response.steer.failed"] * 2
    assert [event["steer"]["id"] for event in events] == [one["steer"]["id"], two["steer"]["id"]]
    assert [event["error"]["code"] for event in events] == ["successor_creation_failed"] * 2
    assert "Full." in events[0]["error"]["message"]
    numbers = [event["sequence_number"] for event in events]
    assert numbers == [terminal["sequence_number"] + 1, terminal["sequence_number"] + 2]
    assert asks(peer.only) == ["queued"], "and the stream goes on"
    peer.end(peer.only)
    peer.create("by hand", previous_response_id=first.parsed.id)
    assert context(peer.only) == ["one", "Well"], "the steered one is still there"


TOOL: dict[str, Any] = {"type": "function", "name": "look"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "sun"}


def test_a_call_is_never_cut_by_a_steer() -> None:
    peer = Peer()
    job = running(peer, said=None, tools=[TOOL])
    job.writer.push(call("{"), None)
    (accepted,) = peer.steer(job.parsed.id)
    assert accepted["type"] == "response.steer.accepted"
    assert peer.stops == []


def test_a_call_that_is_demanded_is_made_before_a_steer_counts() -> None:
    peer = Peer()
    job = running(peer, said=None, tools=[TOOL], tool_choice="required")
    peer.steer(job.parsed.id)
    assert peer.stops == []


def calling(peer: Peer, **fields: Any) -> Job:
    job = running(peer, said=None, tools=[TOOL], **fields)
    job.writer.push(call("{}"), None)
    return job


def test_steers_wait_for_the_outputs_of_open_calls() -> None:
    peer = Peer()
    job = calling(peer, stream_id="s")
    (one,) = peer.steer(job.parsed.id, "A")
    (two,) = peer.steer(job.parsed.id, "B")
    events = peer.end(job)
    kinds = [event["type"] for event in events]
    assert kinds[-3:] == ["response.completed", *["response.steer.pending"] * 2]
    for event, accepted in zip(events[-2:], (one, two), strict=True):
        assert event["steer"] == accepted["steer"]
        assert event["reason"] == "waiting_for_required_input"
        assert event["required_input"] == [
            {"type": "function_call_output", "call_id": "call_1", "name": "look"}
        ]
        assert event["stream_id"] == "s"
    numbers = [event["sequence_number"] for event in events[-3:]]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    (late,) = peer.steer(job.parsed.id, "C")
    assert (late["type"], late["sequence_number"]) == ("response.steer.failed", numbers[-1] + 1)
    assert peer.running == [], "it is the client's turn"
    settings: dict[str, Any] = {"instructions": "Anew.", "stream_id": "s"}
    peer.create(input=[OUTPUT], previous_response_id=job.parsed.id, **settings)
    assert context(peer.only) == ["one", "FunctionCall"]
    assert asks(peer.only) == ["output call_1", "A", "B"], "not between the call and its output"
    assert peer.only.parsed.body.instructions == "Anew."
    peer.end(peer.only)
    peer.create("x", previous_response_id=job.parsed.id, stream_id="s")
    assert asks(peer.only) == ["x"], "they count once"


def test_an_answer_that_waits_already_needs_no_pending() -> None:
    peer = Peer()
    job = calling(peer)
    peer.steer(job.parsed.id, "A")
    peer.create(input=[OUTPUT], previous_response_id=job.parsed.id)
    events = peer.end(job)
    assert events[-1]["type"] == "response.completed"
    assert asks(peer.only) == ["output call_1", "A"]


def test_steers_survive_an_answer_that_is_refused() -> None:
    peer = Peer()
    job = calling(peer)
    peer.steer(job.parsed.id, "A")
    peer.end(job)
    for _ in range(2):
        peer.create(input=[OUTPUT], previous_response_id=job.parsed.id)
        assert asks(peer.only) == ["output call_1", "A"]
        assert codes(peer.refuse(peer.only, REFUSED)) == ["rate_limit_exceeded"]
    peer.create(input=[OUTPUT], previous_response_id=job.parsed.id)
    assert asks(peer.only) == ["output call_1", "A"]
    peer.end(peer.only)


CANCELLED = Ending(status="incomplete", reason="cancelled", usage=Usage())


@pytest.mark.parametrize("ending", [LENGTH, CANCELLED])
def test_nobody_waits_for_the_output_of_a_call_that_was_cut(ending: Ending) -> None:
    peer = Peer()
    job = calling(peer)
    peer.steer(job.parsed.id, "A")
    events = peer.end(job, ending)
    assert events[-1]["type"] == "response.incomplete"
    assert asks(peer.only) == ["A"], "the successor has begun"


@pytest.mark.parametrize("ending", [LENGTH, CANCELLED])
def test_steers_wait_for_the_outputs_of_the_calls_before_the_cut(ending: Ending) -> None:
    peer = Peer()
    job = calling(peer)
    job.writer.push(call("{", 1, call_id="call_2"), None)
    peer.steer(job.parsed.id, "A")
    incomplete, pending = peer.end(job, ending)[-2:]
    assert incomplete["type"] == "response.incomplete"
    assert pending["type"] == "response.steer.pending"
    assert [each["call_id"] for each in pending["required_input"]] == ["call_1"]
    assert peer.running == []
    peer.create(input=[OUTPUT], previous_response_id=job.parsed.id)
    assert asks(peer.only) == ["output call_1", "A"]


CUSTOM_OUTPUT = {"type": "custom_tool_call_output", "call_id": "call_2", "output": "moon"}
SAID = {"role": "user", "content": "Go on."}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param([OUTPUT, SAID], ["output call_1", "A", "Go on."], id="words-behind"),
        pytest.param([SAID, OUTPUT], ["Go on.", "output call_1", "A"], id="words-before"),
        pytest.param(
            [OUTPUT, CUSTOM_OUTPUT, SAID],
            ["output call_1", "output call_2", "A", "Go on."],
            id="outputs-of-both-kinds",
        ),
        pytest.param(
            [OUTPUT, SAID, CUSTOM_OUTPUT],
            ["output call_1", "Go on.", "output call_2", "A"],
            id="words-between",
        ),
        pytest.param([SAID], ["A", "Go on."], id="no-outputs"),
        pytest.param([], ["A"], id="nothing"),
    ],
)
def test_steers_come_right_behind_the_last_output(
    given: list[dict[str, Any]], expected: list[str]
) -> None:
    peer = Peer()
    job = calling(peer)
    peer.steer(job.parsed.id, "A")
    peer.end(job)
    peer.create(input=given, previous_response_id=job.parsed.id)
    assert asks(peer.only) == expected
    answered = peer.only
    peer.end(answered)
    peer.create("next", previous_response_id=answered.parsed.id)
    assert context(peer.only)[2:] == expected, "and so they are remembered"


# -- memory ------------------------------------------------------------------------------------


def remembered(stream_id: str | None) -> Remembered:
    return Remembered(stream_id, (), None, Lineage())


def test_memory_keeps_the_last_and_each_streams_latest() -> None:
    recent = RecentResponses(4)
    for number in range(3):
        recent.remember(f"a{number}", remembered("a"))
    recent.remember("b0", remembered("b"))
    for number in range(10):
        recent.remember(f"c{number}", remembered(None))
        assert sum(recent.get(f"{s}{n}") is not None for s in "abc" for n in range(10)) == 4
    kept = [f"{s}{n}" for s in "abc" for n in range(10) if recent.get(f"{s}{n}") is not None]
    assert kept == ["a2", "b0", "c8", "c9"]


def test_forgetting_is_the_own_streams_affair() -> None:
    recent = RecentResponses(2)
    recent.remember("a", remembered("a"))
    recent.forget("a", only_from="b")
    recent.forget("unknown", only_from="b")
    assert recent.get("a") is not None
    recent.forget("a", only_from="a")
    assert recent.get("a") is None
    for name in ("b", "c", "d"):
        recent.remember(name, remembered("x"))
    assert [recent.get(name) is None for name in "abcd"] == [True, True, False, False]


def test_every_streams_latest_has_a_place() -> None:
    assert MAX_REMEMBERED > MAX_NAMED_STREAMS + 1


def test_writers_of_steered_chains_are_let_go() -> None:
    """A conversation steered for an hour keeps two responses, not all of them."""
    peer = Peer()
    job = running(peer)
    writers: list[ResponseStream] = []
    for _ in range(3):
        assert isinstance(job.writer, ResponseStream)
        writers.append(job.writer)
        peer.steer(job.parsed.id)
        peer.end(job, STEERED)
        job = peer.only
        peer.open(job)
    active = peer.session._active[job.parsed.id]
    assert active.follows is not None
    assert active.follows.writer is writers[-1]
    assert active.follows.follows is None


def test_memory_is_bounded_in_bytes_but_keeps_the_newest() -> None:
    recent = RecentResponses(max_remembered=8, max_bytes=100)
    for number in range(3):
        big = remembered(f"s{number}")
        big.num_bytes = 60
        recent.remember(f"r{number}", big)
        assert recent.get(f"r{number}") is big
        assert recent.get(f"r{number - 1}") is None
    huge = remembered(None)
    huge.num_bytes = 1000
    recent.remember("huge", huge)
    assert recent.get("huge") is huge


def test_a_response_weighs_what_it_brought_and_what_is_dropped_before_it() -> None:
    peer = Peer()
    peer.create(num_bytes=100)
    first = peer.running[0]
    peer.end(first)
    peer.create(num_bytes=10, previous_response_id=first.parsed.id)
    second = peer.running[0]
    peer.end(second)
    kept = peer.session._recent.get(second.parsed.id)
    assert kept is not None
    assert kept.num_bytes == 10 + 5 * 4, "an answer of five tokens"
    peer.session._recent.forget(first.parsed.id, only_from=None)
    assert kept.num_bytes == 100 + 10 + 2 * 5 * 4, "two answers of five tokens"


def test_a_tenants_own_oldest_responses_are_forgotten_on_whatever_connection() -> None:
    budgets = MemoryBudgets(max_tenant_bytes=100, max_bytes=150)
    mine, also_mine, other = (
        RecentResponses(tenant_id=tenant, budgets=budgets) for tenant in ("a", "a", "b")
    )

    def kept(recent: RecentResponses) -> list[str]:
        return [f"r{number}" for number in range(9) if recent.get(f"r{number}") is not None]

    def remember(recent: RecentResponses, number: int, num_bytes: int) -> None:
        response = remembered(None)
        response.num_bytes = num_bytes
        recent.remember(f"r{number}", response)

    remember(other, 0, 40)
    for number in range(1, 6):
        remember(mine if number % 2 else also_mine, number, 40)
    assert (kept(mine), kept(also_mine), kept(other)) == (["r5"], ["r4"], ["r0"])

    remember(other, 6, 40)  # all together have too much: the largest loses its oldest
    assert budgets.num_bytes <= 150
    assert kept(mine) + kept(also_mine) + kept(other) in (["r5", "r0", "r6"], ["r5", "r4", "r6"])
    for recent in (mine, also_mine, other):
        recent.clear()
    assert budgets.num_bytes == 0


def holding(*ids: str) -> Remembered:
    """Returns what holds what was said in these stored responses."""
    return Remembered(None, (), None, Lineage(ids))


def test_what_goes_back_to_a_deleted_response_is_not_continued() -> None:
    budgets = MemoryBudgets(max_tenant_bytes=1_000, max_bytes=1_000)
    mine, also_mine = (RecentResponses(tenant_id="a", budgets=budgets) for _ in range(2))
    mine.remember("r1", holding("r1"))
    mine.remember("r2", holding("r1", "r2"))
    mine.remember("r3", holding("r3"))
    also_mine.remember("unstored", holding("r1"))
    budgets.delete("r1")
    assert [mine.to_continue(each) is None for each in ("r1", "r2", "r3")] == [True, True, False]
    assert also_mine.to_continue("unstored") is None
    assert (mine.ids, also_mine.ids) == (("r3",), ())
    mine.remember("r4", holding("r1", "r4"))  # it ran meanwhile
    assert mine.to_continue("r4") is None


def test_so_many_deleted_responses_are_dropped_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_budgets, "MAX_DELETED", 4)
    budgets = MemoryBudgets(max_tenant_bytes=1_000, max_bytes=1_000)
    recent = RecentResponses(tenant_id="a", budgets=budgets)
    for number in range(6):
        recent.remember(f"r{number}", holding("r0", f"r{number}") if number < 2 else holding())
    for number in range(5):
        budgets.delete(f"r{number}" if number == 0 else f"other{number}")
    assert recent.ids == ("r2", "r3", "r4", "r5")
    assert list(budgets.deleted) == ["other2", "other3", "other4"]
    assert [recent.to_continue(f"r{number}") is None for number in (1, 2)] == [True, False]


def test_all_that_is_remembered_of_an_erased_tenant_is_forgotten() -> None:
    budgets = MemoryBudgets(max_tenant_bytes=1_000, max_bytes=1_000)
    mine, other = (RecentResponses(tenant_id=name, budgets=budgets) for name in ("a", "b"))
    mine.remember("r1", remembered(None))
    child = remembered(None)
    child.parent_id = "r1"
    mine.remember("r2", child)
    other.remember("r3", remembered(None))
    budgets.forget("a")
    assert mine.ids == ()
    assert other.ids == ("r3",)
    budgets.forget("a")
    other.clear()
    assert budgets.num_bytes == 0


def test_what_a_client_may_not_have_received_is_bounded_and_soon_forgotten() -> None:
    budgets = MemoryBudgets(max_tenant_bytes=3 * SMALL_BYTES, max_bytes=1 << 40)
    kept: list[Unconfirmed] = []

    def note(unconfirmed: Unconfirmed) -> None:
        kept.append(unconfirmed)
        unconfirmed.count(budgets)

    peer = Peer(note_ended=note)
    begun: Any = object()  # only whether a job has its request is asked

    def turn(stream_id: str, num_bytes: int) -> None:
        peer.create(stream_id=stream_id, num_bytes=num_bytes)
        peer.running[-1].request = begun
        peer.end(peer.running[-1])

    turn("a", 2 * SMALL_BYTES)
    turn("b", 2 * SMALL_BYTES)
    assert [each.job is None for each in kept] == [True, False], "two are too much for the tenant"
    assert budgets.num_bytes == 2 * SMALL_BYTES
    turn("b", 1)
    assert kept[1].job is None, "a client that goes on has received what was before"
    assert kept[2].job is not None
    assert budgets.num_bytes == 0, "what is small is not counted"
    peer.session.end()
    assert kept[2].job is None


def test_the_tools_of_the_response_before_are_not_read_again() -> None:
    def tool(name: str) -> dict[str, Any]:
        return {"type": "function", "name": name, "parameters": {"type": "object"}}

    more = {"type": "additional_tools", "tools": [tool("more")]}
    asked: list[dict[str, Any]] = [
        {"tools": [tool("a"), tool("b")]},
        {"tools": [tool("a"), tool("b")]},
        {"tools": [tool("a"), tool("c")]},
        {"tools": [tool("a"), tool("c")], "input": [more, {"role": "user", "content": "x"}]},
        {"tools": [tool("a"), tool("c")]},
        {},
    ]
    peer = Peer(note_ended=lambda _: None)
    begun: Any = object()
    offered = []
    for fields in asked:
        peer.create(**fields)
        offered.append(peer.only.parsed.tools)
        peer.only.request = begun
        peer.end(peer.only)
    names = [[each.name for each in tools] for tools in offered]
    assert names == [["a", "b"], ["a", "b"], ["a", "c"], ["a", "c", "more"], ["a", "c"], []]
    same = [one is other for one, other in pairwise(offered)]
    assert same == [True, False, False, False, False]
    assert offered[3][0] is offered[2][0], "those are read again that stood in the input"


def test_steers_are_in_flight_until_the_response_ends_that_they_steer() -> None:
    in_flight = ByteBudgets(max_tenant_bytes=100, max_bytes=1000)
    peer = Peer(in_flight)
    peer.create(num_bytes=30)
    peer.open(peer.only)
    steer = {"type": "response.steer", "previous_response_id": peer.only.parsed.id, "input": "x"}
    peer.send(60, **steer)
    assert codes(peer.send(11, **steer)) == ["rate_limit_exceeded"]
    peer.send(60, **steer | {"input": ""})
    assert in_flight.num_bytes == 90, "one that is refused holds nothing"
    peer.end(peer.only, STEERED)
    assert in_flight.num_bytes == 0
    assert len(peer.running) == 1, "the successor runs"


def test_requests_of_all_connections_share_what_may_be_in_flight() -> None:
    in_flight = ByteBudgets(max_tenant_bytes=100, max_bytes=1000)
    first, second = Peer(in_flight), Peer(in_flight)
    first.create(num_bytes=60)
    assert codes(second.create(num_bytes=60)) == ["rate_limit_exceeded"]
    second.create(num_bytes=30)
    first.end(first.running[0])
    assert in_flight.num_bytes == 30
    second.session.end()
    assert in_flight.num_bytes == 0


def test_a_closing_session_begins_nothing_and_answers_what_waits() -> None:
    peer = Peer()
    peer.create(stream_id="a")
    peer.create(stream_id="a")
    running = peer.running[0]
    peer.open(running)
    peer.steer(running.parsed.id)
    peer.heard.take()
    peer.session.close(ProtocolError("websocket_connection_limit_reached", "Too old."))
    assert codes(peer._answered()) == ["websocket_connection_limit_reached"]
    events = peer.end(running, STEERED)
    assert events[-1]["type"] == "response.steer.failed"
    assert peer.running == []
