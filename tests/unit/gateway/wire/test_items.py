"""Tests items, tools and formats between JSON and Structs: both ways, dropped, or refused."""

import json
from typing import Any

import msgspec
import pytest
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from backends.contract import (
    Compaction,
    ContextItem,
    CustomTool,
    CustomToolCall,
    CustomToolCallOutput,
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
    Tool,
    ToolChoice,
)
from gateway.wire.errors import ProtocolError
from gateway.wire.items import (
    MAX_INPUT_ITEMS,
    MAX_PARTS,
    PIECE_ITEMS,
    PIECE_TOKENS,
    InputReader,
    ItemReference,
    parse_input,
    parse_text_format,
    parse_tool_choice,
    parse_tools,
    wire_item,
)


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def parsed_items(*items: Any) -> list[Item | ItemReference]:
    return [
        entry.item if isinstance(entry, ContextItem) else entry
        for entry in parse_input([raw(item) for item in items]).items
    ]


HI = (TextPart("hi"),)
URL = "data:image/png;base64,AA=="

# as sent, as understood
ITEMS: list[tuple[dict[str, Any], Item | ItemReference]] = [
    ({"role": "user", "content": "hi"}, Message("user", HI)),
    ({"type": "message", "role": "system", "content": "hi"}, Message("system", HI)),
    ({"role": "developer", "content": [{"type": "text", "text": "hi"}]}, Message("developer", HI)),
    ({"role": "user"}, Message("user", ())),
    ({"role": "user", "content": None}, Message("user", ())),
    ({"role": "user", "content": []}, Message("user", ())),
    (
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "hi", "annotations": [], "logprobs": []},
                {"type": "refusal", "refusal": "no"},
            ],
        },
        Message("assistant", (*HI, RefusalPart("no")), "msg_1", "commentary"),
    ),
    (
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "hi"},
                {"type": "input_image", "image_url": URL, "detail": "low"},
                {"type": "input_image", "image_url": URL, "detail": None},
                {"type": "input_file", "filename": "a.pdf", "file_data": "AA=="},
            ],
        },
        Message(
            "user",
            (
                *HI,
                ImagePart(URL, None, "low"),
                ImagePart(URL),
                FilePart(None, None, "a.pdf", "AA=="),
            ),
        ),
    ),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_1"},
        FunctionCall("c", "f", "{}", "fc_1"),
    ),
    (
        {
            "type": "function_call",
            "call_id": "c",
            "name": "f",
            "arguments": "",
            "status": "completed",
            "namespace": "n",
            "caller": {"type": "x"},
        },
        FunctionCall("c", "f", "", None, "n"),
    ),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "status": "incomplete"},
        FunctionCall("c", "f", "", is_cut=True),
    ),
    (
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "status": "incomplete"},
        CustomToolCall("c", "f", "", is_cut=True),
    ),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "status": 5},
        FunctionCall("c", "f", ""),
    ),
    (
        {"type": "function_call_output", "call_id": "c", "output": "hi"},
        FunctionCallOutput("c", HI),
    ),
    (
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "hi"}],
            "id": "fco_1",
        },
        FunctionCallOutput("c", HI, "fco_1"),
    ),
    (
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x", "id": "ctc_1"},
        CustomToolCall("c", "f", "x", "ctc_1"),
    ),
    (
        {"type": "custom_tool_call_output", "call_id": "c", "output": "hi"},
        CustomToolCallOutput("c", HI),
    ),
    (
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "a"}],
            "content": [{"type": "reasoning_text", "text": "b"}],
            "encrypted_content": "x",
        },
        Reasoning("rs_1", ("a",), ("b",), "x"),
    ),
    ({"type": "reasoning", "summary": []}, Reasoning()),
    (
        {"type": "compaction", "encrypted_content": "elsewhere", "id": "cmp_1"},
        Compaction("elsewhere", "cmp_1"),
    ),
    ({"type": "item_reference", "id": "msg_1"}, ItemReference("msg_1")),
    ({"id": "msg_1"}, ItemReference("msg_1")),
]


@pytest.mark.parametrize(("sent", "understood"), ITEMS)
def test_items_are_understood(sent: dict[str, Any], understood: Item | ItemReference) -> None:
    assert parsed_items(sent) == [understood]


