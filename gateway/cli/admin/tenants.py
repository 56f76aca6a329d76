"""`lanewise tenants` manages tenants and their limits over the admin API. This is an edge."""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.cli.admin_client import ADMIN_ARGUMENTS, AdminError, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, show, show_table
from gateway.config.budgets import Budget, idle_softs

COMMAND = Command("lanewise tenants list", shared=ADMIN_ARGUMENTS)

_OWN = (
    argument(
        "--limit",
        action="append",
        default=[],
        metavar="GROUP.LIMIT=N",
        help="instead of the tier's, such as deep.max_concurrent=4; GROUP=tier takes all back",
    ),
    argument(
        "--access", metavar="GROUPS", help="only these, such as deep; 'tier': all of the tier's"
    ),
    argument("--weight", help="share when tenants wait; 'tier': the tier's"),
    argument(
        "--budget",
        action="append",
        default=[],
        metavar="NAME.LIMIT=USD",
        help="money: day, month, key_day, key_month or run, with .soft or .hard, such as "
        "day.hard=10; NAME=tier gives it back",
    ),
    argument(
        "--key-limit",
        action="append",
        default=[],
        metavar="GROUP.LIMIT=N",
        help="of each of its keys, within its own; GROUP=tier takes all back",
    ),
    argument("--store", choices=("asked", "never"), help="never: its responses are stored nowhere"),
)


@COMMAND.command(
    "create",
    "Make a tenant.",
    "lanewise tenants create acme --tier pro --limit fast.requests_per_min=100",
    argument("tenant", help="1 to 64 of a-z, 0-9 and '-'"),
    argument("--tier", required=True, help="such as free, pro or enterprise"),
    *_OWN,
    argument(
        "--keep-data",
        action="store_true",
        help="give it the stored responses that an earlier tenant of this id left",
    ),
)
def _create(arguments: argparse.Namespace) -> int:
    body = {"id": arguments.tenant, "tier": arguments.tier, **_own(arguments)}
    if arguments.keep_data:
        body["keep_data"] = True
    for name in ("limits", "budgets", "key_limits"):
        body[name] = {part: own for part, own in body.get(name, {}).items() if own}
    made = ask_admin(arguments, "POST", "tenants", body=body)
    text = f"Tenant {made['id']} may use: {', '.join(made['limits']) or 'nothing'}."
    return show(arguments, made, f"{text} Make it a key: lanewise keys create {made['id']}")


@COMMAND.command("list", "List all tenants.", "lanewise tenants list")
def _list(arguments: argparse.Namespace) -> int:
    return _show_tenants(arguments, ask_admin(arguments, "GET", "tenants"))


@COMMAND.command(
    "set",
    "Change a tenant; live connections follow from their next task on.",
    "lanewise tenants set acme --tier enterprise --limit fast=tier",
    argument("tenant"),
    argument("--tier"),
    *_OWN,
)
def _set(arguments: argparse.Namespace) -> int:
    body = _own(arguments) | ({"tier": arguments.tier} if arguments.tier else {})
    if not body:
        raise AdminError(
            "nothing to change: give --tier, --limit, --key-limit, --budget, --access, --weight "
            "or --store"
        )
    changed = ask_admin(arguments, "PATCH", "tenants", arguments.tenant, body=body)
    return _show_tenants(arguments, [changed])


@COMMAND.command(
    "delete",
    "Delete a tenant and its keys, and end what runs under them.",
    "lanewise tenants delete acme",
    argument("tenant"),
)
def _delete(arguments: argparse.Namespace) -> int:
    gone = ask_admin(arguments, "DELETE", "tenants", arguments.tenant)
    return show(arguments, gone, f"Tenant {gone['id']} and its {gone['keys']} keys are deleted.")


@COMMAND.command(
    "erase",
    "Erase what is stored of a tenant's requests and answers; the usage ledger stays.",
    "lanewise tenants erase acme",
    argument("tenant"),
)
def _erase(arguments: argparse.Namespace) -> int:
    gone = ask_admin(arguments, "DELETE", "tenants", arguments.tenant, "data")
    return show(arguments, gone, f"{gone['keys']} keys of tenant {gone['id']} are erased.")


def parse_limits(words: Sequence[str]) -> dict[str, dict[str, int | None] | None]:
    """Parses `group.limit=n` into limits by group; `group=tier` or `group=tenant` becomes None."""
    limits: dict[str, dict[str, int | None] | None] = {}
    for word in words:
        found = re.fullmatch(r"(\w+)\.(\w+)=(\d+|none)|(\w+)=(?:tier|tenant)", word)
        if found is None:
            raise AdminError(
                f"limit {word!r}: expected GROUP.LIMIT=N, or GROUP=tier (of a key: GROUP=tenant)"
            )
        if found[4]:
            limits[found[4]] = None
            continue
        own = limits.get(found[1]) or {}
        limits[found[1]] = own | {found[2]: None if found[3] == "none" else int(found[3])}
    return limits


def parse_budgets(words: Sequence[str]) -> dict[str, dict[str, float] | None]:
    """Parses `day.hard=10` into budgets by name; `day=tier` becomes None."""
    budgets: dict[str, dict[str, float] | None] = {}
    for word in words:
        found = re.fullmatch(r"(\w+)\.(soft|hard)=(\d+(?:\.\d+)?)|(\w+)=tier", word)
        if found is None:
            raise AdminError(f"--budget {word!r}: expected such as day.hard=10, or day=tier")
        if found[4]:
            budgets[found[4]] = None
        else:
            own = budgets.get(found[1]) or {}
            budgets[found[1]] = own | {f"{found[2]}_usd": float(found[3])}
    for name, both in budgets.items():
        if both is not None:
            for said in idle_softs({name: msgspec.convert(both, Budget)}):
                print(f"warning: {said}", file=sys.stderr)
    return budgets


def limits_in_words(limits: dict[str, dict[str, int | None]], none: str = "nothing") -> str:
    """Writes limits as text, such as `deep: requests_per_min 10, max_concurrent 1`."""
    words = [
        f"{group}: " + ", ".join(f"{name} {n}" for name, n in own.items() if n is not None)
        for group, own in limits.items()
    ]
    return "; ".join(words) or none


def _own(arguments: argparse.Namespace) -> dict[str, Any]:
    """Collects the tenant's own settings that the arguments give."""
    own: dict[str, Any] = {}
    if arguments.limit:
        own["limits"] = parse_limits(arguments.limit)
    if arguments.key_limit:
        own["key_limits"] = parse_limits(arguments.key_limit)
    if arguments.access is not None:
        groups = [group for group in arguments.access.split(",") if group]
        own["access"] = None if groups == ["tier"] else groups
    if arguments.weight is not None:
        try:
            own["weight"] = None if arguments.weight == "tier" else float(arguments.weight)
        except ValueError:
            raise AdminError(f"--weight {arguments.weight!r}: expected a number") from None
    if arguments.budget:
        own["budgets"] = parse_budgets(arguments.budget)
    if arguments.store is not None:
        own["store"] = arguments.store
    return own


def _show_tenants(arguments: argparse.Namespace, tenants: list[Row]) -> int:
    columns = ("id", "tier", "weight", "active_keys", "from", "limits")
    nothing = "No tenant. Make one: lanewise tenants create --help"
    return show_table(arguments, tenants, columns, _cells, nothing=nothing)


def _cells(tenant: Row) -> Row:
    origin = "configuration" if tenant["configured"] else "admin API"
    return tenant | {"limits": limits_in_words(tenant["limits"]), "from": origin}
