"""Redis goes and comes back: who limits a task, and how each is charged once."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from backends.contract import BackendGroup
from router.classify.task import Tenant
from router.pools import failover_pools
from router.pools.backlog import MAX_CHARGE_AGE_US
from router.pools.failover_pools import FailoverPools
from router.pools.pools import Demand, Grant, PoolsReport, Reservation, extended, shrunk
from router.pools.redis_pools import PoolsUnavailable
from router.redis.heartbeat import Pulse
from tests.unit.gateway.doubles import TENANT, AwaitedPools

FAST = [(Demand(group="fast", tokens=100),)]


class World:
    """Holds pools of a gateway over a Redis that a test takes away, on a clock that it moves."""

    def __init__(self, **options: Any) -> None:
        self.redis = AwaitedPools()
        self.now_us = 1_000_000
        self.pulse = Pulse(1, False)
        self.reports: list[PoolsReport] = []
        self.pools = FailoverPools(
            self.redis,
            clock_us=lambda: self.now_us,
            beat=self._beat,
            on_report=self.reports.append,
            **options,
        )
        self._names = map(str, itertools.count())

    async def _beat(self) -> Pulse:
        await self.redis.ping()
        return self.pulse

    async def away(self) -> None:
        """Redis stops answering, and the gateway has noticed."""
        self.redis.available = False
        while self.pools.mode == "redis":
            self.now_us += 300_000
            await self.pools.check()

    async def back(self) -> None:
        self.redis.available = True
        for _ in range(2):
            assert self.pools.mode == "degraded"
            self.now_us += self.pools.pause_us
            await self.pools.check()
        assert self.pools.mode == "redis"

    async def reserve(self, ranked: Any = FAST) -> Reservation:
        grant = await self.pools.reserve_first(TENANT, next(self._names), ranked)
        assert grant.reservation is not None
        return grant.reservation

    @property
    def charged(self) -> Counter[str]:
        return Counter(name for name, _ in self.redis.settled)

    def tokens_left(self) -> int:
        """Returns those in Redis, of the fast group."""
        balances = self.redis.memory.balances(TENANT, self.redis.now_us)
        return next(b.remaining for b in balances if (b.group, b.unit) == ("fast", "tokens"))


async def started(**options: Any) -> World:
    world = World(**options)
    await world.pools.greet()
    return world


async def test_nothing_waits_for_a_redis_that_is_known_to_be_away() -> None:
    world = await started()
    await world.away()
    num_calls = world.redis.num_calls
    reservation = await world.reserve()
    await world.pools.settle(reservation, {"fast": 40})
    await world.pools.renew()
    with pytest.raises(PoolsUnavailable):
        await world.pools.balances(TENANT)
    assert world.redis.num_calls == num_calls


async def test_what_runs_is_adopted_before_calls_go_back() -> None:
    world = await started()
    before = await world.reserve()
    await world.away()
    during = await world.reserve()
    assert world.redis.held(TENANT) == 1
    await world.back()
    assert world.redis.held(TENANT) == 2
    for reservation in (before, during):
        await world.pools.settle(reservation, {"fast": 40})
    assert world.charged == {before.id: 1, during.id: 1}
    assert world.redis.held(TENANT) == 0


@pytest.mark.parametrize("ends", ["later", "before the answer"])
async def test_what_grows_while_redis_adopts_it_is_held_and_charged_once(ends: str) -> None:
    """The extension comes between the call and its answer, which Redis gave for less."""
    world = await started()
    await world.away()
    reservation = await world.reserve()
    adopt, is_adopted, answers = world.redis.adopt, asyncio.Event(), asyncio.Event()

    async def slow(tenant: Tenant, reservation: Reservation) -> Grant:
        grant = await adopt(tenant, reservation)
        is_adopted.set()
        await answers.wait()
        return grant

    world.redis.adopt = slow  # type: ignore[method-assign]
    world.redis.available = True
    world.now_us += world.pools.pause_us
    checking = asyncio.create_task(world.pools.check())
    await is_adopted.wait()
    grown = await world.pools.extend(extended(reservation, {"fast": 250}))
    assert grown.former is None
    if ends != "later":
        await world.pools.settle(grown, {"fast": 40})
    answers.set()
    await checking
    while world.pools.mode == "degraded":
        world.now_us += world.pools.pause_us
        await world.pools.check()
    if ends == "later":
        assert world.redis.held(TENANT) == 1
        await world.pools.settle(grown, {"fast": 40})
    await world.pools.check()
    assert [used for _, used in world.redis.settled if used] == [{"fast": 40}]
    assert world.redis.held(TENANT) == 0
    assert world.tokens_left() == TENANT.limits["fast"].tokens_per_min - 40


async def test_a_lease_that_redis_may_have_is_given_back_once_its_task_has_grown() -> None:
    world = await started()
    reserve = world.redis.reserve_first

    async def unheard(*asked: Any) -> Grant:
        await reserve(*asked)
        raise PoolsUnavailable("the connection broke")

    world.redis.reserve_first = unheard  # type: ignore[method-assign]
    reservation = await world.reserve()
    assert world.redis.held(TENANT) == 1
    world.redis.on_late(TENANT.id, (reservation.lease,), False)
    grown = await world.pools.extend(extended(reservation, {"fast": 250}))
    for _ in range(3):
        await world.pools.check()
    assert world.redis.held(TENANT) == 1
    await world.pools.settle(grown, {"fast": 40})
    assert world.redis.held(TENANT) == 0


async def test_a_lease_that_is_taken_anew_while_it_grows_is_given_back() -> None:
    """A late renewal comes between an extension's effect and its reply."""
    world = await started()
    reservation = await world.reserve()
    extend = world.redis.extend

    async def overtaken(changed: Reservation) -> bool:
        is_known = await extend(changed)
        world.redis.memory.renew([reservation], world.redis.now_us)
        world.redis.on_late(TENANT.id, (reservation.lease,), True)
        return is_known

    world.redis.extend = overtaken  # type: ignore[method-assign]
    grown = await world.pools.extend(extended(reservation, {"fast": 250}))
    assert world.redis.held(TENANT) == 2
    for _ in range(2):
        await world.pools.check()
    assert world.redis.held(TENANT) == 1
    await world.pools.settle(grown, {"fast": 40})
    assert world.redis.held(TENANT) == 0


