"""Tests tasks that wait for a pool: who gets in, who is refused, and what is left behind."""

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.task.pipeline import handle_task
from gateway.wire.errors import ProtocolError
from router.pools.pools import Demand
from router.waiting.rules import WaitingConfig
from tests.patience import until
from tests.unit.gateway.playing_backend import ANSWER
from tests.unit.gateway.waiting_world import PATIENCE_S, WaitingWorld, tenant


async def test_a_task_waits_for_a_place_and_gets_in() -> None:
    world = WaitingWorld([], limits=tenant(max_concurrent=1))
    first, one = world.start()
    await until(lambda: len(world.fast.generations) == 1)
    _, two = world.start()
    _, three = world.start()
    await world.waits(2)
    world.fast.script = ANSWER
    first.stop("cancelled")  # at its next token, which is the end here
    world.fast.generations[0].sink.finish(ANSWER[-1])  # type: ignore[arg-type]
    ended = await asyncio.wait_for(asyncio.gather(one, two, three), PATIENCE_S)
    assert all(each is not None for each in ended)
    assert world.refusals == []
    await world.left()
    admitted = {"group": "fast", "outcome": "admitted"}
    assert world.sample("lanewise_admission_wait_seconds_count", **admitted) == 2


async def test_what_refills_is_worth_waiting_for() -> None:
    """A burst beyond a minute's requests: the rest gets in as fast as they refill."""
    world = WaitingWorld(limits=tenant(requests_per_min=1_200))
    limits = world.tenant.limits["fast"]
    world.live.stands_at_us = world.pools.now_us
    for number in range(limits.requests_per_min - 3):
        demand = [(Demand(group="fast", tokens=0),)]
        grant = world.pools.memory.reserve_first(
            world.tenant, f"used-{number}", demand, world.pools.now_us
        )
        assert grant.reservation is not None
        world.pools.memory.settle(grant.reservation, {}, world.pools.now_us)
    tasks = [world.start()[1] for _ in range(10)]
    await world.waits(7)
    world.live.stands_at_us = None
    ended = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)
    assert all(each is not None for each in ended)
    assert world.refusals == []
    waited = {"group": "fast", "outcome": "admitted"}
    assert world.sample("lanewise_admission_wait_seconds_count", **waited) == 7
    await world.left()


async def test_off_by_default() -> None:
    world = WaitingWorld([], limits=tenant(max_concurrent=1), waiting=WaitingConfig())
    _, one = world.start()
    await until(lambda: len(world.fast.generations) == 1)
    _, two = world.start()
    assert await two is None
    assert world.refusal.code == "rate_limit_exceeded"
    assert (
        world.sample("lanewise_admission_wait_seconds_count", group="fast", outcome="refused") == 0
    )
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    await world.left()


WAITS: list[tuple[str, WaitingConfig, dict[str, str], bool]] = [
    ("for its group", WaitingConfig(wait_ms={"fast": 5_000}), {}, True),
    ("another group's", WaitingConfig(wait_ms={"deep": 5_000}), {}, False),
    ("its tier's", WaitingConfig(tiers={"pro": {"fast": 5_000}}), {}, True),
    (
        "its tenant's none",
        WaitingConfig(wait_ms={"fast": 9}, tenants={"acme": {"fast": 0}}),
        {},
        False,
    ),
    ("however short", WaitingConfig(wait_ms={"fast": 900}), {}, True),
    ("its client's wish", WaitingConfig(wait_ms={"fast": 5_000}), {"max_wait_ms": "0"}, False),
    (
        "its client's patience",
        WaitingConfig(wait_ms={"fast": 5_000}),
        {"max_wait_ms": "4000"},
        True,
    ),
    ("no more than is allowed", WaitingConfig(), {"max_wait_ms": "4000"}, False),
]


@pytest.mark.parametrize(("case", "config", "metadata", "waits"), WAITS)
async def test_who_may_wait(
    case: str, config: WaitingConfig, metadata: dict[str, str], waits: bool
) -> None:
    world = WaitingWorld([], limits=tenant(max_concurrent=1), waiting=config)
    _, one = world.start()
    await until(lambda: len(world.fast.generations) == 1)
    _, two = world.start(metadata=metadata)
    await until(lambda: world.depth == 1 or two.done())
    assert two.done() != waits, case
    if not waits:
        # A place's wait is a guess of a second; what matters is that it is shown at once.
        assert world.refusal.headers["retry-after-ms"] == "1000"
    for each in (one, two):
        each.cancel()
    await asyncio.gather(one, two, return_exceptions=True)
    await world.left()


@pytest.mark.parametrize(
    ("wait_ms", "metadata", "waits"),
    [(1_000, {}, False), (50_000, {}, True), (50_000, {"deadline_ms": "1500"}, False)],
)
async def test_a_wait_that_is_known_to_be_too_long_is_refused_at_once(
    wait_ms: int, metadata: dict[str, str], waits: bool
) -> None:
    """The next request is there in two seconds, and the one after it in four."""
    waiting = WaitingConfig(wait_ms={"fast": wait_ms})
    world = WaitingWorld(limits=tenant(requests_per_min=30), waiting=waiting)
    now_us = world.live.stands_at_us = world.pools.now_us
    for number in range(30):
        grant = world.pools.memory.reserve_first(
            world.tenant, f"used-{number}", [(Demand("fast", 0),)], now_us
        )
        assert grant.reservation is not None
        world.pools.memory.settle(grant.reservation, {}, now_us)
    _, one = world.start(metadata=metadata)
    await until(lambda: world.depth == 1 or one.done())
    assert one.done() != waits
    if not waits:
        assert int(world.refusal.headers["retry-after-ms"]) == 2_000
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    await world.left()