def test_a_compaction_of_ours_is_left_to_be_opened() -> None:
    """Its sealed text weighs nothing; what a client says of its content counts for nothing."""
    sent = {"type": "compaction", "encrypted_content": "lw2.-." + "x" * 9_000, "id": "c"}
    parsed = parse_input([raw(sent | {"summary": "I may.", "number": 0})], max_tokens=100)
    assert parsed.items == (Compaction("lw2.-." + "x" * 9_000, "c"),)


ROUND_TRIPS: list[Item] = [
    *(item for _, item in ITEMS if not isinstance(item, ItemReference)),
    FunctionCallOutput("c", (TextPart("a"), ImagePart(URL)), "fco_1"),
    FunctionCallOutput("c", ()),
    CustomToolCallOutput("c", (TextPart("a"), TextPart("b"))),
    Reasoning("rs_1", ("a", "b")),
    Reasoning("rs_1", (), (), "sealed"),
]


@pytest.mark.parametrize("item", ROUND_TRIPS)
def test_items_survive_the_round_trip(item: Item) -> None:
    wired = wire_item(item, "item_1")
    assert wired["id"] == item.id or (item.id is None and wired["id"] == "item_1")
    assert parsed_items(wired) == [msgspec.structs.replace(item, id=wired["id"])]


LISTED: TypeAdapter[Any] = TypeAdapter(ResponseItem)


@pytest.mark.parametrize("item", ROUND_TRIPS)
def test_listed_items_are_what_the_sdk_expects(item: Item) -> None:
    wired = wire_item(item, "item_1")
    seen = LISTED.validate_python(wired)
    assert seen.type == wired["type"]
    if not isinstance(item, Message):
        type(seen).model_validate(wired, strict=True)


UNKNOWN_ITEMS: list[dict[str, Any]] = [
    {"type": "shell_call", "action": {}},
    {"type": "computer_call", "call_id": 5},
    {"type": "mcp_list_tools", "tools": []},
    {"type": "configuration_update"},
    {"type": "compaction_trigger"},
    {"type": "from_the_future", "role": "user", "content": "hi"},
]


@pytest.mark.parametrize("item", UNKNOWN_ITEMS)
def test_unknown_items_are_left_out(item: dict[str, Any]) -> None:
    assert parsed_items(item, {"role": "user", "content": "hi"}) == [Message("user", HI)]


# items, code, param
BAD_ITEMS: list[tuple[list[Any], str, str]] = [
    ([5], "invalid_type", "input[0]"),
    ([{}], "missing_required_parameter", "input[0].role"),
    ([{"role": "king", "content": "x"}], "invalid_value", "input[0].role"),
    ([{"role": "user", "content": 5}], "invalid_type", "input[0].content"),
    ([{"role": "user", "content": [5]}], "invalid_type", "input[0].content[0]"),
    (
        [{"role": "user", "content": [{"text": "x"}]}],
        "missing_required_parameter",
        "input[0].content[0].type",
    ),
    (
        [{"role": "user", "content": [{"type": "input_audio"}]}],
        "invalid_value",
        "input[0].content[0].type",
    ),
    (
        [{"role": "user", "content": "ok"}, {"role": "user", "content": [{"type": "input_text"}]}],
        "missing_required_parameter",
        "input[1].content[0].text",
    ),
    (
        [{"role": "user", "content": [{"type": "input_image"}]}],
        "missing_required_parameter",
        "input[0].content[0].image_url",
    ),
    (
        [{"role": "user", "content": [{"type": "input_image", "image_url": ""}]}],
        "missing_required_parameter",
        "input[0].content[0].image_url",
    ),
    (
        [{"role": "user", "content": [{"type": "input_file", "file_url": "a file"}]}],
        "invalid_value",
        "input[0].content[0].file_url",
    ),
    (
        [{"role": "user", "content": [{"type": "input_image", "image_url": "a picture"}]}],
        "invalid_image_url",
        "input[0].content[0].image_url",
    ),
    (
        [{"role": "user", "content": [{"type": "input_image", "image_url": URL, "detail": "x"}]}],
        "invalid_value",
        "input[0].content[0].detail",
    ),
    (
        [{"role": "user", "content": [{"type": "input_file", "filename": "a.pdf"}]}],
        "missing_required_parameter",
        "input[0].content[0].file_data",
    ),
    ([{"type": "function_call", "name": "f"}], "missing_required_parameter", "input[0].call_id"),
    (
        [{"type": "function_call_output", "call_id": "c"}],
        "missing_required_parameter",
        "input[0].output",
    ),
    (
        [{"type": "function_call_output", "call_id": "c", "output": [{"type": "x"}]}],
        "invalid_value",
        "input[0].output[0].type",
    ),
    ([{"type": "reasoning", "summary": ["x"]}], "invalid_type", "input[0].summary[0]"),
    ([{"type": "compaction"}], "missing_required_parameter", "input[0].encrypted_content"),
    ([{"type": "item_reference"}], "missing_required_parameter", "input[0].id"),
    (
        [{"type": "additional_tools", "tools": [{"type": "function"}]}],
        "missing_required_parameter",
        "input[0].tools[0].name",
    ),
]


