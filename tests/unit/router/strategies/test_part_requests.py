"""Tests what each branch is asked, and what a strategy asks of the pools."""

from typing import Any

import pytest

from backends.contract import (
    BackendInfo,
    CustomTool,
    FunctionTool,
    GenerateRequest,
    Message,
    TextFormat,
    TextPart,
    ToolChoice,
    Usage,
)
from backends.delegation import DELEGATE
from backends.prompt import measure, prompt_size
from router.strategies.actions import DEEP, FAST
from router.strategies.advise import GiveAdvice
from router.strategies.breadth import (
    JUDGE_INSTRUCTIONS,
    MAX_VARIATIONS,
    VARIATION_MAX_OUTPUT_TOKENS,
    Judge,
    Vary,
)
from router.strategies.delegate import TOOL_TOKENS
from router.strategies.part_requests import ADDED_TOKENS, TaskPart, WholeAnswer, branch_request
from router.strategies.record import Usages
from router.strategies.subtasks import SUBTASK_MAX_OUTPUT_TOKENS, Subtask
from router.strategies.table import RECORDS
from router.strategies.tool_rounds import Converse
from router.strategies.verify import AskVerdict, OneOfMany


def request(**fields: Any) -> GenerateRequest:
    items = (measure(Message("user", (TextPart("Hi."),))),)
    tools = (FunctionTool("look"), CustomTool("shell"))
    instructions = fields.get("instructions")
    num_prompt_tokens, prefix = prompt_size(instructions, tools, TextFormat(), items)
    base: dict[str, Any] = {
        "id": "resp_1",
        "model": "auto",
        "items": items,
        "num_prompt_tokens": num_prompt_tokens,
        "prefix": prefix,
        "max_output_tokens": 10_000,
        "tools": tools,
        "tool_choice": ToolChoice("required", ("look",)),
        "reasoning_effort": "high",
        "reasoning_summary": "auto",
    }
    return GenerateRequest(**(base | fields))


def asked(
    part: TaskPart,
    branch: int = 0,
    *,
    window_tokens: int = 100_000,
    alone: bool = False,
    **fields: Any,
) -> GenerateRequest:
    info = BackendInfo(
        name="any", model="any", group="fast", window_tokens=window_tokens, max_output_tokens=16_384
    )
    return branch_request(request(**fields), branch, part, info, alone=alone)


def test_one_engine_is_asked_what_came() -> None:
    assert asked(WholeAnswer(), alone=True) == request()


@pytest.mark.parametrize("branch", [FAST, DEEP])
def test_competitors_are_asked_the_same_under_ids_of_their_own(branch: int) -> None:
    assert asked(WholeAnswer(), branch) == request(id=f"resp_1-{branch}")


def check_in_words(made: GenerateRequest) -> None:
    assert (made.tools, made.tool_choice) == ((), ToolChoice("none"))
    assert (made.reasoning_effort, made.reasoning_summary) == (None, None)
    size = prompt_size(made.instructions, (), made.text_format, made.items)
    assert (made.num_prompt_tokens, made.prefix) == size


def test_variations_differ_in_their_seed_alone() -> None:
    first, second = asked(Vary(0), 0), asked(Vary(1), 1)
    check_in_words(second)
    assert (first.seed, second.seed) == (0, 1)
    assert asked(Vary(2), seed=40).seed == 42
    assert (first.items, first.prefix) == (second.items, second.prefix), "a clean context each"
    assert first.max_output_tokens == VARIATION_MAX_OUTPUT_TOKENS
    assert asked(Vary(0, 5), max_output_tokens=1_000).max_output_tokens == 200
    assert asked(Vary(0, 5), max_output_tokens=16_000).max_output_tokens == 3_200, (
        "nobody reads all"
    )


@pytest.mark.parametrize(
    ("part", "is_kept"),
    [
        (WholeAnswer(), True),
        (OneOfMany(1), True),
        (Converse("opening"), True),
        (Judge(("One.", "Two.")), True),
        (Vary(0, 5), True),
        (Vary(0), False),
        (AskVerdict("Forty-two."), False),
        (Subtask("Prove it."), False),
        (GiveAdvice("How?", 64), False),
    ],
)
def test_stop_sequences_end_the_answer_alone(part: TaskPart, is_kept: bool) -> None:
    assert asked(part, stop=("no", "\n")).stop == (("no", "\n") if is_kept else ())


def check_behind(made: GenerateRequest, *texts: str) -> None:
    """Checks the task as it was, with these messages behind it: its KV prefix stays good."""
    asked_for = request()
    assert made.items[:1] == asked_for.items
    assert made.prefix[: len(asked_for.prefix)] == asked_for.prefix
    assert made.num_prompt_tokens == made.prefix[-1][1] > asked_for.num_prompt_tokens
    said = [entry.item.content[0] for entry in made.items[1:] if isinstance(entry.item, Message)]
    assert said == [TextPart(text) for text in texts]
    assert made.tools == asked_for.tools, "the final answer may act"
    assert made.reasoning_effort == "high"


def test_a_judge_has_all_answers_behind_the_task() -> None:
    instructions = JUDGE_INSTRUCTIONS.format(number=2)
    check_behind(
        asked(Judge(("this", "that")), DEEP),
        f"{instructions}\n\nAnswer 1:\nthis\n\nAnswer 2:\nthat",
    )


def test_what_is_added_is_counted() -> None:
    added = Message("developer", (TextPart(JUDGE_INSTRUCTIONS),))
    assert measure(added).num_tokens <= ADDED_TOKENS


