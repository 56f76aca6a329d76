"""Tests what values are found for properties, in the prompt and in what tools gave."""

from typing import Any

import msgspec
import pytest

from backends.contract import FunctionCall, FunctionCallOutput, Item, TextFormat, TextPart
from backends.script.answering import answer_script
from backends.script.last_message import ToolResult
from backends.script.values import MAX_RESULT_CHARS, MAX_RESULTS, Values
from tests.unit.backends.script.requests import request


def results(*outputs: str) -> list[ToolResult]:
    names = ("get_weather", "get_population")
    return [ToolResult(name, "", output) for name, output in zip(names, outputs, strict=False)]


@pytest.mark.parametrize(
    ("outputs", "name", "expected"),
    [
        (["It is 21 degrees in Lisbon.", "545,000 people live there."], "degrees", 21),
        (["It is 21 degrees in Lisbon.", "545,000 people live there."], "people", 545_000),
        (["It is 21 degrees in Lisbon.", "545,000 people live there."], "population", 545_000),
        (['{"temperature_c": 18.5, "sky": "clear"}', "9"], "temperature", 18.5),
        (["21", "545000"], "anything", 21),  # what nothing names: the first number
    ],
)
def test_numbers_come_from_results(outputs: list[str], name: str, expected: float) -> None:
    values = Values("Degrees in Lisbon, on day 7?", results=results(*outputs))
    assert values.number(name) == expected


def test_texts_come_from_results() -> None:
    values = Values("Lisbon?", results=results('{"sky": "clear and dry"}', "Very many people."))
    assert values.text("sky") == "clear and dry"
    assert values.text("population") == "Very many people."
    assert values.one_of(["wet", "dry"]) == "dry"


def test_results_are_bounded() -> None:
    long = ToolResult("get_weather", "", " " * MAX_RESULT_CHARS + "5 degrees")
    assert Values("Hm.", results=[long]).number("degrees") is None
    many = [ToolResult("", "", f"{number} degrees") for number in range(MAX_RESULTS + 1)]
    assert Values("Hm.", results=many).number("degrees") == 1


@pytest.mark.parametrize("text", ["Buy 1,200 shares", "Buy 1200 shares", "shares: 1,200"])
def test_thousands_may_have_commas(text: str) -> None:
    assert Values(text).number("shares") == 1200


def test_an_answer_in_json_says_what_the_tools_gave() -> None:
    properties = {"city": {"type": "string"}, "degrees": {"type": "integer"}}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": [*properties],
    }
    items: list[Item | str] = [
        "Use get_weather for Lisbon, then report.",
        FunctionCall("c1", "get_weather", '{"city":"Lisbon"}'),
        FunctionCallOutput("c1", (TextPart("It is 21 degrees."),)),
    ]
    asked = request(*items, text_format=TextFormat("json_schema", schema=schema))
    (item,) = answer_script(0, reasons=False)(asked).items
    assert msgspec.json.decode(item.text) == {"city": "Lisbon", "degrees": 21}