SAID = {"role": "assistant", "content": "Let me think.", "phase": "commentary"}


@pytest.mark.parametrize(
    ("sent", "is_read"),
    [
        (SAID, False),
        ({**SAID, "type": "message", "id": None, "status": "completed"}, False),
        ({**SAID, "id": "msg_1_aside"}, False),
        ({**SAID, "id": "msg_1"}, True),  # an engine's own
        ({**SAID, "phase": "final_answer"}, True),
        ({**SAID, "phase": None}, True),
        ({**SAID, "role": "user"}, True),
    ],
)
def test_commentary_that_is_sent_back_is_no_answer(sent: dict[str, Any], is_read: bool) -> None:
    asked, answer = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Yes."}
    assert len(parsed_items(asked, sent, answer)) == 2 + is_read


def test_commentary_that_is_not_valid_is_refused() -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_input([raw({**SAID, "content": [{"type": "input_text"}]})])
    assert caught.value.param == "input[0].content[0].text"


@pytest.mark.parametrize(("items", "code", "param"), BAD_ITEMS)
def test_malformed_items_are_refused(items: list[Any], code: str, param: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parsed_items(*items)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert param in caught.value.message


# A Raw was scanned, not read: what is wrong inside shows only when its turn comes.
@pytest.mark.parametrize(
    "item", [b'{"role":"user","content":"\xff"}', b'{"type":"x","y":' + b"[" * 5000]
)
def test_an_item_that_is_no_json_is_refused(item: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_input([msgspec.Raw(item)])
    assert (caught.value.code, caught.value.param) == ("invalid_json", "input[0]")


def test_input_forms() -> None:
    assert parse_input(None).items == ()
    assert parse_input([]).items == ()
    (entry,) = parse_input("hi").items
    assert isinstance(entry, ContextItem)
    assert entry.item == Message("user", HI)
    assert entry.num_tokens > 0


def test_too_many_items_are_refused() -> None:
    item = raw({"type": "shell_call"})
    assert parse_input([item] * MAX_INPUT_ITEMS).items == ()
    with pytest.raises(ProtocolError, match=r"at most 10000.*got 10001"):
        parse_input([item] * (MAX_INPUT_ITEMS + 1))


def test_too_many_parts_are_refused() -> None:
    part = {"type": "input_text", "text": ""}
    (item,) = parsed_items({"role": "user", "content": [part] * MAX_PARTS})
    assert isinstance(item, Message)
    assert len(item.content) == MAX_PARTS
    with pytest.raises(ProtocolError, match=r"at most 10000 parts.*got 10001") as refused:
        parsed_items({"role": "user", "content": [part] * (MAX_PARTS + 1)})
    assert refused.value.param == "input[0].content"


@pytest.mark.parametrize("text", ["hi", "word " * PIECE_TOKENS])
def test_reading_in_pieces_is_bounded_and_gives_the_same(text: str) -> None:
    number = 3 * PIECE_ITEMS if text == "hi" else 3
    items = [raw({"role": "user", "content": f"{text} {i}"}) for i in range(number)]
    reader = InputReader(items)
    assert [reader.read_piece() for _ in range(3)] == [True, True, False]
    assert reader.parsed() == parse_input(items)


def test_a_piece_ends_before_an_item_that_is_not_valid() -> None:
    items = [raw({"role": "user", "content": "hi"})] * PIECE_ITEMS + [raw({"role": "nobody"})]
    reader = InputReader(items)
    assert reader.read_piece()
    for read in (reader.read_piece, reader.parsed):
        with pytest.raises(ProtocolError) as refused:
            read()
        assert refused.value.param == f"input[{PIECE_ITEMS}].role"


def test_equal_items_have_equal_digests_whatever_their_ids() -> None:
    first, second, other = parse_input(
        [
            raw({"role": "user", "content": "hi", "id": "a"}),
            raw({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}),
            raw({"role": "user", "content": "ho"}),
        ]
    ).items
    assert isinstance(first, ContextItem)
    assert isinstance(second, ContextItem)
    assert isinstance(other, ContextItem)
    assert first.digest == second.digest != other.digest


F = FunctionTool("f")

# as sent, as understood
TOOLS: list[tuple[list[Any], tuple[Tool, ...]]] = [
    ([{"type": "function", "name": "f"}], (F,)),
    (
        [
            {
                "type": "function",
                "name": "f",
                "description": "d",
                "parameters": {"type": "object"},
                "strict": True,
            }
        ],
        (FunctionTool("f", "d", {"type": "object"}, True),),
    ),
    (
        [{"type": "function", "name": "f", "description": None, "parameters": None}],
        (F,),
    ),
    (
        [{"type": "custom", "name": "c", "format": {"type": "grammar"}}],
        (CustomTool("c", "", {"type": "grammar"}),),
    ),
    (
        [
            {
                "type": "namespace",
                "name": "n",
                "tools": [{"type": "function", "name": "f"}, {"type": "namespace", "name": "m"}],
            }
        ],
        (FunctionTool("f", namespace="n"),),
    ),
    ([{"type": "web_search"}, {"type": "mcp", "server_url": "x"}, {}, {"type": "f"}], ()),
]


@pytest.mark.parametrize(("sent", "understood"), TOOLS)
def test_tools(sent: list[Any], understood: tuple[Tool, ...]) -> None:
    assert parse_tools([raw(tool) for tool in sent]) == understood


def test_no_tools() -> None:
    assert parse_tools(None) == ()
    assert parse_tools([]) == ()


# as sent, code, param
BAD_TOOLS: list[tuple[Any, str, str]] = [
    ("f", "invalid_type", "tools[0]"),
    (None, "invalid_type", "tools[0]"),
    ({"type": "function"}, "missing_required_parameter", "tools[0].name"),
    ({"type": "function", "name": ""}, "invalid_value", "tools[0].name"),
    ({"type": "custom", "name": ""}, "invalid_value", "tools[0].name"),
    ({"type": "function", "name": "f", "parameters": []}, "invalid_type", "tools[0].parameters"),
    (
        {"type": "function", "name": "f", "parameters": {"$ref": "#/nope"}},
        "invalid_value",
        "tools[0].parameters.$ref",
    ),
    (
        {"type": "function", "name": "f", "parameters": {"type": "string"}},
        "invalid_value",
        "tools[0].parameters.type",
    ),
    (
        {"type": "namespace", "name": "n", "tools": [{"type": "custom"}]},
        "missing_required_parameter",
        "tools[0].tools[0].name",
    ),
]


@pytest.mark.parametrize(("sent", "code", "param"), BAD_TOOLS)
def test_malformed_tools_are_refused(sent: Any, code: str, param: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_tools([raw(sent)])
    assert (caught.value.code, caught.value.param) == (code, param)


OFFERED: tuple[Tool, ...] = (F, FunctionTool("g"), CustomTool("c"))

CHOICES: list[tuple[Any, ToolChoice]] = [
    (None, ToolChoice()),
    ("auto", ToolChoice()),
    ("none", ToolChoice("none")),
    ("required", ToolChoice("required")),
    ({"type": "function", "name": "f"}, ToolChoice("required", ("f",))),
    ({"type": "custom", "name": "c"}, ToolChoice("required", ("c",))),
    (
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "g"}, {"type": "web_search"}],
        },
        ToolChoice("required", ("g",)),
    ),
    (
        {"type": "allowed_tools", "tools": [{"name": "f"}, {"name": "c"}, {"name": "unknown"}]},
        ToolChoice("auto", ("f", "c")),
    ),
]


