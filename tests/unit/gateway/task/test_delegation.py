"""Sub-tasks of a response: reserved apart, settled once, steered and cancelled alone."""

import asyncio
import itertools
from typing import Any

import pytest

from backends.contract import (
    Finish,
    FunctionCallOutput,
    Message,
    TextPart,
)
from backends.prompt import measure
from gateway.task.pipeline import handle_task
from router.classify.task import GroupLimits, Tenant
from tests.e2e.events import TERMINALS, check_response
from tests.patience import until
from tests.unit.gateway.delegating import (
    CLOSING,
    MEANWHILE,
    OPENING,
    PROOF,
    RoundsBackend,
    messages,
)
from tests.unit.gateway.doubles import TENANT, failure, stop, text
from tests.unit.gateway.playing_backend import Script
from tests.unit.gateway.world import World

METADATA = {"route": "parallel", "strategy": "delegate", "commentary": "messages"}


def world_of(*rounds: Script, deep: Script = PROOF, tenant: Tenant = TENANT) -> World:
    world = World(deep=deep, tenant=tenant)
    world.fast = RoundsBackend("wafer", "fast", rounds=list(rounds))
    world.gw.backends = {"wafer": world.fast, "gpu": world.deep}
    return world


async def test_the_fast_engine_hands_a_sub_task_on() -> None:
    world = world_of(OPENING, MEANWHILE, CLOSING)
    ended = await world.run("parallel", metadata=METADATA)
    assert ended is not None
    check_response(world.heard.events)
    assert messages(world) == [
        ("I hand it on.", "commentary"),
        ("Meanwhile.", "commentary"),
        ("By induction.", "commentary"),
        ("So it is.", "final_answer"),
    ]
    assert {item["type"] for item in world.terminal["output"]} == {"message"}, "its call is ours"
    routing = world.terminal["routing"]
    response_id = world.terminal["id"]
    assert routing["delegations"] == [
        {"id": f"{response_id}-d1", "task": "Prove it.", "state": "finished"}
    ]
    told = [
        [row["state"] for row in event["response"]["routing"].get("delegations", [])]
        for event in world.heard.events
        if event["type"] == "response.in_progress"
    ]
    assert told == [[], ["running"], ["finished"]]
    assert routing["answered_by"] == "wafer"
    assert world.terminal["usage"]["output_tokens"] == 4, "of the answer"
    used = [row["output_tokens"] for row in routing["generations"]]
    assert sorted(used) == [2, 4, 10, 20]
    assert world.pools.settled == [
        (f"{response_id}-1", {"deep": 27}),
        (response_id, {"fast": 7 * 3 + 16}),
    ]
    assert [[d.group for d in r.demands] for r in world.pools.granted] == [["fast"], ["deep"]]
    closing = world.fast.generations[-1].request.items[-1].item
    assert isinstance(closing, FunctionCallOutput)
    assert closing.output == (TextPart("By induction."),)
    (subtask,) = world.deep.generations
    assert subtask.request.tools == (), "it has no sub-tasks of its own"
    assert subtask.request.items[-1].item == Message("user", (TextPart("Prove it."),))
    used = world.pools.memory.balances(TENANT, world.pools.now_us)
    left = {b.group: b.limit - b.remaining for b in used if b.unit == "tokens"}
    assert left == {"fast": 37, "deep": 27}, "each generation is charged once"


async def test_without_a_call_it_is_a_plain_answer() -> None:
    world = world_of([text("Plain."), stop(3)])
    await world.run("parallel", metadata=METADATA)
    assert messages(world) == [("Plain.", "final_answer")]
    assert world.deep.generations == []
    assert world.terminal["routing"]["delegations"] == []


FULL_DEEP = Tenant(
    id="tight",
    tier="default",
    limits={
        "fast": TENANT.limits["fast"],
        "deep": GroupLimits(requests_per_min=0, tokens_per_min=1_000, max_concurrent=1),
    },
)


async def test_a_sub_task_that_the_pools_refuse_is_told_to_the_fast_engine() -> None:
    world = world_of(OPENING, MEANWHILE, CLOSING, tenant=FULL_DEEP)
    await world.run("parallel", metadata=METADATA)
    assert messages(world)[-1] == ("So it is.", "final_answer")
    assert world.terminal["status"] == "completed"
    assert world.deep.generations == []
    assert world.terminal["routing"]["delegations"][0]["state"] == "failed"
    assert (
        "rate limit reached for the deep engines on requests"
        in world.terminal["routing"]["errors"][0]
    )
    refused = {"group": "deep", "tier": "default", "result": "reject", "limit": "rpm"}
    refused["mode"] = "redis"
    assert world.sample("lanewise_ratelimit_decisions_total", **refused) == 1


