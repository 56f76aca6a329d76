"""`lanewise keys`: manages tenants' keys over the admin API. This is an edge."""

import argparse

from gateway.cli.admin_client import ADMIN_ARGUMENTS, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, show, show_table
from gateway.cli.times import duration_s, time_text

COMMAND = Command("lanewise keys create acme", shared=ADMIN_ARGUMENTS)


@COMMAND.command(
    "create",
    "Make a key and print it: the only time that it is shown.",
    "lanewise keys create acme --name ci --expires 90d",
    argument("tenant", help="whose it is; one of the configuration, too"),
    argument("--name", default="", help="what it is for"),
    argument("--expires", type=duration_s, metavar="TIME", help="such as 12h or 90d"),
)
def _create(arguments: argparse.Namespace) -> int:
    body = {"tenant": arguments.tenant, "name": arguments.name, "expires_in_s": arguments.expires}
    return _show_key(arguments, ask_admin(arguments, "POST", "keys", body=body))


@COMMAND.command(
    "list",
    "List keys, the newest first.",
    "lanewise keys list acme",
    argument("tenant", nargs="?", help="of this tenant only"),
)
def _list(arguments: argparse.Namespace) -> int:
    query = {"tenant": arguments.tenant} if arguments.tenant else {}
    rows = ask_admin(arguments, "GET", "keys", query=query)
    times = ("created_at", "expires_at", "last_used_at")
    columns = ("id", "tenant", "name", "state", *times)
    return show_table(
        arguments, rows, columns, lambda row: row | {time: time_text(row[time]) for time in times}
    )


@COMMAND.command(
    "rotate",
    "Make a key in another's place and print it; both hold for a while.",
    "lanewise keys rotate 4fJ0x9QzL2b --overlap 24h",
    argument("key_id", metavar="ID", help="the old key's id: the part before its secret"),
    argument("--overlap", type=duration_s, default=86_400, metavar="TIME", help="(default: 24h)"),
    argument("--expires", type=duration_s, metavar="TIME", help="of the new key"),
)
def _rotate(arguments: argparse.Namespace) -> int:
    body = {"overlap_s": arguments.overlap, "expires_in_s": arguments.expires}
    made = ask_admin(arguments, "POST", "keys", arguments.key_id, "rotate", body=body)
    return _show_key(arguments, made)


@COMMAND.command(
    "revoke",
    "End a key now, and what runs under it.",
    "lanewise keys revoke 4fJ0x9QzL2b",
    argument("key_id", metavar="ID"),
)
def _revoke(arguments: argparse.Namespace) -> int:
    key = ask_admin(arguments, "POST", "keys", arguments.key_id, "revoke")
    return show(arguments, key, f"Key {key['id']} of {key['tenant']} is revoked.")


def _show_key(arguments: argparse.Namespace, made: Row) -> int:
    record = made["record"]
    ends = f", until {time_text(record['expires_at'])}" if record["expires_at"] else ""
    text = f"Key {record['id']} of {record['tenant']}{ends}. It is not shown again:"
    return show(arguments, made, f"{text}\n{made['key']}")
