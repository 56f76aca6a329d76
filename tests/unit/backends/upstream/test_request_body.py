"""Tests what upstreams are sent, row by row."""

from typing import Any

import pytest

from backends.contract import (
    Compaction,
    CustomTool,
    CustomToolCall,
    CustomToolCallOutput,
    Extras,
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    FunctionTool,
    ImagePart,
    Item,
    Message,
    Reasoning,
    RefusalPart,
    TextFormat,
    TextPart,
    ToolChoice,
)
from backends.sealed_reasoning import wrap
from backends.upstream.options import check_options
from backends.upstream.request_body import request_body, wrapped_tools
from tests.unit.backends.upstream.upstream_requests import make_options, make_request

USER = Message("user", (TextPart("Hi."),), id="msg_of_ours")
PICTURE = ImagePart("data:image/png;base64,AA==", detail="low")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
ADD = FunctionTool("add", "Adds.", SCHEMA, strict=True)
SUB = FunctionTool("sub", namespace="maths")
SQL = CustomTool("sql", "A query.", {"type": "grammar"})

# Item -> as a Responses item, and as chat messages; None: it is left out.
EARLIER = "Earlier in this conversation:\nMuch."

ITEMS: list[tuple[Item, dict[str, Any] | None, list[dict[str, Any]]]] = [
    (
        USER,
        {"type": "message", "role": "user", "content": "Hi."},
        [{"role": "user", "content": "Hi."}],
    ),
    (
        Message("developer", (TextPart("Be brief."),)),
        {"type": "message", "role": "developer", "content": "Be brief."},
        [{"role": "user", "content": "Be brief."}],
    ),
    (
        Message("assistant", (TextPart("Well."),), phase="commentary"),
        {"type": "message", "role": "assistant", "content": "Well.", "phase": "commentary"},
        [{"role": "assistant", "content": "Well."}],
    ),
    (
        Message("assistant", (RefusalPart("No."),)),
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "No."}],
        },
        [{"role": "assistant", "content": "No."}],
    ),
    (
        Message("user", (TextPart("What is it?"), PICTURE)),
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is it?"},
                {"type": "input_image", "image_url": PICTURE.image_url, "detail": "low"},
            ],
        },
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {
                        "type": "image_url",
                        "image_url": {"url": PICTURE.image_url, "detail": "low"},
                    },
                ],
            }
        ],
    ),
    (
        Message("user", (FilePart(filename="a.txt", file_data="QQ=="),)),
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_file", "filename": "a.txt", "file_data": "QQ=="}],
        },
        [
            {
                "role": "user",
                "content": [{"type": "file", "file": {"filename": "a.txt", "file_data": "QQ=="}}],
            }
        ],
    ),
    (
        FunctionCall("call_1", "add", '{"n":1}', id="fc_of_ours", namespace="maths"),
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"n":1}'},
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"n":1}'},
                    }
                ],
            }
        ],
    ),
    (
        FunctionCallOutput("call_1", (TextPart("2"),)),
        {"type": "function_call_output", "call_id": "call_1", "output": "2"},
        [{"role": "tool", "tool_call_id": "call_1", "content": "2"}],
    ),
    (
        CustomToolCall("call_2", "sql", "select 1"),
        {
            "type": "function_call",
            "call_id": "call_2",
            "name": "sql",
            "arguments": '{"input":"select 1"}',
        },
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_2",
                        "type": "function",
                        "function": {"name": "sql", "arguments": '{"input":"select 1"}'},
                    }
                ],
            }
        ],
    ),
    (
        CustomToolCallOutput("call_2", (TextPart("1"),)),
        {"type": "function_call_output", "call_id": "call_2", "output": "1"},
        [{"role": "tool", "tool_call_id": "call_2", "content": "1"}],
    ),
    (Reasoning("rs_1", ("Thinking.",), encrypted_content="sealed"), None, []),
    (Reasoning("rs_2", ("Thinking.",)), None, []),
    (Compaction("sealed"), {"type": "compaction", "encrypted_content": "sealed"}, []),
    (
        Compaction("sealed", summary="Much.", number=1),  # ours, opened
        {"type": "message", "role": "developer", "content": EARLIER},
        [{"role": "user", "content": EARLIER}],
    ),
]


