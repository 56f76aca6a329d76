"""Tests which kind of work a call is, and which calls are the same."""

import json

import pytest

from backends.contract import CustomToolCall, FunctionCall
from router.agent_runs.tool_calls import MAX_ARGUMENT_CHARS, call_of

KINDS: list[tuple[str, object, str]] = [
    ("read_file", {"path": "a"}, "read"),
    ("Read", {"file_path": "a"}, "read"),
    ("Grep", {"pattern": "x"}, "read"),
    ("getWeather", {"city": "Ulm"}, "read"),
    ("apply_patch", {"input": "*** Begin Patch"}, "edit"),
    ("Edit", {"file_path": "a"}, "edit"),
    ("str_replace_editor", {"command": "str_replace"}, "edit"),
    ("NotebookEdit", {}, "edit"),
    ("wait_agent", {}, "wait"),
    ("write_stdin", {}, "wait"),
    ("run_tests", {}, "test"),
    ("shell", {"command": ["bash", "-lc", "cat a.py | head -20"]}, "read"),
    ("exec_command", {"cmd": "cd src && rg -n total"}, "read"),
    ("Bash", {"command": "git status && git diff"}, "read"),
    ("Bash", {"command": "npm run test -- --watch=false"}, "test"),
    ("Bash", {"command": "cd web; cargo test lock"}, "test"),
    ("Bash", {"command": "python -m pytest -q"}, "test"),
    ("Bash", {"command": "sed -i s/a/b/ x.py"}, "edit"),
    ("Bash", {"command": "cat > x.py <<'EOF'\nx\nEOF"}, "edit"),
    ("Bash", {"command": "sleep 10"}, "wait"),
    ("Bash", {"command": "make build"}, "other"),
    ("Bash", {"command": "cat x | python run.py"}, "other"),
    ("frobnicate", {"x": 1}, "other"),
    ("frobnicate", [1], "other"),
]


@pytest.mark.parametrize(("name", "given", "kind"), KINDS)
def test_kinds(name: str, given: object, kind: str) -> None:
    assert call_of(FunctionCall("c", name, json.dumps(given))).kind == kind


def test_a_custom_tools_input_is_its_command() -> None:
    assert call_of(CustomToolCall("c", "exec", "pytest -q")).kind == "test"


def same(first: FunctionCall, second: FunctionCall) -> bool:
    return call_of(first).signature == call_of(second).signature


def test_calls_are_the_same_by_name_and_arguments() -> None:
    one = FunctionCall("c1", "ask", '{"a": 1, "b": [2]}')
    assert same(one, FunctionCall("c2", "ask", '{"b":[2],"a":1}'))
    assert not same(one, FunctionCall("c2", "ask", '{"a": 2, "b": [2]}'))
    assert not same(one, FunctionCall("c2", "tell", '{"a": 1, "b": [2]}'))


@pytest.mark.parametrize(
    "arguments",
    ["no JSON", '{"a": "\\ud800"}', "[" * 100_000, '"' + "x" * MAX_ARGUMENT_CHARS + '"', "\ud800"],
)
def test_arguments_that_are_odd_are_compared_as_they_are(arguments: str) -> None:
    assert same(FunctionCall("c1", "ask", arguments), FunctionCall("c2", "ask", arguments))
