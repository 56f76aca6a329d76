"""Tests checks of fast answers: certain faults, and agreement."""

import msgspec
import pytest

from backends.contract import (
    CustomTool,
    Delta,
    DeltaKind,
    FunctionTool,
    GenerateRequest,
    TextFormat,
    ToolChoice,
)
from router.strategies.checks import FastAnswer, agreeing, answer_of, fault, share_of_facts
from tests.unit.router.strategies.plays import REQUEST

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = (FunctionTool("add", parameters=SCHEMA), CustomTool("shell"))
WITH_TOOLS = msgspec.structs.replace(REQUEST, tools=TOOLS)
MUST_CALL = msgspec.structs.replace(WITH_TOOLS, tool_choice=ToolChoice("required"))
ONLY_ADD = msgspec.structs.replace(WITH_TOOLS, tool_choice=ToolChoice("auto", ("add",)))
JSON = msgspec.structs.replace(REQUEST, text_format=TextFormat("json_object"))
BY_SCHEMA = msgspec.structs.replace(REQUEST, text_format=TextFormat("json_schema", SCHEMA))
FUNCTION, CUSTOM = DeltaKind.FUNCTION_CALL, DeltaKind.CUSTOM_CALL


def calling(name: str, arguments: str, kind: DeltaKind = FUNCTION) -> FastAnswer:
    return FastAnswer("", ((kind, name, arguments),))


@pytest.mark.parametrize(
    ("answer", "request_", "pattern", "expected"),
    [
        (FastAnswer("Hello."), REQUEST, "", ""),
        (FastAnswer(" \n"), REQUEST, "", "says nothing"),
        (FastAnswer("A"), REQUEST, "A|B", ""),
        (FastAnswer("A\n"), REQUEST, "A|B", ""),
        (FastAnswer("A, or B"), REQUEST, "A|B", "pattern"),
        (FastAnswer("[1]"), JSON, "", "schema"),
        (FastAnswer('{"a": 1}'), JSON, "", ""),
        (FastAnswer('{"n": 1}'), BY_SCHEMA, "", ""),
        (FastAnswer('{"n": "1"}'), BY_SCHEMA, "", "schema"),
        (FastAnswer('{"n": 1'), BY_SCHEMA, "", "no JSON"),
        (calling("add", '{"n": 1}'), WITH_TOOLS, "A|B", ""),
        (calling("add", "{}"), WITH_TOOLS, "", "do not fit"),
        (calling("add", "[1]"), WITH_TOOLS, "", "no JSON object"),
        (calling("subtract", "{}"), WITH_TOOLS, "", "no tool"),
        (calling("shell", "ls", CUSTOM), WITH_TOOLS, "", ""),
        (calling("shell", "ls", CUSTOM), ONLY_ADD, "", "no tool"),
        (FastAnswer("I would add."), MUST_CALL, "", "calls no tool"),
    ],
)
def test_a_certain_fault_is_found(
    answer: FastAnswer, request_: GenerateRequest, pattern: str, expected: str
) -> None:
    found = fault(answer, request_, pattern)
    assert expected in found if expected else not found


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["4", "4", "5"], (0, 1)),
        (["5", "4", "4."], (1, 1)),
        (["So the answer is 12.", "We get \\boxed{12}", "Thus: **Answer: 12**"], (0, 2)),
        (["The answer is 12 apples", "The answer is 13 apples"], (0, 0)),
        (['{"a": 1, "b": 2}', '{"b": 2, "a": 1}'], (0, 1)),
        (["Use `sort` and `uniq` on file.txt", "`sort`, `uniq`, file.txt do it"], (0, 1)),
        (["Berlin is the capital of Germany.", "The capital of Germany is Berlin."], (0, 1)),
        (["It rains a lot here in winter", "Nobody can know such things yet"], (0, 0)),
        (["alone"], (0, 0)),
    ],
)
def test_the_answer_that_most_agree_with(texts: list[str], expected: tuple[int, int]) -> None:
    assert agreeing([FastAnswer(text) for text in texts]) == expected


def test_calls_agree_by_their_arguments() -> None:
    one, same = calling("add", '{"n": 1, "m": 2}'), calling("add", '{"m":2,"n":1}')
    other = calling("add", '{"n": 2, "m": 2}')
    assert agreeing([other, one, same]) == (1, 1)
    assert agreeing([one, FastAnswer("one")]) == (0, 0)


def test_an_answer_is_its_text_and_its_calls() -> None:
    deltas = [
        Delta(0, DeltaKind.REASONING, "hm", 1, 1),
        Delta(1, DeltaKind.TEXT, "I ", 1, 2),
        Delta(1, DeltaKind.TEXT, "add.", 1, 3),
        Delta(2, FUNCTION, '{"n"', 1, 4, "call_1", "add"),
        Delta(2, FUNCTION, ": 1}", 1, 5, "call_1", "add"),
        Delta(3, CUSTOM, "ls", 1, 6, "call_2", "shell"),
    ]
    calls = ((FUNCTION, "add", '{"n": 1}'), (CUSTOM, "shell", "ls"))
    assert answer_of(deltas) == FastAnswer("I add.", calls)


def test_few_facts_say_nothing() -> None:
    assert share_of_facts("1 and 2", "1 and 2") is None
    assert share_of_facts("1, 2, 3 and `x`", "1, 2 and 3") == 0.75
