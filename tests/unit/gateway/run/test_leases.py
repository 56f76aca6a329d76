"""Tests leases of running tasks: renewed, taken anew, and extended when a stream outgrows them."""

import asyncio

from backends.contract import Delta, DeltaKind, Usage
from gateway.core.job import Ended
from gateway.run.leases import extend_outgrown
from gateway.task.pipeline import handle_task
from router.money.cost import CostWeights, cost_by_group, cost_tokens
from tests.patience import until
from tests.unit.gateway.doubles import MANY, RecordingGeneration, stop
from tests.unit.gateway.world import World

FULL = MANY.tokens_per_min


class Running:
    """Is one task on the fast engine, driven by hand."""

    def __init__(self) -> None:
        self.world = World(fast=[])

    async def start(self) -> None:
        job = self.world.job(metadata={"route": "fast"})
        self.task: asyncio.Task[Ended | None] = asyncio.create_task(handle_task(self.world.gw, job))
        await until(lambda: bool(self.world.fast.generations))

    @property
    def generation(self) -> RecordingGeneration:
        return self.world.fast.only

    def stream(self, num_tokens: int) -> None:
        self.generation.sink.push(Delta(0, DeltaKind.TEXT, "x", num_tokens, 0))

    async def end(self, num_output_tokens: int) -> None:
        self.generation.sink.finish(stop(num_output_tokens))
        await self.task
        await self.world.check()

    @property
    def held_tokens(self) -> int:
        pools = self.world.pools
        balances = pools.memory.balances(self.world.tenant, pools.now_us)
        left = next(b for b in balances if (b.group, b.unit) == ("fast", "tokens"))
        return FULL - left.remaining


async def test_a_stream_that_outgrows_its_reservation_is_reserved_for_while_it_runs() -> None:
    running = Running()
    await running.start()
    first = running.held_tokens
    await extend_outgrown(running.world.gw)
    assert running.held_tokens == first  # it has not
    running.stream(first)
    await extend_outgrown(running.world.gw)
    grown = running.held_tokens
    assert grown > 1.4 * first
    await extend_outgrown(running.world.gw)
    assert running.held_tokens == grown  # room for a while
    reserved = running.world.sample("lanewise_ratelimit_reserved_tokens", group="fast")
    assert reserved == grown
    await running.end(first)
    assert running.held_tokens == first + stop().usage.num_input_tokens


async def test_an_extension_without_an_answer_is_repeated_and_settled_either_way() -> None:
    for arrives in (False, True):
        running = Running()
        await running.start()
        running.stream(5_000)
        running.world.pools.available = False
        await extend_outgrown(running.world.gw)
        (in_use,) = running.world.gw.in_use.values()
        assert in_use.reservation.former is not None
        running.world.pools.available = True
        if arrives:
            await extend_outgrown(running.world.gw)
            assert in_use.reservation.former is None
            assert running.held_tokens > 7_000
        await running.end(5_000)
        assert running.held_tokens == 5_000 + stop().usage.num_input_tokens


async def test_what_ends_while_extensions_are_under_way_leaves_nothing_behind() -> None:
    for num_turns in range(12):  # of the loop, between the look and the end
        running = Running()
        await running.start()
        running.stream(5_000)
        looking = asyncio.create_task(extend_outgrown(running.world.gw))
        for _ in range(num_turns):
            await asyncio.sleep(0)
        await running.end(5_000)
        await looking
        assert running.held_tokens == 5_000 + stop().usage.num_input_tokens, num_turns
        for name in ("reserved_tokens", "leases"):
            left = running.world.sample(f"lanewise_ratelimit_{name}", group="fast")
            assert left == 0, (name, num_turns)


def test_weights_make_cached_input_cheap_and_output_dear() -> None:
    weights = CostWeights(input=1.0, cached=0.1, output=4.0)
    usage = Usage(num_input_tokens=1_000, num_cached_tokens=905, num_output_tokens=10)
    assert cost_tokens(usage, weights) == 95 + 91 + 40  # 90.5 rounded up with the rest
    assert cost_tokens(usage, CostWeights()) == 1_010
    costs = cost_by_group([("fast", usage), ("fast", usage), ("deep", usage)], {"fast": weights})
    assert costs == {"fast": 452 - 1, "deep": 1_010}
