"""Tests one turn of the SDK: what it sends, what it tells, and what it does about a lost socket."""

from typing import Any

import pytest

from lanewise.turn import (
    Done,
    LanewiseError,
    Rejoined,
    Response,
    Restarted,
    Started,
    TextDelta,
    Turn,
    as_items,
    create_fields,
    retry_delay_s,
    socket_url,
)

PARENT = Response(
    id="resp_0",
    output=[{"type": "message", "role": "assistant", "content": [{"text": "noted"}]}],
    asked=as_items("The code word is opal."),
)


def turn(after: Response | str | None = None) -> Turn:
    return Turn({"model": "auto"}, "Which word?", after)


def created(response_id: str) -> dict[str, Any]:
    return {"type": "response.created", "response": {"id": response_id, "status": "in_progress"}}


def delta(text: str) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "item_id": "msg_1", "delta": text}


def ended(response_id: str, status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {
        "type": f"response.{status}",
        "response": {"id": response_id, "status": status, **fields},
    }


def error(code: str, **headers: str) -> dict[str, Any]:
    told = {"code": code, "message": "no", "headers": headers}
    return {"type": "error", "status": 400, "error": told}


def accepted(target: str) -> dict[str, Any]:
    steer = {"id": "steer_1", "previous_response_id": target}
    return {"type": "response.steer.accepted", "steer": steer}


def test_a_turn_from_its_frame_to_its_end() -> None:
    asked = turn(PARENT)
    assert asked.frame("s3") == {
        "type": "response.create",
        "stream_id": "s3",
        "model": "auto",
        "previous_response_id": "resp_0",
        "input": as_items("Which word?"),
    }
    told = [*asked.receive(created("resp_1")), *asked.receive(delta("opal"))]
    assert isinstance(told[0], Started)
    assert told[1] == TextDelta("opal", None, "msg_1")
    (done,) = asked.receive(ended("resp_1"))
    assert isinstance(done, Done)
    assert asked.over
    assert done.response.context() == [
        *as_items("The code word is opal."),
        *PARENT.output,
        *as_items("Which word?"),
    ]


def test_a_parent_that_is_forgotten_is_sent_whole_and_once() -> None:
    asked = turn(PARENT)
    asked.frame("s0")
    asked.receive(error("previous_response_not_found"))
    assert asked.again is not None
    assert not asked.again.counts
    frame = asked.frame("s0")
    assert "previous_response_id" not in frame
    assert frame["input"] == [*PARENT.asked, *PARENT.output, *as_items("Which word?")]
    asked.receive(error("previous_response_not_found"))
    assert asked.over


@pytest.mark.parametrize("after", ["resp_0", Response(id="resp_1", after="resp_0")])
def test_a_parent_whose_content_is_unknown_cannot_be_sent(after: Response | str) -> None:
    asked = turn(after)
    asked.receive(error("previous_response_not_found"))
    assert asked.error is not None
    assert asked.error.code == "previous_response_not_found"


def test_a_loss_voids_only_text_that_was_told() -> None:
    asked = turn()
    assert asked.lost("gone") == []
    asked.frame("s0")
    asked.receive(created("resp_1"))
    asked.receive(delta("half"))
    assert asked.lost("gone") == []
    assert asked.frame("s1")["type"] == "response.rejoin"
    assert asked.receive(error("response_not_found")) == [Restarted("gone")]
    assert asked.again is not None
    assert not asked.again.counts
    assert asked.frame("s2")["input"] == as_items("Which word?")


def numbered(event: dict[str, Any], number: int) -> dict[str, Any]:
    return event | {"sequence_number": number}


def added(item_id: str) -> dict[str, Any]:
    return {"type": "response.output_item.added", "item": {"id": item_id, "type": "message"}}


def test_an_answer_goes_on_where_it_was_lost() -> None:
    """The open item comes from its beginning, and no word of it is told twice."""
    asked = turn()
    told = [created("resp_1"), added("msg_1"), delta("One "), delta("two ")]
    for number, event in enumerate(told):
        asked.receive(numbered(event, number))
    asked.num_retries = 3
    assert asked.lost("gone") == []
    assert asked.frame("s1") == {
        "type": "response.rejoin",
        "stream_id": "s1",
        "response_id": "resp_1",
        "starting_after": 3,
    }
    (rejoined,) = asked.receive(numbered(created("resp_1"), 7))
    assert isinstance(rejoined, Rejoined)
    assert asked.num_retries == 0
    assert asked.receive(numbered(added("msg_1"), 8)) == []
    (more,) = asked.receive(numbered(delta("One two three "), 9))
    assert isinstance(more, TextDelta)
    assert more.text == "three "
    (more,) = asked.receive(numbered(delta("four."), 10))
    assert isinstance(more, TextDelta)
    assert more.text == "four."
    assert asked.lost("gone") == []
    assert asked.frame("s2")["starting_after"] == 10
    asked.receive(numbered(created("resp_1"), 11))
    for piece in ("One two ", "three four", "."):
        assert asked.receive(numbered(delta(piece), 12)) == []
    assert isinstance(asked.receive(ended("resp_1"))[0], Done)


def test_what_is_refused_while_it_comes_back_is_no_end() -> None:
    """An older gateway does not know the event, and a new one may have forgotten the response."""
    asked = turn(PARENT)
    asked.receive(created("resp_1"))
    asked.lost("gone")
    asked.frame("s1")
    assert asked.receive(error("unknown_event_type")) == []
    assert not asked.over
    assert asked.frame("s2")["previous_response_id"] == "resp_0"
    assert isinstance(asked.receive(created("resp_2"))[0], Started)


@pytest.mark.parametrize(
    ("code", "resent"),
    [
        ("server_draining", True),
        ("websocket_connection_limit_reached", True),
        ("rate_limit_exceeded", False),
        ("model_not_found", False),
    ],
)
def test_which_refusals_are_sent_again(code: str, resent: bool) -> None:
    asked = turn()
    asked.receive(error(code, **{"retry-after": "2", "retry-after-ms": "1500"}))
    assert (asked.again is not None) is resent
    assert asked.over is not resent
    after_s = (
        asked.again.retry_after_s if asked.again else asked.error and asked.error.retry_after_s
    )
    assert after_s == 1.5


def test_a_steered_answer_goes_on_in_its_successor() -> None:
    asked = turn()
    asked.receive(created("resp_1"))
    steer = asked.steer("resp_1", "Shorter.")
    asked.receive(accepted("resp_1"))
    assert steer.outcome is True
    assert asked.receive(ended("resp_1", "incomplete")) == []
    assert not asked.over
    asked.receive(created("resp_2"))
    (done,) = asked.receive(ended("resp_2"))
    assert isinstance(done, Done)
    assert done.response.asked == as_items("Shorter.")
    assert isinstance(done.response.after, Response)
    assert done.response.after.id == "resp_1"


@pytest.mark.parametrize("phase", ["sent", "accepted", "ended", "succeeded"])
def test_a_steer_survives_a_loss(phase: str) -> None:
    asked = turn()
    asked.receive(created("resp_1"))
    steer = asked.steer("resp_1", "Shorter.")
    if phase != "sent":
        asked.receive(accepted("resp_1"))
    if phase in ("ended", "succeeded"):
        asked.receive(ended("resp_1", "incomplete"))
    if phase == "succeeded":
        asked.receive(created("resp_2"))
    asked.lost("gone")
    if phase == "succeeded":  # its response is asked for, and nobody has it
        asked.frame("s1")
        asked.receive(error("response_not_found"))
    assert steer.outcome is True
    frame = asked.frame("s0")
    if phase in ("ended", "succeeded"):
        assert frame["previous_response_id"] == "resp_1"
        assert frame["input"] == as_items("Shorter.")
    else:
        assert frame["input"] == [*as_items("Which word?"), *as_items("Shorter.")]


def test_a_steer_that_comes_too_late() -> None:
    asked = turn()
    asked.receive(created("resp_1"))
    before, _ = asked.steer("resp_1", "Shorter."), asked.receive(ended("resp_1"))
    after = asked.steer("resp_1", "Shorter.")
    for steer in (before, after):
        assert isinstance(steer.outcome, LanewiseError)
        assert steer.outcome.code == "response_already_completed"


def test_a_cancelled_turn_is_not_sent_again() -> None:
    asked = turn()
    asked.cancelled = True
    asked.lost("gone")
    assert asked.error is not None
    assert asked.error.code == "response_cancelled"


def test_the_successor_of_a_steered_response_that_was_cancelled_is_followed() -> None:
    """It comes all the same, on a stream that another turn would have by then."""
    asked = turn()
    asked.receive(created("resp_1"))
    asked.steer("resp_1", "Shorter.")
    asked.cancelled = True
    asked.receive(accepted("resp_1"))
    cut = ended("resp_1", "incomplete", incomplete_details={"reason": "cancelled"})
    assert asked.receive(cut) == []
    assert not asked.over
    asked.receive(created("resp_2"))
    assert asked.response_id == "resp_2"
    (done,) = asked.receive(ended("resp_2", "incomplete"))
    assert isinstance(done, Done)
    assert asked.over


def test_a_steer_behind_a_cancel_is_not_sent() -> None:
    asked = turn()
    asked.receive(created("resp_1"))
    asked.cancelled = True
    steer = asked.steer("resp_1", "Shorter.")
    assert isinstance(steer.outcome, LanewiseError)
    assert steer.outcome.code == "response_cancelled"


def test_a_turn_takes_steers_only_while_its_response_runs_on_its_socket() -> None:
    """One that is sent before the response has come back would be for nobody."""
    asked = turn()
    assert not asked.takes_steers
    asked.receive(created("resp_1"))
    assert asked.takes_steers
    asked.lost("gone")
    assert not asked.takes_steers
    asked.frame("s0")
    assert not asked.takes_steers
    asked.receive(created("resp_1"))
    assert asked.takes_steers


@pytest.mark.parametrize("code", ["response_not_found", "previous_response_not_found"])
def test_a_turn_that_is_cancelled_while_it_is_asked_for_is_not_sent_again(code: str) -> None:
    asked = turn(PARENT)
    if code == "response_not_found":
        asked.receive(created("resp_1"))
        asked.lost("gone")
    asked.frame("s0")
    asked.cancelled = True
    asked.receive(error(code))
    assert asked.again is None
    assert asked.error is not None
    assert asked.error.code == "response_cancelled"


def test_a_failed_response_is_an_error() -> None:
    asked = turn()
    asked.receive(ended("resp_1", "failed", error={"code": "server_error", "message": "cut"}))
    assert str(asked.error) == "server_error: cut"


@pytest.mark.parametrize(
    "event",
    [{}, {"type": "response.created"}, {"type": "response.completed", "response": {"id": 7}}],
)
def test_an_event_that_makes_no_sense_ends_the_turn(event: dict[str, Any]) -> None:
    asked = turn()
    assert asked.receive(event) == []
    assert asked.error is not None
    assert asked.error.code == "invalid_event"


def test_hints_go_into_metadata() -> None:
    fields = create_fields(
        {"route": "deep", "strategy": None, "deadline_ms": 2000},
        {"metadata": {"a": "b"}, "store": False},
    )
    assert fields == {
        "model": "auto",
        "store": False,
        "metadata": {"route": "deep", "deadline_ms": "2000", "a": "b"},
    }


@pytest.mark.parametrize(
    "url", ["http://h:1", "http://h:1/", "http://h:1/v1", "ws://h:1/v1/responses", "ws://h:1"]
)
def test_any_address_leads_to_the_socket(url: str) -> None:
    assert socket_url(url) == "ws://h:1/v1/responses"
    assert socket_url(url.replace("://", "s://")) == "wss://h:1/v1/responses"


@pytest.mark.parametrize("url", ["h:1", "ftp://h", ""])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="expected an http"):
        socket_url(url)


