"""Finds settings that are valid but likely not what was meant. This is an edge."""

import re
from collections.abc import Iterator

from gateway.config.config import Config
from gateway.config.policy_file import group_of
from router.policy.document import suggestion

# As browsers write it: in lower case and without a path.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\sA-Z]+")


def idle_settings(config: Config) -> Iterator[str]:
    """Says which settings match no browser, no tier and no engine group."""
    for origin in config.server.allowed_origins:
        if origin in ("*", "null") or _ORIGIN.fullmatch(origin):
            continue
        yield (
            f"server.allowed_origins: no browser sends '{origin}': expected such as "
            "https://app.example, in lower case and without a path"
        )
    tiers = {*config.tiers, *(tenant.tier for tenant in config.tenants)}
    for where, names in (
        ("waiting.tiers", config.waiting.tiers),
        ("waiting.weights", config.waiting.weights),
        ("adaptation.floors", config.adaptation.floors),
        ("adaptation.ceilings", config.adaptation.ceilings),
    ):
        for name in names:
            if name not in tiers:
                yield f"{where}: no tier is called '{name}'{suggestion(name, tiers)}"
    for tenant in config.tenants:
        if not tenant.tenant(config.tiers).limits:
            yield (
                f"tenants: '{tenant.id}' may use no group: neither its tier '{tenant.tier}' nor "
                "its own limits name one that its access has"
            )


def unmetered_links(config: Config) -> Iterator[str]:
    """Says whose keys open the engine's link, where what runs counts against no limits."""
    if not config.server.serves_link:
        return
    group = group_of(config.backends[0])
    able = [each.id for each in config.tenants if group in each.tenant(config.tiers).limits]
    if len(able) > 1:
        yield (
            f"server.serves_link: each key of {', '.join(able)} may use the {group} engine over "
            "/v1/link, where no limits, budgets or usage are counted: only gateways should have "
            "such a key"
        )
