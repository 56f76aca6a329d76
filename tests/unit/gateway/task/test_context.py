"""Tests how a task is made of a request: when it arrived, and what it continues.

A run is led alike, whether a client names the response it continues or sends all of it again.
"""

from typing import Any

import pytest

from gateway.task.context import load
from gateway.task.pipeline import handle_task
from tests.unit.gateway.doubles import call, stop
from tests.unit.gateway.world import World

DEEP_ASK = (
    "Design and implement a distributed transaction coordinator across the storage, network and "
    "query layers, with recovery after crashes."
)
FAST_ASK = "Rename the variable tmp to total in utils.py"
EDITED = "Success. Updated the following files:\nM store.py"
GOOD_STEPS = [
    ("shell", "class Store: pass"),
    ("apply_patch", EDITED),
    ("apply_patch", EDITED + " net.py"),
    ("shell", "12 passed in 0.8s"),
    ("apply_patch", EDITED + " query.py"),
    ("shell", "14 passed in 0.8s"),
]
BAD_STEPS = [("shell", "exit code: 1\nFAILED test_x - AssertionError")] * 3
TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object"}}
    for name in ("shell", "apply_patch")
]


async def routes_of(ask: str, steps: list[tuple[str, str]], *, is_whole: bool) -> list[str]:
    world = World()
    items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": ask}]
    parent: str | None = None
    routes = []
    for number, (tool, result) in enumerate(steps):
        command = '{"command": "pytest -q"}' if " passed" in result or "FAILED" in result else "{}"
        answer = [call(command, name=tool, call_id=f"call_{number}"), stop()]
        world.fast.script = world.deep.script = answer  # type: ignore[assignment]
        job = world.job(input=items, tools=TOOLS, previous_response_id=parent)
        await handle_task(world.gw, job)
        await world.check()
        response = world.terminal
        routes.append(response["routing"]["route"])
        output = {"type": "function_call_output", "call_id": f"call_{number}", "output": result}
        if is_whole:
            items = [*items, *response["output"], output]
        else:
            items, parent = [output], response["id"]
        world.heard.take()
    return routes


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_run_that_goes_well_comes_down(is_whole: bool) -> None:
    routes = await routes_of(DEEP_ASK, GOOD_STEPS, is_whole=is_whole)
    assert routes == ["deep"] * 4 + ["fast"] * 2


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_run_that_is_stuck_goes_up(is_whole: bool) -> None:
    assert await routes_of(FAST_ASK, BAD_STEPS, is_whole=is_whole) == ["fast", "fast", "deep"]


@pytest.mark.parametrize("truncation", ["disabled", "auto"])
async def test_a_task_arrived_when_it_came_however_long_it_queued(truncation: str) -> None:
    world = World()
    world.gw.unix_s = lambda: 1_000.0
    job = world.job(input=FAST_ASK, truncation=truncation)
    assert (await load(world.gw, job, queued_us=2_500_000)).task.arrived_unix_s == 997.5