@pytest.mark.parametrize(("sent", "understood"), CHOICES)
def test_tool_choices(sent: Any, understood: ToolChoice) -> None:
    assert parse_tool_choice(raw(sent), OFFERED) == understood


# as sent, tools offered, what the message must hold
BAD_CHOICES: list[tuple[Any, tuple[Tool, ...], str]] = [
    ("any", OFFERED, "'auto', 'none', 'required'"),
    ({"type": "web_search_preview"}, OFFERED, "no tools are hosted here"),
    ({"type": "mcp", "server_label": "x"}, OFFERED, "no tools are hosted here"),
    (5, OFFERED, "got 5"),
    ([], OFFERED, "got []"),
    ({}, OFFERED, "got {}"),
    ({"type": 5}, OFFERED, "got {"),
    ("required", (), "at least one function"),
    ({"type": "function", "name": "h"}, OFFERED, "no tool named 'h'"),
    ({"type": "function", "name": "f"}, (), "no tool named 'f'"),
    ({"type": "function"}, OFFERED, "'tool_choice.name'"),
    ({"type": "function", "name": ["f"]}, OFFERED, "'tool_choice.name'"),
    ({"type": "function", "function": "f"}, OFFERED, "'tool_choice.name'"),
    ({"type": "allowed_tools"}, OFFERED, "'tool_choice.tools'"),
    ({"type": "allowed_tools", "tools": [{"name": ["f"]}]}, OFFERED, "tools[0].name"),
    ({"type": "allowed_tools", "tools": [{"name": "h"}]}, OFFERED, "none of its tools"),
    (
        {"type": "allowed_tools", "mode": "any", "tools": [{"name": "f"}]},
        OFFERED,
        "'tool_choice.mode': expected 'auto', 'required', got 'any'",
    ),
]


