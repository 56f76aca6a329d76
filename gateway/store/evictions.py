"""Says what a full Redis may drop, or has dropped, of what gateways keep there.

Pools, keys, policies and the ledger have no time to live; stored responses and the days' usage have
one, so under `volatile-lru` a full Redis drops these, what was not read for longest first.
"""

from collections.abc import Mapping
from typing import Any


def evicts_all(info: Mapping[str, Any]) -> str | None:
    """Returns how a Redis that may drop everything puts limits at risk, by its INFO."""
    policy = str(info.get("maxmemory_policy", ""))
    if not policy.startswith("allkeys-"):
        return None
    return f"{policy} evicts pools, and with them limits"


def has_evicted(info: Mapping[str, Any]) -> str | None:
    """Returns what a Redis has dropped since it started, by its INFO."""
    num_evicted = int(info.get("evicted_keys", 0))
    if not num_evicted:
        return None
    return f"it was full: responses or days of usage, keys dropped since it started: {num_evicted}"
