"""Tests when an answer calls tools, which, and with what."""

from typing import Any

import jsonschema
import msgspec
import pytest

from backends.contract import (
    CustomTool,
    CustomToolCall,
    CustomToolCallOutput,
    DeltaKind,
    FunctionCall,
    FunctionCallOutput,
    FunctionTool,
    Item,
    TextPart,
    ToolChoice,
)
from backends.script.answering import answer_script
from backends.script.scripted_answer import AnswerItem
from tests.unit.backends.script.requests import assistant, request

WEATHER = FunctionTool(
    "get_weather",
    "Get the current weather for a city",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
)
SEARCH = FunctionTool(
    "search",
    "Search the documents",
    {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
# Shaped like the shell tools of coding agents: one takes text, the other a list of words.
EXEC = FunctionTool(
    "exec_command",
    "Runs a command in a PTY, returning output or a session ID for ongoing interaction.",
    {
        "type": "object",
        "properties": {
            "cmd": {"type": "string"},
            "workdir": {"type": "string"},
            "yield_time_ms": {"type": "number"},
        },
        "required": ["cmd"],
        "additionalProperties": False,
    },
)
SHELL = FunctionTool(
    "shell",
    "Runs a shell command and returns its output.",
    {
        "type": "object",
        "properties": {
            "command": {"type": "array", "items": {"type": "string"}},
            "workdir": {"type": "string"},
        },
        "required": ["command"],
    },
)
PATCH = CustomTool("apply_patch", "Edit files. The input begins with *** Begin Patch")
NOTE = CustomTool("take_note", "Writes a note")


def calls(*items: Item | str, **fields: Any) -> list[AnswerItem]:
    """Returns the calls of the answer; what is no call must be a single message."""
    answer = answer_script(0, reasons=False)(request(*items, **fields))
    made = [item for item in answer.items if item.kind is not DeltaKind.TEXT]
    assert made or len(answer.items) == 1
    for item in made:
        tool = next(tool for tool in fields["tools"] if tool.name == item.name)
        if isinstance(tool, FunctionTool):
            assert item.kind is DeltaKind.FUNCTION_CALL
            jsonschema.validate(msgspec.json.decode(item.text), tool.parameters)
        else:
            assert item.kind is DeltaKind.CUSTOM_CALL
    return made


def arguments(*items: Item | str, **fields: Any) -> list[Any]:
    return [msgspec.json.decode(item.text) for item in calls(*items, **fields)]


@pytest.mark.parametrize(
    ("prompt", "tools", "expected"),
    [
        ("What's the weather in Paris?", (WEATHER,), [{"city": "Paris"}]),
        ("Use get_weather for Rome, in Celsius", (WEATHER,), [{"city": "Rome", "unit": "celsius"}]),
        ("Call get_weather for Paris and London", (WEATHER,),
         [{"city": "Paris"}, {"city": "London"}]),
        ("Use the search tool for 'tidal locks'", (WEATHER, SEARCH), [{"query": "tidal locks"}]),
        ("Run the command `echo hi`", (EXEC, PATCH), [{"cmd": "echo hi"}]),
        ("run ls -la and tell me what you see", (EXEC,), [{"cmd": "ls -la"}]),
        ("Run `make` and then run `make test`", (EXEC,), [{"cmd": "make"}, {"cmd": "make test"}]),
        ("run `pwd`", (SHELL,), [{"command": ["bash", "-lc", "pwd"]}]),
        ("list the files here", (EXEC,), [{"cmd": "ls -la"}]),
        ("show me the file src/a.py", (EXEC,), [{"cmd": "cat src/a.py"}]),
        ("Create a file hello.txt containing 'it works'", (EXEC,),
         [{"cmd": "printf '%s\\n' 'it works' > hello.txt"}]),
    ],
)  # fmt: skip
def test_prompts_that_call(
    prompt: str, tools: tuple[FunctionTool, ...], expected: list[Any]
) -> None:
    assert arguments(prompt, tools=tools) == expected


@pytest.mark.parametrize(
    "prompt",
    [
        "hello",
        "Write a Python function that parses weather data",
        "Why is the sky blue?",
        "How do I search a list?",
        "reverse the list in place",
    ],
)
def test_prompts_that_do_not_call(prompt: str) -> None:
    assert calls(prompt, tools=(WEATHER, SEARCH, EXEC)) == []


def test_a_quoted_shell_word_is_written_safely() -> None:
    (made,) = arguments('Create a file a.txt containing "it\'s"', tools=(EXEC,))
    assert made == {"cmd": "printf '%s\\n' 'it'\\''s' > a.txt"}


def test_custom_tools_get_text() -> None:
    (made,) = calls('Use apply_patch to add a file notes.md with "todo"', tools=(PATCH,))
    assert made.text == "*** Begin Patch\n*** Add File: notes.md\n+todo\n*** End Patch\n"
    (made,) = calls("Use take_note for `milk`", tools=(NOTE,))
    assert made.text == "milk"


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        (ToolChoice("required"), "get_weather"),
        (ToolChoice("required", ("search",)), "search"),
        (ToolChoice("auto", ("search",)), None),
        (ToolChoice("none"), None),
    ],
)
def test_the_choice_is_obeyed(choice: ToolChoice, name: str | None) -> None:
    prompt = "hello" if choice.mode == "required" else "Use get_weather for Paris"
    made = calls(prompt, tools=(WEATHER, SEARCH), tool_choice=choice)
    assert [item.name for item in made] == ([name] if name else [])


