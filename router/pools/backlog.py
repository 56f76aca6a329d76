"""Keeps what Redis has not been told of: what runs here, what ended, and what is to be undone.

It is told as soon as it answers. A settlement expires after a minute, since a pool of a minute's
tokens would be full again by then; money is charged however late. This is an edge.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from backends.contract import BackendGroup
from router.classify.task import Tenant
from router.pools.pools import Reservation
from router.pools.redis_pools import PoolsUnavailable, RedisPools

MAX_CHARGE_AGE_US = 60_000_000  # older settlements are dropped
MAX_UNSETTLED = 20_000  # settlements that wait for Redis; beyond, the oldest is dropped
MAX_UNDONE = 20_000  # leases to be undone; a dropped one expires
MAX_AT_ONCE = 256  # concurrent calls while Redis is brought up to date


class Held(msgspec.Struct):
    """Holds a reservation of a task that runs here."""

    tenant: Tenant
    reservation: Reservation
    is_local: bool  # granted here, so that local pools were charged
    in_redis: bool  # Redis knows it, or may
    counted: Reservation  # whose slots count as taken here
    # A call that may take the lease anew is under way, or had no reply and may come late.
    may_be_taken: bool = False

    @property
    def is_settled_once(self) -> bool:
        """Says whether its settlement is to be remembered: its lease may be taken after it."""
        return self.is_local or self.may_be_taken


class Unsettled(msgspec.Struct):
    """Holds a settlement that Redis has not confirmed."""

    held: Held
    used_tokens: dict[BackendGroup, int]
    ended_us: int
    nusd: int = 0  # spent


class Backlog:
    """Holds one gateway's reservations, and what Redis is still to hear of them."""

    def __init__(self, redis: RedisPools, clock_us: Callable[[], int]) -> None:
        self.held: dict[str, Held] = {}  # by reservation id
        self.unadopted: dict[str, Held] = {}  # those of them that Redis cannot know
        self.unsettled: deque[Unsettled] = deque()
        self.num_uncharged = 0
        self._redis = redis
        self._clock_us = clock_us
        self._owed: set[str] = set()  # reservations that ended, until Redis has charged them
        self._orphans: deque[Reservation] = deque(maxlen=MAX_UNDONE)  # of nobody who runs here
        self._orphans_again: deque[Reservation] = deque(maxlen=MAX_UNDONE)

    def __bool__(self) -> bool:
        """Returns whether Redis is to hear of anything at once."""
        return bool(self.unadopted or self.unsettled or self._orphans)

    @property
    def is_owed(self) -> bool:
        """Returns whether Redis is to hear of anything that ended, at once or soon."""
        return bool(self.unsettled or self._orphans or self._orphans_again)

    def holds(self, reservation_id: str, lease: str) -> bool:
        """Returns whether a task that runs here has this lease, or may have it."""
        held = self.held.get(reservation_id)
        return held is not None and lease in (held.reservation.lease, held.reservation.former)

    def taking(self, held: Iterable[Held]) -> None:
        """Notes that a call is sent that may take these leases anew, also if it comes late."""
        for each in held:
            each.may_be_taken = True

    def taken(self, held: Iterable[Held]) -> None:
        """Notes that it was answered. One that ended meanwhile is settled as before."""
        for each in held:
            each.may_be_taken = each.reservation.id not in self.held

    def confirm(self, reservation_id: str, lease: str, *, is_known: bool) -> None:
        """Notes that Redis knows the lease of a task that runs here, or may know it."""
        held = self.held[reservation_id]
        if lease == held.reservation.former:
            held.may_be_taken = True
        elif is_known:
            held.in_redis = True
            self.unadopted.pop(reservation_id, None)

    def replace(self, held: Held, certain: Reservation) -> None:
        """Notes a reservation's new lease; Redis may have the one before, unheard or again."""
        former = held.reservation.former or held.reservation.lease
        held.reservation = certain
        if held.may_be_taken or not held.in_redis:
            before = msgspec.structs.replace(certain, demands=(), lease=former)
            self.undo(before, is_certain=False)

    def undo(self, reservation: Reservation, *, is_certain: bool) -> None:
        """Has a lease released that no task here has; twice if it may yet be taken."""
        self._orphans.append(reservation)
        if not is_certain:
            self._orphans_again.append(reservation)

    def undo_if_settled(self, reservation: Reservation) -> None:
        """Has a lease released, soon, that was taken while its task ended here."""
        if not self.holds(reservation.id, reservation.lease):
            self._orphans_again.append(reservation)

    def look_again(self) -> None:
        """Has those released once more that may have been taken since; call it once a second."""
        self._orphans.extend(self._orphans_again)
        self._orphans_again.clear()

    def put_off(self, entry: Unsettled) -> None:
        if len(self.unsettled) >= MAX_UNSETTLED:
            self._give_up(self.unsettled.popleft())
        self.unsettled.append(entry)
        self._owed.add(entry.held.reservation.id)

    def _give_up(self, entry: Unsettled) -> None:
        self._owed.discard(entry.held.reservation.id)
        self.num_uncharged += 1

    async def adopt(self, held: Held) -> None:
        if held.reservation.former is not None:
            await self._redis.extend(held.reservation)  # first to know under which lease it is
            held.reservation = msgspec.structs.replace(held.reservation, former=None, released=())
        self.taking((held,))
        while True:
            adopted = held.reservation
            await self._redis.adopt(held.tenant, adopted)
            if held.reservation is adopted:
                break
            if held.reservation.id not in self.held:  # it grew here meanwhile, and ended
                return  # its settlement adopts the lease that it had then
        self.taken((held,))
        held.in_redis = True
        self.unadopted.pop(held.reservation.id, None)

    async def charge(self, entry: Unsettled) -> None:
        """Settles a reservation in Redis, which adopts it first if it cannot know it."""
        self._owed.add(entry.held.reservation.id)
        if not entry.held.in_redis:
            await self.adopt(entry.held)
        held = entry.held
        await self._redis.settle(
            held.reservation, entry.used_tokens, entry.nusd, once=held.is_settled_once
        )
        self._owed.discard(held.reservation.id)

    async def bring_up_to_date(self, held: Iterable[Held]) -> None:
        """Adopts these, then charges pending settlements; after a failure the rest stays."""

        async def adopt_live(each: Held) -> None:
            if each.reservation.id not in self.held:
                return  # what is settled must not come back
            if await _is_taken(self.adopt(each)):
                self.undo_if_settled(each.reservation)
            else:  # it goes on without Redis
                self.unadopted.pop(each.reservation.id, None)

        adopted = list(held)
        for start in range(0, len(adopted), MAX_AT_ONCE):
            await _all(adopt_live(each) for each in adopted[start : start + MAX_AT_ONCE])
        await self.charge_unsettled()  # before anything is released uncharged
        await self._undo_orphans()

    async def _undo_orphans(self) -> None:
        while self._orphans:
            due = [self._orphans.popleft() for _ in range(min(MAX_AT_ONCE, len(self._orphans)))]
            try:
                await _all(self._undone(each) for each in due)
            except BaseException:  # a cancellation, too
                self._orphans.extendleft(reversed(due))  # once more is harmless
                raise

    async def _undone(self, orphan: Reservation) -> None:
        if self.holds(orphan.id, orphan.lease):
            return  # its task has asked again, and was granted the same lease
        if orphan.id in self._owed:  # another call charges it; without its lease that charges none
            self._orphans_again.append(orphan)
            return
        if not await _is_taken(self._redis.settle(orphan, {})):
            return
        held = self.held.get(orphan.id)
        if held is not None and self.holds(orphan.id, orphan.lease):
            await self.adopt(held)  # it was granted just now

    async def charge_unsettled(self) -> None:
        while self.unsettled:
            due = [self.unsettled.popleft() for _ in range(min(MAX_AT_ONCE, len(self.unsettled)))]
            oldest_us = self._clock_us() - MAX_CHARGE_AGE_US
            young = [entry for entry in due if entry.ended_us > oldest_us or entry.nusd]
            for entry in due:
                if entry.ended_us <= oldest_us and not entry.nusd:
                    self._give_up(entry)
            left = {id(entry): entry for entry in young}
            try:
                await _all(self._charge_in_turn(each, left) for each in _side_by_side(young))
            finally:
                self.unsettled.extendleft(reversed(left.values()))

    async def _charge_in_turn(
        self, entries: Iterable[Unsettled], left: dict[int, Unsettled]
    ) -> None:
        """Charges settlements one after the other, and removes each that is charged from `left`."""
        for entry in entries:
            if not await _is_taken(self.charge(entry)):
                self._give_up(entry)
            del left[id(entry)]


def _side_by_side(entries: Iterable[Unsettled]) -> Iterable[Sequence[Unsettled]]:
    """Groups settlements: the groups may be charged concurrently, each group in turn.

    One that Redis cannot know takes a slot there until it is settled, though its task has ended:
    many of a tenant at once would have tasks refused for unused slots.
    """
    in_turn: dict[str, list[Unsettled]] = {}
    for entry in entries:
        if entry.held.in_redis:
            yield (entry,)
        else:
            in_turn.setdefault(entry.held.tenant.id, []).append(entry)
    yield from in_turn.values()


async def _is_taken(call: Awaitable[object]) -> bool:
    """Awaits a call; false if Redis cannot use what it has of this tenant: others go on."""
    try:
        await call
    except PoolsUnavailable as error:
        if not error.is_of_tenant:
            raise
        return False
    return True


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    """Awaits all, then raises the first failure, so that none is left running."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
