"""The command line: finds the command that is called, and loads it and no other.

All of them together take seconds to load; whoever asks for help or lists policies waits for none of
that. So this is the one place that imports by name (docs/adr/0026-commands-loaded-by-name.md).

An edge: it uses the operating system.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from gateway.config.command_error import CommandError
from gateway.config.version import VERSION


class Command(NamedTuple):
    """A command before it is loaded: `module.add(commands)` adds it, with this help."""

    module: str
    help: str


COMMANDS = {
    "serve": Command("gateway.cli.serve", "Start the gateway."),
    "chat": Command(
        "gateway.cli.chat",
        "Talk to a gateway from the terminal; typing while it answers redirects it.",
    ),
    "route": Command(
        "gateway.cli.route", "Say where a prompt would go, and why, without running it."
    ),
    "engine": Command(
        "gateway.cli.engine", "One simulated engine: served alone, or asked what it predicts."
    ),
    "eval": Command("gateway.cli.eval", "Measure the classifier on labelled records."),
    "keys": Command("gateway.cli.tenants", "Make, list, rotate and revoke tenants' keys."),
    "tenants": Command("gateway.cli.tenants", "Make, list, change and delete tenants."),
    "tiers": Command("gateway.cli.tenants", "List, set and delete tiers of tenants."),
    "usage": Command("gateway.cli.usage", "Export what tenants used."),
    "policy": Command("gateway.cli.policy", "Check, compare, apply and roll back policies."),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `lanewise`; the process's exit status."""
    given = sys.argv[1:] if argv is None else argv
    try:
        arguments = make_parser(given).parse_args(given)
        status: int = arguments.run(arguments)
    except CommandError as error:
        print(f"lanewise: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for these arguments: whole for the command they call, only named for others."""
    parser = argparse.ArgumentParser(
        prog="lanewise", description="A gateway for fast and deep models side by side."
    )
    parser.add_argument("--version", action="version", version=f"lanewise {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    # Before the command only options without a value can stand.
    called = COMMANDS.get(next((word for word in argv if not word.startswith("-")), ""))
    for name, command in COMMANDS.items():
        if called is None or command.module != called.module:
            commands.add_parser(name, help=command.help)
    if called is not None:
        import_module(called.module).add(commands)
    return parser
