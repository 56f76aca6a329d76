"""Tests an answer as it grows: what is shown, where it runs and why, and how fast it comes."""

from typing import Any

import msgspec
import pytest

from gateway.dialogue.answer import AnswerView, Passage, route_line
from lanewise.turn import (
    Done,
    LanewiseError,
    OtherEvent,
    Response,
    Restarted,
    Started,
    TextDelta,
    Waiting,
)
from lanewise.types import Routing

WAFER = {"name": "wafer", "group": "fast", "model": "lanewise-fast", "simulated": True}
GPU = {"name": "gpu", "group": "deep", "model": "lanewise-deep", "simulated": True}
FAST = {
    "route": "fast",
    "backends": [WAFER],
    "class": {"label": "interactive", "p_deep": 0.04},
    "reason": "class",
    "why": "A quick ask (4% likely to need the deep engine): fast on wafer.",
}


def response(**fields: Any) -> Response:
    return msgspec.convert({"id": "resp_1", "routing": FAST, **fields}, Response)


def done(num_tokens: int = 7, **fields: Any) -> Done:
    return Done(response(status="completed", usage={"output_tokens": num_tokens}, **fields))


def thought(item_id: str, text: str) -> OtherEvent:
    kind = "response.reasoning_summary_text.delta"
    return OtherEvent(kind, {"item_id": item_id, "delta": text})


def words(num_tokens: int) -> str:
    return " on" * num_tokens


def begun(asked_us: int = 0) -> AnswerView:
    answer = AnswerView(asked_us)
    answer.take(Started(response()), asked_us)
    return answer


def shown(answer: AnswerView) -> list[tuple[str, str]]:
    return [(passage.kind, passage.text) for passage in answer.passages]


def test_an_answer_is_its_text_with_a_summary() -> None:
    answer = begun(1_000_000)
    answer.take(TextDelta("Once upon", None, "msg_1"), 1_050_000)
    answer.take(TextDelta(" a time", None, "msg_1"), 1_060_000)
    assert not answer.over
    answer.take(done(), 1_070_000)
    assert answer.over
    assert answer.text == "Once upon a time"
    assert answer.summary() == "7 tokens · first words after 50 ms"


def test_the_pace_leaves_out_the_first_delta() -> None:
    answer = begun()
    answer.take(TextDelta(words(500), None, "msg_1"), 50_000)  # gathered while nobody read
    answer.take(TextDelta(words(100), None, "msg_1"), 250_000)
    assert "600 tokens · 500 tokens/s" in answer.status(250_000)


@pytest.mark.parametrize("gap_us", [0, 6, 65, 5_000, 99_999])
def test_frames_that_were_read_together_say_no_pace(gap_us: int) -> None:
    answer = begun()
    answer.take(TextDelta(words(1), None, "msg_1"), 50_000)
    answer.take(TextDelta(words(10), None, "msg_1"), 50_000 + gap_us)
    answer.take(done(11), 60_000)
    assert "tokens/s" not in answer.summary()


def test_the_pace_after_a_steer_is_of_what_follows_it() -> None:
    answer = begun()
    answer.take(TextDelta(words(2), None, "msg_1"), 10_000)
    answer.take(TextDelta(words(4_000), None, "msg_1"), 510_000)
    answer.steer("In French.", 1_000_000)
    answer.take(Started(response(id="resp_2")), 1_010_000)
    assert answer.passages[-1] == Passage("note", "redirected: In French.")
    answer.take(TextDelta(words(3), None, "msg_2"), 1_040_000)
    answer.take(TextDelta(words(7), None, "msg_2"), 1_040_100)
    assert "tokens/s" not in answer.status(1_040_100)
    answer.take(TextDelta(words(13), None, "msg_2"), 1_240_000)
    answer.take(done(23, id="resp_2"), 1_250_000)
    assert answer.summary() == "23 tokens · first words after 40 ms · 100 tokens/s"


def test_each_engine_has_its_own_pace() -> None:
    answer = begun()
    answer.take(thought("rs_1_aside", words(1)), 0)
    answer.take(thought("rs_1_aside", words(1_000)), 500_000)
    answer.take(TextDelta(words(1), "final_answer", "msg_1"), 600_000)
    answer.take(TextDelta(words(70), "final_answer", "msg_1"), 1_600_000)
    assert "70 tokens/s" in answer.status(1_600_000)


