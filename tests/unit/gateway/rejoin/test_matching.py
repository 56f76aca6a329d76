"""Tests which creates come back to a response: those that ask for the same, and no other."""

import copy
import json
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from backends.contract import ContextItem
from backends.prompt import measure
from gateway.rejoin.matching import (
    ClientHolds,
    anchor_of,
    has_calls,
    held_by,
    known_digests,
    may_rejoin,
    num_items_held,
    returning_by,
    settings_of,
)
from gateway.wire.events import CreateBody, decode
from gateway.wire.items import parse_input
from gateway.wire.requests import ParsedCreate, parse_create
from tests.unit.gateway.doubles import parsed_create

NUM_PAIRS = 10_000
TOOL = {
    "type": "function",
    "name": "look",
    "description": "Look.",
    "parameters": {"type": "object"},
}
Body = dict[str, Any]

REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"at":"sea"}',
    "status": "completed",
}
CALL_2 = {**CALL, "id": "fc_2", "call_id": "call_2"}
OUTPUT = [REASONING, SAID, CALL, CALL_2]
ANSWER = {"type": "function_call_output", "call_id": "call_1", "output": "a sail"}


def items_of(*values: Any) -> tuple[ContextItem, ...]:
    raws = decode(json.dumps({"model": "m", "input": list(values)}).encode(), CreateBody).input
    items = parse_input(raws).items
    assert all(isinstance(item, ContextItem) for item in items)
    return items  # type: ignore[return-value]  # just checked


ASK = {"type": "message", "id": "msg_u", "role": "user", "content": "What is out there?"}


def holds(*more: Any) -> ClientHolds | None:
    output = [entry.item for entry in items_of(*OUTPUT)]
    return held_by(items_of(ASK, *more), items_of(ASK), output)


@pytest.mark.parametrize(
    ("more", "num_output", "has_outputs"),
    [
        ((), 0, False),
        ((REASONING,), 1, False),
        (({**REASONING, "content": None, "encrypted_content": None},), 1, False),
        ((REASONING, SAID), 2, False),
        ((REASONING, {**SAID, "status": "incomplete"}), 2, False),
        ((REASONING, dict(reversed(SAID.items())), CALL), 3, False),
        ((REASONING, SAID, {**CALL, "status": "incomplete"}), 3, False),
        ((REASONING, SAID, CALL, ANSWER), 3, True),
        ((REASONING, SAID, CALL, ANSWER, CALL_2), 4, True),
        ((REASONING, SAID, CALL, CALL_2, ANSWER), 4, True),
        ((REASONING, SAID, CALL, CALL_2, ANSWER | {"call_id": "call_2"}, ANSWER), 4, True),
    ],
)
def test_what_a_client_holds(more: tuple[Body, ...], num_output: int, has_outputs: bool) -> None:
    assert holds(*more) == ClientHolds(num_output, has_outputs)


@pytest.mark.parametrize(
    "more",
    [
        (SAID,),  # not the first
        (REASONING, CALL),
        (REASONING, SAID | {"id": "msg_2"}),
        (REASONING, {key: value for key, value in SAID.items() if key != "id"}),
        (REASONING, SAID, CALL | {"arguments": '{"at": "sea"}'}),
        (REASONING, SAID, CALL | {"call_id": "call_3"}),
        (ANSWER,),
        (REASONING, SAID, ANSWER, CALL),
        (REASONING, SAID, CALL, ANSWER, ANSWER),
        (REASONING, SAID, CALL, ANSWER | {"call_id": "call_2"}),
        (REASONING, SAID, CALL, ANSWER | {"type": "custom_tool_call_output"}),
        (REASONING, {"role": "user", "content": "And now?"}),
        (*OUTPUT, {"role": "user", "content": "Thanks."}),
        (*OUTPUT, CALL_2),
    ],
)
def test_what_is_another_task(more: tuple[Body, ...]) -> None:
    assert holds(*more) is None


def test_a_context_that_was_edited_is_another_task() -> None:
    output = [entry.item for entry in items_of(*OUTPUT)]
    assert held_by(items_of(ASK | {"content": "What is there?"}), items_of(ASK), output) is None
    assert held_by(items_of(REASONING), items_of(ASK), output) is None
    assert held_by((), items_of(ASK), output) is None


