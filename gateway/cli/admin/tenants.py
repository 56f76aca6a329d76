"""`lanewise tenants` manages tenants and their limits over the admin API. This is an edge."""

import argparse
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, Literal, get_args

import msgspec

from backends.contract import BackendGroup
from gateway.cli.admin_client import ADMIN_ARGUMENTS, AdminError, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, show, show_table, warn
from gateway.config.budgets import Budget, BudgetName, idle_softs
from gateway.config.tenants import MAX_LISTED, MAX_WEIGHT, KeyLimits
from router.money.prices import in_digits

COMMAND = Command("lanewise tenants list", shared=ADMIN_ARGUMENTS)

_GROUPS = get_args(BackendGroup)
_NAMES = KeyLimits.__struct_fields__
GivesBack = Literal["nothing", "group", "tier"]
_EXPECTED: dict[GivesBack, str] = {
    "nothing": "GROUP.LIMIT=N, such as deep.max_concurrent=4",
    "group": "GROUP.LIMIT=N, or GROUP=tier (of a key: GROUP=tenant)",
    "tier": "GROUP.LIMIT=N, GROUP.LIMIT=tier, or GROUP=tier",
}
_OWN = (
    argument(
        "--limit",
        action="append",
        default=[],
        metavar="GROUP.LIMIT=N",
        help="instead of the tier's, such as deep.max_concurrent=4; GROUP.LIMIT=tier takes one "
        "back, GROUP=tier all",
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
        "day.hard=10; each NAME as a whole; NAME=tier gives it back",
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
    for name in ("limits", "budgets", "key_limits"):  # what is the tier's needs no word of it
        given = {part: own for part, own in body.get(name, {}).items() if own}
        body[name] = {
            part: {name: limit for name, limit in own.items() if limit != "tier"}
            for part, own in given.items()
        }
    made = ask_admin(arguments, "POST", "tenants", body=body)
    if not arguments.json:
        warn(made.get("warnings", ()))  # an older gateway has none
    text = f"Tenant {made['id']} may use: {', '.join(made['limits']) or 'nothing'}."
    return show(arguments, made, f"{text} Make it a key: lanewise keys create {made['id']}")


@COMMAND.command(
    "list",
    "List all tenants, or those whose id contains a text.",
    "lanewise tenants list acme",
    argument("contains", metavar="TEXT", nargs="?", default=""),
)
def _list(arguments: argparse.Namespace) -> int:
    query = {"contains": arguments.contains} if arguments.contains else {}
    tenants = ask_admin(arguments, "GET", "tenants", query=query)
    if len(tenants) >= MAX_LISTED:
        print(
            f"Only the first {MAX_LISTED:,} are listed: give a part of the id for others",
            file=sys.stderr,
        )
    nothing = f"No tenant's id contains {arguments.contains!r}." if arguments.contains else ""
    return _show_tenants(arguments, tenants, nothing)


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
    status = _show_tenants(arguments, [changed])
    if arguments.budget and not arguments.json:  # each is set as a whole
        print(f"Its budgets now: {budgets_in_words(changed['budgets'])}", flush=True)
        warn(changed.get("warnings", ()))
    return status


@COMMAND.command(
    "delete",
    "Delete a tenant and its keys, and end what runs under them.",
    "lanewise tenants delete acme",
    argument("tenant"),
)
def _delete(arguments: argparse.Namespace) -> int:
    gone = ask_admin(arguments, "DELETE", "tenants", arguments.tenant)
    text = (
        f"Tenant {gone['id']} and its {gone['keys']} keys are deleted. What is stored of its "
        f"requests and answers ends by itself, or at once: lanewise tenants erase {gone['id']}"
    )
    return show(arguments, gone, text)


@COMMAND.command(
    "erase",
    "Erase what is stored of a tenant's requests and answers; the usage ledger stays.",
    "lanewise tenants erase acme",
    argument("tenant"),
)
def _erase(arguments: argparse.Namespace) -> int:
    gone = ask_admin(arguments, "DELETE", "tenants", arguments.tenant, "data")
    text = (
        f"What was stored of tenant {gone['id']}'s requests and answers is erased: {gone['keys']} "
        "records in Redis. Its API keys hold as before, and the usage ledger stays."
    )
    return show(arguments, gone, text)


def parse_limits(
    words: Sequence[str], back: GivesBack = "group"
) -> dict[str, dict[str, int | str | None] | None]:
    """Parses `group.limit=n` into limits by group; `group=tier` or `group=tenant` becomes None.

    `back` says what may be given back so: nothing, groups, or single limits, too, as `"tier"`.
    """
    limits: dict[str, dict[str, int | str | None] | None] = {}
    for word in words:
        found = re.fullmatch(r"(\w+)\.(\w+)=(\d+|none|tier)|(\w+)=(?:tier|tenant)", word)
        if found is None or (found[4] and back == "nothing") or (found[3] == "tier" != back):
            raise AdminError(f"limit {word!r}: expected {_EXPECTED[back]}")
        group, name, value = found[1] or found[4], found[2], found[3]
        if group not in _GROUPS:
            raise AdminError(f"limit {word!r}: no group {group!r}, but {' and '.join(_GROUPS)}")
        if name is not None and name not in _NAMES:
            raise AdminError(f"limit {word!r}: no limit {name!r}, but {', '.join(_NAMES)}")
        if group in limits and (name is None or limits[group] is None):
            raise AdminError(
                f"limit {word!r}: {group} is given back whole, or limit by limit, not both"
            )
        if name is None:
            limits[group] = None
            continue
        own = limits.get(group) or {}
        limits[group] = own | {name: _value(value)}
    return limits


def _value(word: str) -> int | str | None:
    if word == "tier":
        return word
    return None if word == "none" else int(word)


def parse_budgets(words: Sequence[str]) -> dict[str, dict[str, float] | None]:
    """Parses `day.hard=10` into budgets by name; `day=tier` becomes None."""
    budgets: dict[str, dict[str, float] | None] = {}
    for word in words:
        found = re.fullmatch(r"(\w+)\.(soft|hard)=(\d+(?:\.\d+)?)|(\w+)=tier", word)
        if found is None:
            raise AdminError(f"--budget {word!r}: expected such as day.hard=10, or day=tier")
        name = found[1] or found[4]
        if name not in get_args(BudgetName):
            known = ", ".join(get_args(BudgetName))
            raise AdminError(f"--budget {word!r}: no budget {name!r}, but {known}")
        if name in budgets and (found[4] or budgets[name] is None):
            raise AdminError(f"--budget {word!r}: {name} is given back, or set, not both")
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


def parse_weight(word: str) -> float:
    """Parses a weight; what is no number JSON would send as none."""
    try:
        weight = float(word)
    except ValueError:
        weight = math.nan
    if not 0 < weight <= MAX_WEIGHT:
        raise AdminError(f"--weight {word!r}: expected a number above 0, up to {MAX_WEIGHT}")
    return weight


def limits_in_words(limits: dict[str, dict[str, int | None]], none: str = "nothing") -> str:
    """Writes limits as text, such as `deep: requests_per_min 10, max_concurrent 1`."""
    words = [
        f"{group}: " + ", ".join(f"{name} {n}" for name, n in own.items() if n is not None)
        for group, own in limits.items()
    ]
    return "; ".join(words) or none


def budgets_in_words(budgets: dict[str, dict[str, float]], none: str = "none") -> str:
    """Writes budgets as text, such as `day: soft 8, hard 10 USD`."""
    words = [
        f"{name}: "
        + ", ".join(
            f"{limit.removesuffix('_usd')} {in_digits(usd)}"
            for limit, usd in both.items()
            if usd is not None
        )
        + " USD"
        for name, both in budgets.items()
    ]
    return "; ".join(words) or none


def _own(arguments: argparse.Namespace) -> dict[str, Any]:
    """Collects the tenant's own settings that the arguments give."""
    own: dict[str, Any] = {}
    if arguments.limit:
        own["limits"] = parse_limits(arguments.limit, "tier")
    if arguments.key_limit:
        own["key_limits"] = parse_limits(arguments.key_limit)
    if arguments.access is not None:
        groups = [group for group in arguments.access.split(",") if group]
        own["access"] = None if groups == ["tier"] else groups
    if arguments.weight is not None:
        own["weight"] = None if arguments.weight == "tier" else parse_weight(arguments.weight)
    if arguments.budget:
        own["budgets"] = parse_budgets(arguments.budget)
    if arguments.store is not None:
        own["store"] = arguments.store
    return own


def _show_tenants(arguments: argparse.Namespace, tenants: list[Row], nothing: str = "") -> int:
    columns = ("id", "tier", "weight", "active_keys", "from", "limits")
    nothing = nothing or "No tenant. Make one: lanewise tenants create --help"
    return show_table(arguments, tenants, columns, _cells, nothing=nothing)


def _cells(tenant: Row) -> Row:
    origin = "configuration" if tenant["configured"] else "admin API"
    return tenant | {"limits": limits_in_words(tenant["limits"]), "from": origin}