async def test_a_sub_task_goes_on_while_the_pools_are_away() -> None:
    world = world_of(OPENING, MEANWHILE, CLOSING)
    job = world.job(metadata=METADATA)
    pump = asyncio.create_task(handle_task(world.gw, job))
    await until(lambda: bool(world.fast.generations))
    world.pools.available = False
    await until(lambda: "response.output_item.done" in world.heard.types)
    await until(lambda: not job.delegations and len(world.fast.generations) > 1)
    world.pools.available = True
    await pump
    await world.check()
    assert world.terminal["status"] == "completed"
    assert world.terminal["routing"]["delegations"][0]["state"] == "finished"


async def test_one_that_fails_leaves_the_answer() -> None:
    world = world_of(OPENING, MEANWHILE, CLOSING, deep=[text("By"), failure("gpu")])
    await world.run("parallel", metadata=METADATA)
    assert messages(world)[-1] == ("So it is.", "final_answer")
    assert [backend.partition(":")[0] for backend in world.terminal["routing"]["errors"]] == [
        "backend gpu"
    ]


async def test_the_deep_engine_answers_where_the_fast_one_fails() -> None:
    world = world_of([failure()])
    await world.run("parallel", metadata=METADATA)
    assert messages(world) == [("By induction.", "final_answer")]
    assert world.terminal["routing"]["answered_by"] == "gpu"
    assert [r.demands[0].group for r in world.pools.granted] == ["fast", "deep"]


async def started(world: World) -> tuple[Any, "asyncio.Task[Any]"]:
    """Returns a response whose sub-task is under way and has spoken."""
    job = world.job(metadata=METADATA)
    pump = asyncio.create_task(handle_task(world.gw, job))
    await until(lambda: any("By" in str(event) for event in world.heard.events))
    return job, pump


UNENDING: Script = [text("By ")]


async def test_one_sub_task_is_cancelled_alone() -> None:
    world = world_of(OPENING, MEANWHILE, CLOSING, deep=UNENDING)
    job, pump = await started(world)
    assert job.delegations == {1}
    job.redirect(1, None)
    assert world.deep.only.num_cancels == 1, "at once"
    assert job.delegations == frozenset()
    await pump
    await world.check()
    assert world.terminal["status"] == "completed"
    assert messages(world)[-2:] == [("By ", "commentary"), ("So it is.", "final_answer")]
    assert world.terminal["routing"]["delegations"][0]["state"] == "cancelled"
    assert world.charged[0] == {"deep": 9}, "what it used until then"


async def test_one_sub_task_is_steered_alone() -> None:
    world = world_of(OPENING, MEANWHILE, CLOSING, deep=UNENDING)
    job, pump = await started(world)
    world.deep.script = PROOF
    job.redirect(1, (measure(Message("user", (TextPart("By contradiction."),))),))
    first, *_ = world.deep.generations
    assert first.num_cancels == 1
    first.sink.push(text("an abandoned tail"))
    first.sink.finish(stop(99))
    await pump
    await world.check()
    assert messages(world)[2:] == [
        ("By ", "commentary"),
        ("By induction.", "commentary"),
        ("So it is.", "final_answer"),
    ]
    said = [entry.item for entry in world.deep.generations[1].request.items[-2:]]
    assert said == [
        Message("assistant", (TextPart("By "),)),
        Message("user", (TextPart("By contradiction."),)),
    ]
    assert world.charged[:2] == [{"deep": 9}, {"deep": 27}], "each branch apart, each once"


@pytest.mark.parametrize("stops", ["steered", "cancelled"])
async def test_a_stop_of_the_response_stops_its_sub_tasks(stops: Any) -> None:
    world = world_of(OPENING, MEANWHILE, CLOSING, deep=UNENDING)
    job, pump = await started(world)
    job.stop(stops)
    assert world.deep.only.num_cancels == 1
    await pump
    await world.check()
    assert world.terminal["incomplete_details"] == {"reason": stops}


@pytest.mark.parametrize("deep", [PROOF, UNENDING, [failure("gpu")]])
async def test_a_client_that_leaves_at_any_moment_leaves_nothing(deep: Script) -> None:
    for num_turns in itertools.count():
        world = world_of(OPENING, MEANWHILE, CLOSING, deep=deep)
        pump = asyncio.create_task(handle_task(world.gw, world.job(metadata=METADATA)))
        for _ in range(num_turns):
            await asyncio.sleep(0)
        if pump.done() or num_turns > 60:
            break
        pump.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pump
        await world.check()
        assert not any(kind in TERMINALS for kind in world.heard.types)
        for generation in world.fast.generations + world.deep.generations:
            over = any(isinstance(piece, Finish) for piece in world.deep.script)
            assert generation.num_cancels == 1 or over or generation in world.fast.generations
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
    assert num_turns > 12
