"""Tests the pools on a Cluster and behind Sentinels, with real failovers and slots that move."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import pytest
from redis.exceptions import RedisError

from gateway.rejoin.mail import ALL, Mail
from gateway.rejoin.notes import Gone, Note
from gateway.store import recent_saves
from gateway.store.response_store import ResponseStore
from gateway.store.stored_bytes import RESPONSES
from gateway.store.stored_response import StoredResponse
from router.classify.task import Account, GroupLimits, Tenant
from router.learn.experience import Experience
from router.learn.learned_store import LearnedStore
from router.learn.learning import NUM_TRAITS, Observation
from router.pools.pools import Balance, Demand, Renewal
from router.pools.redis_pools import PoolsUnavailable, RedisPools
from router.redis.cancelling import cancelled
from router.redis.client import redis_client
from router.redis.heartbeat import KEY as HEARTBEATS
from router.redis.heartbeat import Heartbeat
from router.redis.servers import RedisAway, RedisServers, slot_of
from router.redis.url import parse_redis_url
from tests.integration.capped_gateways import gateways, many_tasks
from tests.integration.redis_fleet import (
    NEVER_MS,
    PATIENCE_S,
    SOON_MS,
    Cluster,
    Sentinels,
    Server,
    eventually,
    has_heard,
    running,
)
from tests.integration.watched_gateway import gateway
from tests.ports import free_port

T = TypeVar("T")
LIMITS = GroupLimits(requests_per_min=6_000, tokens_per_min=1_000_000, max_concurrent=3)
FAST = [(Demand("fast", 100),)]


def tenant(name: str) -> Tenant:
    return Tenant(id=name, tier="any", limits={"fast": LIMITS})


TENANTS = [tenant(f"tenant-{number}") for number in range(60)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    with running(*made.servers):
        made.form()
        yield made


@pytest.fixture
async def pools(cluster: Cluster) -> AsyncIterator[RedisPools]:
    made = RedisPools(cluster.url, budget_us=20_000_000)
    yield made
    await made.close()


async def when_back(ask: Callable[[], Awaitable[T]]) -> T:
    """Returns the answer as soon as the pools give one again."""
    give_up_s = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        try:
            return await ask()
        except PoolsUnavailable:
            assert asyncio.get_running_loop().time() < give_up_s
            await asyncio.sleep(0.02)


def places_of(balances: tuple[Balance, ...]) -> int:
    """Returns the free ones."""
    return next(each.remaining for each in balances if each.unit == "concurrent")


def master_of(cluster: Cluster, of: Tenant) -> Server:
    return cluster.master_of(slot_of(f"{{{of.id}}}"))


async def test_every_tenant_has_its_pools_on_its_node(cluster: Cluster, pools: RedisPools) -> None:
    await pools.ping()
    assert len({master_of(cluster, each).port for each in TENANTS}) == 3
    for attempt in "abc":
        grants = await asyncio.gather(
            *(pools.reserve_first(each, attempt, FAST) for each in TENANTS)
        )
        assert {grant.index for grant in grants} == {0}
    refused = await asyncio.gather(*(pools.reserve_first(each, "d", FAST) for each in TENANTS))
    assert {grant.limited_by for grant in refused} == {("fast", "concurrent")}
    for grant in grants:
        assert grant.reservation is not None
        assert await pools.settle(grant.reservation, {"fast": 1})
    assert (await pools.reserve_first(TENANTS[0], "d", FAST)).index == 0


async def test_budgets_and_keys_are_counted_with_their_tenant(pools: RedisPools) -> None:
    of_key = {"fast": GroupLimits(requests_per_min=1, tokens_per_min=10**6, max_concurrent=9)}
    accounts = (Account("t", (1_000, -1, -1)), Account("k.one"), Account("r.night", (-1, -1, 900)))
    spenders = [
        msgspec.structs.replace(
            tenant(f"spender-{number}"), key_id="one", key_limits=of_key, accounts=accounts
        )
        for number in range(12)
    ]
    demanded = [(Demand("fast", 100, 600),)]
    first = await asyncio.gather(*(pools.reserve_first(each, "a", demanded) for each in spenders))
    assert {grant.index for grant in first} == {0}
    for each, grant in zip(spenders, first, strict=True):
        other = msgspec.structs.replace(each, key_id="two", key_limits={})
        refused = await pools.reserve_first(other, "b", demanded)
        assert refused.over_budget == (0, 0), "600 are held of the day's 1,000"
        assert grant.reservation is not None
        assert await pools.settle(grant.reservation, {"fast": 1}, 350)
        refused = await pools.reserve_first(each, "c", FAST)
        assert refused.limited_by == ("fast", "key_requests")
        refused = await pools.reserve_first(other, "d", [(Demand("fast", 100, 600),)])
        assert refused.over_budget == (2, 2), "350 are spent of the run's 900"
        assert (await pools.reserve_first(other, "e", [(Demand("fast", 100, 550),)])).index == 0
    spent = [
        [sum(balance.spent[:1]) for balance in await pools.accounts(each.id, accounts)]
        for each in spenders
    ]
    assert spent == [[350, 350, 350]] * len(spenders)


async def test_a_slot_that_moves(cluster: Cluster, pools: RedisPools) -> None:
    """Under way its new keys are at the new node (ASK), but not for calls of several (TRYAGAIN)."""
    mover = tenant("mover")
    slot = slot_of("{mover}")
    old = cluster.master_of(slot)
    new = next(server for server in cluster.servers[:3] if server is not old)
    servers = RedisServers(parse_redis_url(cluster.url), budget_us=1_000_000)
    await servers.ping()
    old_id, new_id = old.ask("CLUSTER", "MYID"), new.ask("CLUSTER", "MYID")
    new.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", old_id)
    old.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", new_id)
    assert await servers.call("{mover}", "SET", "{mover}", "here") == b"OK"
    assert await servers.call("{mover}", "GET", "{mover}") == b"here"
    assert new.ask("CLUSTER", "COUNTKEYSINSLOT", slot) == 1
    with pytest.raises(PoolsUnavailable):
        await pools.reserve_first(mover, "too early", FAST)
    for server in (new, old, *cluster.servers[:3]):
        server.ask("CLUSTER", "SETSLOT", slot, "NODE", new_id)
    for name in "abc":
        assert (await pools.reserve_first(mover, name, FAST)).index == 0
    assert (await pools.reserve_first(mover, "d", FAST)).limited_by == ("fast", "concurrent")
    assert await servers.call("{mover}", "GET", "{mover}") == b"here"
    await servers.close()


@pytest.mark.parametrize("is_transaction", [True, False])
async def test_what_is_not_on_a_tasks_path_works_on_a_cluster(
    cluster: Cluster, is_transaction: bool
) -> None:
    client = redis_client(cluster.url, timeout_s=5.0)
    for _ in range(2):  # the first finds out about the nodes
        pipe = client.pipeline(transaction=is_transaction)
        pipe.set("{a}x", "1", ex=60)
        pipe.hmget("{a}y", ["b"])
        assert await pipe.execute() == [True, [None]]
    assert await client.mget(["{a}x", "{a}z"]) == [b"1", None]
    script = client.register_script("return redis.call('GET', KEYS[1])")
    assert await script(keys=["{a}x"]) == b"1"
    async with client.pubsub() as channel:
        await channel.subscribe("changes")
    await client.aclose()
    await asyncio.sleep(0)  # the turn of the loop in which sockets are really closed


async def test_stored_responses_are_looked_for_on_each_tenants_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_saves, "LOOK_AFTER_S", 0.0)
    client, lost = redis_client(cluster.url, timeout_s=30), list[tuple[str, int]]()
    store = ResponseStore(client, 3600, on_lost=lambda *told: lost.append(told))
    record = StoredResponse(response=b"{}", ancestors=(), input=(), output=(), num_own=0)
    for number in range(18):
        await store.save(f"tenant{number // 2}", f"resp_{number}", record)
    await client.delete("lw1:{tenant3}:r:resp_6")
    await store.follow_up()
    assert lost == [("redis_lost", 1)]
    await client.delete("lw1:{tenant5}:bytes")  # as if the time of its records were over
    await store.share()
    names = set(await client.zrange(RESPONSES.tenants, 0, -1))
    assert names == {f"tenant{number}".encode() for number in range(9) if number != 5}
    await client.aclose()
    await asyncio.sleep(0)  # the turn of the loop in which sockets are really closed


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
async def test_servers_that_nobody_reaches_are_away_whatever_is_asked(kind: str) -> None:
    """Who asks again and again goes on for ever only if it knows the error."""
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(2))
    path = "/main" if kind == "sentinel" else ""
    url = f"redis+{kind}://{hosts}{path}"
    client, target = redis_client(url, timeout_s=5.0), parse_redis_url(url)
    try:
        for _ in range(2):
            with pytest.raises(RedisError):
                await client.get("{a}x")
            with pytest.raises(RedisError):
                await client.pipeline(transaction=False).set("{a}x", 1).execute()
            heartbeat = Heartbeat(RedisServers(target, budget_us=5_000_000), "one")
            with pytest.raises(RedisAway):
                await heartbeat.beat()
            await heartbeat.stop()
    finally:
        await client.aclose()


async def test_ceilings_hold_on_a_cluster(cluster: Cluster) -> None:
    """Pools, ceilings and tenants are in different slots there, on different nodes."""
    async with gateways(cluster.url, 3, {"fast": 5}) as made:
        seen, num_refused = await many_tasks(made, 240, 7)
    assert seen.most["fast"] <= 5
    assert num_refused > 0


async def test_a_clusters_failover_costs_its_own_tenants_only_and_soon_nobody(
    cluster: Cluster,
) -> None:
    pools = RedisPools(cluster.url, budget_us=500_000)
    victim = tenant("victim")
    other = next(
        each for each in TENANTS if master_of(cluster, each) is not master_of(cluster, victim)
    )
    before = (await pools.reserve_first(victim, "before", FAST)).reservation
    assert before is not None
    master = master_of(cluster, victim)
    has_heard(cluster.replica_of(master), master)
    master.send(signal.SIGKILL)
    with pytest.raises(PoolsUnavailable):
        await pools.reserve_first(victim, "at once", FAST)
    await when_back(lambda: pools.reserve_first(other, "meanwhile", FAST))
    cluster.give_up_after(SOON_MS)
    after = (await when_back(lambda: pools.reserve_first(victim, "after", FAST))).reservation
    cluster.give_up_after(NEVER_MS)
    assert after is not None
    assert await when_back(lambda: pools.renew([before, after])) == Renewal(2, 0)
    await when_back(lambda: pools.reserve_first(victim, "third", FAST))
    fourth = await when_back(lambda: pools.reserve_first(victim, "fourth", FAST))
    assert fourth.limited_by == ("fast", "concurrent")
    await when_back(lambda: pools.settle(before, {"fast": 7}))
    assert (await when_back(lambda: pools.reserve_first(victim, "fourth", FAST))).index == 0
    await pools.close()


async def test_sentinels_failover(tmp_path: Path) -> None:
    made = Sentinels(tmp_path)
    with running(*made.servers):
        made.form()
        pools = RedisPools(made.url, budget_us=500_000)
        someone = tenant("someone")
        before = (await pools.reserve_first(someone, "before", FAST)).reservation
        assert before is not None
        has_heard(made.replica, made.master)
        made.master.send(signal.SIGKILL)
        with pytest.raises(PoolsUnavailable):
            await pools.reserve_first(someone, "at once", FAST)
        made.give_up_after(SOON_MS)
        assert (await when_back(lambda: pools.reserve_first(someone, "after", FAST))).index == 0
        made.give_up_after(NEVER_MS)
        assert places_of(await when_back(lambda: pools.balances(someone))) == 1, "both are held"
        await when_back(lambda: pools.settle(before, {"fast": 7}))
        made.master.start()  # nobody turns to what comes back
        assert (await when_back(lambda: pools.reserve_first(someone, "still", FAST))).index == 0
        assert places_of(await when_back(lambda: pools.balances(someone))) == 1
        await pools.close()


async def test_a_clusters_failover_ends_the_outage(tmp_path: Path) -> None:
    """Either master may die: that of the heartbeats or that of a tenant."""
    made = Cluster(tmp_path)
    with running(*made.servers):
        made.form()
        async with gateway(made.url, budget_us=500_000) as one:
            await one.until_back()
            for master in dict.fromkeys(
                made.master_of(slot_of(key)) for key in (HEARTBEATS, "{acme}")
            ):
                before = await one.reserve("before")
                has_heard(made.replica_of(master), master)
                master.send(signal.SIGKILL)
                num_asked = 0
                while one.pools.mode == "redis":
                    await one.pools.settle(await one.reserve(str(num_asked)), {})
                    await one.pools.check()
                    num_asked += 1
                made.give_up_after(SOON_MS)
                await one.until_back()
                made.give_up_after(NEVER_MS)
                await one.pools.settle(before, {"fast": 1})
                await one.until_settled()
                master.start()  # it is a replica from now on
                eventually(lambda of=master: of.ask("ROLE")[0] == "slave")
            leader = made.replica_of(made.master_of(slot_of("{acme}")))
            assert leader.ask("HGET", "lw1:{acme}:p:fast", "n") == "0"


async def test_a_sentinels_failover_ends_the_outage(tmp_path: Path) -> None:
    made = Sentinels(tmp_path)
    with running(*made.servers):
        made.form()
        async with gateway(made.url, budget_us=500_000) as one:
            await one.until_back()
            before = await one.reserve("before")
            has_heard(made.replica, made.master)
            made.master.send(signal.SIGKILL)
            await one.until_away()
            made.give_up_after(SOON_MS)
            await one.until_back()
            made.give_up_after(NEVER_MS)
            await one.pools.settle(before, {"fast": 1})
            await one.until_settled()
            assert int(made.replica.ask("HGET", "lw1:{acme}:p:fast", "n")) == 0


async def test_sentinels_that_know_no_such_master(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with running(server):
        server.ask("PING")
        pools = RedisPools(f"redis+sentinel://127.0.0.1:{server.port}/main")
        with pytest.raises(PoolsUnavailable, match="no Sentinel"):
            await pools.ping()
        await pools.close()


async def test_notes_on_lost_responses_reach_other_gateways_through_a_cluster(
    cluster: Cluster,
) -> None:
    heard: asyncio.Queue[Note] = asyncio.Queue()
    clients = [redis_client(cluster.url, timeout_s=PATIENCE_S) for _ in range(2)]
    mails = [
        Mail(clients[0], lambda _: None, lambda _: None),
        Mail(clients[1], heard.put_nowait, lambda _: None),
    ]
    running_mails = [
        asyncio.create_task(task) for mail in mails for task in (mail.listen(), mail.deliver())
    ]
    try:
        async with asyncio.timeout(PATIENCE_S):
            notes: list[Note] = []
            while len(notes) < 2:  # until both listen
                mails[0].send(ALL, Gone("resp_1", "to all"))
                mails[0].send(mails[1].inbox, Gone("resp_1", "to one"))
                with contextlib.suppress(TimeoutError):
                    note = await asyncio.wait_for(heard.get(), 0.1)
                    notes += [note] if note not in notes else []
    finally:
        await cancelled(*running_mails)
        for client in clients:
            await client.aclose()


async def test_what_outcomes_taught_is_shared_through_a_cluster(cluster: Cluster) -> None:
    client = redis_client(cluster.url, timeout_s=5)
    try:
        one, two = Experience(), Experience()
        for each in TENANTS[:6]:
            one.learner(each.id).observe(Observation(np.ones(NUM_TRAITS), 0.2, {"fast": 1.0}))
        await LearnedStore(client, one).share()
        for each in TENANTS[:6]:
            assert await LearnedStore(client, two).load(each.id)
            assert two.learner(each.id).known["fast"].num_outcomes == 1
    finally:
        await client.aclose()