async def test_nothing_is_released_uncharged_while_another_call_charges_it() -> None:
    world = await started()
    reservation = await world.reserve()
    await world.away()
    await world.pools.settle(reservation, {"fast": 40})
    world.redis.on_late(TENANT.id, (reservation.lease,), True)  # a late renewal
    settle, goes_on = world.redis.settle, asyncio.Event()

    def slow(
        reservation: Reservation, used: Mapping[BackendGroup, int], *more: Any, **kw: Any
    ) -> Any:
        async def charged() -> int:
            await goes_on.wait()
            return await settle(reservation, used, *more, **kw)

        return charged() if used else settle(reservation, used, *more, **kw)

    world.redis.settle = slow  # type: ignore[method-assign]
    world.redis.available = True
    backlog = world.pools._backlog
    first, second = (asyncio.create_task(backlog.bring_up_to_date(())) for _ in range(2))
    await asyncio.wait((first, second), timeout=0.01)
    goes_on.set()
    await asyncio.gather(first, second)
    assert world.redis.held(TENANT) == 0
    assert world.tokens_left() == TENANT.limits["fast"].tokens_per_min - 40


async def test_what_ended_meanwhile_is_charged_once() -> None:
    world = await started()
    before = await world.reserve()
    await world.away()
    during = await world.reserve()
    left = world.tokens_left()
    for reservation in (before, during, before, during):
        await world.pools.settle(reservation, {"fast": 40})
    assert world.pools.report.num_unsettled == 2
    await world.back()
    await world.pools.check()
    assert world.charged == {before.id: 1, during.id: 1}
    assert world.redis.held(TENANT) == 0
    assert world.tokens_left() == left + 100 - 40 - 40
    assert world.reports[-1].num_unsettled == 0
    assert world.reports[-1].num_recoveries == 1


