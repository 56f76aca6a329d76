"""`lanewise pools`: what is left in a tenant's pools. This is an edge."""

import argparse

from gateway.cli.admin_client import ADMIN_ARGUMENTS, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, show_table


def _pools(arguments: argparse.Namespace) -> int:
    rows = ask_admin(arguments, "GET", "pools", arguments.tenant)
    columns = ("group", "unit", "limit", "remaining", "full_in")
    return show_table(arguments, rows, columns, _cells)


def _cells(row: Row) -> Row:
    # As text: a pool that is used up has 0 left, which a table would leave out.
    left = {name: str(row[name]) for name in ("limit", "remaining")}
    return row | left | {"full_in": f"{row['reset_s']:.1f} s"}


COMMAND = Command(
    "lanewise pools acme",
    (argument("tenant"), *ADMIN_ARGUMENTS),
    _pools,
)
