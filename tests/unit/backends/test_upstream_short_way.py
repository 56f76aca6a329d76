"""The short way of plain text through the readers gives what the long way gives."""

import json
import random
from collections.abc import Hashable
from typing import Any

import pytest

from backends.contract import Delta, GenerateRequest
from backends.upstream_chat import ChatReader
from backends.upstream_items import ItemOrder
from backends.upstream_responses import ResponsesReader

REQUEST = GenerateRequest(
    id="r", model="m", items=(), num_prompt_tokens=3, prefix=(), max_output_tokens=100_000
)
STOPPING = GenerateRequest(
    id="r",
    model="m",
    items=(),
    num_prompt_tokens=3,
    prefix=(),
    max_output_tokens=100_000,
    stop=("dog c",),
)
COMPLETED = {"type": "response.completed", "response": {"id": "resp_up", "status": "completed"}}
WORDS = ("a ", "dog ", "caf\u00e9 ", "", "\n\n", "1,000 ")
KINDS: dict[str, tuple[str, ...]] = {
    "message": ("output_text", "refusal"),
    "reasoning": ("reasoning_summary_text", "reasoning_text"),
    "function_call": ("function_call_arguments",),
    "custom_tool_call": ("custom_tool_call_input",),
}


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


class LongWay(ItemOrder):
    """The plain twin: everything is added, then taken."""

    def pass_on(self, key: Hashable, text: str, at_us: int) -> Delta | None:
        return None


class ShortWay(ItemOrder):
    """Counts what went that way."""

    num_passed = 0

    def pass_on(self, key: Hashable, text: str, at_us: int) -> Delta | None:
        delta = super().pass_on(key, text, at_us)
        self.num_passed += delta is not None
        return delta


def responses_events(chance: random.Random) -> list[dict[str, Any]]:
    """A few items, some at once, whose pieces come in any order."""
    kinds = [chance.choice(list(KINDS)) for _ in range(chance.randint(1, 4))]
    items = [{"type": kind, "id": f"i{n}", "name": "f"} for n, kind in enumerate(kinds)]
    events: list[dict[str, Any]] = []
    open_items: list[int] = []
    waiting = list(range(len(items)))
    while waiting or open_items:
        if waiting and (not open_items or chance.random() < 0.2):
            index = waiting.pop(0)
            open_items.append(index)
            if chance.random() < 0.9:
                added = {"output_index": index, "item": items[index]}
                events.append({"type": "response.output_item.added", **added})
            continue
        index = chance.choice(open_items)
        place = {"item_id": f"i{index}", "output_index": index}
        if chance.random() < 0.1:
            open_items.remove(index)
            events.append({"type": "response.output_item.done", **place, "item": items[index]})
            continue
        piece = {"delta": chance.choice(WORDS), "summary_index": chance.randrange(2)}
        head = chance.choice(KINDS[kinds[index]])
        events.append({"type": f"response.{head}.delta", **place, **piece})
    return events


def chat_chunks(chance: random.Random) -> list[dict[str, Any]]:
    """Text, thoughts and calls in any order."""
    chunks: list[dict[str, Any]] = []
    for _ in range(chance.randrange(30)):
        delta: dict[str, Any] = {"content": chance.choice((*WORDS, None))}
        if chance.random() < 0.15:
            delta["reasoning"] = chance.choice(WORDS)
        if chance.random() < 0.1:
            function = {"name": "f", "arguments": chance.choice(WORDS)}
            delta["tool_calls"] = [{"index": chance.randrange(2), "function": function}]
        choice = {"index": int(chance.random() < 0.1), "delta": delta}
        chunks.append({"choices": [choice] * chance.choice((0, 1, 1, 1, 1, 2))})
    usage = {"prompt_tokens": 3, "completion_tokens": 9}
    last = {"choices": [{"index": 0, "delta": {"content": "!"}, "finish_reason": "stop"}]}
    return [*chunks, last, {"choices": [], "usage": usage}]


@pytest.mark.parametrize("request_", [REQUEST, STOPPING], ids=["plain", "with a stop sequence"])
def test_responses_events(chance: random.Random, request_: GenerateRequest) -> None:
    num_passed = 0
    for _ in range(150):
        wrapped = frozenset({"f"} if chance.random() < 0.3 else ())
        short = ResponsesReader("b", request_, wrapped)
        plain = ResponsesReader("b", request_, wrapped)
        short._items, plain._items = items, _ = ShortWay(), LongWay()
        for at_us, event in enumerate([*responses_events(chance), COMPLETED]):
            data = json.dumps(event).encode()
            assert short.read(data, at_us) == plain.read(data, at_us), event
            assert short.usage() == plain.usage()
            assert short.finish == plain.finish
            if short.finish is not None:
                break
        num_passed += items.num_passed
    assert num_passed > 100 or request_ is STOPPING, "the short way is taken"


def test_chat_chunks(chance: random.Random) -> None:
    num_passed = 0
    for _ in range(150):
        short = ChatReader("b", REQUEST, frozenset())
        plain = ChatReader("b", REQUEST, frozenset())
        short._items, plain._items = items, _ = ShortWay(), LongWay()
        for at_us, chunk in enumerate(chat_chunks(chance)):
            data = json.dumps(chunk).encode()
            assert short.read(data, at_us) == plain.read(data, at_us), chunk
            assert (short.usage(), short.finish) == (plain.usage(), plain.finish)
        assert short.finish is not None
        num_passed += items.num_passed
    assert num_passed > 100, "the short way is taken"
