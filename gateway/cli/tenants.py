"""`lanewise keys`, `lanewise tenants` and `lanewise tiers`: the admin API from the command line.

An edge: it calls other edges.
"""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from gateway.cli.admin_client import AdminError, add_admin_arguments, ask_admin

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Row = dict[str, Any]

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def add(commands: Commands) -> None:
    """Add the three commands."""
    _add_keys(
        _group(commands, "keys", "Make, list, rotate and revoke tenants' keys.", "create acme")
    )
    _add_tenants(_group(commands, "tenants", "Make, list, change and delete tenants.", "list"))
    _add_tiers(_group(commands, "tiers", "List, set and delete tiers of tenants.", "list --json"))


def _add_keys(commands: Commands) -> None:
    create = _command(
        commands,
        "create",
        "Make a key and print it: the only time that it is shown.",
        "lanewise keys create acme --name ci --expires 90d",
        _keys_create,
    )
    create.add_argument("tenant", help="whose it is; one of the configuration, too")
    create.add_argument("--name", default="", help="what it is for")
    create.add_argument("--expires", type=_duration, metavar="TIME", help="such as 12h or 90d")
    listed = _command(
        commands, "list", "List keys, the newest first.", "lanewise keys list acme", _keys_list
    )
    listed.add_argument("tenant", nargs="?", help="of this tenant only")
    rotate = _command(
        commands,
        "rotate",
        "Make a key in another's place and print it; both hold for a while.",
        "lanewise keys rotate 4fJ0x9QzL2b --overlap 24h",
        _keys_rotate,
    )
    rotate.add_argument("key_id", metavar="ID", help="the old key's id: the part before its secret")
    rotate.add_argument(
        "--overlap", type=_duration, default=86_400, metavar="TIME", help="(default: 24h)"
    )
    rotate.add_argument("--expires", type=_duration, metavar="TIME", help="of the new key")
    revoke = _command(
        commands,
        "revoke",
        "End a key now, and what runs under it.",
        "lanewise keys revoke 4fJ0x9QzL2b",
        _keys_revoke,
    )
    revoke.add_argument("key_id", metavar="ID")


def _add_tenants(commands: Commands) -> None:
    create = _command(
        commands,
        "create",
        "Make a tenant.",
        "lanewise tenants create acme --tier pro --limit fast.requests_per_min=100",
        _tenants_create,
    )
    create.add_argument("tenant", help="1 to 64 of a-z, 0-9 and '-'")
    create.add_argument("--tier", required=True, help="such as free, pro or enterprise")
    _add_own(create)
    _command(commands, "list", "List all tenants.", "lanewise tenants list", _tenants_list)
    change = _command(
        commands,
        "set",
        "Change a tenant; live connections follow from their next task on.",
        "lanewise tenants set acme --tier enterprise --limit fast=tier",
        _tenants_set,
    )
    change.add_argument("tenant")
    change.add_argument("--tier")
    _add_own(change)
    gone = _command(
        commands,
        "delete",
        "Delete a tenant and its keys, and end what runs under them.",
        "lanewise tenants delete acme",
        _tenants_delete,
    )
    gone.add_argument("tenant")


def _add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="GROUP.LIMIT=N",
        help="instead of the tier's, such as deep.max_concurrent=4; GROUP=tier takes all back",
    )
    parser.add_argument(
        "--access", metavar="GROUPS", help="only these, such as deep; 'tier': all of the tier's"
    )
    parser.add_argument("--weight", help="share when tenants wait; 'tier': the tier's")


