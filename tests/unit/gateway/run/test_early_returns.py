"""What a part of a strategy held comes back when it ends, once, while the response goes on."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from gateway.run.leases import extend_outgrown
from gateway.run.side_reservations import SideReservations
from gateway.task.context import load_task
from router.classify.task import GroupLimits
from router.pools.pools import Demand, Reservation
from router.pools.redis_pools import PoolsUnavailable
from tests.patience import until
from tests.unit.gateway.doubles import (
    MANY,
    AwaitedPools,
    RecordingGeneration,
    failure,
    stop,
    text,
)
from tests.unit.gateway.driven_task import Running
from tests.unit.gateway.world import World

FEW_PLACES = msgspec.structs.replace(MANY, max_concurrent=3)
FEW_REQUESTS = msgspec.structs.replace(MANY, requests_per_min=4)
FEW_TOKENS = msgspec.structs.replace(MANY, tokens_per_min=500)


FAST_TOKENS = 2 * 10  # of two variations


async def judged(running: Running) -> RecordingGeneration:
    """Ends both variations; returns what judges them."""
    for number in range(2):
        fast = await running.fast(number)
        fast.sink.push(text("Briefly."))
        fast.sink.finish(stop(3))
    return await running.deep()


async def test_variations_give_back_when_they_end() -> None:
    running = Running("breadth", n="2")
    await running.fast(1)
    assert (running.held("fast"), running.held("deep")) == (2, 1)
    deep = await judged(running)
    await running.free("fast")
    left = running.left("fast", "tokens")
    assert left == MANY.tokens_per_min - FAST_TOKENS, "what they used, no more"
    assert running.held("deep") == 1
    await until(lambda: running.world.sample("lanewise_ratelimit_leases", group="fast") == 0)
    assert running.world.sample("lanewise_ratelimit_reserved_tokens", group="fast") == 0
    deep.sink.push(text("At length."))
    deep.sink.finish(stop(5))
    assert (await running.end())["status"] == "completed"
    assert running.left("fast", "tokens") == MANY.tokens_per_min - FAST_TOKENS
    assert running.left("deep", "tokens") == MANY.tokens_per_min - 12


async def test_a_hedge_that_was_lost_gives_back_while_the_winner_speaks() -> None:
    running = Running("hedge", hedge_after_ms="0")
    await running.deep()
    fast = await running.fast()
    assert (running.held("fast"), running.held("deep")) == (1, 1)
    fast.sink.push(text("First."))
    fast.sink.push(text(" And a lot of words behind it, to lead."))
    await running.free("deep")
    assert running.held("fast") == 1
    fast.sink.finish(stop(3))
    await running.end()


async def test_each_variation_has_a_place_and_gives_it_back_when_it_ends() -> None:
    running = Running("breadth", n="4")
    variations = [await running.fast(number) for number in range(4)]
    assert running.held("fast") == 4
    assert running.left("fast", "requests") == MANY.requests_per_min - 4
    for number, variation in zip(range(4), (variations[i] for i in (2, 0, 3, 1)), strict=True):
        variation.sink.push(text("One."))
        variation.sink.finish(stop(3))
        left = 3 - number
        await until(lambda left=left: running.held("fast") == left)  # type: ignore[misc]
    deep = await running.deep()
    assert running.left("fast", "tokens") == MANY.tokens_per_min - 4 * 10
    deep.sink.push(text("Judged."))
    deep.sink.finish(stop(5))
    terminal = await running.end()
    assert terminal["routing"]["variations"] == {"asked": 4, "whole": 4}
    assert "errors" not in terminal["routing"]


@pytest.mark.parametrize(
    ("limits", "limit"),
    [(FEW_PLACES, "concurrent tasks"), (FEW_REQUESTS, "requests"), (FEW_TOKENS, "tokens")],
)
async def test_as_many_variations_as_the_pools_give(limits: GroupLimits, limit: str) -> None:
    running = Running("breadth", limits, n="10")
    await until(lambda: len(running.world.fast.generations) > 1)
    for _ in range(50):
        await asyncio.sleep(0)
    number = len(running.world.fast.generations)
    assert 1 < number < 10
    for generation in running.world.fast.generations:
        generation.sink.push(text("One."))
        generation.sink.finish(stop(3))
    deep = await running.deep()
    deep.sink.push(text("Judged."))
    deep.sink.finish(stop(5))
    terminal = await running.end()
    assert terminal["status"] == "completed"
    routing = terminal["routing"]
    assert routing["variations"] == {"asked": 10, "whole": number}
    (error,) = routing["errors"]
    assert f"rate limit reached for the fast engines on {limit}" in error
    assert [row["state"] for row in routing["generations"]].count("failed") == 10 - number


async def test_variations_without_a_judge_ask_nothing_of_the_deep_engines() -> None:
    running = Running("breadth", n="2", judge="false")
    variations = [await running.fast(number) for number in range(2)]
    assert running.held("deep") == 0
    for variation in variations:
        variation.sink.finish(failure())
    deep = await running.deep()
    assert running.held("deep") == 1, "it stands in, and asks then"
    deep.sink.push(text("After all."))
    deep.sink.finish(stop(5))
    assert (await running.end())["status"] == "completed"


async def test_pools_that_do_not_answer_are_asked_again_and_charged_once() -> None:
    """The early return is in doubt when the task ends, or told a second time before."""

    class Deaf(AwaitedPools):
        deaf = True
        arrives = True

        async def extend(self, reservation: Reservation) -> bool:
            if self.arrives:
                await super().extend(reservation)
            if self.deaf:
                raise PoolsUnavailable("no answer")
            return True

    for arrives, repeated in itertools.product((True, False), repeat=2):
        running = Running("breadth", n="2")
        pools = running.world.pools
        pools.__class__ = Deaf
        pools.arrives = arrives  # type: ignore[attr-defined]
        deep = await judged(running)
        await until(lambda: len(running.world.gw.in_use) == 1)  # noqa: B023
        (in_use,) = running.world.gw.in_use.values()
        await until(lambda in_use=in_use: in_use.reservation.former is not None)  # type: ignore[misc]
        if repeated:
            pools.__class__ = AwaitedPools
            await extend_outgrown(running.world.gw)
            assert in_use.reservation.former is None
            assert running.held("fast") == 0
        deep.sink.push(text("At length."))
        deep.sink.finish(stop(5))
        await running.end()
        assert running.left("fast", "tokens") == MANY.tokens_per_min - FAST_TOKENS
        assert running.left("deep", "tokens") == MANY.tokens_per_min - 12


async def test_it_may_end_at_any_moment_of_an_early_return() -> None:
    for num_turns in range(12):
        running = Running("breadth", n="2")
        deep = await judged(running)
        for _ in range(num_turns):
            await asyncio.sleep(0)
        if num_turns % 2:
            deep.sink.finish(stop(5))
            await running.end()
        else:
            running.pump.cancel()
            await asyncio.gather(running.pump, return_exceptions=True)
            await running.world.check()
        assert running.left("fast", "tokens") == MANY.tokens_per_min - FAST_TOKENS, num_turns


async def test_waiting_tasks_and_ceilings_learn_of_it_at_once() -> None:
    running = Running("breadth", n="2")
    gw = running.world.gw
    gw.waiting.limiter.set_limit("fast", 2, {})
    await running.fast(1)
    heard: list[tuple[str, ...]] = []

    def hear(tenant_id: str, demands: Sequence[Demand], now_us: int) -> tuple[()]:
        heard.append(tuple(demand.group for demand in demands))
        return ()

    gw.waiting._queues.released = hear  # type: ignore[method-assign]
    gw.waiting._queues.queues["fast"].tenant_of["a task"] = "other"  # else nobody is to be told
    deep = await judged(running)
    await running.free("fast")
    await until(lambda: len(heard) == 2)
    assert heard == [("fast",), ("fast",)]
    limiter = gw.waiting.limiter
    assert (limiter.num_running("fast"), limiter.num_running("deep")) == (0, 1)
    deep.sink.finish(stop(5))
    await running.end()
    assert heard == [("fast",), ("fast",), ("deep",)]
    assert gw.waiting.limiter.num_running("deep") == 0


async def test_a_full_group_of_engines_takes_no_further_variation() -> None:
    running = Running("breadth", n="5")
    running.world.gw.waiting.limiter.set_limit("fast", 3, {})
    await until(lambda: len(running.world.fast.generations) == 3)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(running.world.fast.generations) == 3
    for generation in running.world.fast.generations:
        generation.sink.push(text("One."))
        generation.sink.finish(stop(3))
    (await running.deep()).sink.finish(stop(5))
    terminal = await running.end()
    assert terminal["routing"]["variations"] == {"asked": 5, "whole": 3}
    assert running.world.gw.waiting.limiter.num_running("fast") == 0


async def test_a_fault_of_ours_while_reserving_is_an_answer_too() -> None:
    """Otherwise what waits for it would wait for ever."""

    class Broken(AwaitedPools):
        async def reserve_first(self, *args: Any) -> Any:
            raise ZeroDivisionError

    world = World()
    job = world.job()
    apart = SideReservations(world.gw, job, await load_task(world.gw, job))
    world.pools.__class__ = Broken
    refused: list[str] = []
    never: Callable[[Any], None] = refused.clear  # type: ignore[assignment]
    usage = stop().usage
    apart.take("a-1", "fast", usage, lambda: usage, never, lambda e: refused.append(e.code))
    await apart.settled()
    assert refused == ["server_error"]


@pytest.mark.parametrize("ends", ["its own end", "a cancellation"])
@pytest.mark.parametrize("broken", ["fast", "deep"])
async def test_an_engine_that_fails_to_cancel_keeps_nothing_taken(
    monkeypatch: pytest.MonkeyPatch, broken: str, ends: str
) -> None:
    """Nor does it keep the others from being cancelled."""
    running = Running("hedge", hedge_after_ms="0")
    deep, fast = await running.deep(), await running.fast()

    def fail(*, is_silent: bool = False) -> Any:
        raise RuntimeError("a fault of this backend")

    broken_one, sound_one = (fast, deep) if broken == "fast" else (deep, fast)
    monkeypatch.setattr(broken_one, "cancel", fail)
    sound_one.sink.push(text("First."))
    if ends == "its own end":
        sound_one.sink.finish(stop(3))
    else:
        running.pump.cancel()
    await asyncio.gather(running.pump, return_exceptions=True)
    await running.world.gw.detached.settled()
    assert (running.held("fast"), running.held("deep")) == (0, 0)
    assert running.world.gw.in_use == {}
    assert sound_one.num_cancels == (ends != "its own end")
