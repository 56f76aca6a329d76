"""Tests compaction: when, what stays word for word, what an engine is asked, and the bound."""

from typing import Any

import pytest

from backends.contract import (
    Compaction,
    ContextItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
    TextPart,
)
from backends.prompt import measure, parts_text, prompt_size
from gateway.wire.compaction import (
    INSTRUCTIONS,
    MIN_SUMMARY_TOKENS,
    Plan,
    Skipped,
    compacted_task,
    expected_task,
    folded_of,
    opened_item,
    plan_compaction,
    plan_whole,
    skipped_words,
    unfolded,
)
from gateway.wire.requests import make_task
from router.classify.task import Task
from tests.unit.gateway.conversations import RULES, said, turns
from tests.unit.gateway.doubles import TENANT, parsed_create

WINDOW = 100_000
THRESHOLD = 4_000  # a quarter for the tail, and for the summary


def step(n: int, words: int, *, thinks: bool = False) -> list[Item]:
    found: list[Item] = [Reasoning(f"rs_{n}")] if thinks else []
    call = FunctionCall(f"c{n}", "look", "{}")
    return [*found, call, FunctionCallOutput(f"c{n}", (TextPart(f"out{n} " + "word " * words),))]


def folded(summary: str = "sum", number: int = 1) -> Compaction:
    return Compaction("sealed", "cmp_1", summary=summary, number=number)


def task_of(*items: Item, **fields: Any) -> Task:
    context = tuple(measure(item) for item in items)
    parsed = parsed_create(**fields)
    return make_task(parsed, context, TENANT, last_backend=None, arrived_us=0, arrived_unix_s=0)


def plan(task: Task, threshold: int | None = THRESHOLD, most: int = 2) -> Plan | Skipped | None:
    return plan_compaction(task, threshold, max_compactions=most, window_tokens=WINDOW)


def names(entries: tuple[ContextItem, ...]) -> list[str]:
    found = []
    for entry in entries:
        item = entry.item
        if isinstance(item, Message):
            found.append(parts_text(item.content).split()[0])
        elif isinstance(item, FunctionCallOutput):
            found.append(parts_text(item.output).split()[0])
        else:
            found.append(getattr(item, "call_id", None) or item.id or "")
    return found


ASK = said("user", "now")

CASES: list[tuple[list[Item], list[str], list[str]]] = [
    # the latest turns that fit a quarter of the threshold stay, whole
    ([*turns(3000, 900, 400), ASK], ["ask0"], ["ask2", "answer2", "now"]),
    ([*turns(900, 900, 2500), ASK], ["ask0"], ["now"]),
    ([RULES, *turns(4500), RULES, ASK], ["rules", "ask0", "rules"], ["now"]),
    # one ask that is larger than a quarter stays all the same
    ([*turns(4000), said("user", "now", 2000)], ["ask0"], ["now"]),
    # two user messages in a row are one turn
    ([*turns(4500), said("user", "also"), ASK], ["ask0"], ["also", "now"]),
    # a long tool loop is folded up to its latest steps, and its ask is pinned
    ([ASK, *step(1, 3000), *step(2, 900), *step(3, 600)], ["now"], ["c3", "out3"]),
    ([ASK, *step(1, 3000), *step(2, 3000)], ["now"], ["c2", "out2"]),
    (
        [*turns(2000), ASK, *step(1, 2000), *step(2, 500, thinks=True)],
        ["ask0", "now"],
        ["rs_2", "c2", "out2"],
    ),
    # parallel calls are one step
    (
        [
            ASK,
            *step(1, 4500),
            FunctionCall("a", "look", "{}"),
            FunctionCall("b", "look", "{}"),
            *(FunctionCallOutput(c, (TextPart(f"out_{c}"),)) for c in "ab"),
        ],
        ["now"],
        ["a", "b", "out_a", "out_b"],
    ),
    # an earlier summary is folded into the next one
    (
        [said("user", "goal"), folded(), *turns(4500), ASK],
        ["goal"],
        ["now"],
    ),
]


@pytest.mark.parametrize(("items", "pinned", "tail"), CASES)
def test_what_stays_word_for_word(items: list[Item], pinned: list[str], tail: list[str]) -> None:
    task = task_of(*items)
    found = plan(task)
    assert isinstance(found, Plan)
    assert (names(found.pinned), names(found.tail)) == (pinned, tail)
    assert found.num_tokens == task.request.num_prompt_tokens
    calls = {e.item.call_id for e in found.tail if isinstance(e.item, FunctionCall)}
    outputs = {e.item.call_id for e in found.tail if isinstance(e.item, FunctionCallOutput)}
    assert outputs <= calls, "no output without its call"


def test_an_output_that_comes_late_keeps_its_call() -> None:
    late = [
        ASK,
        FunctionCall("slow", "look", "{}"),
        *step(1, 300),
        FunctionCallOutput("slow", (TextPart("at last"),)),
    ]
    found = plan(task_of(*turns(4500), *late))
    assert isinstance(found, Plan)
    assert names(found.tail) == ["now", "slow", "c1", "out1", "at"]
    found = plan(task_of(*turns(4500), ASK, *late[1:2], *step(1, 3000), *late[-1:]))
    assert isinstance(found, Plan)
    assert names(found.tail) == ["slow", "c1", "out1", "at"]


@pytest.mark.parametrize(
    ("items", "threshold", "expected"),
    [
        (turns(100), THRESHOLD, None),
        ([*turns(4500), ASK], 5_000, None),
        ([*turns(4500), ASK], None, None),  # 80 % of the window
        ([said("user", "goal", 9000)], THRESHOLD, "nothing_to_fold"),
        ([RULES, said("user", "goal", 3000), said("assistant", "ok"), ASK], 3_000,
         "nothing_to_fold"),
        ([said("user", "goal"), folded(number=2), *turns(4500), ASK], THRESHOLD, "limit_reached"),
    ],
)  # fmt: skip
def test_when_not(items: list[Item], threshold: int | None, expected: str | None) -> None:
    found = plan(task_of(*items), threshold)
    assert not isinstance(found, Plan)
    assert (found.state if found else None) == expected