def test_without_parallel_calls_there_is_one_at_a_time() -> None:
    items: list[Item | str] = ["Call get_weather for Paris and London, then compare"]
    seen = []
    for turn in range(2):
        (made,) = calls(*items, tools=(WEATHER,), parallel_tool_calls=False, id=f"resp_{turn}")
        seen.append(msgspec.json.decode(made.text)["city"])
        items.append(FunctionCall(made.call_id, made.name, made.text))
        items.append(FunctionCallOutput(made.call_id, (TextPart("18"),)))
    assert seen == ["Paris", "London"]
    assert calls(*items, tools=(WEATHER,), parallel_tool_calls=False) == []


def test_what_was_called_is_not_called_again() -> None:
    done: list[Item | str] = [
        "Use get_weather for Paris",
        FunctionCall("c1", "get_weather", '{"city":"Paris"}'),
        FunctionCallOutput("c1", (TextPart("18"),)),
    ]
    assert calls(*done, tools=(WEATHER,)) == []
    # As in the real API: while the choice demands a call, there is one.
    assert len(calls(*done, tools=(WEATHER,), tool_choice=ToolChoice("required"))) == 1
    # A new prompt may call again.
    assert len(calls(*done, "And use get_weather for Rome", tools=(WEATHER,))) == 1


def test_custom_outputs_end_the_turn_too() -> None:
    items: list[Item | str] = [
        "Use take_note for `milk`",
        CustomToolCall("c1", "take_note", "milk"),
        CustomToolCallOutput("c1", (TextPart("noted"),)),
    ]
    assert calls(*items, tools=(NOTE,)) == []


def test_ids_and_namespaces() -> None:
    tool = msgspec.structs.replace(WEATHER, namespace="maps")
    made = calls("Call get_weather for Paris and London", tools=(tool,), id="resp_x")
    assert {item.namespace for item in made} == {"maps"}
    assert len({item.call_id for item in made}) == 2
    assert made == calls("Call get_weather for Paris and London", tools=(tool,), id="resp_x")


def test_a_tool_without_parameters() -> None:
    bare = FunctionTool("get_time")
    assert arguments("use get_time", tools=(bare,)) == [{}]


