"""Tests failover inside a route: another backend begins again, unseen by the client."""

import asyncio
from typing import Any

import pytest

from backends.contract import BackendError, Finish, FinishReason, Usage
from gateway.task.pipeline import handle_task
from tests.e2e.events import check_response
from tests.patience import until
from tests.unit.gateway.doubles import failure, stop, text
from tests.unit.gateway.playing_backend import ANSWER, PlayingBackend, Script
from tests.unit.gateway.world import World

FULL = BackendError("wafer", "server_is_overloaded", "full", retryable=True)
INVALID = BackendError("wafer", "invalid_prompt", "no", retryable=False)
BROKEN: Script = [failure()]


def world_of(first: Script, *spares: Script, refuses: Exception | None = None) -> World:
    """Returns a gateway whose fast group has spares: wafer-1, wafer-2, ..."""
    world = World(first, fast_refuses=refuses)
    more = [
        PlayingBackend(f"wafer-{number}", "fast", script)
        for number, script in enumerate(spares, start=1)
    ]
    world.gw.backends = dict(world.gw.backends) | {spare.info.name: spare for spare in more}
    return world


def num_failovers(world: World) -> float:
    return sum(
        sample.value
        for family in world.gw.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "lanewise_failovers_total"
    )


@pytest.mark.parametrize(
    ("first", "refuses", "code"),
    [([], FULL, "server_is_overloaded"), (BROKEN, None, "server_error")],
)
async def test_another_backend_of_the_group_answers(
    first: Script, refuses: Exception | None, code: str
) -> None:
    world = world_of(first, ANSWER, refuses=refuses)
    ended = await world.run()
    check_response(world.heard.events)
    assert world.terminal["status"] == "completed"
    assert world.terminal["output"][0]["content"][0]["text"] == "It is."
    assert world.terminal["model"] == "wafer-1-model"
    routing = world.terminal["routing"]
    assert [backend["name"] for backend in routing["backends"]] == ["wafer-1"]
    (moved,) = routing["failovers"]
    assert (moved["from"], moved["to"]) == ("wafer", "wafer-1")
    assert code in moved["error"]
    assert "errors" not in routing, "it was answered as it should"
    assert routing["answered_by"] == "wafer-1"
    assert list(routing["usage"]) == ["wafer-1"]
    assert world.charged == [{"fast": 12}], "one settlement, of what answered"
    assert ended is not None
    assert ended.backend == "wafer-1"
    labels = {"from": "wafer", "to": "wafer-1", "reason": code}
    assert world.sample("lanewise_failovers_total", **labels) == 1
    assert world.sample("lanewise_backend_errors_total", backend="wafer", reason=code) == 1
    assert world.outcomes() == {("fast", "ok"): 1}


async def test_the_client_hears_of_it_when_it_happens() -> None:
    world = world_of(BROKEN, ANSWER)
    await world.run()
    told = [e for e in world.heard.events if e["type"] == "response.in_progress"]
    assert "failovers" not in told[0]["response"]["routing"]
    assert "failovers" in told[1]["response"]["routing"]


async def test_two_others_of_the_group_at_most_are_tried_and_then_the_other_group() -> None:
    world = world_of(BROKEN, [failure("wafer-1")], [failure("wafer-2")], ANSWER)
    world.deep.script = [failure("gpu")]
    await world.run()
    check_response(world.heard.events)
    assert world.terminal["status"] == "failed"
    routing = world.terminal["routing"]
    assert [moved["to"] for moved in routing["failovers"]] == ["wafer-1", "wafer-2", "gpu"]
    assert "gpu" in routing["errors"][0]
    assert num_failovers(world) == 3


async def test_never_behind_a_token() -> None:
    world = world_of([text("It "), failure()], ANSWER)
    await world.run()
    check_response(world.heard.events)
    assert world.terminal["status"] == "failed"
    assert num_failovers(world) == 0


async def test_what_any_backend_would_refuse_is_not_tried_again() -> None:
    error = Finish(FinishReason.ERROR, Usage(), 0, INVALID)
    world = world_of([error], ANSWER)
    await world.run()
    assert world.terminal["error"]["code"] == "invalid_prompt"
    assert num_failovers(world) == 0


async def test_a_pin_binds() -> None:
    world = world_of(BROKEN, ANSWER)
    await world.run(model="wafer-model")
    assert world.terminal["status"] == "failed"
    assert num_failovers(world) == 0


async def test_a_client_that_leaves_stops_the_one_that_took_over() -> None:
    world = world_of(BROKEN, [])
    spare = world.gw.backends["wafer-1"]
    assert isinstance(spare, PlayingBackend)
    pump = asyncio.create_task(handle_task(world.gw, world.job(metadata={"route": "fast"})))
    await until(lambda: bool(spare.generations))
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
    await world.check()
    assert spare.only.num_cancels == 1
    assert num_failovers(world) == 1


@pytest.mark.parametrize("strategy", ["breadth", "delegate"])
async def test_each_strategy_keeps_its_fast_engine(strategy: Any) -> None:
    world = world_of(BROKEN, [text("I "), text("see."), stop(5)])
    await world.run("parallel", metadata={"strategy": strategy})
    check_response(world.heard.events)
    assert world.terminal["status"] == "completed"
    routing = world.terminal["routing"]
    assert "errors" not in routing
    assert "wafer" not in routing["usage"]
    assert {row["backend"] for row in routing["generations"]} - {"gpu"} == {"wafer-1"}
    assert {moved["to"] for moved in routing["failovers"]} == {"wafer-1"}