@pytest.mark.parametrize(("item", "responses", "chat"), ITEMS)
def test_items(item: Item, responses: dict[str, Any] | None, chat: list[dict[str, Any]]) -> None:
    request = make_request(item)
    found = request_body(request, make_options("responses"))["input"]
    assert found == ([] if responses is None else [responses])
    assert request_body(request, make_options("responses-ws"))["input"] == found
    assert request_body(request, make_options("chat"))["messages"] == chat


def test_a_turns_text_and_calls_are_one_chat_message() -> None:
    request = make_request(
        USER,
        Message("assistant", (TextPart("Let me see."),)),
        FunctionCall("a", "add", "{}"),
        FunctionCall("b", "add", "{}"),
        FunctionCallOutput("a", (TextPart("1"),)),
        FunctionCall("c", "add", "{}"),
        instructions="Be kind.",
    )
    messages = request_body(request, make_options())["messages"]
    assert [message["role"] for message in messages] == [
        *("system", "user", "assistant", "tool", "assistant")
    ]
    assert messages[2]["content"] == "Let me see."
    assert [call["id"] for call in messages[2]["tool_calls"]] == ["a", "b"]


# Sealed content -> what the upstream behind "ours" gets of it.
SEALED = {
    wrap("ours", "rs_theirs", "x.y"): ("rs_theirs", "x.y"),
    wrap("another", "rs_theirs", "x"): None,
    "from elsewhere": None,
    "lwr1.?.x": None,
    "lwr1.W10=.x": None,
}


@pytest.mark.parametrize("content", SEALED)
def test_sealed_reasoning_goes_back_to_who_sealed_it(content: str) -> None:
    request = make_request(Reasoning("rs_ours", ("Hm.",), encrypted_content=content))
    body = request_body(request, make_options("responses", seals_reasoning=True))
    assert body["include"] == ["reasoning.encrypted_content"]
    expected = SEALED[content]
    if expected is None:
        assert body["input"] == []
        return
    summary = [{"type": "summary_text", "text": "Hm."}]
    item = {"type": "reasoning", "id": expected[0], "summary": summary}
    assert body["input"] == [item | {"encrypted_content": expected[1]}]


def test_custom_tools_can_stay_what_they_are() -> None:
    options = make_options("responses", custom_tools="native")
    request = make_request(
        CustomToolCall("c", "sql", "select 1"),
        CustomToolCallOutput("c", (TextPart("1"),)),
        tools=(SQL,),
        tool_choice=ToolChoice("required", ("sql",)),
    )
    body = request_body(request, options)
    assert [item["type"] for item in body["input"]] == [
        "custom_tool_call",
        "custom_tool_call_output",
    ]
    assert body["tools"][0]["type"] == "custom"
    assert body["tools"][0]["format"] == {"type": "grammar"}
    assert body["tool_choice"] == {"type": "custom", "name": "sql"}
    assert wrapped_tools(request, options) == frozenset()
    assert wrapped_tools(request, make_options("responses")) == {"sql"}


# The choice -> which tools are offered, and the choice that is sent.
CHOICES = [
    (ToolChoice(), ["add", "sub", "sql"], "auto"),
    (ToolChoice("none"), ["add", "sub", "sql"], "none"),
    (ToolChoice("required"), ["add", "sub", "sql"], "required"),
    (ToolChoice("required", ("sub",)), ["sub"], {"type": "function", "name": "sub"}),
    (ToolChoice("required", ("add", "sql")), ["add", "sql"], "required"),
    (ToolChoice("auto", ("add",)), ["add"], "auto"),
]


@pytest.mark.parametrize(("choice", "names", "sent"), CHOICES)
def test_tools_and_choices(choice: ToolChoice, names: list[str], sent: Any) -> None:
    request = make_request(USER, tools=(ADD, SUB, SQL), tool_choice=choice)
    body = request_body(request, make_options("responses"))
    assert [tool["name"] for tool in body["tools"]] == names
    assert body["tool_choice"] == sent
    chat = request_body(request, make_options())
    assert [tool["function"]["name"] for tool in chat["tools"]] == names
    if isinstance(sent, dict):
        sent = {"type": "function", "function": {"name": sent["name"]}}
    assert chat["tool_choice"] == sent


def test_a_functions_schema_goes_as_it_came() -> None:
    request = make_request(USER, tools=(ADD,))
    (tool,) = request_body(request, make_options("responses"))["tools"]
    assert tool == {
        "type": "function",
        "name": "add",
        "description": "Adds.",
        "parameters": SCHEMA,
        "strict": True,
    }
    assert "tools" not in request_body(make_request(USER), make_options("responses"))
    assert "tool_choice" not in request_body(make_request(USER), make_options())