def test_many_tools_and_names_stay_bounded() -> None:
    tools = tuple(msgspec.structs.replace(WEATHER, name=f"tool_{i}") for i in range(40))
    prompt = "Use " + ", ".join(tool.name for tool in tools)
    assert len(calls(prompt, tools=tools)) == 16


POPULATION = FunctionTool(
    "get_population", "Get the number of people of a city", WEATHER.parameters
)
REPORT = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
BOTH = "Use get_weather and get_population for Paris, then report."


@pytest.mark.parametrize(
    "final", ["final_answer", "final_result_Report", "submit_answer", "Report"]
)
@pytest.mark.parametrize("parallel", [True, False])
def test_an_agent_that_must_call_ends(final: str, parallel: bool) -> None:
    """LangChain, smolagents and pydantic-ai ask so: each time they demand a call."""
    tools = (FunctionTool(final, "Give it", REPORT), WEATHER, POPULATION)
    items: list[Item | str] = [BOTH]
    seen: list[str] = []
    for turn in range(4):
        made = calls(
            *items,
            tools=tools,
            tool_choice=ToolChoice("required"),
            parallel_tool_calls=parallel,
            id=f"resp_{turn}",
        )
        seen += [item.name for item in made]
        if final in seen:
            break
        items += [FunctionCall(item.call_id, item.name, item.text) for item in made]
        items += [FunctionCallOutput(item.call_id, (TextPart("18"),)) for item in made]
    assert seen == ["get_weather", "get_population", final]
    assert "18" in msgspec.json.decode(made[0].text)["answer"]


def named(name: str, description: str = "") -> FunctionTool:
    properties = {"city": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["city"]}
    return FunctionTool(name, description, schema)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Use weather and population for Lisbon, then report.", ["weather", "population"]),
        ("First call `population`, then the weather tool for Lisbon", ["population", "weather"]),
        ("invoke the population tool, and then weather, for Lisbon", ["population", "weather"]),
        ("Use the weather in your answer on population", ["weather"]),
        ("The weather and population of Lisbon are of no use", []),
    ],
)
def test_tools_are_named_in_a_list(prompt: str, expected: list[str]) -> None:
    tools = (named("weather"), named("population"))
    assert [item.name for item in calls(prompt, tools=tools)] == expected


def test_a_call_that_is_demanded_may_fit_a_description() -> None:
    tools = (
        named("weather", "Temperature in a city."),
        named("population", "How many people live in a city."),
        named("final_answer"),
    )
    items: list[Item | str] = [
        "How warm is Lisbon, and how many people live there?",
        FunctionCall("c1", "weather", '{"city":"Lisbon"}'),
        FunctionCallOutput("c1", (TextPart("21 degrees"),)),
    ]
    (made,) = calls(*items, tools=tools, tool_choice=ToolChoice("required"))
    assert made.name == "population"


def test_calls_that_an_agent_writes_as_messages_are_seen() -> None:
    """Smolagents' form of calls and outputs, for servers without roles for them."""
    written = (
        "Calling tools:\n[{'id': 'c1', 'type': 'function', 'function': "
        "{'name': 'get_weather', 'arguments': {'city': 'Paris'}}}]"
    )
    final = FunctionTool("final_answer", "The end", REPORT)
    (made,) = calls(
        "New task:\nUse get_weather for Paris",
        assistant(written),
        "Observation:\nsunny",
        tools=(WEATHER, final),
        tool_choice=ToolChoice("required"),
    )
    assert made.name == "final_answer"
    assert "sunny" in msgspec.json.decode(made.text)["answer"]


def test_what_was_not_called_comes_first_where_a_call_is_demanded() -> None:
    done: list[Item | str] = [
        "hello",
        FunctionCall("c1", "get_weather", '{"city":"Paris"}'),
        FunctionCallOutput("c1", (TextPart("18"),)),
    ]
    (made,) = calls(*done, tools=(WEATHER, SEARCH), tool_choice=ToolChoice("required"))
    assert made.name == "search"
