"""Tests Messages requests in Responses' terms: turns, tools, thinking, and refusals."""

import json
from typing import Any

import msgspec
import pytest

from backends.contract import (
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    FunctionTool,
    ImagePart,
    Item,
    Message,
    Reasoning,
    TextPart,
    ToolChoice,
)
from gateway.messages.call_ids import call_id_of, tool_use_id
from gateway.messages.request import MessagesRequest, read_messages
from gateway.messages.thinking import signature
from gateway.wire.errors import ProtocolError
from gateway.wire.requests import ParsedCreate, parse_create

HI = {"role": "user", "content": "hi"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1, 2]}}
CALL = FunctionCall("toolu_1", "f", '{"a":[1,2]}')
TOOL = {"name": "f", "input_schema": {"type": "object"}}
REMINDER = "<system-reminder>\nUse tabs.\n</system-reminder>"


def asked(*messages: dict[str, Any], headers: dict[str, str] | None = None, **fields: Any) -> Any:
    sent = {"model": "auto", "max_tokens": 10, "messages": list(messages) or [HI]} | fields
    return read_messages(json.dumps(sent).encode(), headers or {})


def parsed(*messages: dict[str, Any], **fields: Any) -> ParsedCreate:
    request: MessagesRequest = asked(*messages, **fields)
    return parse_create(request.create, "resp_1")