# Fields of the request -> of the Responses body, and of the chat body.
FIELDS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({}, {"store": False, "max_output_tokens": 100}, {"max_completion_tokens": 100}),
    ({"temperature": 0.5}, {"temperature": 0.5}, {"temperature": 0.5}),
    ({"top_p": 0.9}, {"top_p": 0.9}, {"top_p": 0.9}),
    ({"prompt_cache_key": "k"}, {"prompt_cache_key": "k"}, {"prompt_cache_key": "k"}),
    ({"seed": 7}, {}, {"seed": 7}),
    ({"stop": ("a", "b")}, {}, {"stop": ["a", "b"]}),
    (
        {"extras": Extras(verbosity="low", presence_penalty=1.0, logit_bias={"50256": -100})},
        {"text": {"verbosity": "low"}},
        {"verbosity": "low", "presence_penalty": 1.0, "logit_bias": {"50256": -100}},
    ),
    (
        {"reasoning_effort": "low", "reasoning_summary": "auto"},
        {"reasoning": {"effort": "low", "summary": "auto"}},
        {"reasoning_effort": "low"},
    ),
    (
        {"text_format": TextFormat("json_object")},
        {"text": {"format": {"type": "json_object"}}},
        {"response_format": {"type": "json_object"}},
    ),
    (
        {"text_format": TextFormat("json_schema", SCHEMA, "n", strict=True)},
        {
            "text": {
                "format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}
            }
        },
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
            }
        },
    ),
]


@pytest.mark.parametrize(("fields", "responses", "chat"), FIELDS)
def test_fields(fields: dict[str, Any], responses: dict[str, Any], chat: dict[str, Any]) -> None:
    request = make_request(USER, **fields)
    assert responses.items() <= request_body(request, make_options("responses")).items()
    assert chat.items() <= request_body(request, make_options()).items()


def test_a_fixed_length_goes_to_who_knows_the_names() -> None:
    request = make_request(USER, extras=Extras(min_tokens=5, ignore_eos=True))
    fixed = {"min_tokens": 5, "ignore_eos": True}
    assert fixed.items() <= request_body(request, make_options(takes_min_tokens=True)).items()
    assert not fixed.keys() & request_body(request, make_options()).keys()


def test_a_prediction_goes_as_the_server_takes_it() -> None:
    sent = {"type": "content", "content": "a b c"}
    request = make_request(USER, prediction="a b c")
    assert request_body(request, make_options(prediction="field"))["prediction"] == sent
    assert "prediction" not in request_body(request, make_options())
    with_tools = make_request(USER, prediction="a b c", tools=(FunctionTool("look"),))
    assert "prediction" not in request_body(with_tools, make_options(prediction="field"))
    body = request_body(request, make_options(prediction="prompt"))
    assert "prediction" not in body
    (message,) = body["messages"]
    assert message["role"] == "user", "no second message of the same role"
    assert "<draft>\na b c\n</draft>" in message["content"]


def test_a_draft_behind_a_tools_output_stands_where_a_users_words_may() -> None:
    items = (USER, FunctionCall("c1", "look", "{}"), FunctionCallOutput("c1", (TextPart("5"),)))
    options = make_options(prediction="prompt", pads_tool_turns=True)
    messages = request_body(make_request(*items, prediction="a b c"), options)["messages"]
    assert [message["role"] for message in messages[-3:]] == ["tool", "assistant", "user"]
    assert messages[-1]["content"].startswith("<draft>\na b c\n</draft>")


@pytest.mark.parametrize("prediction", ["field", "prompt"])
def test_only_chat_has_a_way_to_send_one(prediction: str) -> None:
    with pytest.raises(ValueError, match=r"^prediction: only protocol \"chat\""):
        check_options(make_options("responses", prediction=prediction))


def test_a_server_gets_the_dialect_it_speaks() -> None:
    options = make_options(
        max_tokens_field="max_tokens",
        omit=("stream_options",),
        extra_body={"keep_alive": "5m"},
        developer_role="developer",
    )
    body = request_body(make_request(Message("developer", (TextPart("x"),)), USER), options)
    assert body == {
        "model": "theirs",
        "messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "Hi."}],
        "stream": True,
        "max_tokens": 100,
        "keep_alive": "5m",
    }


