"""Tests chat completions: requests in Responses' terms, answers as chunks and as one object."""

import json
import random
from typing import Any

import msgspec
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from backends.contract import (
    ContextItem,
    CustomTool,
    CustomToolCall,
    Delta,
    DeltaKind,
    Extras,
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    FunctionTool,
    ImagePart,
    Item,
    Message,
    RefusalPart,
    TextFormat,
    TextPart,
    ToolChoice,
    Usage,
)
from gateway.chat.request import MAX_STOPS, parse_chat
from gateway.chat.stream import ChatStream
from gateway.transport.flush_timer import FlushTimer
from gateway.transport.outbox import Outbox
from gateway.wire.errors import ProtocolError
from gateway.wire.items import parse_input
from gateway.wire.requests import ParsedCreate
from gateway.wire.response import Ending
from gateway.wire.response_json import ResponseError
from router.classify.task import Route
from tests.unit.gateway.doubles import ROUTING, call, text

USAGE = Usage(7, 3, 5, 2)
DONE = Ending(status="completed", usage=USAGE)

FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CUSTOM = {"type": "custom", "custom": {"name": "c", "format": {"type": "grammar"}}}


def body(*messages: dict[str, Any], **fields: Any) -> bytes:
    sent = list(messages) or [{"role": "user", "content": "hi"}]
    return json.dumps({"model": "auto", "messages": sent} | fields).encode()


def parsed(*messages: dict[str, Any], **fields: Any) -> ParsedCreate:
    return parse_chat(body(*messages, **fields), "resp_1")[1]


# -- requests ----------------------------------------------------------------------------------

MESSAGES: list[tuple[dict[str, Any], list[Item]]] = [
    ({"role": "user", "content": "hi"}, [Message("user", (TextPart("hi"),))]),
    ({"role": "system", "content": "rules"}, [Message("system", (TextPart("rules"),))]),
    (
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "http://x/a.png", "detail": "low"}},
                {"type": "image_url", "image_url": "http://x/b.png"},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "AA=="}},
            ],
        },
        [
            Message(
                "user",
                (
                    TextPart("see"),
                    ImagePart("http://x/a.png", None, "low"),
                    ImagePart("http://x/b.png"),
                    FilePart(None, None, "a.pdf", "AA=="),
                ),
            )
        ],
    ),
    (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        [Message("assistant", (RefusalPart("no"),))],
    ),
    (
        {"role": "assistant", "content": None, "refusal": "no"},  # as answers have it
        [Message("assistant", (RefusalPart("no"),))],
    ),
    ({"role": "assistant"}, [Message("assistant", (TextPart(""),))]),
    (
        {"role": "user", "content": "hi", "name": "alice"},
        [Message("user", (TextPart("hi"),), name="alice")],
    ),
    (
        {"role": "tool", "tool_call_id": "1", "name": "f", "content": "sun"},  # of its function
        [FunctionCallOutput("1", (TextPart("sun"),))],
    ),
    (
        {
            "role": "assistant",
            "content": "wait",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "2", "type": "custom", "custom": {"name": "c", "input": "ls"}},
            ],
        },
        [
            Message("assistant", (TextPart("wait"),)),
            FunctionCall("1", "f", "{}"),
            CustomToolCall("2", "c", "ls"),
        ],
    ),
    (
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
        [FunctionCall("1", "f", "")],
    ),
    (
        {"role": "tool", "tool_call_id": "1", "content": "sun"},
        [FunctionCallOutput("1", (TextPart("sun"),))],
    ),
]


@pytest.mark.parametrize(("sent", "understood"), MESSAGES)
def test_messages_become_items(sent: dict[str, Any], understood: list[Item]) -> None:
    items = parsed(sent).input.items
    assert [entry.item for entry in items if isinstance(entry, ContextItem)] == understood


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
@pytest.mark.parametrize("more", [{"content": "a [b]\n"}, {"content": ""}, {"name": "n"}])
def test_a_message_of_text_is_read_as_responses_does(role: str, more: dict[str, str]) -> None:
    """It becomes an item at once, and not by the JSON of one."""
    sent = {"role": role, "content": "hi"} | more
    read = parse_input([msgspec.Raw(json.dumps(sent).encode())])
    assert parsed(sent).input == read


