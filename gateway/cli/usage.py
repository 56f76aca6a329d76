"""`lanewise usage` sums what was used, exports the ledger, and compares bills. This is an edge."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec
from redis.exceptions import RedisError

from gateway.cli import reconcile
from gateway.cli.admin_client import ADMIN_ARGUMENTS, ask_admin
from gateway.cli.command import Command, argument
from gateway.cli.output import Row, show, show_table
from gateway.config.command_error import CommandError
from gateway.config.config import load_config, read_config
from gateway.config.sections import ConfigError, masked_url
from gateway.store.parquet import ParquetUnavailable
from gateway.store.usage_days import DIMENSIONS, NUM_DAYS
from gateway.store.usage_export import ExportError, Summary, export
from router.redis.client import redis_client

TIMEOUT_S = 5.0  # of a batch; one that is late comes again


COMMAND = Command("lanewise usage show --days 7 --by day --by tenant")
_DIMENSIONS = ("day", *DIMENSIONS)
_SUMS = ("tasks", "input_tokens", "cached_tokens", "output_tokens", "cost_usd")


@COMMAND.command(
    "show",
    "Say what was used and what it cost, of the last 40 days; an export consumes nothing of it.",
    "lanewise usage show --tenant acme --days 30 --by day --by model",
    argument("--tenant", metavar="ID", help="of this one (default: of all)"),
    argument(
        "--by", action="append", choices=_DIMENSIONS, help="several sum by each (default: tenant)"
    ),
    argument("--days", type=int, default=1, metavar="N", help="the last N UTC days, today too"),
    *ADMIN_ARGUMENTS,
)
def _show(arguments: argparse.Namespace) -> int:
    by = tuple(dict.fromkeys(arguments.by or ("tenant",)))
    if not 1 <= arguments.days <= NUM_DAYS:
        raise CommandError(f"--days: expected 1 to {NUM_DAYS}, got {arguments.days}")
    today = datetime.now(UTC).date()
    first = today - timedelta(days=arguments.days - 1)
    query = {"by": by, "first_day": first.isoformat(), "last_day": today.isoformat()}
    if arguments.tenant:
        query["tenant"] = arguments.tenant
    view = ask_admin(arguments, "GET", "usage", query=query)
    if arguments.json:
        return show(arguments, view, "")
    whose = f" of tenant {arguments.tenant}" if arguments.tenant else ""
    days = view["first_day"]
    if view["last_day"] != days:
        days += f" to {view['last_day']}"
    nothing = f"No task{whose} ended on {days} (UTC). --days N goes further back, to {NUM_DAYS}."
    columns = (*by, *_SUMS)
    return show_table(arguments, view["rows"], columns, partial(_cells, by), nothing=nothing)


def _cells(by: Sequence[str], row: Row) -> Row:
    named = {name: row.get(name, "") for name in by}
    sums = {name: row.get(name, 0) for name in _SUMS}
    return named | sums | {"cost_usd": f"{row.get('cost_usd', 0):.6f}"}


@COMMAND.command(
    "export",
    "Move the usage ledger from Redis into a file: each entry once, also if it is cut.",
    "lanewise usage export --out usage.csv --redis redis://127.0.0.1:6379\n"
    "Run it again for the same .csv to append, or to finish what was cut.",
    argument(
        "--out", metavar="FILE", type=Path, required=True, help=".csv, or .parquet (needs pyarrow)"
    ),
    argument("--redis", metavar="URL", help="(default: $LANEWISE_REDIS_URL)"),
    argument("--config", metavar="FILE", type=Path, help="the gateway's"),
    argument(
        "--adopt",
        metavar="CONSUMER",
        help="take over what was handed out for another file that will never be finished, into a "
        "new one; the other file may have some of it",
    ),
    argument("--json", action="store_true", help="print the summary as JSON"),
)
def _export(arguments: argparse.Namespace) -> int:
    toml = read_config(arguments.config)
    name = arguments.config or "configuration"
    url = load_config(toml, os.environ, name=name, redis_url=arguments.redis).redis.url
    if url is None:
        raise ConfigError(
            "no Redis to export from: give --redis or --config, or set LANEWISE_REDIS_URL (an "
            "embedded Redis is the gateway's own, and forgets its ledger)"
        )
    try:
        summary = asyncio.run(_drain(url, arguments.out, arguments.adopt))
    except (ExportError, ParquetUnavailable) as error:
        raise ConfigError(str(error)) from error
    except RedisError as error:
        words = f"{masked_url(url)}: {type(error).__name__}. Run it again to go on."
        raise ConfigError(words) from error
    except OSError as error:
        raise ConfigError(f"--out {arguments.out}: {error}. Run it again to go on.") from error
    if arguments.json:
        print(msgspec.json.encode(summary).decode(), flush=True)
        return 0
    print(f"{summary.num_entries} tasks in {summary.num_rows} rows to {arguments.out}", flush=True)
    if summary.num_dropped:
        print(f"{summary.num_dropped} entries were dropped before they were read", file=sys.stderr)
    for name in summary.elsewhere:
        print(f"unfinished: {name} (run it again, or --adopt it)", file=sys.stderr)
    return 0


COMMAND.command(
    "reconcile",
    "Compare what was counted here with a provider's own usage export, by day and model.",
    "lanewise usage reconcile openai-usage.json --model gpt-5-mini-2025-08-07=lanewise-fast\n"
    "Exit status: 0 if all figures agree, 1 if one differs by more than the tolerance.",
    *reconcile.ARGUMENTS,
)(reconcile.reconcile)


async def _drain(url: str, out: Path, adopt: str | None) -> Summary:
    async with redis_client(url, timeout_s=TIMEOUT_S) as redis:
        return await export(redis, out, adopt=adopt)
