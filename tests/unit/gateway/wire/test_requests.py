"""Tests the way from a request to a task: checks, hints, defaults, and what the router sees."""

import json
from typing import Any

import pytest

from backends.contract import (
    ContextItem,
    CustomTool,
    FunctionCallOutput,
    FunctionTool,
    ImagePart,
    Item,
    Message,
    TextFormat,
    TextPart,
    ToolChoice,
)
from backends.prompt import measure
from gateway.wire.errors import ProtocolError
from gateway.wire.events import CreateBody, decode
from gateway.wire.requests import DEFAULT_MAX_OUTPUT_TOKENS, ParsedCreate, make_task, parse_create
from router.classify.task import GroupLimits, Hints, Route, Tenant
from router.strategies.table import REMOVED, STRATEGIES

LIMITS = GroupLimits(requests_per_min=60, tokens_per_min=60_000, max_concurrent=4)
TENANT = Tenant(id="acme", tier="default", limits={"fast": LIMITS})


def parsed(generate: bool = True, **fields: Any) -> ParsedCreate:
    body = decode(json.dumps({"model": "auto"} | fields).encode(), CreateBody)
    return parse_create(body, "resp_1", generate=generate)


# fields, code, param
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "missing_required_parameter", "input"),
    ({"input": []}, "missing_required_parameter", "input"),
    ({"input": [{"type": "shell_call"}]}, "missing_required_parameter", "input"),
    (
        {"input": "x", "previous_response_id": "r", "conversation": "c"},
        "invalid_value",
        "conversation",
    ),
    ({"input": "x", "conversation": {"id": "c"}}, "unsupported_parameter", "conversation"),
    ({"input": "x", "tools": [{"type": "mcp"}]}, "unsupported_parameter", "tools[0].type"),
    *(
        (
            {"input": [{"role": "user", "content": [{"type": kind, "file_id": "file-1"}]}]},
            "invalid_value",
            "input[0].content[0].file_id",
        )
        for kind in ("input_image", "input_file")
    ),
    ({"input": "x", "prompt": {"id": "p"}}, "unsupported_parameter", "prompt"),
    ({"input": "x", "moderation": {"model": "m"}}, "unsupported_parameter", "moderation"),
    ({"input": "x", "top_logprobs": 1}, "unsupported_parameter", "top_logprobs"),
    (
        {"input": "x", "include": ["message.output_text.logprobs"]},
        "unsupported_parameter",
        "include[0]",
    ),
    ({"input": "x", "include": ["x.y"]}, "invalid_value", "include[0]"),
    ({"input": "x", "min_tokens": 17, "max_output_tokens": 16}, "invalid_value", "min_tokens"),
    ({"input": "x", "metadata": {"route": "warp"}}, "invalid_value", "metadata.route"),
    ({"input": "x", "metadata": {"route": ""}}, "invalid_value", "metadata.route"),
    ({"input": "x", "metadata": {"route": "FAST"}}, "invalid_value", "metadata.route"),
    ({"input": "x", "metadata": {"strategy": "brave"}}, "invalid_value", "metadata.strategy"),
    ({"input": "x", "metadata": {"strategy": ""}}, "invalid_value", "metadata.strategy"),
    *(
        ({"input": "x", "metadata": {"deadline_ms": text}}, "invalid_value", "metadata.deadline_ms")
        for text in ("", "0", "-1", "1.5", "soon", "1e3", "1000000000", "9" * 500, "²")
    ),
    *(
        (
            {"input": "x", "metadata": {"strategy": strategy, name: text}},
            "invalid_value",
            f"metadata.{name}",
        )
        for strategy, name, text in (
            ("breadth", "n", "1"),
            ("breadth", "n", "11"),
            ("breadth", "n", "many"),
            ("breadth", "judge", "no"),
            ("hedge", "hedge_after_ms", "-1"),
            ("hedge", "hedge_after_ms", "600001"),
        )
    ),
    ({"input": "x", "tool_choice": "required"}, "invalid_value", "tool_choice"),
    ({"input": "x", "text": {"format": {"type": "x"}}}, "invalid_value", "text.format.type"),
]


