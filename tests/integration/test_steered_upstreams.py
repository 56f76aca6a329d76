"""Tests steering an answer that comes from a real server, whatever protocol the server speaks.

No server knows of steering: the gateway stops its generation, and asks again with what was said.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backends.upstream.backend import UpstreamBackend
from backends.upstream.options import UpstreamOptions
from gateway.core.job import Ended, Job
from gateway.task.pipeline import handle_task
from tests.e2e.events import TERMINALS
from tests.integration.fault_server import TEXT, FaultServer
from tests.patience import until
from tests.unit.gateway.world import World

PROTOCOLS = ("chat", "responses", "responses-ws")
WAIT_S = 60.0  # bounds a hang
STEER = "Count in French instead."


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer.running() as server:
        server.plan = ["hang midway", "answer"]
        yield server


async def stopped(world: World, reason: Any) -> tuple[Job, Ended]:
    """Stops a response after its first words; returns how it ended."""
    job = world.job(input="Count to three.", model="told")
    pump = asyncio.create_task(handle_task(world.gw, job))
    await until(lambda: "response.output_text.delta" in world.heard.types)
    job.stop(reason)
    ended = await pump
    assert ended is not None
    return job, ended


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_steered_answer_goes_on_from_what_was_said(
    server: FaultServer, protocol: Any
) -> None:
    world = World()
    options = UpstreamOptions(
        base_url=server.base_url(protocol),
        protocol=protocol,
        upstream_model="told",
        model="told",
        group="fast",
        probe_path=None,
    )
    upstream = UpstreamBackend(name="upstream", options=options)
    world.gw.backends = {"upstream": upstream, "gpu": world.deep}
    try:
        async with asyncio.timeout(WAIT_S):
            _, first = await stopped(world, "steered")
            assert first.ending.reason == "steered"
            assert first.ending.usage.num_input_tokens > 0
            assert 0 < first.ending.usage.num_output_tokens <= 4, "what had come until then"
            stats = upstream.stats()
            assert (stats.num_running, stats.num_waiting) == (0, 0)
            await server.left.wait()  # its connection is closed, so the server stops, too
            steer = {"role": "user", "content": STEER}
            ended = await handle_task(
                world.gw, world.job(input=[steer], model="told", parent=first)
            )
            assert ended is not None
        await world.check()
    finally:
        await upstream.close()
    body = server.bodies[1]
    assert "previous_response_id" not in body, "the server keeps nothing of what was cut"
    said = [
        text if isinstance(text := item["content"], str) else "".join(p["text"] for p in text)
        for item in body["messages" if protocol == "chat" else "input"]
    ]
    assert said == ["Count to three.", TEXT[0], STEER], "what was seen, and no tail of it"
    terminals = [event for event in world.heard.events if event["type"] in TERMINALS]
    texts = [e["response"]["output"][0]["content"][0]["text"] for e in terminals]
    assert texts == [TEXT[0], "".join(TEXT)]
    assert len(world.charged) == 2
    assert world.charged[1] == {"fast": 18}, "the successor's own usage, as the server tells it"