# wanted, window, given
ROOMS = [(1000, 100_000, 1000), (20_000, 100_000, 16_384), (1000, 500, None), (1000, 1, 1)]


@pytest.mark.parametrize(("wanted", "window_tokens", "given"), ROOMS)
def test_no_backend_is_asked_for_more_than_it_can_give(
    wanted: int, window_tokens: int, given: int | None
) -> None:
    made = asked(WholeAnswer(), window_tokens=window_tokens, max_output_tokens=wanted)
    room_tokens = window_tokens - made.num_prompt_tokens
    assert made.max_output_tokens == (room_tokens if given is None else given)


# strategy, options, prompt tokens, output tokens, fast, deep (None: nothing is asked of it)
TOKENS: list[tuple[str | None, dict[str, Any], int, int, int, int | None]] = [
    (None, {}, 100, 500, 600, 600),
    ("breadth", {"num_variations": 4}, 100, 500, 600, 100 + 4 * 500 + 500 + ADDED_TOKENS),
    ("breadth", {"num_variations": 10}, 0, 3_000, 2_048, 20_480 + 3_000 + ADDED_TOKENS),
    ("breadth", {"num_variations": 4, "judged": False}, 100, 500, 600, None),
    ("breadth", {"num_variations": 4, "judged": False}, 0, 3_000, 3_000, None),
]


def expected(strategy: str | None, prompt: int, output: int, **options: Any) -> Usages:
    record = RECORDS[strategy]
    return record.usage(record.options(**options), Usage(prompt, 0, output))


@pytest.mark.parametrize(("strategy", "options", "prompt", "output", "fast", "deep"), TOKENS)
def test_what_a_strategy_asks_of_the_pools(
    strategy: str | None,
    options: dict[str, Any],
    prompt: int,
    output: int,
    fast: int,
    deep: int | None,
) -> None:
    usage = expected(strategy, prompt, output, **options)
    assert {
        group: used.num_input_tokens + used.num_output_tokens for group, used in usage.items()
    } == {"fast": fast} | ({} if deep is None else {"deep": deep})


def test_the_most_that_a_judge_may_have_to_read_fits_an_engines_window() -> None:
    assert MAX_VARIATIONS * VARIATION_MAX_OUTPUT_TOKENS < 32_768


def test_every_round_has_the_same_tools_so_that_prompts_begin_alike() -> None:
    said = (Message("assistant", (TextPart("so far"),)),)
    plain = {"tool_choice": ToolChoice()}
    opening = asked(Converse("opening"), **plain)
    assert opening.tools == (*request().tools, DELEGATE)
    assert opening.tool_choice == ToolChoice()
    for part, choice in (
        ("meanwhile", ToolChoice("none")),
        ("closing", ToolChoice("auto", ("look", "shell"))),
    ):
        later = asked(Converse(part, said), 2, **plain)  # type: ignore[arg-type]
        assert later.tools == opening.tools
        assert later.prefix[: len(opening.prefix)] == opening.prefix
        assert later.items[-1].item == said[0]
        assert later.tool_choice == choice, "it is not to hand on once more"
    alone = {"tools": (), "tool_choice": ToolChoice()}
    assert asked(Converse("closing", said), **alone).tool_choice == ToolChoice("none")
    kept = {"tool_choice": ToolChoice("auto", ("look",))}
    assert asked(Converse("closing", said), **kept).tool_choice == ToolChoice("auto", ("look",))


def test_the_tool_costs_what_is_reserved_for_it() -> None:
    alone = {"tools": (), "tool_choice": ToolChoice()}
    plain = request(**alone)
    made = asked(Converse("opening"), **alone)
    assert (
        made.num_prompt_tokens - prompt_size(None, (), TextFormat(), plain.items)[0] <= TOOL_TOKENS
    )


def test_a_sub_task_has_the_conversation_and_no_tools() -> None:
    made = asked(Subtask("Prove it."), 1, text_format=TextFormat("json_object"))
    assert (made.tools, made.tool_choice) == ((), ToolChoice("none"))
    assert made.text_format == TextFormat(), "the form is the answer's"
    assert made.reasoning_effort == "high"
    assert made.items[:1] == request().items
    assert made.items[-1].item == Message("user", (TextPart("Prove it."),))
    assert made.max_output_tokens == SUBTASK_MAX_OUTPUT_TOKENS
    size = prompt_size(None, (), TextFormat(), made.items)
    assert (made.num_prompt_tokens, made.prefix) == size
    said = (Message("assistant", (TextPart("By"),)), Message("user", (TextPart("Shorter."),)))
    steered = asked(Subtask("Prove it.", said), 2)
    assert [entry.item for entry in steered.items[-2:]] == list(said)


def test_hedge_asks_the_deep_pools_only() -> None:
    assert expected("hedge", 100, 500) == {"deep": Usage(100, 0, 500)}


def test_delegation_asks_the_fast_pools_only() -> None:
    usage = expected("delegate", 100, 500)
    assert usage == {"fast": Usage(100 + TOOL_TOKENS, 0, 500)}


def test_only_who_takes_predictions_gets_one() -> None:
    given = request(prediction="a b c")
    for takes in (False, True):
        info = BackendInfo(
            name="gpu",
            model="m",
            group="deep",
            window_tokens=100_000,
            max_output_tokens=100,
            takes_predictions=takes,
        )
        made = branch_request(given, 0, WholeAnswer(), info, alone=True)
        assert made.prediction == ("a b c" if takes else None)
    subtask = branch_request(given, 0, Subtask("t"), info, alone=True)
    assert subtask.prediction is None, "it is not of this answer"