def test_asides_count_as_held_before_what_is_held() -> None:
    done = decode(
        json.dumps(
            {
                "model": "m",
                "input": [{"id": "rs_0_aside"}, {"id": "msg_1"}, {"id": "rs_2_aside"}, {"id": "x"}],
            }
        ).encode(),
        CreateBody,
    ).input
    assert isinstance(done, list)
    assert num_items_held(done, ClientHolds(0, False), frozenset()) == 0
    assert num_items_held(done, ClientHolds(0, False), frozenset({"rs_0_aside"})) == 1
    assert num_items_held(done, ClientHolds(1, False), frozenset()) == 2
    assert num_items_held(done, ClientHolds(1, False), frozenset({"rs_2_aside"})) == 3
    assert num_items_held(done, ClientHolds(2, False), frozenset()) == 4


def test_only_calls_are_calls() -> None:
    reasoning, said, call, _ = (entry.item for entry in items_of(*OUTPUT))
    assert not has_calls([reasoning, said])
    assert has_calls([said, call])


def test_most_other_tasks_are_known_by_their_digests() -> None:
    anchor = anchor_of(items_of(ASK, REASONING))
    assert anchor == anchor_of(items_of(ASK)) != 0  # reasoning has no digest
    back = parsed_create(input=[ASK, *OUTPUT, ANSWER])
    assert anchor in (known_digests(back, None) or ())
    other = parsed_create(input=[ASK | {"content": "What is there?"}])
    assert anchor not in (known_digests(other, None) or {anchor})
    assert anchor in (known_digests(other, items_of(ASK)) or ())  # it is the parent's
    assert anchor_of(items_of(REASONING)) in (known_digests(other, None) or ())


@pytest.mark.parametrize(
    "fields",
    [
        {"input": "And now?", "previous_response_id": "resp_1"},  # not loaded yet
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
    ],
)
def test_what_has_to_be_loaded_before_it_is_known(fields: Body) -> None:
    assert known_digests(parsed_create(**fields), None) is None


def test_who_may_come_back() -> None:
    assert may_rejoin(parsed_create())
    assert not may_rejoin(parsed_create(metadata={"rejoin": "never"}))
    assert not may_rejoin(parsed_create(background=True))


