"""Compaction: what people said stays, the rest is cut and folded, and it can begin a new chain."""

import json

import msgspec
from openai.types.responses import CompactedResponse

from backends.contract import (
    ContextItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    TextPart,
)
from backends.prompt import measure
from gateway.compaction import MAX_KEPT_CHARS, compact
from gateway.intake import make_task
from gateway.items import parse_input
from tests.unit.gateway.doubles import TENANT, parsed_create

ITEMS: tuple[Item, ...] = (
    Message("developer", (TextPart("rules"),)),
    Message("user", (TextPart("long " * 500),)),
    Message("assistant", (TextPart("begin " + "x" * 5000 + " end"),)),
    FunctionCall("c", "look", "{}"),
    FunctionCallOutput("c", (TextPart("sun"),)),
    Message("user", (TextPart("more"),), "msg_mine"),
)


def test_a_context_is_folded() -> None:
    context = tuple(measure(item) for item in ITEMS)
    task = make_task(
        parsed_create(), context, TENANT, last_backend=None, arrived_us=0, arrived_unix_s=0
    )
    found = compact(task, "resp_1", 100)
    *kept, folded = found["output"]
    # The SDK's type of the whole object knows no user messages, though OpenAI's answers hold them.
    CompactedResponse.model_validate(found | {"output": [folded]}, strict=True)
    assert [(item["role"], item["content"][0]["text"]) for item in kept] == [
        ("developer", "rules"),
        ("user", "long " * 500),
        ("user", "more"),
    ]
    assert kept[-1]["id"] == "msg_mine"
    assert folded["type"] == "compaction"
    assert found["usage"]["input_tokens"] == task.request.num_prompt_tokens

    again = parse_input([msgspec.Raw(json.dumps(item).encode()) for item in found["output"]]).items
    *messages, summary = [entry.item for entry in again if isinstance(entry, ContextItem)]
    assert len(messages) == 3
    assert isinstance(summary, Message)
    (part,) = summary.content
    assert isinstance(part, TextPart)
    assert "begin" in part.text
    assert "end" not in part.text
    assert "sun" in part.text
    assert len(part.text) < 4 * MAX_KEPT_CHARS
    assert found["usage"]["output_tokens"] == measure(summary).num_tokens


def test_an_empty_context() -> None:
    task = make_task(parsed_create(), (), TENANT, last_backend=None, arrived_us=0, arrived_unix_s=0)
    (folded,) = compact(task, "resp_1", 100)["output"]
    assert folded["type"] == "compaction"
