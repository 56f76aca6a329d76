"""Admits tasks in virtual time by the rules of the waiting queues.

It is the twin of the gateway's waiting room, which pumps them on asyncio.
"""

from collections import Counter
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from backends.contract import BackendGroup
from router.classify.task import Task
from router.decide.concurrency_limiter import ConcurrencyLimiter
from router.decide.decision import RankedRoute
from router.decide.waiting_queues import Place, WaitingQueues
from router.pools.pools import Demand, Grant, Reservation
from router.waiting.fair_queue import Waiter
from router.waiting.rules import WaitingConfig, Waits

Attempted: TypeAlias = tuple[tuple[RankedRoute, ...], Grant]


class QueueWorld(Protocol):
    """Offers what queueing and settlements need of the simulation around them."""

    now_us: int

    def at(self, time_us: int, call: Callable[[], None]) -> None: ...

    def note_waiting(self, group: BackendGroup, num_waiting: int) -> None: ...


class Applicant(Protocol):
    """Is a task, or a part of one, that is to be admitted."""

    task: Task
    tokens: int  # its demand on the first group
    groups: tuple[BackendGroup, ...]

    def attempt(self, has_waited: bool) -> Attempted | None:
        """Tries the pools; None: no route is left, it has ended."""
        ...

    def answered(
        self, routes: tuple[RankedRoute, ...], grant: Grant, waited_for: BackendGroup | None
    ) -> None:
        """Takes the grant or the last refusal, and the group that was waited for."""
        ...

    def in_vain(self) -> None:
        """Learns that its wait ended without a single try."""
        ...


class _Entry(msgspec.Struct):
    waiter: Waiter
    asked: Applicant
    last: Attempted | None


class Queueing:
    """Pumps the queues of all groups; every callback comes from the heap or from `admit`."""

    def __init__(self, config: WaitingConfig, waits: Waits, world: QueueWorld) -> None:
        self._queues = WaitingQueues(config)
        self.limiter: ConcurrencyLimiter = self._queues.limiter  # of tasks per group
        self._waits = waits  # of the policy
        self._world = world
        self._entries: dict[BackendGroup, dict[str, _Entry]] = {
            group: {} for group in self._queues.queues
        }
        self._wakes_us: dict[BackendGroup, int] = {}  # the pumps' next looks

    def wanting(self, group: BackendGroup) -> Counter[tuple[str, str]]:
        """Counts the tasks that wait for a group, by tenant and tier."""
        entries = self._entries[group].values()
        return Counter((each.waiter.tenant_id, each.asked.task.tenant.tier) for each in entries)

    def admit(self, asked: Applicant, *, is_part: bool = False) -> None:
        """Tries a task, or has it wait first; a refused part is told the pools' wait only."""
        queues, task, tokens = self._queues, asked.task, asked.tokens
        now_us = self._world.now_us
        place = queues.place_before(task, tokens, asked.groups, self._waits, now_us)
        first: Attempted | None = None
        if place is None or not place.wait_us:
            first = asked.attempt(False)
            if first is None:
                return
            routes, grant = first
            if grant.index is not None:
                queues.note_admitted(grant, now_us)
                asked.answered(routes, grant, None)
                return
            place = queues.place_after(task, tokens, grant, self._waits, now_us)
            if not place.wait_us:
                if not is_part:
                    grant = queues.truthful(task, tokens, grant, now_us)
                asked.answered(routes, grant, None)
                return
        self._stand(asked, place, first)

    def settled(self, reservation: Reservation) -> None:
        """Lets queues go on behind a task that ended."""
        for group in self._queues.settled(reservation, self._world.now_us):
            self._look_soon(group)

    def released(self, tenant_id: str, demands: tuple[Demand, ...]) -> None:
        """Lets queues go on behind slots that a running task released."""
        for group in self._queues.released(tenant_id, demands, self._world.now_us):
            self._look_soon(group)

    def look_again(self, group: BackendGroup) -> None:
        """Tries a group's queue again, since its capacity may have changed."""
        queue = self._queues.queues[group]
        if len(queue):
            queue.hold(self._world.now_us)
            self._look_soon(group)

    def leave(self, task_id: str) -> None:
        """Removes a task whose client has gone."""
        for group, entries in self._entries.items():
            if entries.pop(task_id, None) is not None:
                self._queues.queues[group].remove(task_id, self._world.now_us)
                self._look_soon(group)

    def _stand(self, asked: Applicant, place: Place, first: Attempted | None) -> None:
        group, now_us = place.group, self._world.now_us
        refused = None if first is None else first[1]
        waiter = self._queues.join(asked.task, asked.tokens, place, refused, now_us)
        self._entries[group][waiter.id] = _Entry(waiter, asked, first)
        self._world.note_waiting(group, len(self._entries[group]))
        self._look_soon(group)

    def _look_soon(self, group: BackendGroup) -> None:
        self._look_at(group, self._world.now_us)

    def _look_at(self, group: BackendGroup, time_us: int) -> None:
        known_us = self._wakes_us.get(group)
        if known_us is not None and known_us <= time_us:
            return
        self._wakes_us[group] = time_us

        def look() -> None:
            if self._wakes_us.get(group) == time_us:
                del self._wakes_us[group]
                self._pump(group)

        self._world.at(time_us, look)

    def _pump(self, group: BackendGroup) -> None:
        """Tries the next task, for as long as there is one."""
        queue, entries, now_us = (
            self._queues.queues[group],
            self._entries[group],
            self._world.now_us,
        )
        for waiter in queue.expired(now_us):
            queue.remove(waiter.id, now_us)
            self._timed_out(group, entries.pop(waiter.id))
        while (turn := queue.next(now_us)) is not None:
            entry = entries[turn.id]
            made = entry.asked.attempt(True)
            if made is None:
                queue.remove(turn.id, now_us)
                entries.pop(turn.id, None)
                continue
            routes, grant = made
            if grant.reservation is None:
                entry.last = made
                self._queues.put_back(group, turn, grant, now_us)
                continue
            queue.served(turn, now_us)
            entries.pop(turn.id, None)
            self._queues.note_admitted(grant, now_us)
            entry.asked.answered(routes, grant, group)
        wake_us = queue.wake_us()
        if wake_us is not None:
            self._look_at(group, max(wake_us, now_us + 1))

    def _timed_out(self, group: BackendGroup, entry: _Entry) -> None:
        if entry.last is None:
            entry.asked.in_vain()
            return
        routes, grant = entry.last
        asked = entry.asked
        grant = self._queues.truthful(asked.task, asked.tokens, grant, self._world.now_us)
        asked.answered(routes, grant, group)
