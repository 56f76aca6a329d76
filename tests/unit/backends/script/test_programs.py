"""Generated code must hold together: it is run, with the tests it brings along."""

import ast
from typing import Any

import pytest

from backends.script.chance import Chance
from backends.script.programs import TOKENS_PER_LINE, write_program, write_tests
from backends.script.topic import read_topic

TOPIC = read_topic("Write a function that merges overlapping intervals")


def run(text: str) -> dict[str, Any]:
    """Execute a module's text; returns its names."""
    names: dict[str, Any] = {}
    exec(compile(ast.parse(text), "<generated>", "exec"), names)
    return names


@pytest.mark.parametrize("seed", range(25))
def test_python_programs_pass_their_own_tests(seed: int) -> None:
    program = write_program(TOPIC, Chance(seed), (100 + seed * 60) // TOKENS_PER_LINE)
    tests = write_tests(program, Chance(seed), 12)
    names = run(f"{program.text}\n\n\n{tests}")
    ran = [test() for name, test in names.items() if name.startswith("test_")]
    assert len(ran) == 12
    with pytest.raises(ValueError, match="limit must not be negative"):
        names["merge_overlapping_interval" + "s"]([1], -1)


@pytest.mark.parametrize("num_lines", [8, 20, 57, 300])
def test_long_functions_have_exactly_so_many_lines(num_lines: int) -> None:
    program = write_program(TOPIC, Chance(num_lines), num_lines + 10)
    assert len(program.text.split("\n")) == num_lines + 10
    tests = write_tests(program, Chance(1), 5)
    names = run(f"{program.text}\n\n\n{tests}")
    for name, test in names.items():
        if name.startswith("test_"):
            test()


@pytest.mark.parametrize("seed", range(3))
def test_brackets_close(seed: int) -> None:
    program = write_program(TOPIC, Chance(seed), 900 // TOKENS_PER_LINE)
    text = program.text + write_tests(program, Chance(seed), 10)
    open_ones = []
    for char in text:
        if char in "([{":
            open_ones.append(char)
        elif char in ")]}":
            assert open_ones.pop() + char in ("()", "[]", "{}")
    assert not open_ones


def test_programs_grow_with_what_is_asked() -> None:
    wanted = [num_tokens // TOKENS_PER_LINE for num_tokens in (100, 1_000, 8_000)]
    sizes = [len(write_program(TOPIC, Chance(1), num_lines).text) for num_lines in wanted]
    assert sizes[0] < 2_000 < sizes[1] < 8_000 < sizes[2]


@pytest.mark.parametrize("name", ["__", "_2fa", "yield", "class", "None", "mix²"])
def test_what_python_takes_for_no_name_names_no_function(name: str) -> None:
    topic = read_topic(f"Write a Python function that uses `{name}` for overlapping intervals")
    assert callable(run(write_program(topic, Chance(1), 20).text)[topic.function])
