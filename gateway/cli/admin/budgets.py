"""`lanewise budgets` shows what was spent of budgets, and raises a run's. This is an edge."""

import argparse
import math
import re

from gateway.cli.admin_client import ADMIN_ARGUMENTS, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, show, show_table, warn
from gateway.config.budgets import MAX_USD
from router.money.prices import in_digits

COMMAND = Command("lanewise budgets show acme", shared=ADMIN_ARGUMENTS)


def usd(word: str) -> float:
    """Parses an amount; what is no number JSON would send as none, which takes a limit away."""
    amount = float(word) if re.fullmatch(r"\d+(?:\.\d+)?", word) else math.nan
    if not 0 <= amount <= MAX_USD:
        raise argparse.ArgumentTypeError(f"{word!r}: expected US dollars, from 0 to {MAX_USD:,}")
    return amount


_COUNTED = (
    "Only tasks that began while their tenant, key or run had a budget are counted; "
    "`lanewise usage show` sums all."
)
_COLUMNS = ("scope", "window", "used_usd", "held_usd", "soft_usd", "hard_usd", "renews_in")


@COMMAND.command(
    "show",
    "Say what was spent of a tenant's budgets, of one of its keys' and of one of its runs'.",
    "lanewise budgets show acme --run nightly-42",
    argument("tenant"),
    argument("--key", metavar="ID", help="the public part of a key, as lanewise keys lists it"),
    argument("--run", dest="named_run", metavar="RUN", help="as metadata.run names it"),
)
def _show(arguments: argparse.Namespace) -> int:
    query = {"tenant": arguments.tenant}
    optional = {"key": arguments.key, "run": arguments.named_run}
    query |= {name: value for name, value in optional.items() if value}
    return _table(arguments, ask_admin(arguments, "GET", "budgets", query=query))


@COMMAND.command(
    "raise",
    "Raise what one run may spend, so that it goes on.",
    "lanewise budgets raise acme nightly-42 --to 5",
    argument("tenant"),
    argument("named_run", metavar="RUN", help="as metadata.run names it"),
    argument("--to", type=usd, metavar="USD", help="in all; left out: as configured again"),
)
def _raise(arguments: argparse.Namespace) -> int:
    body = {"tenant": arguments.tenant, "run": arguments.named_run, "hard_usd": arguments.to}
    return _table(arguments, ask_admin(arguments, "PUT", "budgets", "run", body=body))


def _table(arguments: argparse.Namespace, view: Row) -> int:
    if arguments.json:
        return show(arguments, view, "")
    nothing = (
        f"Tenant {view['tenant']} has no budget for this. `lanewise tenants set --budget` gives it "
        "one, `tiers set` its tier; of a tenant of the configuration it is set there."
    )
    status = show_table(arguments, view["budgets"], _COLUMNS, _cells, nothing=nothing)
    if view["budgets"]:
        print(_COUNTED, flush=True)
        warn(view.get("warnings", ()))  # an older gateway has none
    return status


def _cells(use: Row) -> Row:
    renews_s = use.get("renews_s")
    renews = "never" if renews_s is None else f"{renews_s / 3600:.1f} h"
    amounts = {name: use.get(name) for name in _COLUMNS if name.endswith("_usd")}
    told = {name: "-" if usd is None else in_digits(usd) for name, usd in amounts.items()}
    return use | told | {"renews_in": renews}
