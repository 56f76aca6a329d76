"""`lanewise learning` shows what outcomes taught, and forgets it where asked. This is an edge."""

import argparse

from gateway.cli.admin_client import ADMIN_ARGUMENTS, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, show, show_table

COMMAND = Command("lanewise learning list", shared=ADMIN_ARGUMENTS)

_TENANT = argument("tenant")


@COMMAND.command(
    "list",
    "Say what was learned of each tenant whose tasks this gateway has run, or of one.",
    "lanewise learning list acme",
    argument("tenant", nargs="?"),
)
def _list(arguments: argparse.Namespace) -> int:
    if arguments.tenant:
        rows = [ask_admin(arguments, "GET", "learning", arguments.tenant)]
    else:
        rows = ask_admin(arguments, "GET", "learning")
    columns = ("tenant", "trust", "distance", "outcomes", "epoch", "drift")
    nothing = "Nothing was learned here yet: no task has run since this gateway started."
    return show_table(arguments, rows, columns, _cells, nothing=nothing)


def _cells(row: Row) -> Row:
    outcomes = ", ".join(f"{arm} {number:g}" for arm, number in row["outcomes"].items())
    return row | {"outcomes": outcomes, "drift": "; ".join(row["drift"].values())}


@COMMAND.command(
    "reset",
    "Forget what was learned of a tenant, on every gateway; can be undone once.",
    "lanewise learning reset acme",
    _TENANT,
)
def _reset(arguments: argparse.Namespace) -> int:
    answer = ask_admin(arguments, "POST", "learning", arguments.tenant, "reset")
    tenant = answer["tenant"]
    text = f"Nothing learned of {tenant} counts. To undo it: lanewise learning restore {tenant}"
    return show(arguments, answer, text)


@COMMAND.command(
    "restore",
    "Undo the last reset; what was learned since is dropped.",
    "lanewise learning restore acme",
    _TENANT,
)
def _restore(arguments: argparse.Namespace) -> int:
    answer = ask_admin(arguments, "POST", "learning", arguments.tenant, "restore")
    return show(arguments, answer, f"What was learned of {answer['tenant']} counts again.")
