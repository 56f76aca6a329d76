"""Uses the pools in Redis while it replies, and local pools while it does not.

A circuit breaker decides. While it is closed, every call goes to Redis; a call without a reply
within its budget falls back to local pools, so no task is refused or waits longer. While it is
open, no call goes to Redis; `check`, called periodically, probes it. Before calls return to Redis,
it adopts what runs here (also what it forgot), and is charged for what ended meanwhile.

Each reservation is charged once: one that Redis may know is settled under its lease, which is
idempotent; one that it cannot know is adopted first, and never again once its settlement was sent.
A settlement expires after a minute, since a pool of a minute's tokens would be full again by then.

While Redis has never replied since this process began (`blind`), other gateways are unknown, and
`on_blind` says whether to refuse (`PoolsUnavailable`) or to use local pools. This is an edge.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

import msgspec

from backends.contract import BackendGroup
from router.classify.task import Tenant
from router.pools.heartbeat import Pulse
from router.pools.local_pools import LocalPools, OnBlind, WhenAway
from router.pools.pools import Balance, Demand, Grant, PoolCall, PoolsMode, PoolsReport, Reservation
from router.pools.redis_breaker import Breaker
from router.pools.redis_pools import PoolsUnavailable, RedisPools

logger = logging.getLogger("lanewise")
Answer = TypeVar("Answer")

MAX_CHARGE_AGE_US = 60_000_000  # older settlements are dropped
MAX_UNSETTLED = 20_000  # settlements that wait for Redis; beyond, the oldest is dropped
MAX_AT_ONCE = 256  # concurrent calls while Redis is brought up to date
COUNTS_KEPT = 10  # heartbeats that must agree before the count of gateways falls


class _Held(msgspec.Struct):
    """Holds a reservation of a task that runs here."""

    tenant: Tenant
    reservation: Reservation
    is_local: bool  # granted here, so that local pools were charged
    in_redis: bool  # Redis knows it, or may
    counted: Reservation  # whose slots count as taken here


class _Unsettled(msgspec.Struct):
    held: _Held
    used_tokens: dict[BackendGroup, int]
    ended_us: int


@dataclass(eq=False)
class FailoverPools:
    """Reserves and settles in Redis or locally, from one event loop; cancelling undoes nothing."""

    redis: RedisPools  # the shared pools; closed with this
    _: KW_ONLY
    clock_us: Callable[[], int]  # monotonic
    wall_us: Callable[[], int] | None = None  # Unix time, for daily budgets; None: `clock_us`
    # Sends a heartbeat and counts the gateways; None: this is the only one.
    beat: Callable[[], Awaitable[Pulse]] | None = None
    # What each group does without Redis; one not named goes on locally.
    when_away: Callable[[], Mapping[BackendGroup, WhenAway]] = dict
    on_blind: OnBlind = "closed"  # whether to go on alone if Redis has never answered
    # Hears of each call to Redis: which, whether it was answered, microseconds.
    on_call: Callable[[PoolCall, bool, int], None] = lambda call, answered, duration_us: None
    on_report: Callable[[PoolsReport], None] = lambda report: None  # when it may have changed
    # Hears of each reservation that has released its slots.
    on_settled: Callable[[Reservation], None] = lambda reservation: None

    def __post_init__(self) -> None:
        self._now_us = self.wall_us or self.clock_us
        self._breaker = Breaker()
        self._local = LocalPools()
        self._held: dict[str, _Held] = {}  # by reservation id
        self._unadopted: dict[str, _Held] = {}  # those of them that Redis cannot know
        self._unsettled: deque[_Unsettled] = deque()
        self._counts: deque[int] = deque([1], maxlen=COUNTS_KEPT)
        self._num_uncharged = 0
        self._num_recoveries = 0

    @property
    def mode(self) -> PoolsMode:
        """Returns which pools would serve a task now."""
        return "redis" if self._breaker.is_closed else "degraded"

    @property
    def blind(self) -> bool:
        """Returns whether Redis has never replied."""
        return not self._breaker.seen

    @property
    def ready(self) -> bool:
        """Returns whether tasks are accepted at all."""
        return not self.blind or self.on_blind == "local"

    @property
    def pause_us(self) -> int:
        """Returns how long to wait until the next `check`."""
        return self._breaker.pause_us

    @property
    def report(self) -> PoolsReport:
        """Returns the state of the pools, for metrics."""
        return PoolsReport(
            mode=self.mode,
            num_gateways=max(self._counts),
            num_unsettled=len(self._unsettled),
            num_uncharged=self._num_uncharged,
            num_recoveries=self._num_recoveries,
        )

    async def reserve_first(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> Grant:
        """Reserves the first ranked demands that fit, or nothing; may raise `PoolsUnavailable`."""
        if not self._breaker.is_closed:
            return self._reserve_locally(tenant, reservation_id, ranked_demands)
        sent = self.redis.reserve_first(tenant, reservation_id, ranked_demands)
        try:
            grant = await self._noted("admit", sent, self.clock_us())
        except PoolsUnavailable:
            return self._reserve_locally(tenant, reservation_id, ranked_demands)
        self._local.note(tenant.id, grant.balances, self._now_us())
        if grant.reservation is not None:
            self._hold(tenant, grant.reservation, is_local=False)
        return grant

    def settle(
        self, reservation: Reservation, actual_tokens: Mapping[BackendGroup, int]
    ) -> Coroutine[Any, Any, None]:
        """Releases the slots and charges actual tokens; a group not named used none.

        The call to Redis is sent at once; await the result for its reply. It never fails: a
        settlement that Redis misses is sent when it is back.
        """
        held = self._held.pop(reservation.id, None)
        if held is None:
            return _nothing()  # settled before
        self._unadopted.pop(reservation.id, None)
        self._local.release(held.counted)
        if held.is_local:
            self._local.settle(held.reservation, actual_tokens)
        entry = _Unsettled(held, dict(actual_tokens), self.clock_us())
        sent: Coroutine[Any, Any, Any] | None = None
        if self._breaker.is_closed:
            if held.in_redis:
                sent = self.redis.settle(held.reservation, entry.used_tokens)
            else:
                sent = self._charge(entry)
        return self._settled(entry, sent)

    async def _settled(self, entry: _Unsettled, sent: Coroutine[Any, Any, Any] | None) -> None:
        try:
            if sent is None:
                self._put_off(entry)
            else:
                await self._noted("settle", sent, entry.ended_us)
        except PoolsUnavailable:
            self._put_off(entry)
        except asyncio.CancelledError:
            self._put_off(entry)  # settling twice is harmless
            raise
        finally:
            self.on_settled(entry.held.reservation)

    async def extend(self, reservation: Reservation) -> Reservation:
        """Reserves what `extended` added, or releases what `shrunk` removed.

        Returns what is held now: the former reservation while Redis is away, or both leases if its
        reply was lost; then extend again.
        """
        held = self._held.get(reservation.id)
        if held is None:
            return reservation  # settled meanwhile
        known = held.reservation
        certain = msgspec.structs.replace(reservation, former=None, released=())
        if not held.in_redis:
            if reservation.released:
                return known  # Redis must hear of all of it: it is settled whole, when it ends
            if held.is_local:
                self._local.extend(known, certain)
            held.reservation = certain  # adopted as it is then
            return certain
        if not self._breaker.is_closed:
            return known
        held.reservation = reservation
        try:
            await self._noted("extend", self.redis.extend(reservation), self.clock_us())
        except PoolsUnavailable:
            return reservation
        if held.reservation is reservation:
            held.reservation = certain
            if reservation.released and reservation.id in self._held:
                self._local.release(held.counted)
                self._local.hold(certain)
                held.counted = certain
        return held.reservation

    async def renew(self) -> None:
        """Renews running tasks' leases, unless Redis is away; call it every third of a lease."""
        held = [held.reservation for held in self._held.values() if held.in_redis]
        if not held or not self._breaker.is_closed:
            return
        try:
            renewal = await self._noted("renew", self.redis.renew(held), self.clock_us())
        except PoolsUnavailable:
            return
        if renewal.num_anew:
            logger.warning(
                "%d of %d leases were gone and have been taken anew: renewals came too late, "
                "Redis lost its last writes, or its clock stepped forward",
                *(renewal.num_anew, len(held)),
            )

    async def reap(self) -> int:
        """Releases crashed gateways' leases; returns how many. Call it twice a second."""
        if not self._breaker.is_closed:
            return 0
        try:
            return await self.redis.reap()
        except PoolsUnavailable:
            return 0  # the breaker hears of it from the calls of tasks

    async def balances(self, tenant: Tenant) -> tuple[Balance, ...]:
        """Reads the tenant's balances in Redis, or raises `PoolsUnavailable`."""
        if not self._breaker.is_closed:
            raise PoolsUnavailable("Redis is away, and only it knows the shared pools")
        return await self.redis.balances(tenant)

    async def forget(self, tenant_id: str) -> None:
        """Deletes a deleted tenant's shared pools; while Redis is away they remain."""
        try:
            await self.redis.forget(tenant_id)
        except PoolsUnavailable as error:
            logger.warning("the pools of %s, which is deleted, are left: %s", tenant_id, error)

    async def check(self) -> None:
        """Probes Redis, and returns to it after two good probes. Cancelling is safe."""
        started_us = self.clock_us()
        try:
            is_forgotten = await self._probe()
            if self._breaker.is_closed:
                self._breaker.succeeded(started_us, self.clock_us())
                unknown = self._held if is_forgotten else self._unadopted
                await self._bring_up_to_date(unknown.values())
            elif self._breaker.probed(good=True):
                await self.redis.ping()  # over the connection that tasks use
                await self._bring_up_to_date(self._held.values())
                self._breaker.close()  # nothing may be awaited since the last adoption
                self._local.forget_rates()
                self._num_recoveries += 1
                logger.info("Redis answers again: tasks meet the shared pools")
        except PoolsUnavailable as error:
            if not self._breaker.is_closed:
                self._breaker.probed(good=False)
            elif self._breaker.failed(started_us, self.clock_us()):
                self._say_away(error)
        self.on_report(self.report)

    async def greet(self) -> None:
        """Probes Redis before the first task, so that no task has to wait for a timeout."""
        await self.check()
        if self.blind:
            self._breaker.trip()
            rest = "are limited locally" if self.ready else "are refused with 503"
            logger.warning("Redis has not answered yet: until it does, tasks %s", rest)
        self.on_report(self.report)

    async def close(self) -> None:
        """Sends the remaining settlements if possible, then closes the connections."""
        if self._breaker.is_closed and self._unsettled:
            try:
                await self._charge_unsettled()
            except PoolsUnavailable:
                logger.warning("%d settlements are left to their leases", len(self._unsettled))
        await self.redis.close()

    async def _probe(self) -> bool:
        """Probes Redis; returns whether it was restarted and has lost its data."""
        if self.beat is None:
            await self.redis.ping()
            return False
        pulse = await self.beat()
        self._counts.append(pulse.num_gateways)
        return pulse.is_new

    def _reserve_locally(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> Grant:
        if not self.ready:
            raise PoolsUnavailable("Redis has not answered since this gateway started")
        grant = self._local.reserve_first(
            tenant,
            reservation_id,
            ranked_demands,
            when_away=self.when_away(),
            num_gateways=max(self._counts),
            now_us=self._now_us(),
        )
        if grant is None:
            groups = sorted({demand.group for demands in ranked_demands for demand in demands})
            raise PoolsUnavailable(
                f"Redis is away, and the {' and '.join(groups)} engines are closed meanwhile"
            )
        if grant.reservation is not None:
            # If Redis was asked and did reserve, it did so under this very lease.
            self._hold(tenant, grant.reservation, is_local=True)
        return grant

    def _hold(self, tenant: Tenant, reservation: Reservation, *, is_local: bool) -> None:
        if reservation.id in self._held:
            return
        held = _Held(tenant, reservation, is_local, not is_local, reservation)
        self._held[reservation.id] = held
        self._local.hold(reservation)
        if is_local:
            self._unadopted[reservation.id] = held

    def _put_off(self, entry: _Unsettled) -> None:
        if len(self._unsettled) >= MAX_UNSETTLED:
            self._unsettled.popleft()
            self._num_uncharged += 1
        self._unsettled.append(entry)

    async def _adopt(self, held: _Held) -> None:
        if held.reservation.former is not None:
            await self.redis.extend(held.reservation)  # first to know under which lease it is
            held.reservation = msgspec.structs.replace(held.reservation, former=None, released=())
        await self.redis.adopt(held.tenant, held.reservation)
        held.in_redis = True
        self._unadopted.pop(held.reservation.id, None)

    async def _charge(self, entry: _Unsettled) -> None:
        """Settles a reservation in Redis, which adopts it first if it cannot know it."""
        if not entry.held.in_redis:
            await self._adopt(entry.held)
        await self.redis.settle(entry.held.reservation, entry.used_tokens)

    async def _bring_up_to_date(self, held: Iterable[_Held]) -> None:
        """Adopts these, then charges pending settlements; after a failure the rest stays."""

        async def adopt_live(each: _Held) -> None:
            if each.reservation.id in self._held:  # what is settled must not come back
                await self._adopt(each)

        adopted = list(held)
        for start in range(0, len(adopted), MAX_AT_ONCE):
            await _all(adopt_live(each) for each in adopted[start : start + MAX_AT_ONCE])
        await self._charge_unsettled()

    async def _charge_unsettled(self) -> None:
        while self._unsettled:
            due = [self._unsettled.popleft() for _ in range(min(MAX_AT_ONCE, len(self._unsettled)))]
            oldest_us = self.clock_us() - MAX_CHARGE_AGE_US
            young = [entry for entry in due if entry.ended_us > oldest_us]
            self._num_uncharged += len(due) - len(young)
            left = set(map(id, young))

            async def charge(entries: Sequence[_Unsettled], left: set[int] = left) -> None:
                for entry in entries:
                    await self._charge(entry)
                    left.discard(id(entry))

            try:
                await _all(charge(entries) for entries in _side_by_side(young))
            finally:
                self._unsettled.extendleft(entry for entry in reversed(young) if id(entry) in left)

    async def _noted(
        self, call: PoolCall, sent: Coroutine[Any, Any, Answer], started_us: int
    ) -> Answer:
        """Awaits a call's reply, and reports to the breaker and the metrics whether it came."""
        try:
            answer = await sent
        except PoolsUnavailable as error:
            now_us = self.clock_us()
            self.on_call(call, False, now_us - started_us)
            if self._breaker.failed(started_us, now_us):
                self._say_away(error)
                self.on_report(self.report)
            raise
        now_us = self.clock_us()
        self._breaker.succeeded(started_us, now_us)
        self.on_call(call, True, now_us - started_us)
        return answer

    def _say_away(self, error: PoolsUnavailable) -> None:
        logger.warning("Redis does not answer, so this gateway limits tasks by itself: %s", error)


async def _nothing() -> None:
    """Does nothing, for a reservation that is settled already."""


def _side_by_side(entries: Iterable[_Unsettled]) -> Iterable[Sequence[_Unsettled]]:
    """Groups settlements: the groups may be charged concurrently, each group in turn.

    One that Redis cannot know takes a slot there until it is settled, though its task has ended:
    many of a tenant at once would have tasks refused for unused slots.
    """
    in_turn: dict[str, list[_Unsettled]] = {}
    for entry in entries:
        if entry.held.in_redis:
            yield (entry,)
        else:
            in_turn.setdefault(entry.held.tenant.id, []).append(entry)
    yield from in_turn.values()


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    """Awaits all, then raises the first failure, so that none is left running."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
