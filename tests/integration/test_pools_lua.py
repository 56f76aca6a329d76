"""pools.lua and bucket.py are one arithmetic: the same operations give the same answers."""

import random
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hiredis
import msgspec
import pytest
from redis import Redis

from backends.contract import BackendGroup
from gateway.process.embedded_redis import server_binaries
from router.classify.task import Account, GroupLimits, Tenant
from router.pools.memory_pools import MemoryPools
from router.pools.pools import (
    GROUPS,
    Demand,
    Grant,
    Reservation,
    extended,
    hold_of,
    key_of,
    lease_of,
    shrunk,
)
from router.pools.script_calls import (
    NUM_KEYS,
    SCRIPT,
    Arguments,
    adopt_call,
    adopted_of,
    extend_call,
    grant_of,
    raise_call,
    read_call,
    read_of,
    reap_call,
    renew_call,
    reserve_call,
    settle_call,
)
from router.redis.servers import Script

SHA = Script(SCRIPT, NUM_KEYS).sha
NUM_OPERATIONS = 40_000  # on the first server; a fifth on each further one
BATCH = 400
LEASE_US = 5_000_000
PREVIOUS = Path(__file__).parent / "releases" / "pools_v1.lua"


class RawRedis:
    """Keeps calls in flight over one blocking socket: what a property test has time for."""

    def __init__(self, url: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(url.removeprefix("unix://"))
        self._socket.settimeout(60.0)
        self._reader = hiredis.Reader()

    def send(self, calls: Sequence[Arguments]) -> None:
        packed = [hiredis.pack_command(("EVALSHA", SHA, NUM_KEYS, *call)) for call in calls]
        self._socket.sendall(b"".join(packed))

    def replies(self, count: int) -> Iterator[Any]:
        while count:
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(1 << 16))
                continue
            if isinstance(reply, Exception):
                raise reply
            yield reply
            count -= 1

    def close(self) -> None:
        self._socket.close()


@contextmanager
def raw_redis(url: str) -> Iterator[RawRedis]:
    with Redis.from_url(url) as client:
        assert client.script_load(SCRIPT) == SHA
    raw = RawRedis(url)
    try:
        yield raw
    finally:
        raw.close()


