"""`lanewise config` checks a configuration before a gateway reads it. This is an edge."""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gateway.cli.command import Command, argument
from gateway.cli.output import show
from gateway.config.budgets import idle_softs
from gateway.config.certificate import tls_context
from gateway.config.config import Config, load_config, peppers, read_config
from gateway.config.first_key import pepper_file
from gateway.config.policy_file import group_of, load_policy, policy_slips
from gateway.config.price_slips import odd_prices, unpriced_budgets
from gateway.config.sections import Address, ConfigError, admin_address, masked_url
from gateway.config.setting_slips import idle_settings, unmetered_links
from gateway.store.decision_log import check_writable, unwritable
from router.money.prices import PriceList

COMMAND = Command("lanewise config check lanewise.toml")


@COMMAND.command(
    "check",
    "Say what is wrong with a configuration, or what it holds.",
    "lanewise config check lanewise.toml --host 0.0.0.0",
    argument("file", metavar="FILE", help="TOML, as `serve --config` takes it"),
    argument("--host", help="as `serve` takes it: keys must be stronger on a public address"),
    argument("--admin-address", metavar="HOST:PORT", help="as `serve` takes it"),
    argument("--json", action="store_true", help="print the answer as JSON"),
    description="""\
Read a configuration with the policy, certificate and environment that it names, as `serve` does,
and see whether `recording.path` can be written, but connect to nothing and make no file. What is
valid but likely a slip (a rule that is never reached, a name that nothing here has, a budget in
money of models without a price) is told on standard error. Exit status: 0 if a gateway could start
with it; 2, and why, if not.
""",
)
def _check(arguments: argparse.Namespace) -> int:
    config = load_config(
        read_config(arguments.file),
        os.environ,
        name=arguments.file,
        host=arguments.host,
        admin=arguments.admin_address,
    )
    policy = load_policy(config)
    tls_context(config.server)
    peppers(config, pepper_file(config.auth.peppers_path))
    if config.recording.path:
        path = Path(config.recording.path)
        try:
            check_writable(path)
        except OSError as error:
            raise ConfigError(unwritable(path, error)) from error
    public = Address(config.server.host, config.server.port)
    found: dict[str, Any] = {
        "address": str(public),
        "admin_address": str(admin_address(config.server) or public),
        "tls": config.server.tls_cert_path is not None,
        "workers": config.server.workers,
        "redis": masked_url(config.redis.url) if config.redis.url else "embedded",
        "tenants": [tenant.id for tenant in config.tenants],
        "backends": [f"{backend.name} ({backend.options.model})" for backend in config.backends],
        "policy": policy.version,
    }
    lines = [f"{name}: {_text(value)}" for name, value in found.items()]
    slips = policy_slips(config, policy)
    of_settings = [*idle_settings(config), *unmetered_links(config), *_money_slips(config)]
    found["warnings"] = [*msgspec.to_builtins(slips), *({"message": said} for said in of_settings)]
    for said in () if arguments.json else of_settings:
        print(f"warning: {arguments.file}: {said}", file=sys.stderr)
    for slip in () if arguments.json else slips:
        print(f"warning: {slip.text(str(config.policy_path))}", file=sys.stderr)
    return show(arguments, found, "\n".join((f"{arguments.file} is valid.", *lines)))


def _money_slips(config: Config) -> Iterator[str]:
    backends = config.backends
    infos = [backend.options.info(backend.name, group_of(backend)) for backend in backends]
    budgeted = {
        f"tier '{name}'": tier.limits for name, tier in config.tiers.items() if tier.budgets
    }
    for tenant in config.tenants:
        if tenant.budgets:
            budgeted[f"tenant '{tenant.id}'"] = tenant.tenant(config.tiers).limits
        yield from (f"tenant '{tenant.id}': {said}" for said in idle_softs(tenant.budgets))
    for name, tier in config.tiers.items():
        yield from (f"tier '{name}': {said}" for said in idle_softs(tier.budgets))
    yield from unpriced_budgets(PriceList(config.prices), infos, budgeted, time.time())
    models = {info.model for info in infos} | {relay.model for relay in config.relays}
    yield from odd_prices(config.prices, models)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