def _add_tiers(commands: Commands) -> None:
    _command(commands, "list", "List all tiers.", "lanewise tiers list", _tiers_list)
    put = _command(
        commands,
        "set",
        "Make a tier, or replace one; groups without limits are not its tenants' to use.",
        "lanewise tiers set trial --limit deep.requests_per_min=10 "
        "--limit deep.tokens_per_min=20000 --limit deep.max_concurrent=1",
        _tiers_set,
    )
    put.add_argument("tier", help="1 to 32 of a-z, 0-9, '_' and '-'")
    put.add_argument("--limit", action="append", default=[], metavar="GROUP.LIMIT=N")
    put.add_argument("--weight", type=float, default=1.0, help="share when tenants wait")
    gone = _command(
        commands,
        "delete",
        "Delete a tier that no tenant has.",
        "lanewise tiers delete trial",
        _tiers_delete,
    )
    gone.add_argument("tier")


# -- what they do ------------------------------------------------------------------------------


def _keys_create(arguments: argparse.Namespace) -> int:
    body = {"tenant": arguments.tenant, "name": arguments.name, "expires_in_s": arguments.expires}
    return _show_key(arguments, ask_admin(arguments, "POST", "keys", body=body))


def _keys_rotate(arguments: argparse.Namespace) -> int:
    body = {"overlap_s": arguments.overlap, "expires_in_s": arguments.expires}
    made = ask_admin(arguments, "POST", "keys", arguments.key_id, "rotate", body=body)
    return _show_key(arguments, made)


def _keys_list(arguments: argparse.Namespace) -> int:
    query = {"tenant": arguments.tenant} if arguments.tenant else {}
    rows: list[Row] = ask_admin(arguments, "GET", "keys", query=query)
    for row in () if arguments.json else rows:
        for field in ("created_at", "expires_at", "last_used_at"):
            row[field] = _moment(row[field])
    columns = ("id", "tenant", "name", "state", "created_at", "expires_at", "last_used_at")
    return _show(arguments, rows, columns)


def _keys_revoke(arguments: argparse.Namespace) -> int:
    key = ask_admin(arguments, "POST", "keys", arguments.key_id, "revoke")
    return _say(arguments, key, f"Key {key['id']} of {key['tenant']} is revoked.")


def _tenants_create(arguments: argparse.Namespace) -> int:
    body = {"id": arguments.tenant, "tier": arguments.tier, **_own(arguments)}
    body["limits"] = {group: own for group, own in body.get("limits", {}).items() if own}
    made = ask_admin(arguments, "POST", "tenants", body=body)
    text = f"Tenant {made['id']} may use: {', '.join(made['limits']) or 'nothing'}."
    return _say(arguments, made, f"{text} Make it a key: lanewise keys create {made['id']}")


def _tenants_set(arguments: argparse.Namespace) -> int:
    body = _own(arguments) | ({"tier": arguments.tier} if arguments.tier else {})
    if not body:
        raise AdminError("nothing to change: give --tier, --limit, --access or --weight")
    changed = ask_admin(arguments, "PATCH", "tenants", arguments.tenant, body=body)
    return _show_tenants(arguments, [changed])


def _tenants_list(arguments: argparse.Namespace) -> int:
    return _show_tenants(arguments, ask_admin(arguments, "GET", "tenants"))


def _tenants_delete(arguments: argparse.Namespace) -> int:
    gone = ask_admin(arguments, "DELETE", "tenants", arguments.tenant)
    return _say(arguments, gone, f"Tenant {gone['id']} and its {gone['keys']} keys are deleted.")


def _tiers_list(arguments: argparse.Namespace) -> int:
    tiers: list[Row] = ask_admin(arguments, "GET", "tiers")
    for row in () if arguments.json else tiers:
        row["limits"] = _limits_in_words(row["limits"])
    return _show(arguments, tiers, ("name", "tenants", "weight", "limits"))


def _tiers_set(arguments: argparse.Namespace) -> int:
    body = {"limits": _limits(arguments.limit), "weight": arguments.weight}
    tier = ask_admin(arguments, "PUT", "tiers", arguments.tier, body=body)
    words = _limits_in_words(tier["limits"])
    return _say(arguments, tier, f"Tier {tier['name']} ({tier['tenants']} tenants): {words}")


