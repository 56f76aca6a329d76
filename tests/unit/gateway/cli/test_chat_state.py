"""The terminal's dialogue: what is sent and printed for which lines and events."""

from typing import Any

from gateway.cli.chat_state import ChatState, ChatStep

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


def feed(chat: ChatState, *events: dict[str, Any], at_us: int = 0) -> list[ChatStep]:
    return [chat.receive(event, at_us) for event in events]


def busy_dialogue() -> ChatState:
    chat = ChatState("auto")
    chat.say("First.", 0)
    feed(chat, created(), delta("Once upon"))
    return chat


def test_a_turn_is_created_printed_and_summed_up() -> None:
    chat = ChatState("auto")
    (frame,) = chat.say("Tell me.", 1_000_000).frames
    assert frame == {"type": "response.create", "model": "auto", "input": "Tell me."}
    assert feed(chat, created(), at_us=1_010_000)[0].text == ""
    assert chat.receive(delta("One two"), 1_050_000).text == "One two"
    assert chat.receive(delta(" three four"), 1_052_000).text == " three four"
    assert "1,000 tokens/s" in chat.status(1_052_000), "2 tokens in 2 ms"
    (end,) = feed(chat, terminal(), at_us=1_060_000)
    assert end.ended
    assert not end.failed
    assert end.text == (
        f"\n[fast · wafer · 321 tokens · first after 50 ms · 1,000 tokens/s · {WHY}]\n"
    )
    assert not chat.busy


def test_turns_are_chained_until_a_new_conversation() -> None:
    chat = busy_dialogue()
    feed(chat, terminal())
    assert chat.say("And?", 0).frames[0]["previous_response_id"] == "resp_1"
    feed(chat, created("resp_2"), terminal("resp_2"))
    chat.restart()
    assert "previous_response_id" not in chat.say("Hello.", 0).frames[0]


def test_a_pin_is_asked_for_by_metadata() -> None:
    chat = ChatState("auto")
    chat.pinned = "deep"
    assert chat.say("Why?", 0).frames[0]["metadata"] == {"route": "deep"}
    feed(chat, created(), terminal())
    chat.pinned = None
    assert "metadata" not in chat.say("Why?", 0).frames[0]


def test_a_line_typed_meanwhile_steers() -> None:
    chat = busy_dialogue()
    assert chat.say("In French.", 5).frames == (
        {"type": "response.steer", "previous_response_id": "resp_1", "input": "In French."},
    )
    steps = feed(
        chat,
        {"type": "response.steer.accepted"},
        terminal(status="incomplete", reason="steered"),
        created("resp_2"),
        delta("Il était"),
        terminal("resp_2"),
    )
    assert [step.ended for step in steps] == [False, False, False, False, True]
    assert steps[2].text == "(redirected: In French.)\n"
    assert chat.say("Next.", 9).frames[0]["previous_response_id"] == "resp_2"


def test_a_steer_accepted_just_before_the_end_is_followed_up_too() -> None:
    chat = busy_dialogue()
    chat.say("Shorter.", 5)
    steps = feed(chat, {"type": "response.steer.accepted"}, terminal(), created("resp_2"))
    assert not steps[1].ended
    assert steps[2].text == "(redirected: Shorter.)\n"


def test_a_steer_that_came_too_late_becomes_a_turn() -> None:
    chat = busy_dialogue()
    chat.say("Shorter.", 5)
    failed = {"type": "response.steer.failed", "error": {"message": "The response has ended."}}
    steps = feed(chat, terminal(), failed)
    assert not steps[0].ended
    (frame,) = steps[1].frames
    assert frame["input"] == "Shorter."
    assert frame["previous_response_id"] == "resp_1"


def test_a_steer_refused_while_it_runs_is_told() -> None:
    chat = busy_dialogue()
    chat.say("Shorter.", 5)
    failed = {"type": "response.steer.failed", "error": {"message": "not here"}}
    (step,) = feed(chat, failed)
    assert step.text == "\n(not redirected: not here)\n"
    assert not step.frames
    assert chat.busy


def test_a_line_typed_before_the_response_began_waits_for_the_user() -> None:
    chat = ChatState("auto")
    chat.say("One.", 0)
    step = chat.say("Two.", 0)
    assert not step.frames
    assert "not yet" in step.text


def test_cancel_stops_what_runs_and_nothing_else() -> None:
    chat = ChatState("auto")
    assert chat.cancel() == ChatStep()
    chat = busy_dialogue()
    assert chat.cancel().frames == ({"type": "response.cancel", "response_id": "resp_1"},)
    (step,) = feed(chat, terminal(status="incomplete", reason="cancelled"))
    assert step.ended
    assert "incomplete: cancelled" in step.text


def test_errors_and_failures_end_the_turn() -> None:
    chat = ChatState("auto")
    chat.say("One.", 0)
    (step,) = feed(chat, {"type": "error", "error": {"message": "Rate limit. Wait 2s."}})
    assert step == ChatStep(text="error: Rate limit. Wait 2s.\n", ended=True, failed=True)
    chat = busy_dialogue()
    (step,) = feed(chat, terminal(status="failed"))
    assert step.failed
    assert "engine gone" in step.text
    assert "previous_response_id" not in chat.say("Again.", 0).frames[0]


def test_a_lost_connection_ends_what_ran() -> None:
    assert ChatState("auto").lost() == ChatStep()
    chat = busy_dialogue()
    assert chat.lost().ended
    assert not chat.busy


def test_phases_and_calls_get_a_heading() -> None:
    chat = ChatState("auto")
    chat.say("Both.", 0)
    added = "response.output_item.added"
    steps = feed(
        chat,
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