def test_settings_are_taken_over() -> None:
    create = parsed(
        max_completion_tokens=9,
        max_tokens=8,
        stop=["a", "b"],
        seed=3,
        temperature=0.5,
        top_p=0.1,
        parallel_tool_calls=False,
        reasoning_effort="low",
        metadata={"route": "deep"},
        service_tier="flex",
        prompt_cache_key="k",
        safety_identifier="s",
        user="u",
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}},
        },
        tools=[FUNCTION, CUSTOM, {"type": "web_search"}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        verbosity="low",
        presence_penalty=0.5,
        min_tokens=3,
    )
    assert create.extras == Extras(
        min_tokens=3, verbosity="low", presence_penalty=0.5, service_tier="flex"
    )
    assert (create.stop, create.seed, create.store) == (("a", "b"), 3, False)
    assert create.body.max_output_tokens == 9
    assert (create.body.temperature, create.body.top_p) == (0.5, 0.1)
    assert create.body.parallel_tool_calls is False
    assert (create.hints.route, create.hints.reasoning_effort) == (Route.DEEP, "low")
    assert create.text_format == TextFormat("json_schema", {"type": "object"}, "n")
    assert create.tools == (
        FunctionTool("f", "", {"type": "object"}),
        CustomTool("c", "", {"type": "grammar"}),
    )
    assert create.tool_choice == ToolChoice("required", ("f",))
    assert parsed(max_tokens=8).body.max_output_tokens == 8
    assert parsed(stop="x").stop == ("x",)


ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "required", "tools": [FUNCTION, {"type": "web_search"}]},
}
CHOICES: list[tuple[Any, ToolChoice]] = [
    (None, ToolChoice()),
    ("none", ToolChoice("none")),
    ("required", ToolChoice("required")),
    ({"type": "custom", "custom": {"name": "c"}}, ToolChoice("required", ("c",))),
    (ALLOWED, ToolChoice("required", ("f",))),
]


@pytest.mark.parametrize(("sent", "understood"), CHOICES)
def test_tool_choices(sent: Any, understood: ToolChoice) -> None:
    assert parsed(tools=[FUNCTION, CUSTOM], tool_choice=sent).tool_choice == understood


HELLO = {"role": "user", "content": "hi"}

