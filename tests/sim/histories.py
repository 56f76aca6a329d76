"""Plays short histories of gateways that share pools, on virtual time, with faults amid them.

The cores are those that are served: the pools' arithmetic with leases, extensions and settlement
(`MemoryPools`, which a differential test binds to `pools.lua`), the waiting queues, the limiter of
a group, and what a reservation grows to. A gateway here only carries messages: what it sends may be
lost, its reply may be lost, it may arrive twice, the gateway may die, the pools' clock may step. A
history is data, so that whoever finds one that breaks an invariant can make it shorter.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from backends.contract import BackendGroup
from router.classify.task import GroupLimits, Task, Tenant
from router.decide.admission import outgrown
from router.decide.waiting_queues import WaitingQueues
from router.pools.memory_pools import MemoryPools
from router.pools.pools import GROUPS, Demand, Grant, Renewal, Reservation, parse_lease, shrunk
from router.waiting.fair_queue import Waiter
from router.waiting.rules import WaitingConfig
from tests.unit.router.tasks import task

NOON_US = 1_800_014_400_000_000  # Unix time: no day ends within a history
LEASE_US = 30_000_000
TICK_US = 1_000_000  # unsettled is sent again, reservations are brought up to date, leases reaped
RENEW_US = 10_000_000
QUIET_US = 3 * LEASE_US  # at the end: whatever a dead gateway held has come back by then
LIMITS = GroupLimits(requests_per_min=600, tokens_per_min=60_000, max_concurrent=3)
TENANTS = tuple(
    Tenant(id=name, tier="any", limits={"fast": LIMITS, "deep": LIMITS}) for name in ("one", "two")
)
WAITING = WaitingConfig(wait_ms={"fast": 20_000, "deep": 20_000})
GROUP_LIMIT = 4  # of a gateway, all tenants together
ROUTES: tuple[tuple[BackendGroup, ...], ...] = (("fast",), ("deep",), ("fast", "deep"))

Fault = Literal["request lost", "reply lost", "twice"]
T = TypeVar("T")


class Arrive(NamedTuple):
    """A task reaches a gateway."""

    gateway: int
    tenant: int
    route: int
    tokens: int  # expected
    used: int  # in the end, of each group
    lasts_ms: int


class Wait(NamedTuple):
    """Time passes, and all that is due happens."""

    ms: int


class Break(NamedTuple):
    """Says what becomes of the next calls."""

    fault: Fault
    number: int


class Crash(NamedTuple):
    """A gateway dies with all that it runs, and another takes its place."""

    gateway: int


class Release(NamedTuple):
    """The oldest task on two groups needs one of them no more."""

    gateway: int


class Leave(NamedTuple):
    """The client of the task that has waited longest goes away."""

    gateway: int


class Step(NamedTuple):
    """The pools' clock steps."""

    ms: int


Event = Arrive | Wait | Break | Crash | Release | Leave | Step
NUM_GATEWAYS = 3


class ViolatedError(AssertionError):
    """An invariant does not hold."""


@dataclass
class Running:
    """Is a task that was admitted, as its gateway knows it."""

    reservation: Reservation
    ends_us: int
    began_us: int
    used: int
    over: dict[BackendGroup, int] = field(default_factory=dict)  # charged already

    def used_by(self, now_us: int) -> dict[BackendGroup, int]:
        """Returns what it has used so far, of each group that it still has."""
        share = min(1.0, (now_us - self.began_us) / max(1, self.ends_us - self.began_us))
        groups = (demand.group for demand in self.reservation.demands)
        return {group: int(self.used * share) for group in groups if group not in self.over}


@dataclass
class Waiting:
    """Is a task that waits."""

    waiter: Waiter
    task: Task
    arrival: Arrive
    group: BackendGroup


