"""What `lanewise --help` and the help of each command say."""

import argparse
from collections.abc import Iterator

import pytest

from gateway.cli import make_parser


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """All commands below a parser, theirs included."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in dict.fromkeys(action.choices.values()):
                yield command
                yield from commands(command)


COMMANDS = {command.prog: command for command in commands(make_parser())}


def test_the_commands_are_there() -> None:
    assert {"lanewise serve", "lanewise chat", "lanewise route"} <= set(COMMANDS)
    assert {"lanewise engine wafer", "lanewise engine gpu"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    told = COMMANDS[name].format_help()
    assert f"example: {name}" in " ".join(told.split())
