"""`lanewise doctor` says what is wrong with a set-up, and what to do. This is an edge."""

import argparse
import asyncio
import logging
import os

import msgspec

from gateway.cli.command import Command, argument
from gateway.cli.output import show
from gateway.config.command_error import CommandError
from gateway.config.config import load_config, read_config
from gateway.config.first_key import KEY_VARIABLE, secret_of
from gateway.config.http_address import http_url
from gateway.doctor.examination import Examined, examine, examined
from gateway.doctor.findings import Finding


def _doctor(arguments: argparse.Namespace) -> int:
    name = arguments.config or "configuration"
    url = None if arguments.url is None else http_url(arguments.url, "--url")
    if arguments.idle_s < 0:
        raise CommandError(f"--idle-s: expected 0 or more seconds, got {arguments.idle_s:g}")
    try:
        config = load_config(
            read_config(arguments.config), os.environ, name=name, redis_url=arguments.redis
        )
        key = arguments.key or secret_of(os.environ, KEY_VARIABLE)
    except CommandError as error:
        return _end(arguments, [_tell(arguments, Finding("configuration", "fail", str(error)))])
    valid = Finding("configuration", "ok", name if arguments.config else "the development defaults")
    found = [_tell(arguments, valid)]
    logging.getLogger("lanewise").disabled = True  # what an engine says is among the findings
    what = msgspec.structs.replace(
        examined(config, url, key),
        model=arguments.model,
        asks_engines=not arguments.no_engines,
        idle_s=arguments.idle_s,
    )
    found += asyncio.run(_examine(arguments, what))
    return _end(arguments, found)


async def _examine(arguments: argparse.Namespace, what: Examined) -> list[Finding]:
    return [_tell(arguments, finding) async for finding in examine(what)]


def _tell(arguments: argparse.Namespace, finding: Finding) -> Finding:
    """Prints a finding as soon as it is known, unless all are printed as JSON."""
    if not arguments.json:
        print(finding.line, flush=True)
    return finding


def _end(arguments: argparse.Namespace, found: list[Finding]) -> int:
    levels = [finding.level for finding in found]
    counts = f"{levels.count('fail')} failed, {levels.count('warn')} to look at, "
    text = f"{counts}{levels.count('ok')} in order."
    answer = {"findings": [finding.view() for finding in found], "ok": "fail" not in levels}
    return show(arguments, answer, text, status=1 if "fail" in levels else 0)


COMMAND = Command(
    "lanewise doctor --config lanewise.toml",
    (
        argument("--config", metavar="FILE", help="the gateway's; without it, the defaults"),
        argument("--url", help="where clients reach it, through their proxies (default: directly)"),
        argument("--key", help="a tenant's key (default: $LANEWISE_API_KEY, else the first one's)"),
        argument("--redis", metavar="URL", help="as `serve` takes it"),
        argument("--model", default="auto", help="that streams an answer (default: auto)"),
        argument("--no-engines", action="store_true", help="ask no engine: nothing is charged"),
        argument(
            "--idle-s",
            type=float,
            default=0.0,
            metavar="SECONDS",
            help="how long to leave a WebSocket idle, to find proxies that cut it (try 70)",
        ),
        argument("--json", action="store_true", help="print the findings as JSON"),
    ),
    run=_doctor,
    description="""\
Examine a set-up, best where it runs: configuration, certificates, the gateway, what is between it
and its clients, Redis, and each engine, by one short request. One line for each check: ok, warn or
fail, and what to do.
""",
    note="exit status: 0 nothing failed; 1 something did",
)