class Gateway:
    """Is one gateway: what runs and waits there, and what it has to send again."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.queues = WaitingQueues(WAITING)
        for group in GROUPS:
            self.queues.limiter.set_limit(group, GROUP_LIMIT, {})
        self.running: dict[str, Running] = {}
        self.waiting: dict[str, Waiting] = {}
        self.unsettled: list[tuple[Reservation, dict[BackendGroup, int]]] = []


class World:
    """Holds all gateways and the pools; `play` a history, then `end` it."""

    def __init__(self, pools: MemoryPools | None = None) -> None:
        self.now_us = NOON_US
        self.skew_us = 0  # of the pools' clock
        self.has_stepped = False
        self.stepped_back_us = 0  # in all: by so much later leases expire
        self.pools = pools or MemoryPools(LEASE_US)
        self.gateways = [Gateway(number) for number in range(NUM_GATEWAYS)]
        self.faults: list[Fault] = []
        self.num_arrived = 0
        self.num_anew = 0  # leases taken anew, whether there was room or not
        self.ended = Counter[str]()
        self.charged = Counter[tuple[str, str]]()  # tenant and group -> tokens, as they should be
        self._done = set[str]()  # reservations that were settled
        self.num_adrift = 0  # settlements whose lease had expired before
        self._next_tick_us = self.now_us + TICK_US
        self._next_renewal_us = self.now_us + RENEW_US

    # -- the network ---------------------------------------------------------------------------

    @property
    def pools_us(self) -> int:
        """Returns the pools' own time."""
        return self.now_us + self.skew_us

    def call(self, ask: Callable[[], T]) -> T | None:
        """Sends a call; None: it, or its reply, was lost."""
        fault = self.faults.pop(0) if self.faults else None
        if fault == "request lost":
            return None
        answer = ask()
        if fault == "twice":
            answer = ask()
        return None if fault == "reply lost" else answer

    # -- what happens --------------------------------------------------------------------------

    def play(self, events: Sequence[Event]) -> None:
        """Lets all of it happen, and checks the invariants after each."""
        for event in events:
            match event:
                case Arrive():
                    self._arrive(event)
                case Wait():
                    self._pass(event.ms * 1_000)
                case Break():
                    self.faults += [event.fault] * event.number
                case Crash():
                    self._crash(event.gateway)
                case Release():
                    self._release(self.gateways[event.gateway])
                case Leave():
                    self._leave(self.gateways[event.gateway])
                case Step():
                    self.skew_us += event.ms * 1_000
                    self.has_stepped = True
                    self.stepped_back_us += max(0, -event.ms * 1_000)
            self.check()

    def end(self) -> None:
        """Ends the faults, and all else: nothing may be left, lost or counted twice."""
        self.faults.clear()
        self._pass(QUIET_US + self.stepped_back_us)
        self.check()
        for gateway in self.gateways:
            if gateway.running or gateway.waiting or gateway.unsettled:
                raise ViolatedError(f"gateway {gateway.number} does not come to rest")
        if self.ended.total() != self.num_arrived:
            raise ViolatedError(f"{self.num_arrived} tasks arrived, and {self.ended} ended")
        for tenant in TENANTS:
            if leases := self.leases(tenant.id):
                raise ViolatedError(f"{tenant.id} has the leases {leases}, and nothing runs")
            for group in GROUPS:
                charged, wanted = self.day_tokens(tenant.id, group), self.charged[tenant.id, group]
                if charged != wanted:
                    raise ViolatedError(f"{tenant.id} was charged {charged} of {wanted} on {group}")
        if self.num_adrift and not self.has_stepped:
            raise ViolatedError(
                f"{self.num_adrift} tasks had lost their lease when they were settled"
            )

    def check(self) -> None:
        """Checks what holds at any moment."""
        for tenant in TENANTS:
            held = [parse_lease(lease) or {} for lease in self.leases(tenant.id)]
            for group in GROUPS:
                num_leases = sum(group in lease for lease in held)
                state = self.state(tenant.id, group)
                if state is None:
                    continue
                if state.num_held != num_leases:
                    raise ViolatedError(f"{state.num_held} places, {num_leases} leases on {group}")
                if state.num_held > LIMITS.max_concurrent + self.num_anew:
                    raise ViolatedError(f"{state.num_held} places are taken on {group}")
                if state.held_tokens != sum(lease.get(group, 0) for lease in held):
                    raise ViolatedError(f"{state.held_tokens} tokens are reserved on {group}")
        for gateway in self.gateways:
            for group in GROUPS:
                if len(gateway.queues.queues[group]) != sum(
                    each.group == group for each in gateway.waiting.values()
                ):
                    raise ViolatedError(
                        f"a task is in the queue of {group} and nobody waits, or not"
                    )

    def leases(self, tenant_id: str) -> list[str]:
        """Returns those that the pools hold."""
        return list(self.pools._tenants[tenant_id].expiry_ms)

    def state(self, tenant_id: str, group: BackendGroup) -> Any:
        """Returns a bucket as it is kept; None before the tenant's first task."""
        return self.pools._tenants[tenant_id]._own._kept.get(group)

    def day_tokens(self, tenant_id: str, group: BackendGroup) -> int:
        """Returns what was charged to it."""
        state = self.state(tenant_id, group)
        return 0 if state is None else int(state.day_tokens)

    # -- a task's life -------------------------------------------------------------------------

    def _arrive(self, event: Arrive) -> None:
        gateway, tenant = self.gateways[event.gateway], TENANTS[event.tenant]
        self.num_arrived += 1
        made = task(tenant=tenant, id=f"t{self.num_arrived}", arrived_us=self.now_us)
        groups, queues = ROUTES[event.route], gateway.queues
        place = queues.place_before(made, event.tokens, groups, {}, self.now_us)
        refused: Grant | None = None
        if place is None or not place.wait_us:
            refused = self._try(gateway, made, event)
            if refused is None:
                return
            place = queues.place_after(made, event.tokens, refused, {}, self.now_us)
        if not place.wait_us:
            self.ended["refused"] += 1
            return
        waiter = queues.join(made, event.tokens, place, refused, self.now_us)
        gateway.waiting[made.id] = Waiting(waiter, made, event, place.group)
        self._serve(gateway)

    def _try(self, gateway: Gateway, made: Task, event: Arrive) -> Grant | None:
        """Makes one attempt; returns the refusal, or None: it runs, or has ended."""
        groups, limiter = ROUTES[event.route], gateway.queues.limiter
        if any(limiter.shed(group, made.tenant.id) for group in groups):
            return limiter.refusal(groups, made.tenant.id)
        demands = tuple(Demand(group, event.tokens) for group in groups)
        grant = self.call(
            lambda: self.pools.reserve_first(made.tenant, made.id, [demands], self.pools_us)
        )
        if grant is None:  # it may hold a lease: what nobody runs is settled, and costs nothing
            doubtful = Reservation(made.id, made.tenant.id, demands, "", 0)
            lease = f"2:{made.id}|{_tokens(demands, 'fast')}|{_tokens(demands, 'deep')}"
            gateway.unsettled.append((msgspec.structs.replace(doubtful, lease=lease), {}))
            self.ended["unavailable"] += 1
            return None
        if grant.reservation is None:
            return grant
        limiter.acquire(made.id, made.tenant, groups)
        gateway.queues.note_admitted(grant, self.now_us)
        ends_us = self.now_us + event.lasts_ms * 1_000
        gateway.running[made.id] = Running(grant.reservation, ends_us, self.now_us, event.used)
        return None

    def _serve(self, gateway: Gateway) -> None:
        """Tries those whose turn it is, as the waiting room's pump does."""
        for group, queue in gateway.queues.queues.items():
            for waiter in queue.expired(self.now_us):
                queue.remove(waiter.id, self.now_us)
                del gateway.waiting[waiter.id]
                self.ended["refused"] += 1
            while (turn := queue.next(self.now_us)) is not None:
                waiting = gateway.waiting[turn.id]
                refused = self._try(gateway, waiting.task, waiting.arrival)
                if refused is not None:
                    gateway.queues.put_back(group, turn, refused, self.now_us)
                elif turn.id in gateway.running:
                    queue.served(turn, self.now_us)
                    del gateway.waiting[turn.id]
                else:
                    queue.remove(turn.id, self.now_us)
                    del gateway.waiting[turn.id]

    def _leave(self, gateway: Gateway) -> None:
        if gateway.waiting:
            name, waiting = next(iter(gateway.waiting.items()))
            gateway.queues.queues[waiting.group].remove(name, self.now_us)
            del gateway.waiting[name]
            self.ended["left"] += 1

    def _release(self, gateway: Gateway) -> None:
        for running in gateway.running.values():
            groups = [demand.group for demand in running.reservation.demands]
            if len(groups) == 2 and running.reservation.former is None:
                running.over["fast"] = running.used_by(self.now_us)["fast"]
                self._bring_up_to_date(running)
                return

    def _bring_up_to_date(self, running: Running) -> None:
        held = running.reservation
        if held.former is None:
            due = {demand.group for demand in held.demands} & set(running.over)
            if due and len(held.demands) > 1:
                held = shrunk(held, {group: running.over[group] for group in due})
            else:
                grown = outgrown(held, running.used_by(self.now_us))
                if grown is None:
                    return
                held = grown
        running.reservation = held
        done = self.call(lambda: self._extend(held))
        if done is not None:
            running.reservation = msgspec.structs.replace(held, former=None, released=())

    def _extend(self, held: Reservation) -> bool:
        self._note_released(held)
        return self.pools.extend(held, self.pools_us)

    def _renew(self, held: Sequence[Reservation]) -> Renewal:
        for each in held:  # one whose extension has no reply yet is extended
            self._note_released(each)
        return self.pools.renew(held, self.pools_us)

    def _note_released(self, held: Reservation) -> None:
        leases = self.leases(held.tenant_id)
        if held.former in leases and held.lease not in leases:
            for group, tokens in held.released:
                self.charged[held.tenant_id, group] += tokens

    def _crash(self, number: int) -> None:
        dead = self.gateways[number]
        self.ended["crashed"] += len(dead.running) + len(dead.waiting)
        self.gateways[number] = Gateway(number)

    # -- time ----------------------------------------------------------------------------------

    def _pass(self, us: int) -> None:
        until_us = self.now_us + us
        while (due_us := self._next_us()) <= until_us:
            self.now_us = max(self.now_us, due_us)
            self._what_is_due()
        self.now_us = until_us

    def _next_us(self) -> int:
        ends = (each.ends_us for gateway in self.gateways for each in gateway.running.values())
        return min(self._next_tick_us, min(ends, default=self._next_tick_us))

    def _what_is_due(self) -> None:
        for gateway in self.gateways:
            for name, running in list(gateway.running.items()):
                if running.ends_us <= self.now_us:
                    self._finish(gateway, name, running)
            self._serve(gateway)
        if self.now_us >= self._next_tick_us:
            self._next_tick_us += TICK_US
            self._tick()

    def _tick(self) -> None:
        for gateway in self.gateways:
            for running in gateway.running.values():
                self._bring_up_to_date(running)
            waiting, gateway.unsettled = gateway.unsettled, []
            for reservation, used in waiting:
                self._settle(gateway, reservation, used)
        for tenant in TENANTS:  # any gateway that lives takes its turn
            self.pools.reap(tenant.id, 100, self.pools_us)
        if self.now_us >= self._next_renewal_us:
            self._next_renewal_us += RENEW_US
            for gateway in self.gateways:
                held = [each.reservation for each in gateway.running.values()]
                renewal = self.call(lambda held=held: self._renew(held))  # type: ignore[misc]
                self.num_anew += len(held) if renewal is None else renewal.num_anew

    def _finish(self, gateway: Gateway, name: str, running: Running) -> None:
        del gateway.running[name]
        self.ended["done"] += 1
        used = running.used_by(running.ends_us)
        # Also groups already released, in case that call had no reply.
        self._settle(gateway, running.reservation, used | running.over)
        gateway.queues.settled(running.reservation, self.now_us)

    def _settle(
        self, gateway: Gateway, reservation: Reservation, used: dict[BackendGroup, int]
    ) -> None:
        """Settles it, and again until there is a reply."""
        if self.call(lambda: self._settled(reservation, used)) is None:
            gateway.unsettled.append((reservation, used))

    def _settled(self, reservation: Reservation, used: Mapping[BackendGroup, int]) -> bool:
        held = self.leases(reservation.tenant_id)
        found = next((x for x in (reservation.lease, reservation.former) if x in held), None)
        is_first = reservation.id not in self._done
        if found is not None:
            for group in parse_lease(found) or {}:
                self.charged[reservation.tenant_id, group] += used.get(group, 0)
        elif is_first and used:
            self.num_adrift += 1
        if found is not None or used:
            self._done.add(reservation.id)
        return self.pools.settle(reservation, used, self.pools_us)


def _tokens(demands: Sequence[Demand], group: BackendGroup) -> int:
    return next((demand.tokens for demand in demands if demand.group == group), -1)


def played(events: Sequence[Event], pools: MemoryPools | None = None) -> World:
    """Plays a history from its beginning to rest; raises `ViolatedError`."""
    world = World(pools)
    world.play(events)
    world.end()
    return world
