"""The terminal's dialogue: what is sent and printed for which lines and events."""

from typing import Any

from gateway.cli.chat_state import Dialogue, Step

WHY = "Short question."
ROUTING = {"route": "fast", "backends": [{"name": "wafer"}], "why": WHY}


def created(response_id: str = "resp_1") -> dict[str, Any]:
    return {"type": "response.created", "response": {"id": response_id, "routing": ROUTING}}


def delta(text: str) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "delta": text}


def terminal(
    response_id: str = "resp_1", status: str = "completed", reason: str | None = None
) -> dict[str, Any]:
    return {
        "type": f"response.{status}",
        "response": {
            "id": response_id,
            "status": status,
            "routing": ROUTING,
            "usage": {"output_tokens": 321},
            "incomplete_details": {"reason": reason} if reason else None,
            "error": {"message": "engine gone"} if status == "failed" else None,
        },
    }


def feed(dialogue: Dialogue, *events: dict[str, Any], at_us: int = 0) -> list[Step]:
    return [dialogue.receive(event, at_us) for event in events]


def busy_dialogue() -> Dialogue:
    dialogue = Dialogue("auto")
    dialogue.say("First.", 0)
    feed(dialogue, created(), delta("Once upon"))
    return dialogue


def test_a_turn_is_created_printed_and_summed_up() -> None:
    dialogue = Dialogue("auto")
    (frame,) = dialogue.say("Tell me.", 1_000_000).frames
    assert frame == {"type": "response.create", "model": "auto", "input": "Tell me."}
    assert feed(dialogue, created(), at_us=1_010_000)[0].text == ""
    assert dialogue.receive(delta("One two"), 1_050_000).text == "One two"
    assert dialogue.receive(delta(" three four"), 1_052_000).text == " three four"
    assert "1,000 tokens/s" in dialogue.status(1_052_000), "2 tokens in 2 ms"
    (end,) = feed(dialogue, terminal(), at_us=1_060_000)
    assert end.ended
    assert not end.failed
    assert end.text == (
        f"\n[fast · wafer · 321 tokens · first after 50 ms · 1,000 tokens/s · {WHY}]\n"
    )
    assert not dialogue.busy


def test_turns_are_chained_until_a_new_conversation() -> None:
    dialogue = busy_dialogue()
    feed(dialogue, terminal())
    assert dialogue.say("And?", 0).frames[0]["previous_response_id"] == "resp_1"
    feed(dialogue, created("resp_2"), terminal("resp_2"))
    dialogue.restart()
    assert "previous_response_id" not in dialogue.say("Hello.", 0).frames[0]


def test_a_pin_is_asked_for_by_metadata() -> None:
    dialogue = Dialogue("auto")
    dialogue.pin("deep")
    assert dialogue.say("Why?", 0).frames[0]["metadata"] == {"route": "deep"}
    feed(dialogue, created(), terminal())
    dialogue.pin(None)
    assert "metadata" not in dialogue.say("Why?", 0).frames[0]


def test_a_line_typed_meanwhile_steers() -> None:
    dialogue = busy_dialogue()
    assert dialogue.say("In French.", 5).frames == (
        {"type": "response.steer", "previous_response_id": "resp_1", "input": "In French."},
    )
    steps = feed(
        dialogue,
        {"type": "response.steer.accepted"},
        terminal(status="incomplete", reason="steered"),
        created("resp_2"),
        delta("Il était"),
        terminal("resp_2"),
    )
    assert [step.ended for step in steps] == [False, False, False, False, True]
    assert steps[2].text == "(redirected: In French.)\n"
    assert dialogue.say("Next.", 9).frames[0]["previous_response_id"] == "resp_2"


def test_a_steer_accepted_just_before_the_end_is_followed_up_too() -> None:
    dialogue = busy_dialogue()
    dialogue.say("Shorter.", 5)
    steps = feed(dialogue, {"type": "response.steer.accepted"}, terminal(), created("resp_2"))
    assert not steps[1].ended
    assert steps[2].text == "(redirected: Shorter.)\n"


def test_a_steer_that_came_too_late_becomes_a_turn() -> None:
    dialogue = busy_dialogue()
    dialogue.say("Shorter.", 5)
    failed = {"type": "response.steer.failed", "error": {"message": "The response has ended."}}
    steps = feed(dialogue, terminal(), failed)
    assert not steps[0].ended
    (frame,) = steps[1].frames
    assert frame["input"] == "Shorter."
    assert frame["previous_response_id"] == "resp_1"


def test_a_steer_refused_while_it_runs_is_told() -> None:
    dialogue = busy_dialogue()
    dialogue.say("Shorter.", 5)
    failed = {"type": "response.steer.failed", "error": {"message": "not here"}}
    (step,) = feed(dialogue, failed)
    assert step.text == "\n(not redirected: not here)\n"
    assert not step.frames
    assert dialogue.busy


def test_a_line_typed_before_the_response_began_waits_for_the_user() -> None:
    dialogue = Dialogue("auto")
    dialogue.say("One.", 0)
    step = dialogue.say("Two.", 0)
    assert not step.frames
    assert "not yet" in step.text


def test_cancel_stops_what_runs_and_nothing_else() -> None:
    dialogue = Dialogue("auto")
    assert dialogue.cancel() == Step()
    dialogue = busy_dialogue()
    assert dialogue.cancel().frames == ({"type": "response.cancel", "response_id": "resp_1"},)
    (step,) = feed(dialogue, terminal(status="incomplete", reason="cancelled"))
    assert step.ended
    assert "incomplete: cancelled" in step.text


def test_errors_and_failures_end_the_turn() -> None:
    dialogue = Dialogue("auto")
    dialogue.say("One.", 0)
    (step,) = feed(dialogue, {"type": "error", "error": {"message": "Rate limit. Wait 2s."}})
    assert step == Step(text="error: Rate limit. Wait 2s.\n", ended=True, failed=True)
    dialogue = busy_dialogue()
    (step,) = feed(dialogue, terminal(status="failed"))
    assert step.failed
    assert "engine gone" in step.text
    assert "previous_response_id" not in dialogue.say("Again.", 0).frames[0]


def test_a_lost_connection_ends_what_ran() -> None:
    assert Dialogue("auto").lost() == Step()
    dialogue = busy_dialogue()
    assert dialogue.lost().ended
    assert not dialogue.busy


def test_phases_and_calls_get_a_heading() -> None:
    dialogue = Dialogue("auto")
    dialogue.say("Both.", 0)
    added = "response.output_item.added"
    steps = feed(
        dialogue,
        created(),
        {"type": added, "item": {"type": "message", "phase": "commentary"}},
        delta("Roughly."),
        {"type": added, "item": {"type": "message", "phase": "final_answer"}},
        delta("Exactly.\n"),
        {"type": added, "item": {"type": "function_call", "name": "lookup"}},
        {"type": "response.something_new"},
    )
    assert "".join(step.text for step in steps) == (
        "(first thoughts)\nRoughly.\n(answer)\nExactly.\n(calls lookup)\n"
    )