@pytest.mark.parametrize(
    ("num_retries", "chance", "retry_after_s", "delay_s"),
    [
        (0, 0.0, None, 0.5),
        (0, 1.0, None, 0.25),
        (3, 0.0, None, 4.0),
        (60, 0.0, None, 8.0),
        (0, 0.0, 2.0, 2.0),
        (0, 0.0, 900.0, 8.0),
    ],
)
def test_pauses(
    num_retries: int, chance: float, retry_after_s: float | None, delay_s: float
) -> None:
    assert retry_delay_s(num_retries, chance, retry_after_s) == delay_s


def test_the_text_of_a_response_is_its_final_answer() -> None:
    def message(text: str, phase: str | None) -> dict[str, Any]:
        return {"type": "message", "phase": phase, "content": [{"text": text}]}

    both = [message("on it", "commentary"), message("42", "final_answer")]
    assert Response(id="r", output=both).text == "42"
    assert Response(id="r", output=[message("a", None), message("b", None)]).text == "ab"


def test_a_call_that_was_cut_is_not_to_be_answered() -> None:
    def call(call_id: str, status: str) -> dict[str, Any]:
        return {"type": "function_call", "call_id": call_id, "status": status, "arguments": ""}

    whole, cut = call("call_1", "completed"), call("call_2", "incomplete")
    assert Response(id="r", output=[whole, cut]).calls == [whole]


def test_a_steer_of_a_sub_task_is_lost_with_its_connection() -> None:
    """The task is sent again whole: the sub-task has another id by then, or never comes."""
    asked = turn()
    asked.receive(created("resp_1"))
    sent, taken = asked.steer("resp_1-d1", "Shorter."), asked.steer("resp_1-d2", "Longer.")
    asked.receive(accepted("resp_1-d2"))
    asked.lost("gone")
    assert taken.outcome is True
    assert isinstance(sent.outcome, LanewiseError)
    assert asked.frame("s0")["input"] == as_items("Which word?")


def test_a_steer_of_a_sub_task_that_comes_too_late_is_told_so() -> None:
    """Otherwise whoever waits for its outcome would wait for ever."""
    asked = turn()
    asked.receive(created("resp_1"))
    steer = asked.steer("resp_1-d1", "Shorter.")
    asked.receive(ended("resp_1"))
    assert isinstance(steer.outcome, LanewiseError)
    assert steer.outcome.code == "response_already_completed"
