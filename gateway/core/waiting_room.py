"""Lets tasks wait for a pool instead of being refused, where their tenant may.

Each process has a queue per group of engines, ordered by `router.waiting.fair_queue`. A pump per
group tries the next task, and sleeps until one can be next. Between processes, which share the
pools, it is first come, first served.

A task that may not wait is tried at once; its refusal says how long the tasks before it take.
This is an edge.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol

import msgspec

from backends.contract import BackendGroup
from gateway.metrics.counters import Counters
from gateway.metrics.labels import WaitOutcome
from gateway.wire.errors import ProtocolError, cancelled_in_queue, draining
from router.classify.task import Task
from router.decide.concurrency_limiter import ConcurrencyLimiter
from router.decide.decision import RankedRoute
from router.decide.waiting_queues import Place, WaitingQueues
from router.pools.pools import Demand, Grant, Reservation
from router.waiting.fair_queue import FairQueue, QueuePosition, Waiter
from router.waiting.rules import WaitingConfig, Waits, is_of_key

logger = logging.getLogger("lanewise")

POSITIONS_INTERVAL_US = 1_000_000  # between two reports of changed positions


class Attempt(msgspec.Struct, frozen=True):
    """Says how one attempt went: the ranked routes, and the pools' grant or refusal."""

    ranked: tuple[RankedRoute, ...]  # none for a part of a task
    grant: Grant
    at_us: int  # when it was granted, or refused for good


Try = Callable[[bool], Awaitable[Attempt]]  # whether the task has waited before
Settle = Callable[[Reservation, Mapping[BackendGroup, int]], Coroutine[Any, Any, None]]


class Visitor(Protocol):
    """Owns a waiting task; it may stop the wait, and takes the task's position."""

    @property
    def wants_queue_position(self) -> bool: ...

    def report_queue_position(self, group: BackendGroup, position: QueuePosition) -> None: ...

    def wait(self, on_stop: Callable[[], None] | None) -> None:
        """Sets how to stop the wait; None: it waits no longer."""
        ...


class Admission(msgspec.Struct, frozen=True):
    """Describes a task to be admitted, and how to attempt that."""

    task: Task
    tokens: int  # its demand on the first group
    groups: Callable[[], Collection[BackendGroup]]  # that it may run on now, in order
    attempt: Try  # tries the pools
    settle: Settle  # releases what was granted to a task that had gone
    visitor: Visitor | None  # takes its position, and may stop it


@dataclass(slots=True)
class _Entry:
    waiter: Waiter
    wanted: Admission
    last: Attempt | None  # the latest failure
    outcome: "asyncio.Future[Attempt | None]"  # None: its wait timed out
    shown_position: int = 0


@dataclass(slots=True)
class _Room:
    """Holds the tasks that wait for one group."""

    group: BackendGroup
    queue: FairQueue
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    entries: dict[str, _Entry] = field(default_factory=dict)
    pump: "asyncio.Task[None] | None" = None
    shown_us: int = 0