class BothPools:
    """Applies each operation to memory and sends it to Redis; answers are compared a batch later.

    While Redis works on one batch, memory does the next.
    """

    def __init__(self, raw: RawRedis) -> None:
        self._raw = raw
        self._memory = MemoryPools(LEASE_US)
        self._calls: list[Arguments] = []
        self._checks: list[Callable[[Any], None]] = []
        self._sent: list[Callable[[Any], None]] = []

    def reserve(
        self, tenant: Tenant, name: str, ranked: Sequence[tuple[Demand, ...]], now_us: int
    ) -> Grant:
        grant = self._memory.reserve_first(tenant, name, ranked, now_us)
        call = reserve_call(tenant, name, ranked, LEASE_US // 1_000, now_us // 1_000)
        self._queue(call, lambda reply: _same(grant_of(reply, tenant, name, ranked), grant))
        return grant

    def settle(
        self, reservation: Reservation, fast: int, deep: int, now_us: int, nusd: int = 0
    ) -> None:
        used: dict[BackendGroup, int] = {"fast": fast, "deep": deep}
        known = self._memory.settle(reservation, used, now_us, nusd)
        call = settle_call(reservation, used, now_us // 1_000, nusd=nusd)
        self._queue(call, lambda reply: _same(reply, int(known)))

    def extend(self, reservation: Reservation, now_us: int) -> None:
        known = self._memory.extend(reservation, now_us)
        call = extend_call(reservation, LEASE_US // 1_000, now_us // 1_000)
        self._queue(call, lambda reply: _same(bool(reply), known))

    def adopt(self, tenant: Tenant, reservation: Reservation, now_us: int) -> None:
        """Adopts what another process granted, whether it fits or not."""
        grant = self._memory.adopt(tenant, reservation, now_us)
        call = adopt_call(tenant, reservation, LEASE_US // 1_000, now_us // 1_000)
        self._queue(call, lambda reply: _same(adopted_of(reply, tenant, reservation), grant))

    def renew(self, reservation: Reservation, now_us: int) -> None:
        found = self._memory.renew([reservation], now_us)
        call = renew_call(
            reservation.tenant_id, [reservation.lease], LEASE_US // 1_000, now_us // 1_000
        )
        self._queue(call, lambda reply: _same(reply, [found.num_held, found.num_anew]))

    def reap(self, tenant: Tenant, most: int, now_us: int) -> None:
        num_reaped = self._memory.reap(tenant.id, most, now_us)
        call = reap_call(tenant.id, most, now_us // 1_000)
        self._queue(call, lambda reply: _same(reply[0], num_reaped))

    def read(self, tenant: Tenant, now_us: int) -> None:
        balances = self._memory.balances(tenant, now_us)
        call = read_call(tenant, now_us // 1_000)
        self._queue(call, lambda reply: _same(read_of(reply, tenant), balances))

    def raise_run(self, tenant: Tenant, limit_nusd: int, now_us: int) -> None:
        self._memory.raise_run(tenant.id, "r.run", limit_nusd, now_us)
        call = raise_call(tenant.id, "r.run", limit_nusd, now_us // 1_000)
        self._queue(call, lambda reply: _same(reply, 1))

    def turn(self) -> None:
        """Compare what was sent a turn ago, and send what has gathered since."""
        replies = list(self._raw.replies(len(self._sent)))
        self._raw.send(self._calls)
        for check, reply in zip(self._sent, replies, strict=True):
            check(reply)
        self._sent, self._calls, self._checks = self._checks, [], []

    def _queue(self, call: Arguments, check: Callable[[Any], None]) -> None:
        self._calls.append(call)
        self._checks.append(check)


def _same(from_redis: object, from_memory: object) -> None:
    if isinstance(from_redis, Grant) and isinstance(from_memory, Grant):
        for name in Grant.__struct_fields__:  # to say which field differs
            assert getattr(from_redis, name) == getattr(from_memory, name), name
    assert from_redis == from_memory


def random_tenant(chance: random.Random, tenant_id: str) -> Tenant:
    def limits() -> GroupLimits:
        return GroupLimits(
            requests_per_min=chance.choice([0, 1, 7, 60, 600, 10**6, 10**12]),
            tokens_per_min=chance.choice([0, 13, 1_000, 123_457, 10**9]),
            max_concurrent=chance.randrange(6),
            tokens_per_day=chance.choice([None, None, 0, 500, 10**6, 10**18]),
        )

    choices: list[tuple[BackendGroup, ...]] = [("fast",), ("deep",), GROUPS, GROUPS]
    groups = chance.choice(choices)
    accounts: tuple[Account, ...] = ()
    if int(tenant_id.partition("-")[2]) % 2:
        accounts = tuple(random_account(chance, name) for name in ("t", "k.key_1", "r.run"))
    by_group = {group: limits() for group in groups}
    key_limits = {}
    if int(tenant_id.partition("-")[2]) % 6 in (2, 5):
        key_limits = {group: limits() for group in chance.choice([*choices, groups])}
    return Tenant(
        id=tenant_id, tier="any", limits=by_group, key_limits=key_limits, accounts=accounts
    )


def random_account(chance: random.Random, name: str) -> Account:
    def limits() -> tuple[int, int, int]:
        day, month, whole = (
            chance.choice([-1, -1, 0, 10**6, 30 * 10**6, 10**9, 10**15]) for _ in range(3)
        )
        return day, month, whole

    return Account(name, limits(), limits())


def random_ranked(chance: random.Random, tenant: Tenant) -> list[tuple[Demand, ...]]:
    def demand(group: Any) -> Demand:
        ceiling = tenant.limits[group].tokens_per_min
        tokens = chance.choice([0, 1, chance.randrange(2 * ceiling + 2)])
        return Demand(group, tokens, chance.choice([0, 1, 10**5, chance.randrange(2 * 10**6)]))

    groups = list(tenant.limits)
    sets = [tuple(demand(group) for group in groups)]
    sets += [(demand(group),) for group in groups]
    return chance.sample(sets, chance.randrange(1, len(sets) + 1))


class RandomTasks:
    """Draws tenants and tasks: some settled twice, some never, some of a changed tenant."""

    # Mostly short; now and then a lease, a day, or back: over midnight, or by days.
    STEPS_US = (
        *(0, 0, 400, 1_000, 30_000, 700_000, 20_000_000, -90_000_000),
        *(1_000_000,) * 4,
        *(40_000_000_000, -7_200_000_000),
    )

    def __init__(self, chance: random.Random, pools: BothPools) -> None:
        self._chance = chance
        self._pools = pools
        self._tenants = [random_tenant(chance, f"tenant-{n}") for n in range(12)]
        self._live: list[Reservation] = []
        self._now_us = 1_800_000_000_000_000
        self.num_granted = 0

    def act(self, number: int) -> None:
        chance = self._chance
        self._now_us += chance.choice(self.STEPS_US)
        if chance.random() < 0.001:
            self._now_us += chance.choice([-5, 5]) * 86_400_000_000
        action = chance.random()
        if action < 0.02:
            place = chance.randrange(len(self._tenants))
            self._tenants[place] = random_tenant(chance, f"tenant-{place}")
        if action < 0.55 or not self._live:
            self._reserve(number)
        elif action < 0.8:
            self._settle()
        elif action < 0.87:
            self._extend()
        elif action < 0.9:
            self._adopt(number)
        elif action < 0.96:
            self._pools.renew(chance.choice(self._live), self._now_us)
        elif action < 0.965:
            limit_nusd = chance.choice([-1, 0, 10**8, 10**12])
            self._pools.raise_run(chance.choice(self._tenants), limit_nusd, self._now_us)
        elif action < 0.98:
            self._pools.reap(chance.choice(self._tenants), chance.randrange(1, 12), self._now_us)
        else:
            self._pools.read(self._tenant(), self._now_us)
        del self._live[:-100]

    def _reserve(self, number: int) -> None:
        tenant = self._tenant()
        name = f"r{number}" if self._chance.random() < 0.95 else f"r{number - 1}"
        ranked = random_ranked(self._chance, tenant)
        grant = self._pools.reserve(tenant, name, ranked, self._now_us)
        if grant.reservation is not None:
            self.num_granted += 1
            self._live.append(grant.reservation)

    def _tenant(self) -> Tenant:
        """Chooses a tenant, as one of its keys has it."""
        key = self._chance.choice(["key_1", "config-2"])
        return msgspec.structs.replace(self._chance.choice(self._tenants), key_id=key)

    def _settle(self) -> None:
        reservation = self._chance.choice(self._live)
        if self._chance.random() < 0.9:
            self._live.remove(reservation)
        largest = 2 * max(demand.tokens for demand in reservation.demands) + 2
        fast, deep = (self._chance.randrange(largest) for _ in range(2))
        spent = self._chance.randrange(3 * 10**6) if reservation.hold else 0
        self._pools.settle(reservation, fast, deep, self._now_us, spent)

    def _adopt(self, number: int) -> None:
        """Adopts one that this server never saw, or has forgotten, or holds."""
        tenant = self._tenant()
        demands = random_ranked(self._chance, tenant)[0]
        hold = hold_of(tenant, demands)
        lease = lease_of(f"a{number}", demands, hold)
        strange = Reservation(f"a{number}", tenant.id, demands, lease, 0, hold=hold)
        key = key_of(strange.hold)
        ours = [
            held for held in self._live if held.tenant_id == tenant.id and key_of(held.hold) == key
        ]
        reservation = self._chance.choice([strange, *ours])
        if all(demand.group in tenant.limits for demand in reservation.demands):
            self._pools.adopt(tenant, reservation, self._now_us)
            self._live.append(reservation)

    def _extend(self) -> None:
        place = self._chance.randrange(len(self._live))
        held = self._live[place]
        grown: dict[BackendGroup, int] = {
            demand.group: demand.tokens + self._chance.randrange(1_000) for demand in held.demands
        }
        reservation = extended(held, grown)
        if len(held.demands) == 2 and self._chance.random() < 0.5:
            through: BackendGroup = self._chance.choice(GROUPS)
            reservation = shrunk(held, {through: self._chance.randrange(3_000)})
        if reservation.lease == held.lease:
            return
        outcome = self._chance.random()
        if outcome < 0.9:  # else it never arrives
            self._pools.extend(reservation, self._now_us)
        if outcome < 0.05:  # a renewal was on its way, and comes late
            self._pools.renew(held, self._now_us)
        if outcome < 0.1:
            self._pools.extend(reservation, self._now_us)
        if outcome < 0.8:  # else nobody hears the answer
            self._live[place] = msgspec.structs.replace(reservation, former=None, released=())
        else:
            largest = self._chance.randrange(3_000)
            self._pools.settle(reservation, largest, largest, self._now_us)
            del self._live[place]


def test_lua_and_python_agree(redis_url: str, request: pytest.FixtureRequest) -> None:
    is_first = request.node.callspec.params["redis_server"] == server_binaries()[0]
    num_operations = NUM_OPERATIONS if is_first else NUM_OPERATIONS // 5
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    with raw_redis(redis_url) as raw:
        pools = BothPools(raw)
        tasks = RandomTasks(random.Random(seed), pools)
        for number in range(num_operations):
            tasks.act(number)
            if number % BATCH == BATCH - 1:
                pools.turn()
        pools.turn()
        pools.turn()
    assert tasks.num_granted > num_operations // 10  # the run exercised both outcomes


ACME = Tenant(
    id="acme",
    tier="any",
    limits={
        "fast": GroupLimits(
            requests_per_min=60, tokens_per_min=600, max_concurrent=3, tokens_per_day=5_000
        )
    },
)
ONE = [(Demand("fast", 1),)]


@pytest.mark.parametrize("step_us", [-60_000_000, 60_000_000, -3_600_000_000, 3_600_000_000])
def test_a_stepped_server_clock_neither_locks_out_nor_overfills(
    redis_url: str, step_us: int
) -> None:
    """The stamp is edited instead of the clock: a stamp in the future is a clock stepped back."""
    with Redis.from_url(redis_url) as client:
        sha = client.script_load(SCRIPT)
        large = [(Demand("fast", 500),)]
        assert client.evalsha(sha, NUM_KEYS, *reserve_call(ACME, "a", large, 30_000))[0] == 1
        stamp_ms = int(client.hget("lw1:{acme}:p:fast", "at") or 0)
        client.hset("lw1:{acme}:p:fast", "at", stamp_ms - step_us // 1_000)
        reply = client.evalsha(sha, NUM_KEYS, *reserve_call(ACME, "b", ONE, 30_000))
        grant = grant_of(reply, ACME, "b", ONE)
        assert grant.index == 0
        tokens = next(b for b in grant.balances if b.unit == "tokens")
        if step_us < 0:
            assert 99 <= tokens.remaining <= 105  # what was left, and perhaps a moment's refill
        else:
            assert tokens.remaining == 599  # full, and no fuller
        stamp_ms = int(client.hget("lw1:{acme}:p:fast", "at") or 0)
        seconds, _ = client.time()
        assert abs(stamp_ms // 1_000 - int(seconds)) < 60


@pytest.mark.parametrize("step_ms", [-60_000, 60_000])
def test_a_clock_that_steps_under_running_tasks_costs_them_nothing(
    redis_url: str, step_ms: int
) -> None:
    """A step of two leases forward reaps live leases; their next renewal takes them anew."""
    now_ms = 1_800_000_000_000
    with raw_redis(redis_url) as raw:

        def call(arguments: Arguments) -> Any:
            raw.send([arguments])
            return next(raw.replies(1))

        def reserve(name: str, at_ms: int) -> Grant:
            return grant_of(call(reserve_call(ACME, name, ONE, 30_000, at_ms)), ACME, name, ONE)

        held = [reserve(name, now_ms).reservation for name in "ab"]
        now_ms += step_ms
        assert held[0] is not None
        assert held[1] is not None
        renewal = call(renew_call("acme", [r.lease for r in held if r], 30_000, now_ms))
        assert sum(renewal) == 2
        assert reserve("c", now_ms).index == 0
        refused = reserve("d", now_ms)
        assert refused.limited_by == ("fast", "concurrent")
        assert call(settle_call(held[0], {"fast": 1}, now_ms)) == 1
        assert call(settle_call(held[0], {"fast": 1}, now_ms)) == 0
        assert reserve("d", now_ms).index == 0


def test_what_is_no_lease_locks_nobody_out(redis_url: str) -> None:
    with Redis.from_url(redis_url) as client:
        client.script_load(SCRIPT)
        client.zadd("lw1:{acme}:lease", {"rubbish": 1, "9:some:later version|100|-1": 2})
        reply = client.evalsha(SHA, NUM_KEYS, *reserve_call(ACME, "a", ONE, 30_000))
        assert grant_of(reply, ACME, "a", ONE).num_reaped == 2
        assert client.zcard("lw1:{acme}:lease") == 1


def test_a_settlement_that_is_remembered_is_no_lease_that_was_left(redis_url: str) -> None:
    now_ms = 1_000_000
    with Redis.from_url(redis_url) as client:
        client.script_load(SCRIPT)

        def call(arguments: Arguments) -> Any:
            return client.evalsha(SHA, NUM_KEYS, *arguments)

        held = grant_of(call(reserve_call(ACME, "a", ONE, 30_000, now_ms)), ACME, "a", ONE)
        assert held.reservation is not None
        assert call(settle_call(held.reservation, {"fast": 1}, now_ms, kept_ms=10)) == 1
        assert client.zcard("lw1:{acme}:lease") == 1
        assert call(reap_call("acme", 100, now_ms + 11)) == [0, 0]
        assert client.zcard("lw1:{acme}:lease") == 0


class Release1:
    """Is a gateway of the previous release: its script, and the calls that it made."""

    LIMITS = (60, 600, 3, -1, -1, -1)

    def __init__(self, client: "Redis", lease_ms: int) -> None:
        self._script = client.register_script(PREVIOUS.read_text())
        self._lease_ms = lease_ms

    def _call(self, *arguments: str | int) -> Any:
        keys = ["lw1:{acme}:lease", "lw1:{acme}:p:fast", "lw1:{acme}:p:deep"]
        return self._script(keys=keys, args=[*arguments])

    def reserve(self, name: str, tokens: int, now_ms: int) -> bool:
        lease = f"{name}|{tokens}|-1"
        reply = self._call("reserve", now_ms, self._lease_ms, *self.LIMITS, lease, tokens, -1)
        return bool(reply[0])

    def settle(self, name: str, tokens: int, used: int, now_ms: int) -> bool:
        return bool(self._call("settle", now_ms, f"{name}|{tokens}|-1", used, 0)[0])

    def renew(self, name: str, tokens: int, now_ms: int) -> int:
        return int(self._call("renew", now_ms, self._lease_ms, f"{name}|{tokens}|-1"))


def test_two_releases_share_one_tenants_pools(redis_url: str) -> None:
    """In a rolling upgrade each settles its own leases and gives back the other's when it dies."""
    now_ms = 1_800_000_000_000
    with Redis.from_url(redis_url) as client:
        client.script_load(SCRIPT)
        old = Release1(client, 30_000)

        def reserve(name: str, tokens: int, at_ms: int) -> Grant:
            ranked = [(Demand("fast", tokens),)]
            reply = client.evalsha(SHA, NUM_KEYS, *reserve_call(ACME, name, ranked, 30_000, at_ms))
            return grant_of(reply, ACME, name, ranked)

        def levels(at_ms: int) -> dict[str, int]:
            reply = client.evalsha(SHA, NUM_KEYS, *read_call(ACME, at_ms))
            return {balance.unit: balance.remaining for balance in read_of(reply, ACME)}

        assert old.reserve("old", 100, now_ms)
        new = reserve("new", 50, now_ms)
        assert new.reservation is not None
        assert levels(now_ms)["tokens"] == 450  # one level, whoever takes
        assert old.reserve("third", 0, now_ms)
        assert reserve("fourth", 0, now_ms).limited_by == ("fast", "concurrent")
        assert not old.reserve("fourth", 0, now_ms)
        assert old.settle("third", 0, 0, now_ms)
        assert old.settle("old", 100, 40, now_ms)
        assert (
            client.evalsha(SHA, NUM_KEYS, *settle_call(new.reservation, {"fast": 10}, now_ms)) == 1
        )
        assert levels(now_ms)["tokens"] == 550

        # Both die, but for one task: whoever comes next gives back what the others held.
        assert old.reserve("o0", 20, now_ms)
        assert old.reserve("o1", 20, now_ms)
        assert reserve("n", 30, now_ms).index == 0
        assert levels(now_ms)["concurrent"] == 0
        assert old.renew("o1", 20, now_ms + 10_000) == 1
        later_ms = now_ms + 30_000
        assert levels(later_ms)["concurrent"] == 2
        assert old.settle("o1", 20, 0, later_ms)
        assert levels(later_ms)["concurrent"] == 3
        assert levels(later_ms + 60_000)["tokens"] == 600

        # The other way round: the previous release gives back what this one reserved.
        assert reserve("n2", 60, later_ms).index == 0
        assert old.reserve("o3", 0, later_ms + 30_000)
        assert old.settle("o3", 0, 0, later_ms + 30_000)
        assert levels(later_ms + 30_000)["concurrent"] == 3
