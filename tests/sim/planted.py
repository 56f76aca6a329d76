"""Plants bugs into pools, for a search that must find them."""

from collections.abc import Iterable, Mapping

from backends.contract import BackendGroup
from router.pools.memory_pools import MemoryPools
from router.pools.pools import Renewal, Reservation


class LosesSettlements(MemoryPools):
    """Says that it settled, and charged nothing: the lease and the place stay for a while."""

    def settle(
        self,
        reservation: Reservation,
        actual_tokens: Mapping[BackendGroup, int],
        now_us: int,
        nusd: int = 0,
    ) -> bool:
        return True


class SettlesTwice(MemoryPools):
    """Charges again what was charged before."""

    def settle(
        self,
        reservation: Reservation,
        actual_tokens: Mapping[BackendGroup, int],
        now_us: int,
        nusd: int = 0,
    ) -> bool:
        done = super().settle(reservation, actual_tokens, now_us, nusd)
        if not done:
            pools = self._at(reservation.tenant_id, now_us)
            if pools.has(reservation.demands):
                pools.release(reservation.lease, actual_tokens)
        return done


class NeverSweeps(MemoryPools):
    """Lets the leases of the dead stay, unless somebody else comes."""

    def reap(self, tenant_id: str, most: int, now_us: int) -> int:
        return 0


class ForgetsToRenew(MemoryPools):
    """Says that all leases are held, and renews none."""

    def renew(self, reservations: Iterable[Reservation], now_us: int) -> Renewal:
        return Renewal(len(list(reservations)), 0)


PLANTED = (LosesSettlements, SettlesTwice, NeverSweeps, ForgetsToRenew)