def test_what_is_said_beside_the_answer_is_told_apart() -> None:
    answer = begun()
    answer.take(thought("rs_1", "Hm."), 0)
    answer.take(thought("rs_2_aside", "A variation."), 0)
    answer.take(TextDelta("A plan.", "commentary", "msg_1"), 0)
    answer.take(TextDelta("The answer.", "final_answer", "msg_2"), 0)
    call = {"type": "function_call", "name": "read", "arguments": '{"path": "x"}'}
    answer.take(OtherEvent("response.output_item.done", {"item": call}), 0)
    answer.take(OtherEvent("response.something_new", {}), 0)
    assert shown(answer) == [
        ("thinking", "Hm."),
        ("aside", "A variation."),
        ("aside", "A plan."),
        ("answer", "The answer."),
        ("call", 'read({"path": "x"})'),
    ]
    assert answer.text == "The answer."


def test_a_refused_steer_is_told_and_one_too_late_is_not() -> None:
    answer = begun()
    answer.steer("Shorter.", 5)
    answer.steer_refused("Shorter.", "not here")
    answer.steer("Longer.", 6)
    answer.steer_refused("Longer.")
    assert shown(answer) == [("note", "not redirected: not here")]
    answer.take(Started(response(id="resp_2")), 7)
    assert len(answer.passages) == 1, "no successor of a steer"


def test_a_lost_connection_is_told_and_does_not_count() -> None:
    answer = begun()
    answer.take(TextDelta(words(9), None, "msg_1"), 0)
    answer.take(Restarted("The connection was lost."), 900_000)
    answer.take(Started(response()), 900_000)
    answer.take(TextDelta(words(9), None, "msg_9"), 900_000)
    assert [passage.kind for passage in answer.passages] == ["answer", "note", "answer"]
    assert "tokens/s" not in answer.status(900_000)


def test_waiting_says_for_what() -> None:
    answer = AnswerView(0)
    assert answer.status(1_500_000) == "waiting · 1.5 s"
    answer.take(Waiting("deep", 3, 2_000), 0)
    assert answer.status(1_500_000) == "waits for deep, as number 3, about 2.0 s · 1.5 s"


def test_a_failure_and_a_cancelled_answer() -> None:
    failed = begun()
    failed.fail(LanewiseError("server_error", "The engine is gone."))
    assert failed.over
    assert failed.summary() == "failed: The engine is gone."
    assert not failed.cancelled
    stopped = begun()
    stopped.take(done(incomplete_details={"reason": "cancelled"}), 0)
    assert stopped.cancelled
    assert stopped.summary() == "7 tokens · cancelled"
    early = AnswerView(0)
    early.fail(LanewiseError("response_cancelled", "The response was cancelled."))
    assert early.cancelled


def test_a_model_cannot_move_the_cursor() -> None:
    answer = begun()
    answer.take(TextDelta("\x1b]0;mine\x07\x1b[2Jsafe\tand\nsound\x9b", None, "msg_1"), 0)
    assert answer.text == "]0;mine[2Jsafe\tand\nsound"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "Fast engine (wafer): a quick ask (4% likely to need the deep engine)."),
        (
            {
                "route": "deep",
                "backends": [GPU],
                "reason": "hint",
                "why": "The client asked for route deep: deep on gpu.",
            },
            "Deep engine (gpu): you asked for route deep.",
        ),
        (
            {
                "route": "parallel",
                "strategy": "breadth",
                "backends": [WAFER, GPU],
                "reason": "rule",
                "why": "The policy's rule 'x: y' says so: parallel on wafer and gpu.",
            },
            "Both engines (wafer, gpu) by breadth: The policy's rule 'x: y' says so.",
        ),
        (
            {
                "reason": "sticky",
                "why": "The turn stays: fast on wafer (holds the conversation).",
            },
            "Fast engine (wafer): The turn stays.",
        ),
        ({"backends": []}, ""),
    ],
)
def test_the_route_in_words(changes: dict[str, Any], line: str) -> None:
    assert route_line(msgspec.convert(FAST | changes, Routing)) == line


def test_words_of_an_error_command_no_terminal() -> None:
    answer = AnswerView(0)
    answer.steer_refused("stop", "full\x1b[2J\nforged")
    answer.fail(LanewiseError("server_error", "bad\r\n\x1b]0;owned\x07 \x9b31mred"))
    assert answer.summary() == "failed: bad ]0;owned 31mred"
    assert answer.passages == [Passage("note", "not redirected: full [2J forged")]