# messages, fields, code, param
REFUSED: list[tuple[list[Any], dict[str, Any], str, str | None]] = [
    ([HELLO], {"model": ""}, "invalid_value", "model"),
    ([HELLO], {"messages": []}, "invalid_value", "messages"),
    ([HELLO], {"messages": None}, "invalid_type", "messages"),
    ([{"role": "king"}], {}, "invalid_value", "messages[0].role"),
    (
        [HELLO, {"role": "function", "name": "f", "content": "1"}],
        {},
        "unsupported_parameter",
        "messages[1].role",
    ),
    (
        [HELLO, {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}],
        {},
        "unsupported_parameter",
        "messages[1].function_call",
    ),
    (
        [HELLO, {"role": "assistant", "audio": {"id": "audio_1"}}],
        {},
        "unsupported_parameter",
        "messages[1].audio",
    ),
    ([HELLO], {"logit_bias": {"50256": -1_000}}, "invalid_value", "logit_bias.50256"),
    ([HELLO, {"role": "user", "content": 5}], {}, "invalid_type", "messages[1].content"),
    ([{"role": "user", "content": ["x"]}], {}, "invalid_type", "messages[0].content"),
    ([{"role": "user"}], {}, "missing_required_parameter", "messages[0].content"),
    (
        [HELLO, {"role": "tool", "content": "x"}],
        {},
        "missing_required_parameter",
        "messages[1].tool_call_id",
    ),
    (
        [{"role": "assistant", "tool_calls": [{"id": "1"}]}],
        {},
        "missing_required_parameter",
        "messages[0].tool_calls[0].function",
    ),
    (
        [
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}] * 3},
            {"role": "user", "content": [{"type": "video"}]},
        ],
        {},
        "invalid_value",
        "messages[1].content[0].type",
    ),
    (
        [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
        {},
        "unsupported_parameter",
        "messages[0].content[0]",
    ),
    (
        [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}],
        {},
        "invalid_value",
        "messages[0].content[0].file.file_id",
    ),
    (
        [{"role": "user", "content": [{"type": "file", "file": "x"}]}],
        {},
        "missing_required_parameter",
        "messages[0].content[0].file",
    ),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": 5}}]}],
        {},
        "invalid_type",
        "messages[0].content[0].image_url.url",
    ),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]}],
        {},
        "invalid_image_url",
        "messages[0].content[0].image_url.url",
    ),
    (
        [{"role": "user", "content": [{"type": "text"}]}],
        {},
        "missing_required_parameter",
        "messages[0].content[0].text",
    ),
    ([HELLO], {"n": 2}, "unsupported_parameter", "n"),
    ([HELLO], {"stop": ["x"] * (MAX_STOPS + 1)}, "invalid_value", "stop"),
    ([HELLO], {"stop": [""]}, "invalid_value", "stop"),
    ([HELLO], {"stop": 5}, "invalid_type", "stop"),
    ([HELLO], {"max_tokens": 0}, "invalid_value", "max_tokens"),
    ([HELLO], {"temperature": 3}, "invalid_value", "temperature"),
    ([HELLO], {"metadata": {"route": "warp"}}, "invalid_value", "metadata.route"),
    ([HELLO], {"tools": ["f"]}, "invalid_type", "tools[0]"),
    (
        [HELLO],
        {"tools": [{"type": "function", "function": {}}]},
        "missing_required_parameter",
        "tools[0].function.name",
    ),
    ([HELLO], {"tools": [{"type": "mcp"}]}, "unsupported_parameter", "tools[0].type"),
    ([HELLO], {"tool_choice": "required"}, "invalid_value", "tool_choice"),
    (
        [HELLO],
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": None}}},
        "invalid_type",
        "tool_choice.tools",
    ),
    (
        [HELLO],
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": 5}}},
        "invalid_type",
        "tool_choice.tools",
    ),
    ([HELLO], {"response_format": {"type": "yaml"}}, "invalid_value", "response_format.type"),
    ([HELLO], {"response_format": {}}, "missing_required_parameter", "response_format.type"),
    *(
        (
            [HELLO],
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, **wrong}}},
            code,
            f"response_format.json_schema.{param}",
        )
        for wrong, code, param in (
            ({}, "missing_required_parameter", "name"),
            ({"schema": 5}, "invalid_type", "schema"),
            ({"schema": {"type": 5}}, "invalid_value", "schema.type"),
            ({"name": 5}, "invalid_type", "name"),
            ({"strict": "yes"}, "invalid_type", "strict"),
        )
    ),
    (
        [HELLO],
        {"response_format": {"json_schema": {"schema": {}}}},
        "missing_required_parameter",
        "response_format.type",
    ),
    (
        [HELLO],
        {"response_format": {"type": "json_schema"}},
        "missing_required_parameter",
        "response_format",
    ),
    (
        [HELLO],
        {"response_format": {"type": "json_schema", "json_schema": "x"}},
        "missing_required_parameter",
        "response_format",
    ),
    *(
        ([HELLO], {name: value}, "unsupported_parameter", name)
        for name, value in (
            *(("logprobs", True), ("top_logprobs", 2), ("modalities", ["text", "audio"])),
            *(("audio", {"voice": "alloy", "format": "wav"}), ("store", True)),
            *(("functions", [{"name": "f"}]), ("function_call", "auto")),
            *(("web_search_options", {}), ("moderation", {"model": "m"})),
        )
    ),
    ([HELLO], {"min_tokens": 9, "max_tokens": 8}, "invalid_value", "min_tokens"),
]


