"""`lanewise pools` shows what is used and left of a tenant's pools and its keys'.

This is an edge.
"""

import argparse

from gateway.cli.admin_client import ADMIN_ARGUMENTS, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, show_table


def _pools(arguments: argparse.Namespace) -> int:
    query = {"key": arguments.key} if arguments.key else {}
    rows = ask_admin(arguments, "GET", "pools", arguments.tenant, query=query)
    columns = ("key", "group", "unit", "used", "limit", "remaining", "full_in")
    nothing = f"Tenant {arguments.tenant} may use no engine, so it has no pools."
    return show_table(arguments, rows, columns, _cells, nothing=nothing)


def _cells(row: Row) -> Row:
    return row | {"key": row.get("key") or "", "full_in": f"{row['reset_s']:.1f} s"}


COMMAND = Command(
    "lanewise pools acme",
    (
        argument("tenant"),
        argument("--key", metavar="ID", help="of its keys only this one, if it has limits"),
        *ADMIN_ARGUMENTS,
    ),
    _pools,
)
