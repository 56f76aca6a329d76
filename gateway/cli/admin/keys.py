"""`lanewise keys` manages tenants' keys over the admin API. This is an edge."""

import argparse
import sys

from gateway.cli.admin.tenants import limits_in_words, parse_limits
from gateway.cli.admin_client import ADMIN_ARGUMENTS, AdminError, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, show, show_table
from gateway.cli.times import duration_s, time_text
from gateway.config.tenants import MAX_LISTED

COMMAND = Command("lanewise keys create acme", shared=ADMIN_ARGUMENTS)


_LIMIT = argument(
    "--limit",
    action="append",
    default=[],
    metavar="GROUP.LIMIT=N",
    help="of this key within its tenant's, such as fast.requests_per_min=60; GROUP=tenant gives "
    "it back to what each key of the tenant gets",
)


@COMMAND.command(
    "create",
    "Make a key and print it: the only time that it is shown.",
    "lanewise keys create acme --name ci --expires 90d",
    argument("tenant", help="whose it is; one of the configuration, too"),
    argument("--name", default="", help="what it is for"),
    argument("--expires", type=duration_s, metavar="TIME", help="such as 12h or 90d"),
    _LIMIT,
)
def _create(arguments: argparse.Namespace) -> int:
    body = {
        "tenant": arguments.tenant,
        "name": arguments.name,
        "expires_in_s": arguments.expires,
        "limits": {group: own for group, own in parse_limits(arguments.limit).items() if own},
    }
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
    if len(rows) >= MAX_LISTED:
        words = f"Only the newest {MAX_LISTED:,} are listed: name a tenant for others"
        print(words, file=sys.stderr)
    whose = f" for tenant {arguments.tenant}" if arguments.tenant else ""
    times = ("created_at", "expires_at", "last_used_at")
    columns = ("id", "tenant", "name", "state", *times, "limits")
    return show_table(
        arguments,
        rows,
        columns,
        lambda row: (
            row
            | {time: time_text(row[time]) for time in times}
            | {"limits": limits_in_words(row["limits"], "")}
        ),
        nothing=f"No key was made at run time{whose}. Keys of the configuration are not listed.",
    )


@COMMAND.command(
    "set",
    "Change a key's own limits; live connections follow from their next task on.",
    "lanewise keys set 4fJ0x9QzL2b --limit deep.max_concurrent=2",
    argument("key_id", metavar="ID"),
    _LIMIT,
)
def _set(arguments: argparse.Namespace) -> int:
    if not arguments.limit:
        raise AdminError("nothing to change: give --limit")
    body = {"limits": parse_limits(arguments.limit)}
    key = ask_admin(arguments, "PATCH", "keys", arguments.key_id, body=body)
    words = limits_in_words(key["limits"], "as each key of its tenant")
    if key["state"] != "active":
        words += f". It is {key['state']}, so nothing runs under it"
    return show(arguments, key, f"Key {key['id']} of {key['tenant']}: {words}")


@COMMAND.command(
    "rotate",
    "Make a key in another's place and print it; both hold for a while.",
    "lanewise keys rotate 4fJ0x9QzL2b --overlap 24h",
    argument("key_id", metavar="ID", help="the old key's id: the part before its secret"),
    argument("--overlap", type=duration_s, default=86_400, metavar="TIME", help="(default: 24h)"),
    argument("--expires", type=duration_s, metavar="TIME", help="(default: as the old one)"),
)
def _rotate(arguments: argparse.Namespace) -> int:
    body = {"overlap_s": arguments.overlap, "expires_in_s": arguments.expires}
    made = ask_admin(arguments, "POST", "keys", arguments.key_id, "rotate", body=body)
    ends = time_text(made["record"]["created_at"] + arguments.overlap)
    old = f"The old one, {arguments.key_id}, holds until {ends} at the latest. "
    return _show_key(arguments, made, old)


@COMMAND.command(
    "revoke",
    "End a key now, and what runs under it.",
    "lanewise keys revoke 4fJ0x9QzL2b",
    argument("key_id", metavar="ID"),
)
def _revoke(arguments: argparse.Namespace) -> int:
    key = ask_admin(arguments, "POST", "keys", arguments.key_id, "revoke")
    return show(arguments, key, f"Key {key['id']} of {key['tenant']} is revoked.")


def _show_key(arguments: argparse.Namespace, made: Row, of_old: str = "") -> int:
    record = made["record"]
    ends = f", until {time_text(record['expires_at'])}" if record["expires_at"] else ""
    text = f"Key {record['id']} of {record['tenant']}{ends}. {of_old}It is not shown again:"
    return show(arguments, made, f"{text}\n{made['key']}")
