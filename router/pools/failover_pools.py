"""Uses the pools in Redis while it replies, and local pools while it does not.

A circuit breaker decides. While it is closed, every call goes to Redis. A reservation without a
reply within its budget is decided by the tenant's last balances where these are new, and else by
local pools; Redis is told as soon as it answers, and what it granted meanwhile to nobody is undone
(`Backlog`). While the breaker is open, no call goes to Redis; `check`, called periodically, probes
it. Before calls return to Redis, it adopts what runs here (also what it forgot), and is charged for
what ended meanwhile; every gateway gives the others `RESYNC_US` for theirs.

Each reservation is charged once: one that Redis may know is settled under its lease, which is
idempotent; one that it cannot know is adopted first, and never again once its settlement was sent.

While Redis has never replied since this process began (`blind`), other gateways are unknown, and
`on_blind` says whether to refuse (`PoolsUnavailable`) or to use local pools. This is an edge.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import msgspec

from backends.contract import BackendGroup
from router.classify.task import Tenant
from router.pools.backlog import Backlog, Held, Unsettled
from router.pools.local_pools import LocalPools, OnBlind, WhenAway
from router.pools.pools import (
    Balance,
    Demand,
    Grant,
    PoolCall,
    PoolsMode,
    PoolsReport,
    Reservation,
    hold_of,
    lease_of,
    reservation_id_of,
)
from router.pools.redis_pools import PoolsUnavailable, RedisPools
from router.redis.breaker import PROBE_PAUSE_US, Breaker
from router.redis.heartbeat import Pulse

logger = logging.getLogger("lanewise")

COUNTS_KEPT = 10  # heartbeats that must agree before the count of gateways falls
MAX_REPEATED = 3  # calls of one reservation that may neither be granted nor refused without Redis
CATCH_UP_PAUSE_S = 0.02  # before Redis is told again after it has not answered
LAST_CALLS_S = 3.0  # at the end, for settlements that a frozen or returning Redis does not answer
RESYNC_US = PROBE_PAUSE_US  # from telling Redis what runs here until tasks ask it again


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
    name: str = "Redis"  # of the server, with its address, for the log
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
        self._backlog = Backlog(self.redis, self.clock_us)
        self._held = self._backlog.held
        self._unadopted = self._backlog.unadopted
        self._catching_up: asyncio.Task[None] | None = None
        self._is_broken = False  # a server ended a connection, and may have lost its data
        self._has_beaten = False
        self._told_us: int | None = None  # when Redis was first told of this outage's tasks
        self.accounts, self.raise_run = self.redis.accounts, self.redis.raise_run
        self.redis.on_late = self._late
        self.redis.on_broken(self._broken)
        self._counts: deque[int] = deque([1], maxlen=COUNTS_KEPT)
        self._num_heard = 1
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
            num_heard=self._num_heard,
            num_unsettled=len(self._backlog.unsettled),
            num_uncharged=self._backlog.num_uncharged,
            num_recoveries=self._num_recoveries,
        )

    async def reserve_first(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> Grant:
        """Reserves the first ranked demands that fit, or nothing; may raise `PoolsUnavailable`.

        If it is cancelled, what Redis has granted is released.
        """
        num_repeated = 0
        while self._breaker.is_closed:
            asked_us = self.clock_us()
            try:
                grant = await self.redis.reserve_first(tenant, reservation_id, ranked_demands)
            except PoolsUnavailable as error:
                self._unanswered("admit", asked_us, error)
                if num_repeated == MAX_REPEATED or not self._knows(tenant):
                    break
                num_repeated += 1
                by_reply = self._reserve_by_last_reply(tenant, reservation_id, ranked_demands)
                if by_reply is not None:
                    return by_reply
            except asyncio.CancelledError:
                self._undo_all(tenant, reservation_id, ranked_demands)
                raise
            else:
                self._answered("admit", asked_us)
                self._local.note(tenant.id, grant.balances, self._now_us())
                if grant.accounts:
                    self._local.budgets.note(tenant.id, grant.accounts, self._now_us() // 1_000)
                if grant.reservation is not None:
                    self._hold(tenant, grant.reservation, is_local=False)
                return grant
        return self._reserve_locally(tenant, reservation_id, ranked_demands)

    def settle(
        self,
        reservation: Reservation,
        actual_tokens: Mapping[BackendGroup, int],
        nusd: int = 0,
    ) -> Coroutine[Any, Any, None]:
        """Releases the slots and charges actual tokens; a group not named used none.

        The call to Redis is sent at once; await the result for its reply. It never fails: a
        settlement that Redis misses is sent when it is back.
        """
        held = self._held.pop(reservation.id, None)
        if held is None:
            return _nothing()  # settled before
        self._local.release(held.counted)
        if held.is_local:
            self._unadopted.pop(reservation.id, None)
            self._local.settle(held.reservation, actual_tokens, nusd, self._now_us())
        entry = Unsettled(held, dict(actual_tokens), self.clock_us(), nusd)
        sent: Coroutine[Any, Any, Any] | None = None
        if self._breaker.is_closed:
            if held.in_redis:
                sent = self.redis.settle(
                    held.reservation, entry.used_tokens, nusd, once=held.is_settled_once
                )
            else:
                sent = self._backlog.charge(entry)
        return self._settled(entry, sent)

    async def _settled(self, entry: Unsettled, sent: Coroutine[Any, Any, Any] | None) -> None:
        try:
            if sent is None:
                self._backlog.put_off(entry)
            else:
                await sent
                self._answered("settle", entry.ended_us)
        except PoolsUnavailable as error:
            self._unanswered("settle", entry.ended_us, error)
            self._backlog.put_off(entry)
            self._catch_up_soon()
        except asyncio.CancelledError:
            self._backlog.put_off(entry)  # settling twice is harmless
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
            self._local.extend(known, certain)
            self._backlog.replace(held, certain)  # adopted as it is then
            return certain
        if not self._breaker.is_closed:
            return known
        held.reservation = reservation
        asked_us = self.clock_us()
        try:
            await self.redis.extend(reservation)
        except PoolsUnavailable as error:
            self._unanswered("extend", asked_us, error)
            return reservation
        self._answered("extend", asked_us)
        if held.reservation is reservation:
            self._backlog.replace(held, certain)
            if reservation.released and reservation.id in self._held:
                self._local.release(held.counted)
                self._local.hold(certain)
                held.counted = certain
        return held.reservation

    async def renew(self) -> None:
        """Renews running tasks' leases, unless Redis is away; call it every third of a lease."""
        renewed = [held for held in self._held.values() if held.in_redis]
        if not renewed or not self._breaker.is_closed:
            return
        held = [each.reservation for each in renewed]
        self._backlog.taking(renewed)
        asked_us = self.clock_us()
        try:
            renewal = await self.redis.renew(held)
        except PoolsUnavailable as error:
            self._unanswered("renew", asked_us, error)
            return
        self._answered("renew", asked_us)
        self._backlog.taken(renewed)
        if renewal.num_anew:
            for reservation in held:
                self._backlog.undo_if_settled(reservation)
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

    async def forget(self, tenant_id: str, key_ids: Sequence[str] = ()) -> None:
        """Deletes shared pools of a deleted tenant, or such keys; while Redis is away they stay."""
        try:
            await self.redis.forget(tenant_id, key_ids)
        except PoolsUnavailable as error:
            logger.warning("deleted pools of %s are left in Redis: %s", tenant_id, error)

    async def check(self) -> None:
        """Probes Redis, and returns to it after two good probes. Cancelling is safe."""
        started_us = self.clock_us()
        try:
            is_forgotten = await self._probe()
            self._is_broken = False
            if self._breaker.is_closed and is_forgotten:
                self._trip()
                logger.warning("Redis has lost its data: the gateways tell it what runs")
            if self._breaker.is_closed:
                self._breaker.succeeded(started_us, self.clock_us())
                self._backlog.look_again()
                await self._backlog.bring_up_to_date(self._unadopted.values())
            else:
                await self._return()
        except PoolsUnavailable as error:
            if not self._breaker.is_closed:
                self._breaker.probed(good=False)
                self._told_us = None
            elif self._breaker.failed(started_us, self.clock_us()):
                self._say_away(error)
        self.on_report(self.report)

    async def _return(self) -> None:
        """Tells Redis what runs here after a good probe, and returns to it after a second one."""
        is_second = self._breaker.probed(good=True)
        await self.redis.ping()  # over the connection that tasks use
        await self._backlog.bring_up_to_date(self._held.values())
        if self._told_us is None:
            self._told_us = self.clock_us()
        if is_second and self.clock_us() - self._told_us >= RESYNC_US:
            self._breaker.close()  # nothing may be awaited since the last adoption
            self._told_us = None
            self._local.forget_rates()
            self._num_recoveries += 1
            logger.info("Redis answers again: tasks meet the shared pools")

    async def greet(self) -> None:
        """Probes Redis before the first task, so that no task has to wait for a timeout."""
        await self.check()
        if self.blind:
            self._trip()
            rest = "are limited locally" if self.ready else "are refused with 503"
            logger.warning("%s has not answered yet: until it does, tasks %s", self.name, rest)
        self.on_report(self.report)

    async def close(self, within_s: float = math.inf) -> None:
        """Tells Redis what ended here, for `LAST_CALLS_S` at most; then it disconnects."""
        if self._catching_up is not None:
            self._catching_up.cancel()
            await asyncio.gather(self._catching_up, return_exceptions=True)
        try:
            async with asyncio.timeout(min(LAST_CALLS_S, within_s)):
                await self._tell_the_rest()
        except TimeoutError:
            left = len(self._backlog.unsettled)
            logger.warning("Redis does not answer: %d settlements are left to their leases", left)
        await self.redis.close()

    async def _tell_the_rest(self) -> None:
        """Sends what Redis is still to hear, also while it counts as away: it may be returning."""
        self._backlog.look_again()
        while self._backlog.is_owed:
            try:
                await self._backlog.bring_up_to_date(())
            except PoolsUnavailable:
                await asyncio.sleep(CATCH_UP_PAUSE_S)
            self._backlog.look_again()

    async def _probe(self) -> bool:
        """Probes Redis; returns whether it was restarted and has lost its data."""
        if self.beat is None:
            await self.redis.ping()
            return False
        pulse = await self.beat()
        self._counts.append(pulse.num_gateways)
        self._num_heard = pulse.num_heard
        is_first, self._has_beaten = not self._has_beaten, True
        return pulse.is_new and not is_first

    def _knows(self, tenant: Tenant) -> bool:
        return self._breaker.is_closed and self._local.knows(tenant.id, self._now_us())

    def _reserve_by_last_reply(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> Grant | None:
        """Decides without the reply of Redis, which may yet be late; what it grants is told.

        By the last reply, which is new; None for a task that this cannot decide.
        """
        grant = self._local.reserve_by_last_reply(
            tenant,
            reservation_id,
            ranked_demands,
            unanswered=[held.reservation for held in self._unadopted.values()],
            when_away=self.when_away(),
            num_gateways=max(self._counts),
            now_us=self._now_us(),
        )
        if grant is not None and grant.reservation is not None:
            self._hold(tenant, grant.reservation, is_local=True)
            self._catch_up_soon()
        return grant

    def _undo_all(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> None:
        """Has released whatever a call took whose reply nobody waits for."""
        leases = tuple(
            lease_of(reservation_id, demands, hold_of(tenant, demands))
            for demands in ranked_demands
        )
        self._late(tenant.id, leases, is_known=False)

    def _late(self, tenant_id: str, leases: tuple[str, ...], is_known: bool) -> None:
        """Takes over what a late attempt took for a task that runs here, or has it released."""
        for lease in leases:
            reservation_id = reservation_id_of(lease)
            if not self._backlog.holds(reservation_id, lease):
                orphan = Reservation(reservation_id, tenant_id, (), lease, expires_us=0)
                self._backlog.undo(orphan, is_certain=is_known)
                self._catch_up_soon()
            else:
                self._backlog.confirm(reservation_id, lease, is_known=is_known)

    def _broken(self) -> None:
        self._is_broken = True
        self._catch_up_soon()

    def _catch_up_soon(self) -> None:
        """Tells Redis as soon as it answers what it does not know, and asks what it forgot."""
        if self._breaker.is_closed and (self._catching_up is None or self._catching_up.done()):
            self._catching_up = asyncio.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        """Ends when Redis knows all, or is away: then `check` goes on."""
        while self._breaker.is_closed and (self._backlog or self._is_broken):
            try:
                if self._is_broken:
                    await self.check()
                else:
                    await self._backlog.bring_up_to_date(self._unadopted.values())
            except PoolsUnavailable:
                pass
            await asyncio.sleep(CATCH_UP_PAUSE_S)

    def _trip(self) -> None:
        self._breaker.trip()
        self._local.cut_off()

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
            self._catch_up_soon()
        return grant

    def _hold(self, tenant: Tenant, reservation: Reservation, *, is_local: bool) -> None:
        if reservation.id in self._held:
            return
        held = Held(tenant, reservation, is_local, not is_local, reservation)
        self._held[reservation.id] = held
        self._local.hold(reservation)
        if is_local:
            self._unadopted[reservation.id] = held

    def _answered(self, call: PoolCall, asked_us: int) -> None:
        """Reports to the breaker and the metrics that a call's reply came."""
        now_us = self.clock_us()
        self._breaker.succeeded(asked_us, now_us)
        self.on_call(call, True, now_us - asked_us)

    def _unanswered(self, call: PoolCall, asked_us: int, error: PoolsUnavailable) -> None:
        """Reports that none came in time."""
        now_us = self.clock_us()
        self.on_call(call, False, now_us - asked_us)
        if not error.is_of_tenant and self._breaker.failed(asked_us, now_us):
            self._say_away(error)
            self.on_report(self.report)

    def _say_away(self, error: PoolsUnavailable) -> None:
        self._local.cut_off()
        logger.warning("Redis does not answer, so this gateway limits tasks by itself: %s", error)


async def _nothing() -> None:
    """Does nothing, for a reservation that is settled already."""
