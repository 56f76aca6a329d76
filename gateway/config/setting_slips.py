"""Finds settings that are valid but match nothing. This is an edge."""

import re
from collections.abc import Iterator

from gateway.config.config import Config
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
