"""What a gateway process knows from the tasks it ran, and hands to the next decision.

Pure: the edge notes what happened, with its clock's time, and asks for the `Facts` of a task. All
of it is bounded, and a task is decided as well without any of it, only less informed.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec

from backends.contract import BackendGroup, BackendStats
from router.continuity import course_of
from router.pace import Paces
from router.pools import Balance
from router.task import Task
from router.weighing import Facts

MAX_TENANTS = 1_024  # whose pools are remembered
STALE_US = 5_000_000  # pools refill; what was left longer ago says nothing


class _Left(msgspec.Struct, frozen=True):
    at_us: int
    shares: dict[BackendGroup, float]


class Experience:
    """See the module. Belongs to one event loop."""

    def __init__(self) -> None:
        self.paces = Paces()
        self._left: OrderedDict[str, _Left] = OrderedDict()

    def facts(self, task: Task, stats: Sequence[BackendStats], now_us: int) -> Facts:
        """What is known that bears on this task."""
        holder = next((s.info.group for s in stats if s.info.name == task.last_backend), None)
        left = self._left.get(task.tenant.id)
        is_fresh = left is not None and now_us - left.at_us < STALE_US
        return Facts(
            course=course_of(task.request.items, task.request.num_prompt_tokens, holder),
            shares_left=left.shares if left is not None and is_fresh else {},
            paces=self.paces,
        )

    def note_balances(self, tenant_id: str, balances: Iterable[Balance], now_us: int) -> None:
        """Keep how much of each group's tightest pool a tenant has left."""
        known = self._left.get(tenant_id)
        kept = known is not None and now_us - known.at_us < STALE_US
        new: dict[BackendGroup, float] = {}
        for balance in balances:
            share = max(0, balance.remaining) / max(1, balance.limit)
            new[balance.group] = min(share, new.get(balance.group, 1.0))
        self._left[tenant_id] = _Left(now_us, known.shares | new if known and kept else new)
        self._left.move_to_end(tenant_id)
        while len(self._left) > MAX_TENANTS:
            self._left.popitem(last=False)
