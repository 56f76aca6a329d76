"""Redis is late now and then: who decides, and that nothing is held by nobody or charged twice."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from backends.contract import BackendGroup
from router.classify.task import GroupLimits, Tenant
from router.pools.failover_pools import FailoverPools
from router.pools.local_pools import MIN_UNANSWERED, NEW_US
from router.pools.memory_pools import MemoryPools
from router.pools.pools import Demand, Grant, Reservation, lease_of
from router.pools.redis_pools import PoolsUnavailable
from tests.unit.gateway.doubles import AwaitedPools

PLACES = 4
LIMITS = GroupLimits(requests_per_min=6_000, tokens_per_min=6_000_000, max_concurrent=PLACES)
TENANT = Tenant(id="acme", tier="any", limits={"fast": LIMITS})
FAST = [(Demand("fast", 100),)]


class LateRedis(AwaitedPools):
    """Is Redis as one gateway reaches it: each call may be late, lost, or done twice.

    `fates` has what becomes of the next calls: "ok"; "late", done at once and answered late;
    "later", done and answered late; "lost", never done; "unheard", done, and nobody hears of it.
    """

    def __init__(self, memory: MemoryPools, fate: Callable[[], str]) -> None:
        super().__init__()
        self.memory = memory
        self._fate = fate
        self.late: list[Callable[[], None]] = []  # what is still to come
        self._remembered: set[str] = set()  # reservations whose settlement is

    async def reserve_first(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> Grant:
        fate = self._fate()
        leases = tuple(lease_of(reservation_id, demands) for demands in ranked_demands)

        def done() -> Grant:
            return self.memory.reserve_first(tenant, reservation_id, ranked_demands, self.now_us)

        def heard(grant: Grant) -> None:
            if grant.index is not None:
                self.on_late(tenant.id, (leases[grant.index],), True)

        await asyncio.sleep(0)
        if fate == "ok":
            return done()
        if fate == "late":
            grant = done()
            self.late.append(lambda: heard(grant))
        elif fate == "later":
            self.late.append(lambda: heard(done()))
        else:
            if fate == "unheard":
                done()
            self.late.append(lambda: self.on_late(tenant.id, leases, False))
        raise PoolsUnavailable(fate)

    async def adopt(self, tenant: Tenant, reservation: Reservation) -> Grant:
        fate = self._fate()
        await asyncio.sleep(0)
        if fate in ("ok", "late", "unheard"):
            grant = self.memory.adopt(tenant, reservation, self.now_us)
        if fate == "ok":
            return grant

        def later() -> None:
            if fate == "later":
                self.memory.adopt(tenant, reservation, self.now_us)
            self.on_late(tenant.id, (reservation.lease,), fate != "lost")

        self.late.append(later)
        raise PoolsUnavailable(fate)

    def settle(
        self,
        reservation: Reservation,
        actual_tokens: Mapping[BackendGroup, int],
        nusd: int = 0,
        *,
        once: bool = False,
    ) -> Any:
        fate = self._fate()
        if fate in ("ok", "late", "unheard"):
            if reservation.id in self._remembered:
                self.memory.settle(reservation, {}, self.now_us)
            elif self.memory.settle(reservation, actual_tokens, self.now_us):
                self.settled.append((reservation.id, dict(actual_tokens)))
                if once:
                    self._remembered.add(reservation.id)
        return self._answered(True) if fate == "ok" else self._lost()


class World:
    """Holds gateways on one Redis, on one clock."""

    def __init__(self, num_gateways: int, chance: random.Random | None = None) -> None:
        self.now_us = 1_000_000
        self.memory = MemoryPools()
        self.fates: list[str] = []
        self.chance = chance
        self.redis = [LateRedis(self.memory, self._fate) for _ in range(num_gateways)]
        self.gateways = [FailoverPools(each, clock_us=lambda: self.now_us) for each in self.redis]
        self._names = map(str, itertools.count())

    def _fate(self) -> str:
        if self.fates:
            return self.fates.pop(0)
        if self.chance is None or self.chance.random() < 0.85:
            return "ok"
        return self.chance.choice(["late", "later", "lost", "unheard"])

    async def ask(self, number: int, tenant: Tenant = TENANT, ranked: Any = FAST) -> Grant:
        return await self.gateways[number].reserve_first(tenant, next(self._names), ranked)

    def advance(self, duration_us: int) -> None:
        self.now_us += duration_us
        for redis in self.redis:
            redis.now_us = self.now_us

    async def come_true(self) -> None:
        """Lets all that is late arrive, and every gateway look at Redis twice."""
        for redis in self.redis:
            while redis.late:
                redis.late.pop(0)()
        for _ in range(3):
            for gateway in self.gateways:
                self.advance(300_000)
                await gateway.check()

    @property
    def num_taken(self) -> int:
        return self.redis[0].held(TENANT)

    async def close(self) -> None:
        for gateway in self.gateways:
            await gateway.close()


async def started(num_gateways: int = 2, chance: random.Random | None = None) -> World:
    world = World(num_gateways)
    for gateway in world.gateways:
        await gateway.greet()
    world.chance = chance
    return world


async def test_a_tenant_that_was_full_a_moment_ago_gets_nothing() -> None:
    world = await started()
    for _ in range(PLACES):
        assert (await world.ask(0)).reservation is not None
    assert (await world.ask(1)).limited_by == ("fast", "concurrent")
    for _ in range(3):  # also when the reply is older, and in the outage that follows
        world.fates = ["lost"] * 2
        assert (await world.ask(1)).reservation is None
        world.advance(NEW_US)
    world.gateways[1]._trip()
    assert (await world.ask(1)).limited_by == ("fast", "concurrent")
    await world.close()


@pytest.mark.parametrize("fate", ["late", "later", "lost", "unheard"])
async def test_a_tenant_that_had_places_a_moment_ago_gets_them(fate: str) -> None:
    world = await started()
    first = (await world.ask(0)).reservation
    world.fates = [fate] * 2
    grants = await asyncio.gather(world.ask(0), world.ask(0))
    held = [first, *(grant.reservation for grant in grants)]
    await world.come_true()
    assert world.num_taken == len(held)
    for reservation in held:
        assert reservation is not None
        await world.gateways[0].settle(reservation, {"fast": 1})
    assert world.num_taken == 0
    assert Counter(name for name, _ in world.redis[0].settled) == {
        each.id: 1 for each in held if each is not None
    }
    await world.close()


async def test_a_renewal_that_comes_behind_a_settlement_has_nothing_charged_twice() -> None:
    """It takes the lease anew, and the settlement is repeated since its reply is lost."""
    world = await started(1)
    held = (await world.ask(0)).reservation
    assert held is not None
    renewal = asyncio.ensure_future(world.gateways[0].renew())
    await asyncio.sleep(0)
    world.fates = ["unheard"]
    await world.gateways[0].settle(held, {"fast": 7})
    world.memory.renew([held], world.now_us)  # its first attempt, over a connection that was late
    await renewal
    await world.come_true()
    assert world.redis[0].settled == [(held.id, {"fast": 7})]
    assert world.num_taken == 0
    await world.close()


@pytest.mark.parametrize("fate", ["late", "later", "unheard"])
async def test_what_was_granted_to_nobody_is_undone(fate: str) -> None:
    """The client was refused, or has left."""
    world = await started()
    for _ in range(PLACES):
        held = (await world.ask(0)).reservation
    assert (await world.ask(1)).reservation is None
    assert held is not None
    await world.gateways[0].settle(held, {})
    world.fates = [fate]
    assert (await world.ask(1)).reservation is None, "full, as far as it knows"
    asking = asyncio.ensure_future(world.ask(1))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await world.come_true()
    assert world.num_taken == PLACES - 1
    await world.close()


async def test_a_gateway_that_ends_while_it_undoes_a_grant_goes_on_with_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await started(1)
    redis = world.redis[0]
    world.memory.reserve_first(TENANT, "nobody's", FAST, world.now_us)
    with monkeypatch.context() as held_up:
        held_up.setattr(redis, "settle", lambda *_, **__: asyncio.Event().wait())
        redis.on_late(TENANT.id, (lease_of("nobody's", FAST[0]),), True)
        for _ in range(10):  # until it waits for the reply
            await asyncio.sleep(0)
    await world.close()
    assert world.num_taken == 0


async def test_a_gateway_admits_so_many_on_one_reply_and_no_more() -> None:
    wide = msgspec.structs.replace(LIMITS, max_concurrent=20)
    tenant = msgspec.structs.replace(TENANT, limits={"fast": wide})
    world = await started(4)
    for gateway in world.gateways:
        gateway._counts.append(4)
    assert (await world.ask(0, tenant)).reservation is not None
    world.fates = ["lost"] * (MIN_UNANSWERED + 1)
    asking = [asyncio.ensure_future(world.ask(0, tenant)) for _ in world.fates]
    await asyncio.sleep(0)
    world.advance(60_000)  # all were in flight together: one slow moment
    grants = await asyncio.gather(*asking)
    assert all(grant.reservation for grant in grants)
    modes = Counter(grant.mode for grant in grants)
    assert modes == {"degraded": MIN_UNANSWERED, "redis": 1}, "the last asked again instead"
    await world.close()


async def test_a_late_grant_of_another_route_is_undone() -> None:
    """Redis took the second route, where this gateway decided for the first."""
    both = msgspec.structs.replace(TENANT, limits={"fast": LIMITS, "deep": LIMITS})
    ranked = [(Demand("fast", 100),), (Demand("deep", 100),)]
    world = await started()
    taken = [(await world.ask(1, both)).reservation for _ in range(PLACES - 1)]
    assert (await world.ask(0, both)).index == 0
    for reservation in taken:  # free again as far as nobody has told the other gateway
        assert reservation is not None
    world.memory.reserve_first(both, "else", FAST, world.now_us)
    world.fates = ["later"]
    grant = await world.ask(0, both, ranked)
    assert grant.reservation is not None
    await world.come_true()
    held = world.redis[0].held(both)
    await world.gateways[0].settle(grant.reservation, {})
    assert world.redis[0].held(both) == held - 1
    await world.close()


@pytest.mark.parametrize("attempt", range(20))
async def test_random_lateness_leaves_nothing_behind(attempt: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    world = await started(3, chance)
    running: list[tuple[int, Reservation]] = []
    ended: Counter[str] = Counter()
    most = 0

    async def one() -> None:
        nonlocal most
        number = chance.randrange(3)
        if chance.random() < 0.6:
            asking = asyncio.ensure_future(world.ask(number))
            if chance.random() < 0.1:
                await asyncio.sleep(0)
                asking.cancel()
            outcome = (await asyncio.gather(asking, return_exceptions=True))[0]
            if isinstance(outcome, Grant) and outcome.reservation is not None:
                running.append((number, outcome.reservation))
                most = max(most, len(running))
        elif running:
            at, reservation = running.pop(chance.randrange(len(running)))
            ended[reservation.id] += 1
            await world.gateways[at].settle(reservation, {"fast": 1})
        redis = world.redis[number]
        if redis.late and chance.random() < 0.3:
            redis.late.pop(chance.randrange(len(redis.late)))()
        if chance.random() < 0.05:
            await world.gateways[number].check()

    for _ in range(150):
        world.advance(chance.randrange(100_000))
        await asyncio.gather(*(one() for _ in range(chance.randrange(1, 4))))
    world.chance = None
    await world.come_true()
    for at, reservation in running:
        ended[reservation.id] += 1
        await world.gateways[at].settle(reservation, {"fast": 1})
    await world.come_true()
    assert world.num_taken == 0
    assert most <= PLACES + 3 * MIN_UNANSWERED
    charged = Counter(
        name for redis in world.redis for name, used in redis.settled if used == {"fast": 1}
    )
    assert set(charged) <= set(ended)
    assert max(charged.values()) == 1
    assert not any(gateway._backlog for gateway in world.gateways)
    await world.close()