def test_the_threshold_is_passed_by_one_token() -> None:
    task = task_of(*turns(4500), ASK)
    num_tokens = task.request.num_prompt_tokens
    assert plan(task, num_tokens) is None
    assert isinstance(plan(task, num_tokens - 1), Plan)


def test_two_in_a_conversation() -> None:
    """Each makes the next context short; the third time it stays as it is, and says so."""
    items: list[Item] = [said("user", "goal"), said("assistant", "ok")]
    numbers = []
    while len(numbers) < 3:
        items += [said("user", "more"), said("assistant", "answer", 2000)]
        task = task_of(*items, ASK)
        found = plan(task)
        if found is None:
            continue
        numbers.append(found.number)
        if isinstance(found, Skipped):
            assert "2 times" in skipped_words(found)
            break
        shorter = compacted_task(task, found, folded(number=found.number))
        assert shorter.request.num_prompt_tokens < THRESHOLD
        assert names(shorter.request.items)[0] == "goal"
        items = [entry.item for entry in shorter.request.items[:-1]]
    assert numbers == [1, 2, 2]
    assert plan(task, most=3) is not None
    assert isinstance(plan(task_of(*turns(4500), ASK), most=0), Skipped)


def test_what_the_engine_is_asked() -> None:
    """It is asked the conversation as it was, for its KV prefix, and the instruction last."""
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    fields: dict[str, Any] = {"tools": tools, "instructions": "Be brief.", "stop": None}
    task = task_of(*turns(3500, 900), ASK, tool_choice="required", **fields)
    found = plan(task)
    assert isinstance(found, Plan)
    request = found.request
    assert request is not None
    assert request.items[:-1] == task.request.items[: len(request.items) - 1]
    assert request.prefix[:-1] == task.request.prefix[: len(request.prefix) - 1]
    assert names(request.items[-1:]) == [INSTRUCTIONS.split()[0]]
    assert request.max_output_tokens == THRESHOLD // 4
    assert (request.tools, request.tool_choice.mode) == (task.request.tools, "none")
    assert request.instructions == "Be brief."
    assert request.num_prompt_tokens == request.prefix[-1][1]


def test_it_is_admitted_for_both_generations() -> None:
    task = task_of(*turns(3500, 900), ASK)
    found = plan(task)
    assert isinstance(found, Plan)
    asked = expected_task(task, found)
    assert found.request is not None
    assert asked.beforehand.num_input_tokens == found.request.num_prompt_tokens
    assert asked.max_prompt_tokens == found.request.num_prompt_tokens
    longest = folded("word " * (found.request.max_output_tokens - 1))
    after = compacted_task(task, found, longest).request.num_prompt_tokens
    assert 0 <= asked.request.num_prompt_tokens - after < 16, "what the answer reads, at most"


def test_what_fits_no_engine_is_cut_from_its_oldest() -> None:
    task = task_of(*turns(60_000, 60_000), *turns(1_000), ASK)
    found = plan(task)
    assert isinstance(found, Plan)
    assert found.request is not None
    assert found.request.num_prompt_tokens + found.request.max_output_tokens <= WINDOW
    sizes = [entry.num_tokens for entry in found.request.items]
    assert sizes[1] < 200
    assert sizes[3] > 50_000, "the later one is whole"
    assert names(found.request.items)[:2] == ["ask0", "answer0"]


def test_a_client_sends_it_back() -> None:
    """With or without what came before it, the context is the one that the gateway went on with."""
    items: list[Item] = [RULES, *turns(3500, 900), ASK]
    task = task_of(*items)
    found = plan(task)
    assert isinstance(found, Plan)
    content = folded_of(found, "what was said")
    kept = compacted_task(task, found, opened_item(Compaction("sealed", "cmp_9"), content))
    for before in (items, items[:1], []):
        measured = tuple(measure(item) for item in before)
        again = unfolded(measured, Compaction("sealed", "cmp_9"), content)
        assert [e.digest for e in again] == [e.digest for e in kept.request.items]
        _, prefix = prompt_size(None, (), task.request.text_format, again, task.request.cache_salt)
        assert prefix == kept.request.prefix
    changed = (measure(said("developer", "new")),)
    again = unfolded(changed, Compaction("sealed", "cmp_9"), content)
    assert names(again)[:3] == ["new", "rules", "ask0"], "new instructions stay"


def test_one_that_was_asked_for_keeps_what_people_said() -> None:
    task = task_of(RULES, *turns(900, 900), *step(1, 50), said("user", "last"))
    found = plan_whole(task, WINDOW)
    assert names(found.pinned) == ["rules", "ask0", "ask1", "last"]
    assert found.request is not None
    assert found.request.max_output_tokens >= MIN_SUMMARY_TOKENS
    asked = expected_task(task, found)
    assert (asked.request, asked.generate) == (found.request, True)
    content = folded_of(found, "sum")
    sent = tuple(measure(item) for item in (RULES, ASK))
    again = unfolded(sent, Compaction("sealed"), content)
    assert names(again[:2]) == ["rules", "now"]
    assert len(again) == 3


@pytest.mark.parametrize("items", [[], [RULES, ASK]])
def test_where_nobody_answered_no_engine_is_asked(items: list[Item]) -> None:
    task = task_of(*items)
    found = plan_whole(task, WINDOW)
    assert found.request is None
    assert expected_task(task, found).generate is False, "it asks the pools for no tokens"
