"""Chooses the tenants that have series of their own: the busiest of late. Pure.

All others share one. A tenant that becomes busy gets a series that begins then, and one that falls
back loses it: what it does from then on counts for the others. So all series add up to the whole.
"""

from collections.abc import Set

OTHERS = "other"
STAYS = 1.25  # a tenant with a series counts for so much more: the choice must not flap
FORGOTTEN = 1.0  # tokens; a tenant with fewer left is forgotten


class BusiestTenants:
    """Keeps the busiest tenants, by tokens of the last few choices."""

    def __init__(self, most: int, most_known: int) -> None:
        self._most = most
        self._most_known = most_known
        self._recent: dict[str, float] = {}  # tenant -> tokens; halved with every choice
        self._shown: set[str] = set()

    @property
    def shown(self) -> Set[str]:
        """Returns the tenants with series of their own."""
        return self._shown

    def label(self, tenant_id: str, num_tokens: int) -> str:
        """Counts a task of a tenant, and returns the label under which to show it."""
        recent = self._recent
        if tenant_id in recent:
            recent[tenant_id] += num_tokens + 1  # a refused task counts, too
        elif len(recent) < self._most_known:
            recent[tenant_id] = num_tokens + 1
        if tenant_id in self._shown:
            return tenant_id
        if len(self._shown) < self._most:
            self._shown.add(tenant_id)
            return tenant_id
        return OTHERS

    def choose(self) -> set[str]:
        """Chooses anew; returns the tenants that have no series any more."""
        before = self._shown
        if len(self._recent) > self._most:

            def weight(tenant: str) -> float:
                return self._recent[tenant] * (STAYS if tenant in before else 1.0)

            ranked = sorted(self._recent, key=weight, reverse=True)
            self._shown = set(ranked[: self._most])
        halved = ((tenant, tokens / 2) for tenant, tokens in self._recent.items())
        self._recent = {
            tenant: tokens
            for tenant, tokens in halved
            if tenant in self._shown or tokens >= FORGOTTEN
        }
        return before - self._shown