@pytest.mark.parametrize(("fields", "code", "param"), REFUSED)
def test_refused(fields: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parsed(**fields)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert f"'{param}'" in caught.value.message
    assert len(caught.value.message) < 400


def test_a_deadline_that_is_none_says_what_one_is() -> None:
    with pytest.raises(ProtocolError, match="expected a whole number from 1 to 999999999, got '0'"):
        parsed(input="x", metadata={"deadline_ms": "0"})


@pytest.mark.parametrize(("name", "instead"), REMOVED.items())
def test_a_strategy_of_an_earlier_version_says_what_to_use(name: str, instead: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parsed(input="x", metadata={"strategy": name})
    assert (caught.value.code, caught.value.param) == ("invalid_value", "metadata.strategy")
    known = ", ".join(f"'{each}'" for each in STRATEGIES)
    assert f"expected {known}, got '{name}'" in caught.value.message
    assert caught.value.message.endswith(f"It was removed: use '{instead}'.")


HINTS: list[tuple[dict[str, Any], Hints]] = [
    ({}, Hints()),
    ({"model": "m"}, Hints(model="m")),
    (
        {"metadata": (every := {"route": "parallel", "strategy": "hedge", "deadline_ms": "250"})},
        Hints(route=Route.PARALLEL, strategy="hedge", deadline_us=250_000, metadata=every),
    ),
    (
        {"metadata": (both := {"route": "fast", "strategy": "breadth", "x": "y"})},
        Hints(route=Route.FAST, strategy="breadth", metadata=both),
    ),
    (
        {"metadata": (late := {"deadline_ms": "999999999"})},
        Hints(deadline_us=999_999_999_000, metadata=late),
    ),
    (
        {"metadata": (wide := {"strategy": "breadth", "n": "10", "judge": "false"})},
        Hints(
            strategy="breadth",
            strategy_options={"num_variations": 10, "judged": False},
            metadata=wide,
        ),
    ),
    (
        {"metadata": (hedge := {"strategy": "hedge", "hedge_after_ms": "0", "n": "queued"})},
        Hints(strategy="hedge", strategy_options={"hedge_after_ms": 0}, metadata=hedge),
    ),
    ({"metadata": (odd := {"n": "queued", "judge": "Judy"})}, Hints(metadata=odd)),
    (
        {"reasoning": {"effort": "high"}, "service_tier": "flex"},
        Hints(reasoning_effort="high", service_tier="flex"),
    ),
    ({"reasoning": {}, "metadata": {}}, Hints()),
]


@pytest.mark.parametrize(("fields", "hints"), HINTS)
def test_hints(fields: dict[str, Any], hints: Hints) -> None:
    assert parsed(input="x", **fields).hints == hints


@pytest.mark.parametrize(
    ("fields", "generates"),
    [
        ({"input": "x"}, True),
        ({"input": "x", "prompt_cache_options": {"prewarm": False}}, True),
        ({"prompt_cache_options": {"prewarm": True}}, False),
        ({"input": [], "prompt_cache_options": {"prewarm": True}}, False),
        ({"previous_response_id": "r"}, True),
        ({"previous_response_id": "r", "input": []}, True),
    ],
)
def test_what_generates(fields: dict[str, Any], generates: bool) -> None:
    assert parsed(**fields).generate is generates
    assert parsed(generate=False, **fields).generate is False


def test_a_warm_up_needs_no_input() -> None:
    assert parsed(generate=False).input.items == ()


@pytest.mark.parametrize(
    ("sent", "kept"), [({}, True), ({"store": None}, True), ({"store": False}, False)]
)
def test_responses_are_stored_unless_refused(sent: dict[str, Any], kept: bool) -> None:
    assert parsed(input="x", **sent).store is kept


def test_tools_come_from_the_field_and_from_items() -> None:
    create = parsed(
        tools=[{"type": "function", "name": "f"}, {"type": "web_search"}],
        input=[
            {
                "type": "additional_tools",
                "role": "developer",
                "tools": [{"type": "custom", "name": "c"}],
            },
            {"role": "user", "content": "hi"},
        ],
        tool_choice={"type": "custom", "name": "c"},
    )
    assert create.tools == (FunctionTool("f"), CustomTool("c"))
    assert create.tool_choice == ToolChoice("required", ("c",))
    assert len(create.input.items) == 1


def context(*items: Item) -> tuple[ContextItem, ...]:
    return tuple(measure(item) for item in items)


def test_defaults_of_a_task() -> None:
    create = parsed(input="Say hi.")
    items = tuple(item for item in create.input.items if isinstance(item, ContextItem))
    task = make_task(create, items, TENANT, last_backend=None, arrived_us=5, arrived_unix_s=0)
    request = task.request
    assert (task.id, request.id, task.tenant, task.arrived_us) == ("resp_1", "resp_1", TENANT, 5)
    assert request.max_output_tokens == DEFAULT_MAX_OUTPUT_TOKENS
    assert request.num_prompt_tokens == items[0].num_tokens
    assert request.parallel_tool_calls is True
    assert request.text_format == TextFormat()
    assert request.tool_choice == ToolChoice()
    assert (request.temperature, request.top_p, request.seed, request.stop) == (
        None,
        None,
        None,
        (),
    )
    assert (task.last_user_message, task.num_last_message_tokens) == (
        "Say hi.",
        items[0].num_tokens,
    )
    assert (task.num_turns, task.has_images, task.generate) == (1, False, True)


def test_all_turns_of_a_conversation_are_of_it() -> None:
    first = Message("user", (TextPart("Hi."),))
    answer = Message("assistant", (TextPart("Hello."),))
    system = Message("system", (TextPart("Be brief."),))

    def of(*items: Item, key: str | None = None) -> str:
        create = parsed(input="x", **({"prompt_cache_key": key} if key else {}))
        made = make_task(
            create, context(*items), TENANT, last_backend=None, arrived_us=0, arrived_unix_s=0
        )
        return made.conversation

    assert of(system, first) == of(first, answer, Message("user", (TextPart("And?"),)))
    assert of(first) != of(Message("user", (TextPart("Ho."),)))
    assert of(first, key="c1") == of(answer, key="c1") == "c1"
    assert of(system) == ""


def test_a_task_carries_what_was_asked() -> None:
    create = parsed(
        input="x",
        instructions="Be brief.",
        max_output_tokens=7,
        temperature=0,
        top_p=0.5,
        parallel_tool_calls=False,
        reasoning={"effort": "low", "generate_summary": "concise"},
        prompt_cache_key="k",
        text={"format": {"type": "json_object"}},
    )
    task = make_task(create, (), TENANT, last_backend="wafer", arrived_us=0, arrived_unix_s=0)
    request = task.request
    assert (request.instructions, request.max_output_tokens) == ("Be brief.", 7)
    assert (request.temperature, request.top_p, request.parallel_tool_calls) == (0, 0.5, False)
    assert (request.reasoning_effort, request.reasoning_summary) == ("low", "concise")
    assert (request.prompt_cache_key, task.last_backend) == ("k", "wafer")
    assert request.text_format == TextFormat("json_object")
    assert request.num_prompt_tokens > 0, "the head weighs too"


USER, ASSISTANT = Message("user", (TextPart("old"),)), Message("assistant", (TextPart("done"),))
THANKS = Message("user", (TextPart("Thanks in advance!"),))
IMAGE = ImagePart("https://example.com/a.png")

# items, ask, turns, images
ASKS: list[tuple[tuple[Item, ...], str, int, bool]] = [
    ((), "", 0, False),
    ((Message("system", (TextPart("rules"),)),), "", 0, False),
    ((USER, ASSISTANT, Message("user", (TextPart("a"), TextPart("b")))), "a\nb", 2, False),
    ((USER, ASSISTANT, FunctionCallOutput("c", (TextPart("out"),))), "old", 1, False),
    ((USER, Message("user", (IMAGE,))), "", 2, True),
    ((Message("user", (IMAGE, TextPart("what"))), ASSISTANT, USER), "old", 2, True),
    ((USER, THANKS), "old", 2, False),
    ((USER, ASSISTANT, THANKS), "Thanks in advance!", 2, False),
]


@pytest.mark.parametrize(("items", "ask", "num_turns", "has_images"), ASKS)
def test_what_the_router_is_shown(
    items: tuple[Item, ...], ask: str, num_turns: int, has_images: bool
) -> None:
    measured = context(*items)
    task = make_task(
        parsed(input="x"), measured, TENANT, last_backend=None, arrived_us=0, arrived_unix_s=0
    )
    assert (task.last_user_message, task.num_turns, task.has_images) == (ask, num_turns, has_images)
    own = [entry.num_tokens for entry in measured if entry.item.__class__ is Message]
    assert task.num_last_message_tokens <= sum(own)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": "word " * 200_000}, "input"),
        ({"input": [{"role": "user", "content": "\n" * 500} for _ in range(500)]}, "input"),
        ({"input": "hi", "instructions": "a b " * 100_000}, "instructions"),
    ],
)
def test_what_no_window_holds_is_refused_without_being_counted(
    fields: dict[str, Any], param: str
) -> None:
    body = decode(json.dumps({"model": "auto", **fields}).encode(), CreateBody)
    with pytest.raises(ProtocolError) as caught:
        parse_create(body, "resp_1", max_tokens=50_000)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", param)
    assert "50000" in caught.value.message
