"""Tests which forms of answer are found in what a prompt says, and how they are written."""

import json
from typing import Any

import jsonschema
import pytest

from backends.contract import GenerateRequest, Item, Message, TextFormat, TextPart
from backends.script.answering import answer_script
from backends.script.formats.told import MAX_READ_CHARS, told_format
from backends.script.last_message import read_last_message
from tests.unit.backends.script.requests import request

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
}
IN_WORDS = f"Always respond with a JSON object of this schema:\n\n{json.dumps(SCHEMA, indent=2)}\n"
PROMPT = "It is 21 degrees in Lisbon."
MARKED = """\
[[ ## question ## ]]
It is 21 degrees in Lisbon.

Respond with the corresponding output fields, starting with the field `[[ ## city ## ]]`, then \
`[[ ## degrees ## ]]` (must be formatted as a valid Python int), and then ending with the marker \
for `[[ ## completed ## ]]`."""
FIELDS = """\
Your input fields are:
1. `question` (str):
Your output fields are:
1. `city` (str): The city.
2. `degrees` (int):
All interactions will be structured in the following way."""
REACT = """\
Your output fields are:
1. `next_thought` (str):
2. `next_tool_name` (Literal['get_weather', 'get_population', 'finish']):
3. `next_tool_args` (dict[str, Any]):
All interactions ...
        (1) get_weather, whose description is <desc>Warm?</desc>. It takes arguments {'city': {'type': 'string'}}.
        (2) get_population, whose description is <desc>How many?</desc>. It takes arguments {'city': {'type': 'string'}}.
        (3) finish, whose description is <desc>Done.</desc>. It takes arguments {}.
"""  # noqa: E501


JSON = TextFormat("json_object")


def answer(asked: GenerateRequest) -> str:
    (item,) = answer_script(0, reasons=False)(asked).items
    return item.text


def system(text: str) -> Message:
    return Message("system", (TextPart(text),))


@pytest.mark.parametrize("text_format", [TextFormat(), JSON])
@pytest.mark.parametrize("as_message", [True, False])
def test_a_schema_in_words(text_format: TextFormat, as_message: bool) -> None:
    items: list[Item | str] = [system(IN_WORDS)] if as_message else []
    instructions = None if as_message else IN_WORDS
    made = answer(request(*items, PROMPT, instructions=instructions, text_format=text_format))
    jsonschema.validate(json.loads(made), SCHEMA)
    assert json.loads(made) == {"city": "Lisbon", "degrees": 21}


@pytest.mark.parametrize(
    "instructions",
    [
        "Be brief.",
        f"You review schemas such as {json.dumps(SCHEMA)}",  # no word on the answer
        "Respond with JSON {",
        "Respond with JSON " + "{" * 5_000 + '"properties"',
        "Respond with JSON of " + json.dumps(SCHEMA) + " " * MAX_READ_CHARS,
        r'Respond with JSON of {"properties": {"\ud800": {}}, "required": ["\ud800"]}',
    ],
)
def test_other_instructions_ask_for_no_form(instructions: str) -> None:
    asked = request("Hi.", instructions=instructions)
    assert told_format(asked, read_last_message(asked).excerpt) is None


def test_marked_fields() -> None:
    made = answer(request(system(FIELDS), MARKED))
    assert made == (
        "[[ ## city ## ]]\nLisbon\n\n[[ ## degrees ## ]]\n21\n\n[[ ## completed ## ]]\n"
    )


def test_fields_as_json() -> None:
    prompt = f"{PROMPT}\n\nRespond with a JSON object in the following order of fields: `city`."
    made = answer(request(system(FIELDS), prompt, text_format=JSON))
    assert json.loads(made) == {"city": "Lisbon", "degrees": 21}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("float", {"type": "number"}),
        ("list[int]", {"type": "array", "items": {"type": "integer"}}),
        ("Literal['a', 'b']", {"enum": ["a", "b"]}),
        ("Literal[oops]", {"type": "string"}),
        ("Literal[{{}}]", {"type": "string"}),
        (r"Literal['\ud800']", {"type": "string"}),
        ("Report", {"type": "object"}),
    ],
)
def test_types_of_fields(kind: str, expected: dict[str, Any]) -> None:
    asked = request(system(f"Your output fields are:\n1. `x` ({kind}): ..."), "Hi.")
    told = told_format(asked, "Hi.")
    assert told is not None
    assert told.schema["properties"] == {"x": expected}


def test_an_agent_that_is_told_its_tools_calls_each_and_ends() -> None:
    prompt, called = "Use get_weather and get_population for Lisbon.\n", []
    for step in range(3):
        asked = request(system(REACT), prompt, text_format=JSON)
        made = json.loads(answer(asked))
        called.append((made["next_tool_name"], made["next_tool_args"]))
        name, arguments = made["next_tool_name"], json.dumps(made["next_tool_args"])
        prompt += (
            f"[[ ## tool_name_{step} ## ]]\n{name}\n[[ ## tool_args_{step} ## ]]\n{arguments}\n"
        )
    city = {"city": "Lisbon"}
    assert called == [("get_weather", city), ("get_population", city), ("finish", {})]


@pytest.mark.parametrize("arguments", ["{{}}", "{[1]: 2}", "{oops}", "{" * 500 + "}"])
def test_a_tool_whose_arguments_cannot_be_read_takes_none(arguments: str) -> None:
    told = REACT.replace("{'city': {'type': 'string'}}", arguments)
    made = json.loads(answer(request(system(told), "Use get_weather.", text_format=JSON)))
    assert (made["next_tool_name"], made["next_tool_args"]) == ("get_weather", {})
