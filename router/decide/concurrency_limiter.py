"""Limits how many tasks this process runs on each group.

Off until a group gets a limit. A tenant is held to its share only while others wait for the group.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from backends.contract import BackendGroup
from router.classify.task import Tenant
from router.decide.decision import RankedRoute
from router.pools.pools import Grant, Shed, no_slot


class ConcurrencyLimiter:
    """Counts running tasks by group and tenant, and decides which may start."""

    def __init__(self, others_wait: Callable[[str, BackendGroup], bool]) -> None:
        """`others_wait` says whether tasks of tenants other than this one wait for a group."""
        self._others_wait = others_wait
        self._limits: dict[BackendGroup, int] = {}
        self.is_on = False  # whether any group has a limit
        self._shares: dict[BackendGroup, Mapping[str, int]] = {}
        self._held: dict[str, tuple[Tenant, tuple[BackendGroup, ...]]] = {}  # by task
        self._running: defaultdict[BackendGroup, int] = defaultdict(int)
        self._of_tenant: defaultdict[tuple[str, BackendGroup], int] = defaultdict(int)

    def set_limit(self, group: BackendGroup, limit: int, shares: Mapping[str, int]) -> None:
        """Sets a group's limit and its tenants' shares; a tenant without a share has none."""
        self._limits[group] = limit
        self.is_on = True
        self._shares[group] = shares

    def num_running(self, group: BackendGroup) -> int:
        """Returns how many tasks of this process run on a group or are being admitted to it."""
        return self._running.get(group, 0)

    def running_by_tenant(self, group: BackendGroup) -> Counter[tuple[str, str]]:
        """Counts those tasks by tenant and tier."""
        return Counter(
            (tenant.id, tenant.tier) for tenant, groups in self._held.values() if group in groups
        )

    def open_routes(
        self, ranked: tuple[RankedRoute, ...], tenant_id: str
    ) -> tuple[RankedRoute, ...]:
        """Returns the routes whose groups take one more task of this tenant."""
        return tuple(
            route
            for route in ranked
            if all(self.shed(group, tenant_id) is None for group in route.route.groups)
        )

    def shed(self, group: BackendGroup, tenant_id: str) -> Shed | None:
        """Returns what keeps a tenant's next task from a group, or None."""
        limit = self._limits.get(group)
        if limit is None:
            return None
        if self.num_running(group) >= limit:
            return "capacity"
        share = self._shares[group].get(tenant_id)
        mine = self._of_tenant.get((tenant_id, group), 0)
        if share is not None and mine >= max(1, share) and self._others_wait(tenant_id, group):
            return "share"
        return None

    def refusal(self, groups: Sequence[BackendGroup], tenant_id: str) -> Grant:
        """Makes the refusal of a task, by the first of its groups that is not open."""
        sheds = ((group, self.shed(group, tenant_id)) for group in groups)
        group, shed = next((group, shed) for group, shed in sheds if shed is not None)
        limit = self._limits[group]
        left = max(0, limit - self.num_running(group))
        return no_slot(group, limit, left, shed)

    def acquire(self, task_id: str, tenant: Tenant, groups: Sequence[BackendGroup]) -> None:
        """Counts a task on these groups and no others; `release` must follow."""
        self.release(task_id)
        self._held[task_id] = tenant, tuple(groups)
        for group in groups:
            self._running[group] += 1
            self._of_tenant[tenant.id, group] += 1

    def keep(self, task_id: str, groups: Sequence[BackendGroup]) -> None:
        """Counts a task on these groups and no others, if it is counted at all."""
        held = self._held.get(task_id)
        if held is not None:
            self.acquire(task_id, held[0], groups)

    def release(self, task_id: str) -> None:
        """Stops counting a task, if it is counted."""
        held = self._held.pop(task_id, None)
        if held is None:
            return
        tenant, groups = held
        for group in groups:
            self._running[group] -= 1
            key = tenant.id, group
            self._of_tenant[key] -= 1
            if not self._of_tenant[key]:
                del self._of_tenant[key]