@pytest.mark.parametrize(("messages", "fields", "code", "param"), REFUSED)
def test_refused(messages: list[Any], fields: dict[str, Any], code: str, param: str | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        parsed(*messages, **fields)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert "input[" not in caught.value.message, "in the client's own terms"


def test_errors_name_chats_own_fields() -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_chat(body({"role": "user", "content": "word " * 9_000}), "resp_1", 1_000)
    error = caught.value
    assert (error.code, error.param) == ("context_length_exceeded", "messages")
    assert "maximum context length is 1000 tokens. However, your messages resulted" in error.message
    terms = parse_chat(body(HELLO, max_tokens=9), "resp_1").terms
    renamed = {
        "input[0].content[2].image_url": "messages[0].content[2].image_url.url",
        "input[0].content[2].file_data": "messages[0].content[2].file.file_data",
        "input[0].content[2].file_url": "messages[0].content[2].file.file_url",
        "input[0].content[2].detail": "messages[0].content[2].image_url.detail",
        "text.format.schema.properties": "response_format.json_schema.schema.properties",
        "max_output_tokens": "max_tokens",
        "reasoning.effort": "reasoning_effort",
        "tools[3].parameters": "tools[3].function.parameters",
        "tools[3].type": "tools[3].type",
        "model": "model",
    }
    for ours, theirs in renamed.items():
        error = terms.told(ProtocolError("invalid_value", f"Invalid '{ours}'.", param=ours))
        assert (error.param, error.message) == (theirs, f"Invalid '{theirs}'.")


@pytest.mark.parametrize("sent", [b"", b"{", b"\xff", b'{"model":"' + b"\xff" * 3 + b'"}'])
def test_what_is_no_json_is_refused(sent: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_chat(sent, "resp_1")
    assert caught.value.code == "invalid_json"


# -- answers -----------------------------------------------------------------------------------


class Chunks(Outbox):
    """Keeps what it is sent, decoded; a stream that is marked waits for a flush."""

    def __init__(self) -> None:
        super().__init__(FlushTimer(1000.0))
        self.frames: list[bytes] = []

    def send(self, frame: bytes) -> None:
        assert frame.startswith(b"data: ")
        assert frame.endswith(b"\n\n")
        self.frames.append(frame[6:-2])

    @property
    def chunks(self) -> list[dict[str, Any]]:
        assert self.frames[-1] == b"[DONE]"
        return [json.loads(frame) for frame in self.frames[:-1]]


def answer(
    deltas: list[Delta], ending: Ending = DONE, *, outbox: Outbox | None = None, **fields: Any
) -> ChatStream:
    chat, create, terms = parse_chat(body(**fields), "resp_1")
    sent = (outbox.send, outbox.mark) if outbox else ()
    stream = ChatStream(create, chat, terms, *sent)
    stream.open(100, "wafer-model", ROUTING)
    for delta in deltas:
        stream.push(delta, None)
    stream.close_items(ending)
    assert stream.finish(ending, 101, ROUTING) == stream.body
    stream.send_terminal()
    assert stream.ended
    return stream


def whole(deltas: list[Delta], ending: Ending = DONE) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer(deltas, ending).body)
    ChatCompletion.model_validate(found, strict=True)
    return found


SHELL = Delta(1, DeltaKind.CUSTOM_CALL, "ls", 1, 0, "call_2", "shell")
THOUGHT = Delta(0, DeltaKind.REASONING, "hm", 1, 0)

# deltas, content, tool calls, finish reason
ANSWERS: list[tuple[list[Delta], str | None, list[dict[str, Any]] | None, str]] = [
    ([], "", None, "stop"),
    ([THOUGHT, text("It ", 1), text("is.", 1)], "It is.", None, "stop"),
    ([text("One."), text("Two.", 1)], "One.\n\nTwo.", None, "stop"),
    (
        [call("{"), call("}")],
        None,
        [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        "tool_calls",
    ),
    (
        [SHELL],
        None,
        [{"id": "call_2", "type": "custom", "custom": {"name": "shell", "input": "ls"}}],
        "tool_calls",
    ),
]


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}])
def test_chunks_of_text_differ_in_their_text_alone(options: dict[str, Any]) -> None:
    frames: list[bytes] = []
    chat, create, terms = parse_chat(body(**options), "resp_1")
    stream = ChatStream(create, chat, terms, frames.append)
    stream.open(100, 'm"content":"" %b', ROUTING)
    rest = json.loads(frames.pop().removeprefix(b"data: "))
    del rest["routing"]
    for model in ('m"content":"" %b', "another"):
        stream.answered_by(model)
        for said in ("", "One", ' "content":"" ', "\n\u00e9\u2028%d", "\\"):
            stream.push(text(said + "."), None)
            chunk = rest | {"model": model}
            chunk["choices"] = [rest["choices"][0] | {"delta": {"content": said + "."}}]
            assert json.loads(frames.pop().removeprefix(b"data: ")) == chunk


