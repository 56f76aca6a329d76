"""Holds the queues of all groups, and the rules by which tasks join and leave them.

It knows no loop: whoever admits tasks (the gateway's waiting room on asyncio, the back-test on a
heap of events) asks it what a task may do now, and tells it what came of a try.
"""

from collections.abc import Collection

import msgspec

from backends.contract import BackendGroup
from router.classify.task import Task
from router.decide.concurrency_limiter import ConcurrencyLimiter
from router.pools.pools import GROUPS, Demand, Grant, Reservation
from router.waiting.fair_queue import FairQueue, Waiter
from router.waiting.retry_after import RetryAfter
from router.waiting.rules import (
    WaitingConfig,
    Waits,
    block_of,
    is_of_key,
    longest_wait_us,
    weight_of,
)

HOLD_US = 250_000  # a full group is tried again after this, or when a task on it ends


class Place(msgspec.Struct, frozen=True):
    """Names the queue that a task may stand in, and for how long; 0: it may not."""

    group: BackendGroup
    wait_us: int


class WaitingQueues:
    """Queues tasks by group. `now_us` never goes back."""

    def __init__(self, config: WaitingConfig) -> None:
        self.config = config
        self.limiter = ConcurrencyLimiter(self.others_wait)
        self.queues = {
            group: FairQueue(config.max_waiting, config.max_waiting_per_tenant) for group in GROUPS
        }
        # Who waits in each: waiter -> tenant. Mostly all are empty.
        self.waiting = tuple(queue.tenant_of for queue in self.queues.values())
        self._retry_after = RetryAfter()

    def place_before(
        self, task: Task, tokens: int, groups: Collection[BackendGroup], waits: Waits, now_us: int
    ) -> Place | None:
        """Returns the queue to join without a try, as this tenant or the whole group waits there.

        None, or a wait of 0: the task is to be tried. `waits` are the active policy's.
        """
        if not any(self.waiting):
            return None
        for group in groups:
            queue = self.queues[group]
            if queue.num_waiting(task.tenant.id) or (len(queue) and queue.is_held(now_us)):
                return Place(group, self._may_wait_us(task, tokens, group, waits, None, now_us))
        return None

    def place_after(
        self, task: Task, tokens: int, refused: Grant, waits: Waits, now_us: int
    ) -> Place:
        """Returns the queue that a task may join which was tried and refused."""
        assert refused.limited_by is not None, "a refused grant names its pool"
        group = refused.limited_by[0]
        return Place(group, self._may_wait_us(task, tokens, group, waits, refused, now_us))

    def join(
        self, task: Task, tokens: int, place: Place, refused: Grant | None, now_us: int
    ) -> Waiter:
        """Adds a task to a queue; `refused` is what its first try came to, if it had one."""
        tenant = task.tenant
        waiter = Waiter(
            id=task.id,
            tenant_id=tenant.id,
            weight=weight_of(self.config, tenant.id, tenant.tier, tenant.weight),
            tokens=tokens,
            joined_us=now_us,
            until_us=now_us + place.wait_us,
        )
        queue = self.queues[place.group]
        if refused is not None and refused.shed == "capacity":
            queue.hold(now_us + HOLD_US)
            refused = None  # the group is full for every tenant
        queue.join(waiter, None if refused is None else block_of(refused))
        return waiter

    def put_back(self, group: BackendGroup, waiter: Waiter, refused: Grant, now_us: int) -> None:
        """Notes that the next of a queue was tried, and refused."""
        if refused.shed == "capacity":
            self.queues[group].hold(now_us + HOLD_US)
        else:
            self.queues[group].put_back(waiter, block_of(refused), now_us)

    def note_admitted(self, grant: Grant, now_us: int) -> None:
        """Notes that a task was admitted, whether or not it had waited."""
        if grant.reservation is not None:
            tenant_id, demands = grant.reservation.tenant_id, grant.reservation.demands
            self._retry_after.admitted(tenant_id, demands, grant.mode, now_us)

    def truthful(self, task: Task, tokens: int, refused: Grant, now_us: int) -> Grant:
        """Adds the tenant's earlier tasks, waiting or to be retried, to a refusal's wait."""
        assert refused.limited_by is not None, "a refused grant names its pool"
        queue = self.queues[refused.limited_by[0]]
        wait_us = queue.expected_us(task.tenant.id, tokens, now_us, block_of(refused))
        wait_us = self._retry_after.wait_us(task.tenant.id, refused, tokens, wait_us, now_us)
        return msgspec.structs.replace(refused, wait_us=wait_us)

    def settled(self, reservation: Reservation, now_us: int) -> list[BackendGroup]:
        """Frees the slots of a task that ended; returns the groups whose queues may go on."""
        self.limiter.release(reservation.id)
        return self.released(reservation.tenant_id, reservation.demands, now_us)

    def released(
        self, tenant_id: str, demands: tuple[Demand, ...], now_us: int
    ) -> list[BackendGroup]:
        """Returns the groups whose queues may go on, as a tenant's task has released these."""
        queues = self.queues
        return [
            demand.group
            for demand in demands
            if len(queues[demand.group]) and queues[demand.group].released(tenant_id, now_us)
        ]

    def others_wait(self, tenant_id: str, group: BackendGroup) -> bool:
        """Says whether tasks of other tenants wait for a group."""
        queue = self.queues[group]
        return len(queue) > queue.num_waiting(tenant_id)

    def _may_wait_us(
        self,
        task: Task,
        tokens: int,
        group: BackendGroup,
        waits: Waits,
        refused: Grant | None,
        now_us: int,
    ) -> int:
        """Returns how long it may wait; 0 if not at all, or for certainly too short."""
        if refused is not None and is_of_key(refused):
            return 0  # others of its tenant must not stand behind it
        longest_us = longest_wait_us(self.config, waits, task, group, now_us)
        queue = self.queues[group]
        block = None if refused is None else block_of(refused)
        certain_us = queue.expected_us(task.tenant.id, tokens, now_us, block, guess=False)
        if certain_us > longest_us or not queue.has_room(task.tenant.id):
            return 0
        return longest_us