def items(*messages: dict[str, Any]) -> list[Item]:
    return [entry.item for entry in parsed(*messages).input.items]


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def said(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def result(content: Any = "done", use_id: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": use_id, "content": content} | more


def words(role: Any, *texts: str) -> Message:
    return Message(role, tuple(TextPart(text) for text in texts))


def output(*texts: str, call_id: str = "toolu_1") -> FunctionCallOutput:
    return FunctionCallOutput(call_id, tuple(TextPart(text) for text in texts))


PNG = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
PNG_PART = ImagePart("data:image/png;base64,AAAA")

CONVERSATIONS: list[tuple[list[dict[str, Any]], list[Item]]] = [
    ([HI], [words("user", "hi")]),
    ([user(said("a"), said(""), said("b"))], [words("user", "a", "b")]),
    (
        [user(said("see"), {"type": "image", "source": PNG})],
        [Message("user", (TextPart("see"), PNG_PART))],
    ),
    (
        [user({"type": "image", "source": {"type": "url", "url": "https://x/y"}})],
        [Message("user", (ImagePart("https://x/y"),))],
    ),
    (
        [user({"type": "document", "title": "T", "source": {"type": "text", "data": "d"}})],
        [words("user", "T\n\nd")],
    ),
    (
        [user({"type": "document", "source": PNG | {"media_type": "application/pdf"}})],
        [
            Message(
                "user",
                (FilePart(filename="document.pdf", file_data="data:application/pdf;base64,AAAA"),),
            )
        ],
    ),
    (
        [user({"type": "search_result", "source": "s", "title": "t", "content": [said("c")]})],
        [words("user", "t\ns\n\nc")],
    ),
    # Results come first, each an item of its own; an error says so in words.
    (
        [HI, assistant(said("I look."), USE), user(said("and?"), result())],
        [
            *(words("user", "hi"), words("assistant", "I look."), CALL, output("done")),
            words("user", "and?"),
        ],
    ),
    (
        [HI, assistant(USE), user(result([said("no"), {"type": "image", "source": PNG}]))],
        [
            words("user", "hi"),
            CALL,
            FunctionCallOutput("toolu_1", (TextPart("no"), PNG_PART)),
        ],
    ),
    (
        [HI, assistant(USE), user(result("no such file", is_error=True))],
        [words("user", "hi"), CALL, output("Error: no such file")],
    ),
    (
        [HI, assistant(USE), user(result("<tool_use_error>x", is_error=True))],
        [words("user", "hi"), CALL, output("<tool_use_error>x")],
    ),
    (
        [HI, assistant(USE), user(result(None, is_error=True))],
        [words("user", "hi"), CALL, output("Error")],
    ),
    # Neighbours of one role are one turn.
    (
        [HI, assistant(said("a")), assistant(USE), user(result("1")), user(said("more"))],
        [words("user", "hi"), words("assistant", "a"), CALL, output("1"), words("user", "more")],
    ),
    # What the harness says is no word of the user.
    (
        [user(said(REMINDER), said("fix it"))],
        [words("developer", REMINDER), words("user", "fix it")],
    ),
    (
        [HI, {"role": "system", "content": "Be brief."}],
        [words("user", "hi"), words("developer", "Be brief.")],
    ),
    (
        [HI, assistant(USE), user(result("1"), said(REMINDER))],
        [words("user", "hi"), CALL, output("1", REMINDER)],
    ),
    (
        [HI, assistant(USE), {"role": "system", "content": "Short."}, user(result("1"))],
        [words("user", "hi"), CALL, output("1", "<system-reminder>\nShort.\n</system-reminder>")],
    ),
    # Thoughts of other services, and changed ones, are left out.
    (
        [
            HI,
            assistant(
                {"type": "thinking", "thinking": "hm", "signature": "ErUB"},
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "thinking", "thinking": "changed", "signature": signature("hm", "x")},
                {"type": "thinking", "thinking": "hm", "signature": signature("hm", "")},
                {"type": "redacted_thinking", "data": "xx"},
                said("a"),
            ),
            HI,
        ],
        [words("user", "hi"), words("assistant", "a"), words("user", "hi")],
    ),
    (
        [
            HI,
            assistant({"type": "thinking", "thinking": "hm", "signature": signature("hm", "x.y")}),
            HI,
        ],
        [words("user", "hi"), Reasoning(None, ("hm",), (), "x.y"), words("user", "hi")],
    ),
]


@pytest.mark.parametrize(("messages", "expected"), CONVERSATIONS)
def test_a_conversation(messages: list[dict[str, Any]], expected: list[Item]) -> None:
    assert items(*messages) == expected


REFUSED: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = [
    ([HI], {"max_tokens": None}, "max_tokens: Field required"),
    ([HI], {"max_tokens": -1}, "max_tokens: Expected `int` >= 0"),
    ([HI], {"temperature": 1.5}, "temperature: Expected `float` <= 1.0"),
    (
        [{"role": "tool", "content": "x"}],
        {},
        "messages.0.role: Expected 'assistant', 'system', 'user'",
    ),
    ([user({"type": "audio"})], {}, "messages.0.content.0.type: Invalid value 'audio'"),
    ([user({"type": "text"})], {}, "messages.0.content.0.text: Field required"),
    ([user()], {}, "messages.0: user messages must have non-empty content"),
    ([user(said(""))], {}, "messages.0: user messages must have non-empty content"),
    ([HI, assistant(said("It"))], {}, "does not support assistant message prefill"),
    (
        [HI, assistant(USE), HI],
        {},
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: "
        "toolu_1.",
    ),
    ([HI, assistant(USE)], {}, "messages.1: `tool_use` ids were found without"),
    (
        [user(result())],
        {},
        "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1.",
    ),
    (
        [HI, assistant(USE), user(result(), result())],
        {},
        "messages.2.content.1: unexpected `tool_use_id`",
    ),
    ([HI, assistant(USE, USE), user(result())], {}, "messages.1.content.1.id: `tool_use` ids must"),
    ([HI, assistant(USE | {"input": "{}"})], {}, "messages.1.content.0.input: Input should be"),
    ([assistant({"type": "image", "source": PNG}), HI], {}, "messages.0.content.0.type: a block"),
    ([user(USE)], {}, "messages.0.content.0: a block of type 'tool_use' cannot stand here"),
    (
        [user({"type": "image", "source": {"type": "file", "file_id": "f"}})],
        {},
        "messages.0.content.0.source.type: expected 'base64' or 'url', got 'file'",
    ),
    ([HI], {"tools": [{"name": "f"}]}, "tools.0.input_schema: Field required"),
    ([HI], {"tools": [TOOL, TOOL]}, "tools: Tool names must be unique."),
    (
        [HI],
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        "tools.0.type: 'web_search_20250305' is not served here",
    ),
    ([HI], {"tool_choice": {"type": "any"}}, "tool_choice: 'any' needs at least one tool"),
    (
        [HI],
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}},
        "tool_choice.name: Tool 'g' not found in provided tools",
    ),
    ([HI], {"stop_sequences": [" "]}, "stop_sequences: each stop sequence must contain"),
    ([HI], {"mcp_servers": [{"url": "x"}]}, "mcp_servers: not supported here"),
    (
        [user({"type": "image", "source": {"type": "url", "url": ""}})],
        {},
        "messages.0.content.0.source.url: Expected `str` of length >= 1",
    ),
]