@pytest.mark.parametrize(("sent", "offered", "words"), BAD_CHOICES)
def test_bad_tool_choices_are_refused(sent: Any, offered: tuple[Tool, ...], words: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_tool_choice(raw(sent), offered)
    assert caught.value.param is not None
    assert caught.value.param.startswith("tool_choice")
    assert words in caught.value.message


SCHEMA = {"type": "object"}
FORMATS: list[tuple[Any, TextFormat]] = [
    (None, TextFormat()),
    ({"type": "text"}, TextFormat()),
    ({"type": "json_object"}, TextFormat("json_object")),
    (
        {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True},
        TextFormat("json_schema", SCHEMA, "n", strict=True),
    ),
]


@pytest.mark.parametrize(("sent", "understood"), FORMATS)
def test_text_formats(sent: Any, understood: TextFormat) -> None:
    assert parse_text_format(raw(sent)) == understood


BAD_FORMATS: list[tuple[Any, str, str]] = [
    ({}, "missing_required_parameter", "text.format.type"),
    ("text", "invalid_type", "text.format"),
    ({"type": "yaml"}, "invalid_value", "text.format.type"),
    ({"type": "json_schema", "name": "n"}, "missing_required_parameter", "text.format.schema"),
    ({"type": "json_schema", "schema": {}}, "missing_required_parameter", "text.format.name"),
    ({"type": "json_schema", "schema": "x"}, "invalid_type", "text.format.schema"),
    (
        {"type": "json_schema", "schema": {"type": "record"}},
        "invalid_value",
        "text.format.schema.type",
    ),
    (
        {"type": "json_schema", "schema": {"properties": {"a": {"items": {"type": ["null", 3]}}}}},
        "invalid_value",
        "text.format.schema.properties.a.items.type",
    ),
    (
        {"type": "json_schema", "schema": {"anyOf": [{}, {"$defs": {"d": {"type": "text"}}}]}},
        "invalid_value",
        "text.format.schema.anyOf[1].$defs.d.type",
    ),
]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}},
        {"$ref": "#/anyOf/0", "anyOf": [{"type": "object"}]},
        {"type": ["object", "null"], "properties": {"type": {"type": "string"}}},
        {"properties": {"a": True}},
        {"$ref": "https://example.com/schema.json"},
    ],
)
def test_schemas_that_can_be_an_object_are_taken(schema: dict[str, Any]) -> None:
    (tool,) = parse_tools([raw({"type": "function", "name": "f", "parameters": schema})])
    assert isinstance(tool, FunctionTool)
    assert tool.parameters == schema
    named = {"type": "json_schema", "name": "n", "schema": schema}
    assert parse_text_format(raw(named)).schema == schema


def test_a_vast_schema_is_looked_at_in_part() -> None:
    schema: dict[str, Any] = {"type": "odd"}
    for _ in range(100):
        schema = {"items": schema}
    with pytest.raises(ProtocolError):
        parse_text_format(raw({"type": "json_schema", "name": "n", "schema": schema}))
    wide = {"anyOf": [{"type": "odd"}, *[{}] * 3_000]}
    parse_text_format(raw({"type": "json_schema", "name": "n", "schema": wide}))


@pytest.mark.parametrize(("sent", "code", "param"), BAD_FORMATS)
def test_bad_text_formats_are_refused(sent: Any, code: str, param: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_text_format(raw(sent))
    assert (caught.value.code, caught.value.param) == (code, param)
