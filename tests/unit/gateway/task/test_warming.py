"""Tests warm-ups: what backends make of them, what they cost, and that nobody waits for one."""

import asyncio
from typing import Any

import pytest

from backends.contract import BackendError, Finish, FinishReason, Usage
from gateway.core.job import Ended
from gateway.task.pipeline import handle_task
from router.classify.task import GroupLimits, Tenant
from tests.patience import until
from tests.unit.gateway.doubles import failure
from tests.unit.gateway.world import FULL, World

WARM: dict[str, Any] = {"prompt_cache_options": {"prewarm": True}, "metadata": {"route": "fast"}}
BROKEN = BackendError("wafer", "server_error", "down", retryable=True)


def held(num_tokens: int, num_cached: int) -> Finish:
    return Finish(FinishReason.STOP, Usage(num_tokens, num_cached), 0)


# script, refusal -> state, tokens charged, whether the next turn stays
STATES = [
    ([held(7, 0)], None, "held", 7, True),
    ([held(7, 5)], None, "held", 2, True),
    ([held(7, 7)], None, "held", 0, True),
    ([held(0, 0)], None, "opened", 0, True),
    ([], FULL, "declined", 0, False),
    ([Finish(FinishReason.ERROR, Usage(), 0, FULL)], None, "declined", 0, False),
    ([], BROKEN, "failed", 0, False),
    ([failure()], None, "failed", 7, False),
]


@pytest.mark.parametrize(("script", "refusal", "state", "charged", "stays"), STATES)
async def test_whatever_comes_of_it_its_context_can_be_continued(
    script: list[Finish], refusal: Exception | None, state: str, charged: int, stays: bool
) -> None:
    world = World(script, fast_refuses=refusal)  # type: ignore[arg-type]
    ended = await handle_task(world.gw, world.job(**WARM))
    await world.check()
    assert ended is not None
    assert world.terminal["status"] == "completed"
    (warm,) = world.terminal["routing"]["warm"]
    assert warm["state"] == state
    assert world.charged == [{"fast": charged}]
    assert ended.backend == ("wafer" if stays else None)
    assert world.sample("lanewise_warm_ups_total", backend="wafer", state=state) == 1
    assert world.sample("lanewise_warm_up_tokens_total", backend="wafer") == charged
    errors = world.sample("lanewise_backend_errors_total", backend="wafer", reason="server_error")
    assert errors == (state == "failed")


@pytest.mark.parametrize(
    ("reason", "status"),
    [("awaited", "completed"), ("draining", "completed"), ("cancelled", "incomplete")],
)
async def test_it_ends_early(reason: Any, status: str) -> None:
    world = World([])
    job = world.job(**WARM)
    pump = asyncio.create_task(handle_task(world.gw, job))
    await until(lambda: bool(world.fast.generations))
    job.stop(reason)
    ended = await pump
    await world.check()
    assert ended is not None
    assert world.fast.only.num_cancels == 1
    assert world.terminal["status"] == status
    assert world.terminal["routing"]["warm"][0]["state"] == "cut"
    assert world.charged == [{"fast": 7}], "what was computed by then"
    assert ended.backend == "wafer"


async def test_its_time_is_bounded() -> None:
    world = World([])
    world.gw.warm_up_timeout_s = 0.001
    ended = await handle_task(world.gw, world.job(**WARM))
    await world.check()
    assert ended is not None
    assert world.fast.only.num_cancels == 1
    assert world.terminal["routing"]["warm"][0]["state"] == "cut"


async def test_it_can_be_turned_off() -> None:
    world = World()
    world.gw.warm_up_timeout_s = 0
    await handle_task(world.gw, world.job(**WARM))
    await world.check()
    assert world.fast.generations == []
    assert world.terminal["status"] == "completed"


async def test_who_could_not_pay_for_the_turn_gets_nothing_computed() -> None:
    limits = GroupLimits(requests_per_min=600, tokens_per_min=500, max_concurrent=4)
    world = World(tenant=Tenant(id="small", tier="default", limits={"fast": limits}))
    await handle_task(world.gw, world.job(**{**WARM, "input": "word " * 2_000}))
    await world.check()
    assert world.fast.generations == []
    assert world.terminal["routing"]["warm"][0]["state"] == "limited"
    assert world.charged == [{"fast": 0}]


async def test_both_engines_of_a_parallel_route_are_warmed_up() -> None:
    world = World([held(7, 0)], [held(7, 3)])  # type: ignore[list-item]
    job = world.job(**{**WARM, "metadata": {"route": "parallel"}})
    ended = await handle_task(world.gw, job)
    await world.check()
    assert ended is not None
    assert world.charged == [{"fast": 7, "deep": 4}]
    assert ended.backend == "gpu"


async def test_a_client_that_repeats_the_context_is_sent_where_it_is_held() -> None:
    """Over HTTP, say: it names no parent, but begins as the warm-up did."""
    world = World([held(7, 0)])
    ended: Ended | None = await handle_task(world.gw, world.job(**{**WARM, "input": "Rules."}))
    assert ended is not None
    turn = world.job(
        input=[{"role": "user", "content": "Rules."}, {"role": "user", "content": "Go."}],
        metadata={"route": "deep"},
    )
    world.heard.take()
    await handle_task(world.gw, turn)
    assert world.terminal["routing"]["moved_from"] == "wafer"
