"""`lanewise tiers` manages tiers of tenants over the admin API. This is an edge."""

import argparse

from gateway.cli.admin.tenants import (
    budgets_in_words,
    limits_in_words,
    parse_budgets,
    parse_limits,
    parse_weight,
)
from gateway.cli.admin_client import ADMIN_ARGUMENTS, AdminError, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, show, show_table

COMMAND = Command("lanewise tiers list --json", shared=ADMIN_ARGUMENTS)


@COMMAND.command("list", "List all tiers.", "lanewise tiers list")
def _list(arguments: argparse.Namespace) -> int:
    tiers = ask_admin(arguments, "GET", "tiers")
    columns = ("name", "tenants", "weight", "limits", "key_limits", "budgets")
    nothing = "No tier. Make one: lanewise tiers set --help"
    return show_table(arguments, tiers, columns, _cells, nothing=nothing)


def _cells(tier: Row) -> Row:
    each_key = limits_in_words(tier["key_limits"], "")
    return tier | {
        "limits": limits_in_words(tier["limits"]),
        "key_limits": each_key,
        "budgets": budgets_in_words(tier["budgets"], ""),
    }


@COMMAND.command(
    "set",
    "Make a tier, or replace one; groups without limits are not its tenants' to use.",
    "lanewise tiers set trial --limit deep.requests_per_min=10 "
    "--limit deep.tokens_per_min=20000 --limit deep.max_concurrent=1",
    argument("tier", help="1 to 32 of a-z, 0-9, '_' and '-'"),
    argument("--limit", action="append", default=[], metavar="GROUP.LIMIT=N"),
    argument(
        "--key-limit",
        action="append",
        default=[],
        metavar="GROUP.LIMIT=N",
        help="of each key of its tenants, within the tenant's",
    ),
    argument(
        "--budget",
        action="append",
        default=[],
        metavar="NAME.LIMIT=USD",
        help="money of each of its tenants: day, month, key_day, key_month or run, with .soft or "
        ".hard, such as day.hard=10",
    ),
    argument("--weight", default="1", help="share when tenants wait (default: 1)"),
)
def _set(arguments: argparse.Namespace) -> int:
    if not arguments.limit:
        raise AdminError(
            "--limit is missing: this replaces the whole tier, and without limits its tenants may "
            "use nothing (limits of 0 say that it is meant so)"
        )
    budgets = parse_budgets(arguments.budget)
    if None in budgets.values():
        raise AdminError("--budget NAME=tier: a tier has nothing to give it back to")
    body = {
        "limits": parse_limits(arguments.limit, "nothing"),
        "key_limits": parse_limits(arguments.key_limit, "nothing"),
        "budgets": budgets,
        "weight": parse_weight(arguments.weight),
    }
    tier = ask_admin(arguments, "PUT", "tiers", arguments.tier, body=body)
    words = limits_in_words(tier["limits"])
    if tier["key_limits"]:
        words += f"; each key: {limits_in_words(tier['key_limits'])}"
    if tier["budgets"]:
        words += f"; budgets: {budgets_in_words(tier['budgets'])}"
    return show(arguments, tier, f"Tier {tier['name']} ({tier['tenants']} tenants): {words}")


@COMMAND.command(
    "delete",
    "Delete a tier that no tenant has.",
    "lanewise tiers delete trial",
    argument("tier"),
)
def _delete(arguments: argparse.Namespace) -> int:
    gone = ask_admin(arguments, "DELETE", "tiers", arguments.tier)
    return show(arguments, gone, f"Tier {gone['name']} is deleted.")
