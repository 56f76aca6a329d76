"""Reads the command line, and imports the module of the command that is called, and no other.

It imports by name, since importing all takes seconds (docs/adr/0026-commands-loaded-by-name.md).
This is an edge.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from gateway.cli.output import plain
from gateway.config.command_error import CommandError
from gateway.config.version import VERSION

ADMIN_COMMANDS = {  # name, which is its module's in `gateway.cli.admin`, too -> help
    "keys": "Make, list, rotate and revoke tenants' keys.",
    "tenants": "Make, list, change and delete tenants.",
    "tiers": "List, set and delete tiers of tenants.",
    "policy": "Check, compare, apply and roll back policies.",
    "top": "Watch a gateway in the terminal: what is wrong, throughput, engines, pools.",
    "backends": "List backends; take one out of use, and back.",
    "budgets": "Say what was spent of budgets in money; raise a run's.",
    "pools": "Say what is left in a tenant's pools.",
    "decisions": "Find what was decided, and what came of it.",
    "learning": "Say what was learned from outcomes; forget it, or take it back.",
    "audit": "Say who changed what.",
}
COMMANDS = {  # the same of `gateway.cli`
    "init": "Write a configuration for your engines, and try them.",
    "serve": "Start the gateway.",
    "doctor": "Say what is wrong with a set-up, and what to do.",
    "config": "Check a configuration.",
    "chat": "Talk to a gateway from the terminal; typing while it answers redirects it.",
    "route": "Say where a prompt would go, and why, without running it.",
    "engine": "One simulated engine: served alone, or asked what it predicts.",
    "eval": "Measure the classifier on labelled records.",
    "backtest": "Say what policies would have come to, on a decision log.",
    "plan": "Find the cheapest servers that meet objectives, for a trace.",
    "usage": "Say what was used and what it cost; export it, compare it with bills.",
    **ADMIN_COMMANDS,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `lanewise` and returns the process's exit status."""
    given = sys.argv[1:] if argv is None else argv
    try:
        _check_text(given)
        parser = make_parser(given)
        arguments, unknown = parser.parse_known_args(given)
        if unknown:  # of which argparse shows the usage of all commands, which has none of them
            parser.exit(
                2,
                f"{arguments.prog}: error: unrecognized arguments: {' '.join(unknown)}\n"
                f"`{arguments.prog} --help` has those that there are.\n",
            )
        status: int = arguments.run(arguments)
    except CommandError as error:
        print(f"lanewise: {plain(str(error))}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def _check_text(argv: Sequence[str]) -> None:
    """Raises `CommandError` if the shell gave bytes that are no text, and that nothing can send."""
    for argument in argv:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise CommandError(f"an argument is not UTF-8 text: {argument!r}") from None


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Returns a parser with the arguments of the command in `argv`, and the others' names."""
    parser = argparse.ArgumentParser(
        prog="lanewise",
        description="A gateway for fast and deep models side by side.",
        epilog="lanewise COMMAND --help explains one, with an example.",
    )
    parser.add_argument("--version", action="version", version=f"lanewise {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    # Before the command only options without a value can stand.
    called = next((word for word in argv if not word.startswith("-")), "")
    for name, text in COMMANDS.items():
        if name == called:
            package = "gateway.cli.admin" if name in ADMIN_COMMANDS else "gateway.cli"
            import_module(f"{package}.{name}").COMMAND.add_to(commands, name, text)
        else:
            commands.add_parser(name, help=text)
    return parser
