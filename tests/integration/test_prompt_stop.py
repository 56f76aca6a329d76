"""A generation that is cancelled stops at once, on every kind of backend.

What is waited for is turns of the event loop, never time: nothing may hang on a timer, a flush or
the next token. Server and gateway share the loop, so each hop between them is a turn or two.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from backends.contract import GenerateRequest
from backends.simulated.gpu import GpuBackendConfig
from backends.simulated.wafer import WaferBackendConfig
from backends.upstream.backend import UpstreamBackend
from backends.upstream.options import UpstreamOptions
from gateway.run.dispatch import Run
from gateway.wire.response import ResponseStream
from router.classify.task import Route
from router.decide.decision import RankedRoute, Reason
from tests.integration.fault_server import FaultServer
from tests.integration.upstreams import WAIT_S, make_request
from tests.patience import until
from tests.unit.gateway.doubles import Transcript, parsed_create

MAX_TURNS = 10  # close the socket, the system's part, the server's reader, its handler
PLANS = ("hang before headers", "hang before the first token", "hang midway")


def request() -> GenerateRequest:
    return make_request("Write a guide to sorting of 9,000 tokens.", max_output_tokens=16_000)


def a_run(name: str, heard: Transcript) -> Run:
    writer = ResponseStream(parsed_create(), heard.emit)
    writer.open(100, "m", {})
    chosen = RankedRoute(
        route=Route.FAST,
        backends=(name,),
        strategy=None,
        reason=Reason.MODEL,
        why="A test says so.",
    )
    return Run(chosen, writer, lambda: 0)


async def turns_until(condition: Callable[[], bool]) -> int:
    for turn in range(MAX_TURNS):
        if condition():
            return turn
        await asyncio.sleep(0)
    raise AssertionError(f"not within {MAX_TURNS} turns of the loop")


@pytest.mark.parametrize("kind", [WaferBackendConfig, GpuBackendConfig])
async def test_a_simulated_engine_stops_in_the_same_turn(
    kind: type[WaferBackendConfig] | type[GpuBackendConfig],
) -> None:
    backend = kind(name="engine").make()
    heard = Transcript()
    run = a_run("engine", heard)
    try:
        run.start({"engine": backend}, request())
        async with asyncio.timeout(WAIT_S):
            await until(lambda: "response.output_text.delta" in heard.types)
        run.stop()
        stats = backend.stats()
        assert (stats.num_running, stats.num_waiting, stats.kv_used_tokens) == (0, 0, 0)
        num_events = len(heard.events)
        generated = stats.num_generated_tokens
        await asyncio.sleep(0.01)
        assert len(heard.events) == num_events
        assert backend.stats().num_generated_tokens == generated
    finally:
        await backend.close()


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer.running() as server:
        yield server


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("protocol", ["chat", "responses", "responses-ws"])
async def test_a_real_server_is_left_within_a_few_turns(
    server: FaultServer, protocol: str, plan: str
) -> None:
    server.plan = [plan]
    options = UpstreamOptions(
        base_url=server.base_url(protocol),
        protocol=protocol,  # type: ignore[arg-type]
        upstream_model="told",
        model="told",
        group="fast",
        probe_path=None,
    )
    backend = UpstreamBackend(name="upstream", options=options)
    heard = Transcript()
    run = a_run("upstream", heard)
    try:
        run.start({"upstream": backend}, request())
        async with asyncio.timeout(WAIT_S):
            await server.asked.wait()
            if plan == "hang midway":
                await until(lambda: "response.output_text.delta" in heard.types)
            if plan == "hang before the first token":
                await asyncio.sleep(0.01)  # until its headers are there; either way must do
            run.stop()
            stats = backend.stats()
            assert (stats.num_running, stats.num_waiting) == (0, 0), "at once, here"
            await turns_until(server.left.is_set)
    finally:
        await backend.close()
