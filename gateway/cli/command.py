"""Describes a command: an example, its arguments, and its function or subcommands.

A command's module exports it as `COMMAND`; `main.py` has its name and help text.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Run = Callable[[argparse.Namespace], int]  # returns the process's exit status
Argument: TypeAlias = "Callable[[argparse._ActionsContainer], object]"  # adds itself to a parser


def argument(*names: str, **options: Any) -> Argument:
    """Describes an argument; takes what `ArgumentParser.add_argument` takes."""
    return lambda parser: parser.add_argument(*names, **options)


def one_of(*arguments: Argument, required: bool = False) -> Argument:
    """Makes arguments exclude each other."""

    def add(parser: "argparse._ActionsContainer") -> None:
        group = parser.add_mutually_exclusive_group(required=required)
        for add_one in arguments:
            add_one(group)

    return add


@dataclass(frozen=True)
class Command:
    """Runs a function, or has subcommands."""

    example: str
    arguments: tuple[Argument, ...] = ()
    run: Run | None = None  # None: it has subcommands, which `command` adds
    description: str = ""  # instead of the help that a list of commands shows
    note: str = ""  # after the example, in its own help and in its subcommands'
    shared: tuple[Argument, ...] = ()  # arguments of each subcommand
    metavar: str = "COMMAND"  # of the subcommands, in the help
    held: "dict[str, tuple[str, Command]]" = field(default_factory=dict)  # name -> help, command

    def command(
        self, name: str, text: str, example: str, *arguments: Argument, description: str = ""
    ) -> Callable[[Run], Run]:
        """Makes the decorated function a subcommand; `text` is its help."""

        def add(run: Run) -> Run:
            given = (*self.shared, *arguments)
            self.held[name] = text, Command(example, given, run, description, self.note)
            return run

        return add

    def add_to(self, commands: Commands, name: str, text: str) -> None:
        """Adds the command to a parser's subcommands; `text` is its help."""
        parser = commands.add_parser(
            name,
            help=text,
            description=self.description or text,
            epilog=f"example: {self.example}" + (f"\n\n{self.note}" if self.note else ""),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for add_one in self.arguments:
            add_one(parser)
        if self.run is not None:
            parser.set_defaults(run=self.run, prog=parser.prog)
            return
        below = parser.add_subparsers(required=True, metavar=self.metavar)
        for held_name, (held_text, command) in self.held.items():
            command.add_to(below, held_name, held_text)