class Pairs:
    """Makes requests, and others that are almost or wholly the same."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def word(self) -> str:
        return "".join(self.chance.choices("abcdefg hij", k=self.chance.randint(1, 12)))

    def request(self) -> tuple[tuple[str, str], Body]:
        chance = self.chance
        asks = [
            {"type": "message", "id": f"msg_{n}", "role": "user", "content": self.word()}
            for n in range(chance.randint(1, 4))
        ]
        body: Body = {
            "model": "auto",
            "input": asks,
            "instructions": self.word(),
            "temperature": chance.choice([None, 0.0, 0.5]),
            "tools": [copy.deepcopy(TOOL)],
            "reasoning": {"effort": chance.choice(["low", "high"])},
            "prompt_cache_key": "k",
            "metadata": {"a": self.word()},
            "store": False,
            "max_output_tokens": 100,
            "client_metadata": {"turn_id": self.word(), "thread_id": "t", "stamp": self.word()},
        }
        return (chance.choice("AB"), chance.choice("xy")), body

    def same(self, body: Body) -> Body:
        """Returns the same request as a client may send it again."""
        chance, again = self.chance, copy.deepcopy(body)
        again["client_metadata"]["stamp"] = self.word()
        for item in again["input"]:
            item["status"] = chance.choice([None, "completed"])
        again = self.shuffled(again)
        if again["temperature"] is None and chance.random() < 0.5:
            del again["temperature"]
        if chance.random() < 0.5:
            again["user"] = None
        again["stream"] = True
        assert isinstance(again, dict)
        return again

    def shuffled(self, value: Any) -> Any:
        if isinstance(value, dict):
            members = [(key, self.shuffled(each)) for key, each in value.items()]
            self.chance.shuffle(members)
            return dict(members)
        return [self.shuffled(each) for each in value] if isinstance(value, list) else value

    def almost(self, key: tuple[str, str], body: Body) -> tuple[tuple[str, str], Body]:
        """Returns another request, which differs in one thing."""
        body = self.same(body)
        changes: list[Callable[[], None]] = [
            lambda: self.change_byte(self.chance.choice(body["input"]), "content"),
            lambda: self.change_byte(self.chance.choice(body["input"]), "id"),
            lambda: self.change_byte(body, "instructions"),
            lambda: self.change_byte(body["metadata"], "a"),
            lambda: self.change_byte(body["client_metadata"], "turn_id"),
            lambda: self.change_byte(body["client_metadata"], "thread_id"),
            lambda: self.change_byte(body["tools"][0], "description"),
            lambda: self.change_byte(body, "prompt_cache_key"),
            lambda: body["client_metadata"].pop("turn_id"),
            lambda: body.update(temperature=0.7),
            lambda: body.update(top_p=0.5),
            lambda: body.update(max_output_tokens=101),
            lambda: body.update(store=True),
            lambda: body.update(tools=[]),
            lambda: body.update(tool_choice="none"),
            lambda: body.update(parallel_tool_calls=False),
            lambda: body["reasoning"].update(effort="medium"),
            lambda: body["input"].append({"role": "user", "content": self.word()}),
            lambda: body["input"].insert(0, {"role": "developer", "content": self.word()}),
            lambda: body["input"].append(copy.deepcopy(ANSWER)),
            lambda: body["input"].__setitem__(0, {**body["input"][0], "role": "developer"}),
        ]
        pick = self.chance.randrange(len(changes) + 2)
        if pick == len(changes):
            return ({"A": "B", "B": "A"}[key[0]], key[1]), body
        if pick == len(changes) + 1:
            return (key[0], {"x": "y", "y": "x"}[key[1]]), body
        changes[pick]()
        return key, body

    def change_byte(self, where: Body, name: str) -> None:
        text = where[name]
        at = self.chance.randrange(len(text))
        where[name] = text[:at] + ("z" if text[at] != "z" else "q") + text[at + 1 :]


def parsed(body: Body) -> ParsedCreate:
    return parse_create(decode(json.dumps(body).encode(), CreateBody), "resp_1")


def joins(lost: tuple[tuple[str, str], Body], back: tuple[tuple[str, str], Body]) -> bool:
    """Decides as `Rejoins` does, over everything that it compares."""
    asked, again = parsed(lost[1]), parsed(back[1])
    ours = returning_by(asked, tuple(measure(item.item) for item in asked.input.items))  # type: ignore[union-attr]
    theirs = returning_by(again, again.input.items)  # type: ignore[arg-type]
    if anchor_of(ours.items) not in (known_digests(again, None) or ()):
        return False
    if lost[0] != back[0] or ours.turn != theirs.turn or ours.settings != theirs.settings:
        return False
    return (
        held_by(theirs.items, ours.items, [entry.item for entry in items_of(*OUTPUT)]) is not None
    )


def test_of_almost_equal_requests_none_joins() -> None:
    seed = int(os.environ.get("LANEWISE_SEED", "20261123"))
    print("seed", seed)
    pairs = Pairs(seed)
    for number in range(NUM_PAIRS):
        key, body = pairs.request()
        almost = pairs.almost(key, body)
        assert not joins((key, body), almost), (number, body, almost)
        if number % 10 == 0:
            same = pairs.same(body)
            assert joins((key, body), (key, same)), (number, body, same)


def test_settings_that_are_nested_too_deeply_are_nobody_elses() -> None:
    schema: dict[str, Any] = {}
    for _ in range(700):
        schema = {"items": schema}
    text = {"format": {"type": "json_schema", "name": "deep", "schema": schema}}
    first, again = (parsed_create(name, text=text) for name in ("resp_1", "resp_2"))
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(400)  # Since Python 3.12 it bounds calls of Python alone, one a level.
    try:
        assert settings_of(first) != settings_of(again)
    finally:
        sys.setrecursionlimit(usual)