@pytest.mark.parametrize(("deltas", "content", "calls", "reason"), ANSWERS)
def test_a_whole_answer(
    deltas: list[Delta], content: str | None, calls: list[dict[str, Any]] | None, reason: str
) -> None:
    found = whole(deltas)
    (choice,) = found["choices"]
    assert choice["message"]["content"] == content
    assert choice["message"].get("tool_calls") == calls
    assert choice["finish_reason"] == reason
    assert found["id"].startswith("chatcmpl-")
    assert (found["created"], found["model"]) == (100, "wafer-model")
    assert found["usage"]["total_tokens"] == 12
    assert found["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    assert found["usage"]["completion_tokens_details"]["reasoning_tokens"] == 2


ENDINGS: list[tuple[Ending, str]] = [
    (Ending(status="incomplete", reason="max_output_tokens", usage=USAGE), "length"),
    (Ending(status="incomplete", reason="content_filter", usage=USAGE), "content_filter"),
    (Ending(status="incomplete", reason="cancelled", usage=USAGE), "length"),
]


@pytest.mark.parametrize(("ending", "reason"), ENDINGS)
def test_finish_reasons(ending: Ending, reason: str) -> None:
    assert whole([text("x")], ending)["choices"][0]["finish_reason"] == reason


def joined(chunks: list[dict[str, Any]]) -> tuple[str, list[tuple[str, str, str]], str | None]:
    """Returns what a client puts together: content, calls (id, name, text), finish reason."""
    content, reason = "", None
    calls: dict[int, tuple[str, str, str]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert reason is None, "nothing after the finish reason"
            content += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls", ()):
                call_id, name, words = calls.get(piece["index"], ("", "", ""))
                made = piece.get("function") or piece["custom"]
                words += made.get("arguments", made.get("input"))
                calls[piece["index"]] = (
                    call_id or piece["id"],
                    name or made["name"],
                    words,
                )
            reason = choice["finish_reason"]
    return content, [calls[number] for number in sorted(calls)], reason


@pytest.mark.parametrize("include_usage", [False, True])
async def test_chunks(include_usage: bool) -> None:
    outbox = Chunks()
    options = {"include_usage": include_usage}
    answer([text("a"), text("b"), call("{}", 1)], outbox=outbox, stream_options=options)
    chunks = outbox.chunks
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[0]["routing"] == json.loads(msgspec.json.encode(ROUTING))
    assert joined(chunks) == ("ab", [("call_1", "look", "{}")], "tool_calls")
    if include_usage:
        *rest, last = chunks
        assert (last["choices"], last["usage"]["total_tokens"]) == ([], 12)
        assert all(chunk["usage"] is None for chunk in rest)
    else:
        assert all("usage" not in chunk for chunk in chunks)


async def test_text_gathers_between_flushes() -> None:
    outbox = Chunks()
    chat, create, terms = parse_chat(body(stream=True), "resp_1")
    stream = ChatStream(create, chat, terms, outbox.send, outbox.mark)
    stream.open(100, "m", ROUTING)
    for word in "abc":
        stream.push(text(word), None)
    assert len(outbox.frames) == 2, "the role, and the first word at once"
    stream.flush()
    assert json.loads(outbox.frames[-1])["choices"][0]["delta"] == {"content": "bc"}
    stream.heartbeat()
    assert json.loads(outbox.frames[-1])["choices"][0]["delta"] == {}
    assert stream.num_events == len(outbox.frames)
    outbox.close()


# (text, phase) -> content, commentary
C, F = "commentary", "final_answer"
PHASES: list[tuple[list[tuple[str, str | None]], str, str | None]] = [
    ([("Draft.", C), ("Answer.", F)], "Answer.", "Draft."),
    ([("One.", C), ("Two.", C), ("Best.", F)], "Best.", "One.\n\nTwo."),
    ([("Hm.", None), ("Beside.", C), ("So.", F)], "Hm.\n\nSo.", "Beside."),
    ([("One.", F), ("Two.", F)], "One.\n\nTwo.", None),
]


@pytest.mark.parametrize(("said", "content", "commentary"), PHASES)
async def test_the_content_is_the_answer_and_commentary_is_apart(
    said: list[tuple[str, str | None]], content: str, commentary: str | None
) -> None:
    outbox = Chunks()
    chat, create, terms = parse_chat(body(stream=True), "resp_1")
    stream = ChatStream(create, chat, terms, outbox.send, outbox.mark)
    stream.open(100, "m", ROUTING)
    for index, (words, phase) in enumerate(said):
        for piece in words.partition("i"):
            stream.push(text(piece, index), phase)
    stream.close_items(DONE)
    message = json.loads(stream.finish(DONE, 101, None))["choices"][0]["message"]
    stream.send_terminal()
    outbox.close()
    assert (message["content"], message.get("reasoning_content")) == (content, commentary)
    deltas = [chunk["choices"][0]["delta"] for chunk in outbox.chunks]
    assert "".join(delta.get("content") or "" for delta in deltas) == content
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == (commentary or "")


async def test_a_failure_is_the_last_chunk() -> None:
    outbox = Chunks()
    error = ResponseError("server_error", "it broke")
    answer([text("x")], Ending(status="failed", error=error, usage=USAGE), outbox=outbox)
    assert outbox.chunks[-1]["error"]["message"] == "it broke"


async def test_an_error_amid_a_stream_names_chats_own_fields() -> None:
    for param, theirs in (("input", "messages"), ("max_output_tokens", "max_completion_tokens")):
        error = ResponseError("invalid_prompt", "No such input.", param)
        ending = Ending(status="failed", error=error, usage=USAGE)
        outbox = Chunks()
        answer([text("x")], ending, outbox=outbox, max_completion_tokens=9)
        told = outbox.chunks[-1]["error"]
        assert (told["param"], told["message"]) == (theirs, "No such input.")
    outbox.close()


def test_the_output_as_context() -> None:
    stream = answer([THOUGHT, text("Look:", 1), call("{}", 2)])
    assert stream.output == (
        Message("assistant", (TextPart("Look:"),)),
        FunctionCall("call_1", "look", "{}"),
    )
    assert answer([SHELL]).output == (CustomToolCall("call_2", "shell", "ls"),)


async def test_whatever_is_generated_chunks_and_object_agree() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(60):
        deltas: list[Delta] = []
        for index in range(chance.randrange(4)):
            kind = chance.choice(list(DeltaKind))
            named = (f"call_{index}", "look") if kind >= DeltaKind.FUNCTION_CALL else ("", "")
            for _ in range(chance.randrange(1, 4)):
                words = chance.choice(["", "a", "\n", '"é'])
                deltas.append(Delta(index, kind, words, 1, 0, *named))
        outbox = Chunks()
        stream = answer(deltas, outbox=outbox)
        outbox.close()
        message = json.loads(stream.body)["choices"][0]["message"]
        content, calls, reason = joined(outbox.chunks)
        assert content == (message["content"] or "")
        told = [call.get("function") or call["custom"] for call in message.get("tool_calls", ())]
        assert [words for _, _, words in calls] == [
            made.get("arguments", made.get("input")) for made in told
        ]
        assert reason == ("tool_calls" if calls else "stop")


# -- predictions -------------------------------------------------------------------------------

PARTS = [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize(("content", "expected"), [("a b", "a b"), (PARTS, "a b"), ("", None)])
def test_a_prediction_is_a_text_or_its_parts(content: Any, expected: str | None) -> None:
    assert parsed(prediction={"type": "content", "content": content}).prediction == expected
    assert parsed(prediction=None).prediction is None


@pytest.mark.parametrize(
    ("prediction", "param"),
    [
        ({"type": "content", "content": 7}, "prediction.content"),
        ({"type": "content", "content": [{"type": "image_url"}]}, "prediction.content"),
        ({"type": "content"}, "prediction.content"),
        ({"type": "draft", "content": "a"}, "prediction.type"),
    ],
)
def test_any_other_prediction_is_refused(prediction: Any, param: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        parsed(prediction=prediction)
    assert raised.value.param == param


def test_what_became_of_it_is_in_the_usage() -> None:
    used = Usage(7, 3, 9, num_accepted_tokens=4, num_rejected_tokens=2)
    found = whole([text("x")], Ending(status="completed", usage=used))
    details = found["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == 4
    assert details["rejected_prediction_tokens"] == 2