async def test_a_gateway_that_ends_while_redis_returns_leaves_nothing_taken() -> None:
    world = await started()
    before = await world.reserve()
    await world.away()
    during = await world.reserve()
    for reservation in (before, during):
        await world.pools.settle(reservation, {"fast": 40})
    assert world.redis.held(TENANT) == 1
    asyncio.get_running_loop().call_later(0.05, world.redis.__setattr__, "available", True)
    await world.pools.close()
    assert world.charged == {before.id: 1, during.id: 1}
    assert world.redis.held(TENANT) == 0


async def test_a_gateway_ends_though_redis_never_returns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(failover_pools, "LAST_CALLS_S", 0.05)
    world = await started()
    running = await world.reserve()
    await world.away()
    await world.pools.settle(running, {"fast": 40})
    await world.pools.close()
    assert "1 settlements are left to their leases" in caplog.text


async def test_the_end_takes_no_longer_than_others_left_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await started()
    running = await world.reserve()
    await world.away()
    await world.pools.settle(running, {"fast": 40})
    await world.pools.close(within_s=0.0)
    assert "1 settlements are left to their leases" in caplog.text


async def test_each_outage_begins_at_what_redis_said_last() -> None:
    """It does not begin at what was left of the outage before."""
    world = await started()
    await world.away()
    await world.pools.settle(await world.reserve(), {"fast": 0})
    await world.back()
    limit = TENANT.limits["fast"].tokens_per_min
    most = await world.reserve([(Demand(group="fast", tokens=world.tokens_left()),)])
    await world.pools.settle(most, {"fast": limit})
    await world.away()
    grant = await world.pools.reserve_first(TENANT, "again", [(Demand("fast", limit // 4),)])
    assert grant.reservation is None
    assert grant.limited_by == ("fast", "tokens")


async def test_charging_what_ended_takes_one_place_at_a_time() -> None:
    """Redis may go away in the middle of it: nothing is lost, nothing charged twice."""

    class Watched(AwaitedPools):
        """Sees how many places its callers had at once, and may go away at a call."""

        most_held = 0
        num_left = -1  # adoptions until it goes away; below 0: never

        async def adopt(self, tenant: Tenant, reservation: Reservation) -> Grant:
            self.num_left -= 1
            self.available = self.available and self.num_left != 0
            grant = await super().adopt(tenant, reservation)
            self.most_held = max(self.most_held, self.held(TENANT), self.held(other))
            await asyncio.sleep(0)
            return grant

    other = msgspec.structs.replace(TENANT, id="other")
    world = await started()
    world.redis.__class__ = Watched
    known = [await world.reserve() for _ in range(3)]  # Redis holds these: they are only settled
    await world.away()
    ended: list[Reservation] = []
    for number in range(20):
        for tenant in (TENANT, other):
            grant = await world.pools.reserve_first(tenant, f"{tenant.id}-{number}", FAST)
            assert grant.reservation is not None
            await world.pools.settle(grant.reservation, {"fast": 40})
            ended.append(grant.reservation)
    for reservation in known:
        await world.pools.settle(reservation, {"fast": 40})
    world.redis.num_left = 9  # type: ignore[attr-defined]
    world.redis.available = True
    while world.redis.available:
        world.now_us += 1
        await world.pools.check()
    assert world.pools.mode == "degraded"
    assert 0 < world.pools.report.num_unsettled < len(ended)
    world.redis.num_left = -1  # type: ignore[attr-defined]
    await world.back()
    assert world.redis.most_held == 1  # type: ignore[attr-defined]
    assert set(world.charged) == {reservation.id for reservation in [*ended, *known]}
    assert set(world.charged.values()) == {1}
    assert world.redis.held(TENANT) == world.redis.held(other) == 0


async def test_an_old_settlement_is_given_up() -> None:
    world = await started()
    await world.away()
    await world.pools.settle(await world.reserve(), {"fast": 40})
    world.now_us += MAX_CHARGE_AGE_US
    late = await world.reserve()
    await world.pools.settle(late, {"fast": 40})
    await world.back()
    assert world.charged == {late.id: 1}
    assert world.pools.report.num_uncharged == 1


async def test_one_call_without_an_answer_costs_no_task() -> None:
    world = await started()
    world.redis.available = False
    reservation = await world.reserve()
    world.redis.available = True
    assert world.pools.mode == "redis", "one is not an outage"
    assert world.redis.held(TENANT) == 0
    await world.pools.check()
    assert world.redis.held(TENANT) == 1
    await world.pools.settle(reservation, {"fast": 40})
    assert world.charged == {reservation.id: 1}
    assert world.redis.held(TENANT) == 0


async def test_a_redis_that_was_started_again_empty_learns_what_runs() -> None:
    world = await started()
    running = await world.reserve()
    world.redis.memory = type(world.redis.memory)()
    assert world.redis.held(TENANT) == 0
    world.pulse = Pulse(1, True)
    await world.pools.check()
    assert world.redis.held(TENANT) == 1
    assert world.pools.mode == "degraded", "others may not have told it yet"
    world.pulse = Pulse(1, False)
    world.now_us += world.pools.pause_us
    await world.pools.check()
    assert world.pools.mode == "redis"
    await world.pools.settle(running, {"fast": 40})
    assert world.redis.held(TENANT) == 0


async def test_a_settlement_that_may_have_arrived_is_not_adopted_again() -> None:
    """It was carried out, and only its answer was lost: a second one must find nothing."""

    class Deaf(AwaitedPools):
        """Does what it is told, and cannot say so."""

        deaf = False

        async def settle(
            self,
            reservation: Reservation,
            actual_tokens: Mapping[BackendGroup, int],
            nusd: int = 0,
            *,
            once: bool = False,
        ) -> Any:
            balances = await super().settle(reservation, actual_tokens, nusd, once=once)
            if self.deaf:
                raise PoolsUnavailable("the answer was lost")
            return balances

    world = await started()
    world.redis.__class__ = Deaf
    reservation = await world.reserve()
    world.redis.deaf = True  # type: ignore[attr-defined]
    await world.pools.settle(reservation, {"fast": 40})
    left = world.tokens_left()
    world.redis.deaf = False  # type: ignore[attr-defined]
    await world.pools.check()
    assert world.redis.adopted == []
    assert world.tokens_left() == left
    assert world.redis.held(TENANT) == 0


BOTH = [(Demand("fast", 100), Demand("deep", 100))]


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("arrives", [True, False])
async def test_a_group_given_back_early_is_charged_once_whatever_arrives(
    arrives: bool, heard: bool
) -> None:
    class Deaf(AwaitedPools):
        """Is told, or not; and says so, or not."""

        async def extend(self, reservation: Reservation) -> bool:
            known = arrives and await super().extend(reservation)
            if not (arrives and heard):
                raise PoolsUnavailable("no answer")
            return known

    world = await started()
    reservation = await world.reserve(BOTH)
    left = world.tokens_left() + 100
    world.redis.__class__ = Deaf
    held = await world.pools.extend(shrunk(reservation, {"fast": 30}))
    assert (held.former is None) == (arrives and heard)
    assert world.redis.held(TENANT) == (1 if arrives else 2)
    assert world.tokens_left() == left - (30 if arrives else 100)
    world.redis.__class__ = AwaitedPools
    assert world.pools._local.num_held(TENANT.id, "fast") == (0 if arrives and heard else 1)
    await world.pools.settle(held, {"fast": 30, "deep": 50})
    assert world.redis.held(TENANT) == 0
    assert world.tokens_left() == left - 30
    assert not world.pools._local._held


async def test_nothing_is_given_back_early_while_redis_is_away() -> None:
    world = await started()
    before = await world.reserve(BOTH)
    left = world.tokens_left() + 100
    await world.away()
    during = await world.reserve(BOTH)
    for reservation in (before, during):
        assert await world.pools.extend(shrunk(reservation, {"fast": 30})) == reservation
    await world.back()
    assert world.redis.held(TENANT) == 4
    for reservation in (before, during):
        held = await world.pools.extend(shrunk(reservation, {"fast": 30}))
        assert [demand.group for demand in held.demands] == ["deep"]
    assert world.redis.held(TENANT) == 2
    for reservation in (before, during):
        await world.pools.settle(reservation, {"fast": 30, "deep": 1})
    assert world.tokens_left() == left - 60
    assert not world.pools._local._held


@pytest.mark.parametrize("on_blind", ["closed", "local"])
async def test_a_gateway_that_never_saw_redis(
    on_blind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(on_blind=on_blind, name="Redis at redis://cache:6379/0")
    world.redis.available = False
    await world.pools.greet()
    assert "Redis at redis://cache:6379/0 has not answered yet" in caplog.text
    assert world.pools.blind
    assert world.pools.ready == (on_blind == "local")
    if on_blind == "local":
        await world.reserve()
    else:
        with pytest.raises(PoolsUnavailable):
            await world.reserve()
    await world.back()
    assert not world.pools.blind
    assert world.pools.ready
    await world.reserve()


async def test_the_count_of_gateways_falls_slowly() -> None:
    """A Redis that comes back empty knows one gateway, until the others have spoken up."""
    world = await started()
    world.pulse = Pulse(4, False)
    await world.pools.check()
    world.pulse = Pulse(1, True)
    await world.pools.check()
    assert world.pools.report.num_gateways == 4
    for _ in range(10):
        await world.pools.check()
    assert world.pools.report.num_gateways == 1


async def test_a_group_that_is_closed_meanwhile() -> None:
    world = await started(when_away=lambda: {"fast": "closed"})
    await world.away()
    with pytest.raises(PoolsUnavailable, match="fast engines are closed"):
        await world.reserve()
    await world.reserve([(Demand(group="deep", tokens=1),)])


async def test_random_outages_lose_and_double_nothing() -> None:
    """Whatever goes away when: in the end every task was charged at most once, and most were."""
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    world = await started()
    live: list[Reservation] = []
    ended: Counter[str] = Counter()

    async def one_step() -> None:
        action = chance.random()
        if action < 0.5:
            grant = await world.pools.reserve_first(
                TENANT, f"t{len(ended)}-{chance.random()}", chance.choice([FAST, BOTH])
            )
            if grant.reservation is not None:
                live.append(grant.reservation)
        elif action < 0.9 and live:
            reservation = live.pop(chance.randrange(len(live)))
            ended[reservation.id] += 1
            await world.pools.settle(reservation, {"fast": chance.randrange(200)})
        elif action < 0.95 and live:
            await give_back()
        else:
            await world.pools.check()

    through: Counter[str] = Counter()

    async def give_back() -> None:
        """A task is through with the fast engines."""
        reservation = chance.choice(live)
        if len(reservation.demands) == 2 and not through[reservation.id]:
            through[reservation.id] = 1
            held = await world.pools.extend(shrunk(reservation, {"fast": 50}))
            if held.former is not None:
                await world.pools.extend(held)

    for _ in range(400):
        world.now_us += chance.randrange(100_000)
        world.redis.now_us = world.now_us
        if chance.random() < 0.08:
            world.redis.available = not world.redis.available
        await asyncio.gather(*(one_step() for _ in range(chance.randrange(1, 5))))
    world.redis.available = True
    while world.pools.mode == "degraded" or world.pools.report.num_unsettled:
        world.now_us += 10_000
        await world.pools.check()
    for reservation in live:
        ended[reservation.id] += 1
        await world.pools.settle(reservation, {})
    assert world.redis.held(TENANT) == 0
    assert not world.pools._held
    assert not world.pools._unadopted
    assert not world.pools._local._held
    assert set(world.charged) <= set(ended)
    assert max(world.charged.values()) == 1
    assert len(world.charged) + world.pools.report.num_uncharged == len(ended)
