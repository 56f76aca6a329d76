"""The command line: finds the command that is called, and loads it and no other.

All of them together take seconds to load; whoever asks for help or lists policies waits for none of
that. So this is the one place that imports by name (docs/adr/0026-commands-loaded-by-name.md).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from gateway import __version__
from gateway.command_error import CommandError


class Command(NamedTuple):
    """A command before it is loaded: `module.add(commands)` adds it, with this help."""

    module: str
    help: str


COMMANDS = {
    "serve": Command("gateway.serve_command", "Start the gateway."),
    "chat": Command(
        "gateway.chat_command",
        "Talk to a gateway from the terminal; typing while it answers redirects it.",
    ),
    "route": Command(
        "gateway.route_command", "Say where a prompt would go, and why, without running it."
    ),
    "engine": Command(
        "gateway.engine_command", "One simulated engine: served alone, or asked what it predicts."
    ),
    "eval": Command("gateway.eval_command", "Measure the classifier on labelled records."),
    "keys": Command("gateway.tenant_command", "Make, list, rotate and revoke tenants' keys."),
    "tenants": Command("gateway.tenant_command", "Make, list, change and delete tenants."),
    "tiers": Command("gateway.tenant_command", "List, set and delete tiers of tenants."),
    "usage": Command("gateway.usage_command", "Export what tenants used."),
    "policy": Command("gateway.policy_command", "Check, compare, apply and roll back policies."),
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
    parser.add_argument("--version", action="version", version=f"lanewise {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    # Before the command only options without a value can stand.
    called = COMMANDS.get(next((word for word in argv if not word.startswith("-")), ""))
    for name, command in COMMANDS.items():
        if called is None or command.module != called.module:
            commands.add_parser(name, help=command.help)
    if called is not None:
        import_module(called.module).add(commands)
    return parser
