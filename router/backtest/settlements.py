"""Reserves and settles for the tasks of a simulation: each reservation exactly once."""

from collections.abc import Mapping

import msgspec

from backends.contract import NO_USAGE, BackendGroup, Usage
from router.backtest.branch import PlayedBranch
from router.backtest.ceilings import CappedMemoryPools
from router.backtest.life import Life
from router.backtest.queueing import Queueing, QueueWorld
from router.backtest.run import PlayedRun
from router.classify.task import Task
from router.decide.admission import demands, outgrown
from router.decide.decision import RankedRoute
from router.money.cost import EVEN, Weights, cost_by_group, cost_tokens
from router.pools.pools import Demand, Grant, Reservation, shrunk

HEARTBEAT_US = 10_000_000  # between two renewals of leases, and extensions of what outgrew them


class Settlements:
    """Holds the pools, and what the tasks that run have reserved."""

    def __init__(
        self,
        world: QueueWorld,
        queueing: Queueing,
        weights: Weights,
        lives: Mapping[str, Life],
        ceilings: Mapping[BackendGroup, int],
    ) -> None:
        """`lives` are the tasks that run, which the simulation keeps."""
        self._world = world
        self._queueing = queueing
        self._limiter = queueing.limiter
        self._weights = weights
        self._lives = lives
        self._pools = CappedMemoryPools(ceilings)
        self._parts: dict[str, tuple[Life, PlayedBranch]] = {}  # by reservation
        self._heartbeat_is_due = False

    def begin(self) -> None:
        """Begins to renew leases, as a task has started."""
        if not self._heartbeat_is_due:
            self._heartbeat_is_due = True
            self._world.at(self._world.now_us + HEARTBEAT_US, self._heartbeat)

    def reserve(
        self,
        life: Life,
        routes: tuple[RankedRoute, ...],
        asked: tuple[tuple[Demand, ...], ...] | None,
    ) -> tuple[tuple[RankedRoute, ...], Grant]:
        """Tries the pools, within the groups' capacity."""
        task, limiter = life.task, self._limiter
        is_limited = limiter.is_on
        if is_limited:
            opened = limiter.open_routes(routes, task.tenant.id)
            if not opened:
                return routes, limiter.refusal(routes[0].route.groups, task.tenant.id)
            routes, asked = opened, None
        if asked is None:
            asked = demands(task, life.task_class, routes, self._weights)
        grant = self._pools.reserve_first(task.tenant, task.id, asked, self._world.now_us)
        if is_limited and grant.index is not None:
            limiter.acquire(task.id, task.tenant, routes[grant.index].route.groups)
        return routes, grant

    def reserve_part(self, run: PlayedRun, branch: PlayedBranch, expected: Usage) -> None:
        """Reserves for a part of a task, now or after waiting."""
        life = run.owner
        assert isinstance(life, Life)
        group = branch.where.info.group
        name = f"{life.task.id}-{branch.number}-{branch.num_continuations}"
        demand = Demand(group, cost_tokens(expected, self._weights.get(group, EVEN)))
        part = _Part(self, run, branch, msgspec.structs.replace(life.task, id=name), demand)
        # As in production the answer comes later, never from within the start of a branch.
        self._world.at(self._world.now_us, lambda: self._queueing.admit(part, is_part=True))

    def attempt_part(self, task: Task, demand: Demand) -> Grant:
        """Tries the pools for a part, within its group's capacity."""
        group, tenant, limiter = demand.group, task.tenant, self._limiter
        if limiter.is_on and limiter.shed(group, tenant.id) is not None:
            return limiter.refusal((group,), tenant.id)
        grant = self._pools.reserve_first(tenant, task.id, ((demand,),), self._world.now_us)
        if grant.index is not None and limiter.is_on:
            limiter.acquire(task.id, tenant, (group,))
        return grant

    def part_granted(self, run: PlayedRun, branch: PlayedBranch, reservation: Reservation) -> None:
        """Starts a part, or gives back what it needs no more."""
        if branch.is_over or run.ended:
            self.release(reservation, {})
            return
        life = run.owner
        assert isinstance(life, Life)
        branch.reservation = reservation
        self._parts[reservation.id] = (life, branch)
        run.granted(branch)

    def settle_part(self, branch: PlayedBranch) -> None:
        """Settles a part's own reservation, once, if it has one."""
        reservation = branch.reservation
        if reservation is None:
            return
        if self._parts.pop(reservation.id, None) is not None:
            group = branch.where.info.group
            weights = self._weights.get(group, EVEN)
            used = cost_tokens(branch.usage or NO_USAGE, weights)
            self.release(reservation, {group: used})

    def group_done(self, run: PlayedRun, group: BackendGroup) -> None:
        """Charges and releases a group that a running task needs no more."""
        life = run.owner
        assert isinstance(life, Life)
        held = life.reservation
        if held is None or all(demand.group == group for demand in held.demands):
            return
        if all(demand.group != group for demand in held.demands):
            return
        used = cost_by_group(run.used(), self._weights)
        kept = shrunk(held, {group: used.get(group, 0)})
        self._pools.extend(kept, self._world.now_us)
        life.reservation = msgspec.structs.replace(kept, former=None, released=())
        if self._limiter.is_on:
            self._limiter.keep(kept.id, [demand.group for demand in kept.demands])
        released = tuple(demand for demand in held.demands if demand.group == group)
        self._queueing.released(held.tenant_id, released)

    def settle(self, life: Life) -> None:
        reservation, run = life.reservation, life.run
        if reservation is None or run is None:
            return
        life.reservation = None
        self.release(reservation, cost_by_group(run.used(), self._weights))

    def release(self, reservation: Reservation, used: Mapping[BackendGroup, int]) -> None:
        self._pools.settle(reservation, used, self._world.now_us)
        self._queueing.settled(reservation)

    def _heartbeat(self) -> None:
        """Renews the leases of what runs, and extends those that it has outgrown."""
        held: list[Reservation] = []
        for life in self._lives.values():
            reservation, run = life.reservation, life.run
            if reservation is None or run is None:
                continue
            wanted = outgrown(reservation, cost_by_group(run.used(), self._weights))
            if wanted is not None and self._pools.extend(wanted, self._world.now_us):
                reservation = msgspec.structs.replace(wanted, former=None)
                life.reservation = reservation
            held.append(reservation)
        for _, branch in self._parts.values():
            if branch.reservation is not None:
                held.append(branch.reservation)
        self._pools.renew(held, self._world.now_us)
        self._heartbeat_is_due = bool(held)
        if held:
            self._world.at(self._world.now_us + HEARTBEAT_US, self._heartbeat)


class _Part:
    """Is a part of a task that asks for a reservation of its own."""

    __slots__ = ("_branch", "_demand", "_run", "_settlements", "groups", "task", "tokens")

    def __init__(
        self,
        settlements: Settlements,
        run: PlayedRun,
        branch: PlayedBranch,
        task: Task,
        demand: Demand,
    ) -> None:
        self._settlements = settlements
        self._run = run
        self._branch = branch
        self._demand = demand
        self.task = task
        self.tokens = demand.tokens
        self.groups: tuple[BackendGroup, ...] = (demand.group,)

    def attempt(self, has_waited: bool) -> tuple[tuple[RankedRoute, ...], Grant]:
        return (), self._settlements.attempt_part(self.task, self._demand)

    def answered(
        self, routes: tuple[RankedRoute, ...], grant: Grant, waited_for: BackendGroup | None
    ) -> None:
        if grant.reservation is None:
            self._run.refused(self._branch)
        else:
            self._settlements.part_granted(self._run, self._branch, grant.reservation)

    def in_vain(self) -> None:
        self._run.refused(self._branch)