@dataclass(eq=False)
class WaitingRoom:
    """Admits tasks; cancelling a call removes its task and releases what it was granted."""

    config: WaitingConfig
    _: KW_ONLY
    clock_us: Callable[[], int]  # monotonic; tasks' arrivals are on it
    policy_wait_ms: Callable[[], Waits]  # the active policy's longest waits
    # Runs a coroutine to its end, even if its task is cancelled.
    spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
    metrics: Counters

    def __post_init__(self) -> None:
        """Makes an empty queue per group."""
        self._queues = WaitingQueues(self.config)
        self._rooms = {group: _Room(group, queue) for group, queue in self._queues.queues.items()}
        self.limiter: ConcurrencyLimiter = self._queues.limiter  # of tasks per group

    async def admit(self, wanted: Admission) -> Attempt:
        """Returns the grant of a task or of a part of one, now or after waiting, or its refusal.

        The refusal has the pools' wait only: `truthful` adds what else a task waits for.

        Raises `ProtocolError` if it was stopped, its wait timed out, or `attempt` raised it.
        """
        task, tokens, queues = wanted.task, wanted.tokens, self._queues
        place: Place | None = None
        first: Attempt | None = None
        if any(queues.waiting):
            groups, waits = wanted.groups(), self.policy_wait_ms()
            place = queues.place_before(task, tokens, groups, waits, self.clock_us())
        if place is None or not place.wait_us:
            first = await wanted.attempt(False)
            if first.grant.index is not None:
                queues.note_admitted(first.grant, first.at_us)
                return first
            waits, now_us = self.policy_wait_ms(), self.clock_us()
            place = queues.place_after(task, tokens, first.grant, waits, now_us)
            if not place.wait_us:
                return first
        grant = None if first is None else first.grant
        waiter = queues.join(task, tokens, place, grant, self.clock_us())
        room = self._rooms[place.group]
        outcome: asyncio.Future[Attempt | None] = asyncio.get_running_loop().create_future()
        entry = _Entry(waiter, wanted, first, outcome)
        made = await self._stand(room, entry) or entry.last
        if made is None:
            raise self._in_vain(room, waiter)
        return made

    def truthful(self, wanted: Admission, refused: Attempt) -> Attempt:
        """Adds the tenant's earlier tasks, waiting or to be retried, to the wait of a refusal.

        Parts of a task are not retried, so theirs has the pools' wait only.
        """
        now_us = self.clock_us()
        grant = self._queues.truthful(wanted.task, wanted.tokens, refused.grant, now_us)
        return Attempt(refused.ranked, grant, now_us)

    def settled(self, reservation: Reservation) -> None:
        """Frees the slots of a task that ended, and wakes the queues that may go on with them."""
        self.limiter.release(reservation.id)
        if any(self._queues.waiting):
            tenant_id, demands = reservation.tenant_id, reservation.demands
            self._wake(self._queues.released(tenant_id, demands, self.clock_us()))

    def shrunk(self, kept: Reservation, released: tuple[Demand, ...]) -> None:
        """Frees slots that a running task released."""
        self.limiter.keep(kept.id, [demand.group for demand in kept.demands])
        self._wake(self._queues.released(kept.tenant_id, released, self.clock_us()))

    def _wake(self, groups: Iterable[BackendGroup]) -> None:
        for group in groups:
            self._rooms[group].changed.set()

    def wanting(self, group: BackendGroup) -> Counter[tuple[str, str]]:
        """Counts the tasks that wait for a group, by tenant and tier."""
        entries = self._rooms[group].entries.values()
        return Counter((entry.waiter.tenant_id, entry.wanted.task.tenant.tier) for entry in entries)

    def look_again(self, group: BackendGroup) -> None:
        """Tries a group's queue again, since its capacity may have changed."""
        room = self._rooms[group]
        if len(room.queue):
            room.queue.hold(self.clock_us())
            room.changed.set()

    def refuse_all(self) -> None:
        """Refuses all waiting tasks, since the gateway is stopping."""
        error = draining()
        for room in self._rooms.values():
            for entry in room.entries.values():
                if not entry.outcome.done():
                    entry.outcome.set_exception(error)

    def _in_vain(self, room: _Room, waiter: Waiter) -> ProtocolError:
        wait_us = room.queue.expected_us(waiter.tenant_id, waiter.tokens, self.clock_us())
        wait_us = max(1_000_000, wait_us)
        return ProtocolError(
            "rate_limit_exceeded",
            f"Rate limit reached for the {room.group} engines: earlier tasks of this tenant still "
            f"wait for them. Please try again in {-(-wait_us // 1_000_000)}s.",
            retry_after_us=wait_us,
        )

    async def _stand(self, room: _Room, entry: _Entry) -> Attempt | None:
        """Waits for the outcome; the task is in no queue afterwards."""
        waiter, outcome = entry.waiter, entry.outcome
        room.entries[waiter.id] = entry
        self._count_waiting(room)
        if room.pump is None or room.pump.done():
            room.pump = self.spawn(self._serve(room))
        room.changed.set()
        self._report_positions(room, now_us=waiter.joined_us, only=entry)
        if entry.wanted.visitor is not None:
            entry.wanted.visitor.wait(lambda: _stop(outcome))
        ending: WaitOutcome = "left"
        try:
            found = await outcome
            ending = "refused" if found is None else "admitted"
            return found
        except asyncio.CancelledError:
            # It may have been admitted at this very moment.
            if outcome.done() and not outcome.cancelled() and outcome.exception() is None:
                self._return(entry, outcome.result())
            raise
        finally:
            if entry.wanted.visitor is not None:
                entry.wanted.visitor.wait(None)
            now_us = self.clock_us()
            room.queue.remove(waiter.id, now_us)
            del room.entries[waiter.id]
            room.changed.set()
            self._count_waiting(room)
            waits = self.metrics.histograms["lanewise_admission_wait_seconds"]
            waits[room.group, ending].observe((now_us - waiter.joined_us) / 1e6)

    def _count_waiting(self, room: _Room) -> None:
        depth = self.metrics.counts["lanewise_admission_queue_depth"]
        depth[(room.group,)].set(len(room.queue))

    async def _serve(self, room: _Room) -> None:
        """Tries the next task, for as long as any waits."""
        queue = room.queue
        while len(queue):
            room.changed.clear()
            now_us = self.clock_us()
            for waiter in queue.expired(now_us):
                queue.remove(waiter.id, now_us)
                outcome = room.entries[waiter.id].outcome
                if not outcome.done():
                    outcome.set_result(None)
            turn = queue.next(now_us)
            if turn is not None:
                await self._try(room, room.entries[turn.id])
            self._report_positions(room, self.clock_us())
            if turn is None:
                await self._sleep(room)

    async def _try(self, room: _Room, entry: _Entry) -> None:
        waiter = entry.waiter
        try:
            attempt = await entry.wanted.attempt(True)
        except Exception as error:  # reported to its own client only
            room.queue.remove(waiter.id, self.clock_us())
            if not entry.outcome.done():
                entry.outcome.set_exception(error)
            return
        grant, now_us = attempt.grant, self.clock_us()
        if grant.reservation is None and is_of_key(grant):
            entry.last = attempt
            room.queue.remove(waiter.id, now_us)
            if not entry.outcome.done():
                entry.outcome.set_result(None)
        elif grant.reservation is None:
            entry.last = attempt
            self._queues.put_back(room.group, waiter, grant, now_us)
        elif entry.outcome.done():
            room.queue.remove(waiter.id, now_us)  # it has left
            self._return(entry, attempt)
        else:
            room.queue.served(waiter, now_us)
            self._queues.note_admitted(grant, now_us)
            entry.outcome.set_result(attempt)

    def _return(self, entry: _Entry, attempt: Attempt | None) -> None:
        if attempt is not None and attempt.grant.reservation is not None:
            self.spawn(entry.wanted.settle(attempt.grant.reservation, {}))

    async def _sleep(self, room: _Room) -> None:
        wake_us = room.queue.wake_us()
        if wake_us is None:
            return
        visitors = (entry.wanted.visitor for entry in room.entries.values())
        if any(visitor is not None and visitor.wants_queue_position for visitor in visitors):
            wake_us = min(wake_us, room.shown_us + POSITIONS_INTERVAL_US)
        timeout_s = max(0.0, (wake_us - self.clock_us()) / 1e6)
        try:
            async with asyncio.timeout(timeout_s):
                await room.changed.wait()
        except TimeoutError:
            return

    def _report_positions(self, room: _Room, now_us: int, only: _Entry | None = None) -> None:
        """Reports positions to visitors that want them: on arrival, then on each change."""
        if only is None:
            if now_us < room.shown_us + POSITIONS_INTERVAL_US:
                return
            room.shown_us = now_us
        entries = room.entries.values() if only is None else (only,)
        wanting = [
            (entry, entry.wanted.visitor)
            for entry in entries
            if entry.wanted.visitor
            and entry.wanted.visitor.wants_queue_position
            and not entry.outcome.done()
        ]
        positions = room.queue.positions(now_us) if wanting else {}
        for entry, visitor in wanting:
            position = positions.get(entry.waiter.id)
            if position is not None and position.position != entry.shown_position:
                entry.shown_position = position.position
                visitor.report_queue_position(room.group, position)


def _stop(outcome: "asyncio.Future[Attempt | None]") -> None:
    if not outcome.done():
        outcome.set_exception(cancelled_in_queue())
