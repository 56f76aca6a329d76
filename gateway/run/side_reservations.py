"""Reserves for parts of a response: variations, sub-tasks, engines that join or replace others.

Each part reserves separately while the response goes on. If the pools are full and the tenant may
wait, the part waits in the same queue as tasks do, and counts as one. This is an edge.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from backends.contract import BackendGroup, Usage
from gateway.core.gateway import Gateway, ReservationInUse
from gateway.core.job import Job
from gateway.core.spending import most_nusd, note_budgets, spent_nusd, terms_of
from gateway.core.waiting_room import Admission, Attempt
from gateway.run.settlement import start_settlement
from gateway.wire.errors import ProtocolError
from router.classify.task import Task
from router.decide.admission import reached
from router.money.cost import EVEN, cost_tokens
from router.pools.pools import Demand, Grant, Reservation
from router.pools.redis_pools import PoolsUnavailable
from router.waiting.fair_queue import QueuePosition

logger = logging.getLogger("lanewise")


Settle = Callable[[str, Usage], None]  # charges what a backend did, frees the rest; call it once


class PendingReservation:
    """Is a part's reservation that is neither granted nor refused yet."""

    wants_queue_position = False  # of parts, positions are not reported

    def __init__(self) -> None:
        self._on_stop: Callable[[], None] | None = None  # set while it waits in a queue
        self._is_withdrawn = False

    def withdraw(self) -> None:
        """Removes the part from the queue; harmless once it is granted or refused."""
        self._is_withdrawn = True
        if self._on_stop is not None:
            self._on_stop()

    def report_queue_position(self, group: BackendGroup, position: QueuePosition) -> None:
        """Does nothing: parts do not report their positions."""

    def wait(self, on_stop: Callable[[], None] | None) -> None:
        """Sets how to stop its wait (None: it waits no longer); a withdrawal takes effect."""
        self._on_stop = on_stop
        if on_stop is not None and self._is_withdrawn:
            on_stop()


class SideReservations:
    """Makes reservations for the parts of one response, before each starts."""

    def __init__(self, gw: Gateway, job: Job, task: Task) -> None:
        self._gw = gw
        self._job = job
        self._task = task
        self.under_way: set[asyncio.Task[None]] = set()

    def take(
        self,
        name: str,
        group: BackendGroup,
        expected: Usage,
        used: Callable[[], Usage],
        granted: Callable[[Settle], None],
        refused: Callable[[ProtocolError], None],
    ) -> PendingReservation:
        """Reserves in the background; calls either `granted` or `refused`, later.

        A grant must be settled, even after the response was cancelled. Withdrawing a queued
        reservation refuses it at once. `used` returns the usage so far.
        """
        pending = PendingReservation()
        demand = Demand(group, self._cost(group, expected), self._most_nusd(group, expected))

        async def taken() -> None:
            try:
                grant = await self._admitted(name, pending, demand)
            except ProtocolError as error:
                refused(error)
                return
            except PoolsUnavailable as error:
                message = f"the rate-limit pools are away: {error}"
                refused(ProtocolError("server_is_overloaded", message))
                return
            except Exception:
                logger.exception("a part of task %s could not be reserved for", self._task.id)
                refused(ProtocolError("server_error", "the gateway failed"))
                return
            gw = self._gw
            if grant.reservation is None:
                refused(self._refusal(group, grant))
                return
            tier = self._task.tenant.tier
            gw.metrics.ratelimit(group=group, tier=tier, result="admit", mode=grant.mode)
            gw.metrics.reserved((demand,))
            gw.in_use[grant.reservation.id] = ReservationInUse(
                grant.reservation, self._job, lambda: {group: self._cost(group, used())}
            )
            granted(partial(self._settle, grant.reservation))

        self._keep(self._gw.spawn(taken()))
        return pending

    def _settle(self, reservation: Reservation, backend: str, usage: Usage) -> None:
        (demand,) = reservation.demands
        used_tokens = {demand.group: self._cost(demand.group, usage)}
        hints, used = self._task.hints, ((backend, usage),)
        nusd = spent_nusd(self._gw, hints, used) if reservation.hold else 0
        self._keep(start_settlement(self._gw, reservation, used_tokens, nusd))

    async def settled(self) -> None:
        """Waits until nothing is pending; cancelling the wait cancels nothing else."""
        while self.under_way:
            await asyncio.wait(self.under_way)

    async def _admitted(self, name: str, pending: PendingReservation, demand: Demand) -> Grant:
        """Reserves, now or after waiting.

        Raises `ProtocolError` if it was withdrawn or its wait timed out, or `PoolsUnavailable`.
        """
        gw, tenant, group = self._gw, self._task.tenant, demand.group

        async def attempt(_has_waited: bool) -> Attempt:
            if gw.waiting.limiter.shed(group, tenant.id) is not None:
                return Attempt((), gw.waiting.limiter.refusal((group,), tenant.id), gw.clock_us())
            gw.waiting.limiter.acquire(name, tenant, (group,))  # while it asks, too
            try:
                grant = await gw.pools.reserve_first(tenant, name, ((demand,),))
            except BaseException:
                gw.waiting.limiter.release(name)
                raise
            if grant.reservation is None:
                gw.waiting.limiter.release(name)
            if grant.accounts:
                note_budgets(gw, tenant, grant)
            return Attempt((), grant, gw.clock_us())

        part = part_of(self._task, name, gw.clock_us())
        made = await gw.waiting.admit(
            Admission(part, demand.tokens, lambda: (group,), attempt, gw.pools.settle, pending)
        )
        return made.grant

    def _refusal(self, group: BackendGroup, grant: Grant) -> ProtocolError:
        """Counts a refusal, and returns why the part is left out."""
        gw = self._gw
        assert grant.limited_by is not None, "a refused grant names its pool"
        if grant.shed is not None:
            gw.metrics.counts["lanewise_capacity_shed_total"][group, grant.shed].inc()
            return ProtocolError("server_is_overloaded", f"the {group} engines take no more")
        gw.metrics.ratelimit(
            group=group,
            tier=self._task.tenant.tier,
            result="reject",
            mode=grant.mode,
            limited_by=grant.limited_by[1],
        )
        return ProtocolError("rate_limit_exceeded", reached(grant.limited_by, grant.wait_us))

    def _most_nusd(self, group: BackendGroup, expected: Usage) -> int:
        if not self._task.tenant.accounts:
            return 0
        most_output = max(expected.num_output_tokens, self._task.request.max_output_tokens)
        whole = msgspec.structs.replace(expected, num_output_tokens=most_output)
        return most_nusd(self._gw, terms_of(self._task.hints), group, whole)

    def _cost(self, group: BackendGroup, usage: Usage) -> int:
        return cost_tokens(usage, self._gw.weights.get(group, EVEN))

    def _keep(self, under_way: "asyncio.Task[None]") -> None:
        self.under_way.add(under_way)
        under_way.add_done_callback(self.under_way.discard)


def part_of(task: Task, name: str, now_us: int) -> Task:
    """Returns the task that waits in a queue for one of its parts.

    It keeps the client's deadline, but its longest wait counts from now.
    """
    hints = task.hints
    if hints.max_wait_us is not None:
        max_wait_us = hints.max_wait_us + now_us - task.arrived_us
        hints = msgspec.structs.replace(hints, max_wait_us=max_wait_us)
    return msgspec.structs.replace(task, id=name, hints=hints)
