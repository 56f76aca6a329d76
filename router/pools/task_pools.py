"""The pools as whoever runs tasks uses them, whichever stand behind."""

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

from backends.contract import BackendGroup
from router.classify.task import Tenant
from router.pools.pools import Balance, Demand, Grant, PoolsMode, Reservation


class TaskPools(Protocol):
    """Calls are for one event loop; cancelling one undoes nothing. `FailoverPools` says more."""

    @property
    def mode(self) -> PoolsMode:
        """Whose pools a task that came now would meet."""

    @property
    def ready(self) -> bool:
        """Whether tasks are taken at all."""

    async def reserve_first(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> Grant:
        """Reserve the first of the ranked demands that fits, whole, or nothing."""

    def settle(
        self, reservation: Reservation, actual_tokens: Mapping[BackendGroup, int]
    ) -> Coroutine[Any, Any, None]:
        """Release the slots and charge actual tokens; sent at once, and to be awaited."""

    async def extend(self, reservation: Reservation) -> Reservation:
        """Hold what `extended` added, or release what `shrunk` left out; what is held now."""

    async def balances(self, tenant: Tenant) -> tuple[Balance, ...]:
        """The tenant's pools as Redis has them."""

    async def forget(self, tenant_id: str) -> None:
        """Delete the shared pools of a tenant that is no more."""

    async def reap(self) -> int:
        """Release what crashed gateways held; how many leases."""
