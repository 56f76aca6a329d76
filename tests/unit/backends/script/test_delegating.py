"""A simulated engine hands a part on where that is offered and the part is plainly deep."""

import msgspec
import pytest

from backends.contract import DeltaKind, FunctionCall, FunctionCallOutput, TextPart, ToolChoice
from backends.delegation import CANCELLED, DELEGATE, DELEGATE_TOOL, FAILED, NOT_BEGUN, SAID_NOTHING
from backends.script.answering import answer_script
from backends.script.delegating import MAX_SUBTASKS
from tests.unit.backends.script.requests import request, user

FAST = answer_script(0, reasons=False)


def handed_on(prompt: str, **fields: object) -> list[str]:
    """Returns the tasks of the calls an answer to this makes."""
    answer = FAST(request(prompt, **({"tools": (DELEGATE,)} | fields)))  # type: ignore[arg-type]
    calls = [item for item in answer.items if item.kind is DeltaKind.FUNCTION_CALL]
    assert all(call.name == DELEGATE_TOOL for call in calls)
    assert not calls or answer.items[0].kind is DeltaKind.TEXT, "it says so first"
    return [msgspec.json.decode(call.text)["task"] for call in calls]


PROOF = "Then prove that our lock manager cannot deadlock."


@pytest.mark.parametrize(
    ("prompt", "tasks"),
    [
        (f"What is a mutex? {PROOF}", [PROOF]),
        ("Find the race in our scheduler.\nAlso say hi.", ["Find the race in our scheduler."]),
        ("Delegate this: rename the module foo.", ["Delegate this: rename the module foo."]),
        ("What is a mutex?", []),
        ("Prove it.", []),
        ("Improve this text for me please.", []),
        (" ".join(f"Design the part {n} of it." for n in range(9)), None),
    ],
)
def test_what_is_handed_on(prompt: str, tasks: list[str] | None) -> None:
    made = handed_on(prompt)
    if tasks is None:
        assert len(made) == MAX_SUBTASKS
    else:
        assert made == tasks


def test_only_where_it_is_offered() -> None:
    assert handed_on(PROOF, tools=()) == []
    assert handed_on(PROOF, tool_choice=ToolChoice("none")) == []
    assert handed_on(PROOF, tool_choice=ToolChoice("auto", ("look",))) == []


def after(output: str) -> str:
    """Returns what it says once its call has this output."""
    call = FunctionCall("call_1", DELEGATE_TOOL, '{"task":"x"}')
    result = FunctionCallOutput("call_1", (TextPart(output),))
    (item,) = FAST(request(user(PROOF), call, result, tools=(DELEGATE,))).items
    assert item.kind is DeltaKind.TEXT
    return item.text


def test_it_goes_on_meanwhile_and_closes_with_the_outcome() -> None:
    meanwhile = after('{"status":"running","note":"Say now what needs no waiting for it."}')
    assert "status" not in meanwhile
    closing = after("Locks are taken in one order, so no cycle of waits can ever form.")
    assert "no cycle of waits can ever form" in closing
    assert len(after("word " * 100_000)) < 2_000


@pytest.mark.parametrize("output", [CANCELLED, f"{FAILED}: no.", f"{NOT_BEGUN}: no.", SAID_NOTHING])
def test_it_does_not_claim_that_a_part_came_back_that_did_not(output: str) -> None:
    closing = after(output)
    assert closing.startswith(f"That part was not done:\n\n> {output}")
    assert "come back" not in closing