def test_a_template_with_one_system_message_gets_one() -> None:
    def said(role: Any, text: str) -> Message:
        return Message(role, (TextPart(text),))

    request = make_request(
        said("developer", "Be brief."),
        said("system", "Use tabs."),
        said("user", "Hi."),
        said("developer", "It rains."),
        said("assistant", "Yes?"),
        said("developer", "<system-reminder>Now.</system-reminder>"),
        instructions="You are.",
    )
    messages = request_body(request, make_options(developer_role="user"))["messages"]
    assert messages == [
        {"role": "system", "content": "You are.\n\nBe brief.\n\nUse tabs."},
        {
            "role": "user",
            "content": "Hi.\n\n<system-reminder>\nIt rains.\n</system-reminder>",
        },
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "<system-reminder>Now.</system-reminder>"},
    ]


@pytest.mark.parametrize("protocol", ["chat", "responses", "responses-ws"])
def test_cache_keys_are_of_a_tenant_and_fit_where_the_clients_did_not(protocol: str) -> None:
    options = make_options(protocol, cache_salt=True)
    mine, again, others, unnamed = (
        request_body(make_request(USER, prompt_cache_key=key, cache_salt=salt), options)
        for key, salt in (("k" * 100, 1), ("k" * 100, 1), ("k" * 100, 2), (None, 1))
    )
    assert mine["prompt_cache_key"] == again["prompt_cache_key"] != others["prompt_cache_key"]
    assert len(mine["prompt_cache_key"]) <= 64, "OpenAI's limit"
    assert "prompt_cache_key" not in unnamed
    assert mine["cache_salt"] == unnamed["cache_salt"] != others["cache_salt"]
    assert "cache_salt" not in request_body(make_request(USER), make_options(protocol))


ALICE = Message("user", (TextPart("Hi."),), name="alice")
BOB = Message("user", (TextPart("Yo."),), name="bob")


def test_participants_names_go_where_the_protocol_has_them() -> None:
    request = make_request(ALICE, BOB, Message("user", (TextPart("Well?"),), name="bob"))
    assert request_body(request, make_options("chat"))["messages"] == [
        {"role": "user", "content": "Hi.", "name": "alice"},
        {"role": "user", "content": "Yo.\n\nWell?", "name": "bob"},
    ]
    strict = make_options("chat", system_messages="first")
    assert request_body(request, strict)["messages"] == [
        {"role": "user", "content": "Hi.\n\nYo.\n\nWell?"}
    ]
    assert "name" not in request_body(make_request(ALICE), make_options("responses"))["input"][0]


def test_a_name_is_a_part_of_the_prompt() -> None:
    named, other = (make_request(item).items[0] for item in (ALICE, USER))
    assert named.digest != other.digest
    assert named.num_tokens > other.num_tokens


def test_an_answer_that_a_named_assistant_began_goes_on() -> None:
    begun = Message("assistant", (TextPart("One, "),), name="carol")
    body = request_body(
        make_request(USER, begun, prefill="two"), make_options("chat", prefill="last_message")
    )
    assert body["messages"][1:] == [{"role": "assistant", "content": "One, two", "name": "carol"}]


def test_an_answer_with_an_image_is_gone_on_with_behind_it() -> None:
    begun = Message("assistant", (TextPart("one "), PICTURE))
    request = make_request(USER, begun, prefill="two")
    (_, message) = request_body(request, make_options(prefill="last_message"))["messages"]
    assert [part["type"] for part in message["content"]] == ["text", "image_url", "text"]
    assert message["content"][-1]["text"] == "two"


@pytest.mark.parametrize(
    ("prefill", "message", "fields"),
    [
        ("last_message", {}, {}),
        ("prefix", {"prefix": True}, {}),
        (
            "continue_final_message",
            {},
            {"continue_final_message": True, "add_generation_prompt": False},
        ),
    ],
)
def test_words_that_were_said_are_the_last_message(
    prefill: str, message: dict[str, Any], fields: dict[str, Any]
) -> None:
    options = make_options("chat", prefill=prefill)
    text_format = TextFormat("json_object")
    body = request_body(make_request(USER, prefill='{"a', text_format=text_format), options)
    begun = {"role": "assistant", "content": '{"a'}
    assert body["messages"] == [{"role": "user", "content": "Hi."}, begun | message]
    assert fields.items() <= body.items()
    assert "response_format" not in body, "half of a value has no format"