@pytest.mark.parametrize(("messages", "fields", "complaint"), REFUSED)
def test_what_is_refused_names_the_field(
    messages: list[dict[str, Any]], fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ProtocolError) as refused:
        asked(*messages, **fields)
    assert complaint in refused.value.message
    assert refused.value.kind.status == 400


def test_the_system_prompt_of_a_harness_is_no_instruction_of_a_task() -> None:
    attribution = "x-anthropic-billing-header: cc_version=2.1.330.572; cc_entrypoint=cli;"
    found = parsed(system=[said(attribution), said("You are"), said("brief.")])
    assert found.body.instructions is None
    assert [entry.item for entry in found.input.items] == [
        words("developer", "You are\n\nbrief."),
        words("user", "hi"),
    ]
    assert asked(system=[said("You are"), said("brief.")]).create.instructions == (
        "You are\n\nbrief."
    )
    assert asked(system="Be brief.").create.instructions == "Be brief."
    assert asked(system=[]).create.instructions is None


def test_tools_and_the_choice_among_them() -> None:
    found = parsed(
        tools=[TOOL | {"description": "F.", "strict": True}],
        tool_choice={"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    )
    assert found.tools == (FunctionTool("f", "F.", {"type": "object"}, True),)
    assert found.tool_choice == ToolChoice("required", ("f",))
    assert found.body.parallel_tool_calls is False
    choices = {"auto": "auto", "any": "required", "none": "none"}
    for theirs, ours in choices.items():
        assert parsed(tools=[TOOL], tool_choice={"type": theirs}).tool_choice.mode == ours


def names(*messages: dict[str, Any]) -> list[str]:
    deferred = {"input_schema": {"type": "object"}, "defer_loading": True}
    tools = [TOOL, {"name": "late"} | deferred, {"name": "DeferredToolPlaceholder"} | deferred]
    return [tool.name for tool in parsed(*messages, tools=tools).tools]


def test_a_deferred_tool_is_hidden_until_it_is_referred_to() -> None:
    reference = {"type": "tool_reference", "tool_name": "late"}
    named = {"type": "tool_reference", "name": "late"}
    assert names(HI) == ["f"]
    assert names(HI, assistant(USE), user(result([reference]))) == ["f", "late"]
    added = {"role": "system", "content": [{"type": "tool_addition", "tool": named}]}
    removed = {"role": "system", "content": [{"type": "tool_removal", "tool": named}]}
    assert names(HI, added) == ["f", "late"]
    assert names(HI, added, removed) == ["f"]
    inline = {"type": "tool_definition", "definition": TOOL | {"name": "new"}}
    assert names(
        HI, {"role": "system", "content": [{"type": "tool_addition", "tool": inline}]}
    ) == [
        "f",
        "new",
    ]


# thinking, effort, what the engine is asked for
EFFORTS: list[tuple[dict[str, Any] | None, str | None, tuple[str | None, str | None] | None]] = [
    (None, None, None),
    (None, "max", ("max", None)),
    ({"type": "disabled"}, None, ("none", None)),
    ({"type": "disabled"}, "high", ("high", None)),
    ({"type": "adaptive"}, None, (None, "auto")),
    ({"type": "adaptive", "display": "omitted"}, "medium", ("medium", None)),
    ({"type": "enabled", "budget_tokens": 1024}, None, ("low", "auto")),
    ({"type": "enabled", "budget_tokens": 8_000}, None, ("medium", "auto")),
    ({"type": "enabled", "budget_tokens": 32_000}, None, ("high", "auto")),
    ({"type": "enabled", "budget_tokens": 32_000}, "low", ("low", "auto")),
]


@pytest.mark.parametrize(("thinking", "effort", "expected"), EFFORTS)
def test_how_hard_to_think(
    thinking: dict[str, Any] | None,
    effort: str | None,
    expected: tuple[str | None, str | None] | None,
) -> None:
    reasoning = asked(thinking=thinking, output_config={"effort": effort}).create.reasoning
    assert (reasoning and (reasoning.effort, reasoning.summary)) == expected


def test_a_form_is_asked_for_under_both_names() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    form = {"type": "json_schema", "schema": schema}
    for fields in ({"output_config": {"format": form}}, {"output_format": form}):
        found = parsed(**fields).text_format
        assert (found.type, found.schema, found.strict) == ("json_schema", schema, True)


def test_what_clients_send_every_time_is_taken() -> None:
    found = asked(
        user(said("hi") | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        service_tier="auto",
        inference_geo="us",
        top_k=3,
        safeguards=[{"type": "dangerous_tool_use"}],
        of_tomorrow={"any": 1},
        metadata={"user_id": "opaque", "route": "fast", "n": 3},
        stop_sequences=["END"],
    )
    assert found.stop == ("END",)
    assert found.create.store is False
    assert parse_create(found.create, "resp_1").hints.metadata == {"route": "fast"}


SESSION = {"x-claude-code-session-id": "s-1"}
CLAUDE_CODE = SESSION | {"user-agent": "claude-cli/2.1.330 (external, cli)"}
FORM = {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}
SUBAGENT = {"system": [said("x-anthropic-billing-header: cc_is_subagent=true;")]}

# headers, fields, the agent's role
ROLES: list[tuple[dict[str, str], dict[str, Any], str | None]] = [
    ({}, {}, None),
    ({}, FORM, None),
    ({}, {"model": "claude-haiku-5-5"}, "auxiliary"),
    (CLAUDE_CODE, {}, "main"),
    (CLAUDE_CODE, FORM, "auxiliary"),
    (CLAUDE_CODE, FORM | {"tools": [TOOL]}, "main"),
    (CLAUDE_CODE, SUBAGENT, "subagent"),
    (CLAUDE_CODE | {"x-claude-code-agent-id": "a-1"}, {}, "subagent"),
    (CLAUDE_CODE | {"x-claude-code-request-class": "auxiliary"}, {}, "auxiliary"),
    (CLAUDE_CODE | {"x-claude-code-request-class": "side_reply"}, {}, "auxiliary"),
    (CLAUDE_CODE | {"x-claude-code-request-class": "compaction"}, {}, "main"),
    (CLAUDE_CODE | {"x-claude-code-request-class": "of_tomorrow"}, {}, "main"),
]


@pytest.mark.parametrize(("headers", "fields", "role"), ROLES)
def test_which_part_of_claude_code_asks(
    headers: dict[str, str], fields: dict[str, Any], role: str | None
) -> None:
    assert asked(headers=headers, **fields).agent.role == role


def test_a_session_is_one_conversation_and_each_of_its_agents_another() -> None:
    agent = {
        "x-claude-code-agent-id": "a-1",
        "x-claude-code-agent-type": "Explore",
        "x-claude-code-prompt-id": "p-1",
    }
    main, sub = asked(headers=CLAUDE_CODE), asked(headers=CLAUDE_CODE | agent)
    assert (main.create.prompt_cache_key, sub.create.prompt_cache_key) == ("s-1", "s-1:a-1")
    assert (sub.agent.thread_id, sub.agent.parent_thread_id) == ("a-1", "s-1")
    assert (sub.agent.subagent, sub.agent.turn_id) == ("Explore", "p-1")
    told = {"user_id": json.dumps({"device_id": "d", "session_id": "s-2"})}
    assert asked(metadata=told).create.prompt_cache_key == "s-2"
    for opaque in ("user_1", "{", "[]", '{"x":' + "[" * 10_000):
        assert asked(metadata={"user_id": opaque}).create.prompt_cache_key is None


@pytest.mark.parametrize("call_id", ["call_1", "toolu_1", "functions.f:0", "toolu_x66", "ü"])
def test_call_ids_come_back(call_id: str) -> None:
    shown = tool_use_id(call_id)
    assert msgspec.convert(shown, type=str).isascii()
    assert all(char.isalnum() or char in "_-" for char in shown)
    assert call_id_of(shown) == call_id