def _tiers_delete(arguments: argparse.Namespace) -> int:
    gone = ask_admin(arguments, "DELETE", "tiers", arguments.tier)
    return _say(arguments, gone, f"Tier {gone['name']} is deleted.")


# -- arguments and output ----------------------------------------------------------------------


def _group(commands: Commands, name: str, text: str, example: str) -> Commands:
    parser = commands.add_parser(
        name, help=text, description=text, epilog=f"example: lanewise {name} {example}"
    )
    return parser.add_subparsers(required=True, metavar="COMMAND")


def _command(
    commands: Commands,
    name: str,
    text: str,
    example: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=text,
        description=text,
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_admin_arguments(parser)
    parser.set_defaults(run=run)
    return parser


def _duration(text: str) -> int:
    """Seconds from `90s`, `15m`, `12h` or `30d`."""
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time such as 90s, 15m, 12h or 30d")
    return int(found[1]) * _UNITS_S[found[2]]


def _limits(words: Sequence[str]) -> dict[str, dict[str, int | None] | None]:
    """Group -> limits from `group.limit=n`; `group=tier` is None."""
    limits: dict[str, dict[str, int | None] | None] = {}
    for word in words:
        found = re.fullmatch(r"(\w+)\.(\w+)=(\d+|none)|(\w+)=tier", word)
        if found is None:
            raise AdminError(f"--limit {word!r}: expected GROUP.LIMIT=N, or GROUP=tier")
        if found[4]:
            limits[found[4]] = None
            continue
        own = limits.get(found[1]) or {}
        limits[found[1]] = own | {found[2]: None if found[3] == "none" else int(found[3])}
    return limits


def _own(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a tenant has of its own, as far as it was given."""
    own: dict[str, Any] = {}
    if arguments.limit:
        own["limits"] = _limits(arguments.limit)
    if arguments.access is not None:
        groups = [group for group in arguments.access.split(",") if group]
        own["access"] = None if groups == ["tier"] else groups
    if arguments.weight is not None:
        try:
            own["weight"] = None if arguments.weight == "tier" else float(arguments.weight)
        except ValueError:
            raise AdminError(f"--weight {arguments.weight!r}: expected a number") from None
    return own


def _show_key(arguments: argparse.Namespace, made: Row) -> int:
    record = made["record"]
    ends = f", until {_moment(record['expires_at'])}" if record["expires_at"] else ""
    text = f"Key {record['id']} of {record['tenant']}{ends}. It is not shown again:"
    return _say(arguments, made, f"{text}\n{made['key']}")


def _show_tenants(arguments: argparse.Namespace, tenants: list[Row]) -> int:
    for row in () if arguments.json else tenants:
        row["limits"] = _limits_in_words(row["limits"])
        row["from"] = "configuration" if row["configured"] else "admin API"
    return _show(arguments, tenants, ("id", "tier", "weight", "active_keys", "from", "limits"))


def _limits_in_words(limits: dict[str, dict[str, int | None]]) -> str:
    words = [
        f"{group}: " + ", ".join(f"{name} {n}" for name, n in own.items() if n is not None)
        for group, own in limits.items()
    ]
    return "; ".join(words) or "nothing"


def _moment(unix_s: int | None) -> str:
    if unix_s is None:
        return "-"
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _say(arguments: argparse.Namespace, answer: Row, text: str) -> int:
    print(json.dumps(answer, indent=2) if arguments.json else text, flush=True)
    return 0


def _show(arguments: argparse.Namespace, rows: list[Row], columns: tuple[str, ...]) -> int:
    """A table, or the rows as JSON."""
    if arguments.json:
        print(json.dumps(rows, indent=2), flush=True)
        return 0
    table = [[column.upper().removesuffix("_AT") for column in columns]]
    table += [[str(row[column]) or "-" for column in columns] for row in rows]
    widths = [max(len(line[column]) for line in table) for column in range(len(columns))]
    for line in table:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip(), flush=True)
    return 0