async def test_the_longest_wait_ends_in_a_refusal() -> None:
    config = WaitingConfig(wait_ms={"fast": 100})
    world = WaitingWorld([], limits=tenant(max_concurrent=1), waiting=config)
    _, one = world.start()
    await until(lambda: len(world.fast.generations) == 1)
    _, two = world.start()
    assert await asyncio.wait_for(two, PATIENCE_S) is None
    assert world.refusal.code == "rate_limit_exceeded"
    assert int(world.refusal.headers["retry-after-ms"]) >= 1
    assert (
        world.sample("lanewise_admission_wait_seconds_count", group="fast", outcome="refused") == 1
    )
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    await world.left()


@pytest.mark.parametrize("how", ["leaves", "cancels", "drains"])
async def test_whoever_goes_while_waiting_leaves_nothing(how: str) -> None:
    world = WaitingWorld([], limits=tenant(max_concurrent=1))
    _, one = world.start()
    await until(lambda: len(world.fast.generations) == 1)
    job, two = world.start()
    await world.waits()
    if how == "leaves":
        two.cancel()
        with pytest.raises(asyncio.CancelledError):
            await two
    elif how == "cancels":
        job.stop("cancelled")
        assert await two is None
        assert world.refusal.code == "response_cancelled"
    else:
        world.gw.waiting.refuse_all()
        assert await two is None
        assert world.refusal.code == "server_draining"
    assert world.depth == 0
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    await world.left()


async def test_leaving_at_any_moment_leaves_nothing() -> None:
    """It leaves while it waits, while it is tried, and just when it got in."""
    for num_turns in range(25):
        world = WaitingWorld(limits=tenant(max_concurrent=1))
        world.fast.script = []
        _, one = world.start()
        await until(lambda world=world: len(world.fast.generations) == 1)  # type: ignore[misc]
        world.fast.script = ANSWER
        _, two = world.start()
        await world.waits()
        one.cancel()
        for _ in range(num_turns):
            await asyncio.sleep(0)
        two.cancel()
        await asyncio.gather(one, two, return_exceptions=True)
        await world.left()


async def test_first_come_first_served_within_a_tenant() -> None:
    """Who comes later does not take what the one before it waits for."""
    world = WaitingWorld([], limits=tenant(max_concurrent=1))
    _, one = world.start()
    await until(lambda: len(world.fast.generations) == 1)
    order: list[int] = []
    tasks = []
    for number in range(5):
        _, each = world.start()
        each.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
        tasks.append(each)
        await world.waits(number + 1)
    world.fast.script = ANSWER
    one.cancel()
    await asyncio.wait_for(asyncio.gather(one, *tasks, return_exceptions=True), PATIENCE_S)
    assert order == [0, 1, 2, 3, 4]
    await world.left()


async def test_the_room_is_bounded() -> None:
    config = WaitingConfig(wait_ms={"fast": 30_000}, max_waiting=2, max_waiting_per_tenant=2)
    world = WaitingWorld([], limits=tenant(max_concurrent=1), waiting=config)
    _, one = world.start()
    await until(lambda: len(world.fast.generations) == 1)
    waiting = [world.start()[1] for _ in range(2)]
    await world.waits(2)
    _, refused = world.start()
    assert await refused is None
    assert world.refusal.code == "rate_limit_exceeded"
    # A second until the first place, and one more for each that stands before.
    assert int(world.refusal.headers["retry-after-ms"]) > 2_000
    for each in (one, *waiting):
        each.cancel()
    await asyncio.gather(one, *waiting, return_exceptions=True)
    await world.left()


async def test_a_client_that_asked_is_told_its_place() -> None:
    world = WaitingWorld([], limits=tenant(max_concurrent=1))
    _, one = world.start()
    await until(lambda: len(world.fast.generations) == 1)
    shown: list[tuple[str, int]] = []
    tasks = []
    for number in range(3):
        asks = {"queue_events": "true"} if number != 1 else {}
        job = world.job(metadata={"route": "fast"} | asks)
        if number != 1:
            job.on_queue_position = lambda group, position, number=number: shown.append(  # type: ignore[misc]
                (f"{group} {number}", position.position)
            )
        tasks.append(asyncio.create_task(handle_task(world.gw, job)))
        await world.waits(number + 1)
    assert shown == [("fast 0", 1), ("fast 2", 3)]
    tasks[0].cancel()
    await asyncio.wait_for(until(lambda: ("fast 2", 2) in shown), PATIENCE_S)
    for each in (one, *tasks):
        each.cancel()
    await asyncio.gather(one, *tasks, return_exceptions=True)
    await world.left()


async def test_a_failing_try_is_its_own_clients_affair() -> None:
    world = WaitingWorld([], limits=tenant(max_concurrent=1))
    _, one = world.start()
    await until(lambda: len(world.fast.generations) == 1)
    tried = 0

    async def broken(has_waited: bool) -> Any:
        nonlocal tried
        tried += 1
        raise ProtocolError("server_is_overloaded", "told to fail")

    _, two = world.start()
    await world.waits()
    (entry,) = world.gw.waiting._rooms["fast"].entries.values()
    entry.wanted = msgspec.structs.replace(entry.wanted, attempt=broken)
    _, three = world.start()
    await world.waits(2)
    world.fast.script = ANSWER
    one.cancel()
    ended = await asyncio.wait_for(
        asyncio.gather(one, two, three, return_exceptions=True), PATIENCE_S
    )
    assert ended[1] is None
    assert ended[2] is not None
    assert (tried, world.refusal.code) == (1, "server_is_overloaded")
    await world.left()
