"""Every strategy over real connections that fail in every way: one terminal event, one settlement.

Both engines are upstreams on loopback; one of them fails. Whatever it does, the other one's answer
or an honest failure is what the client gets, and nothing is left running at either.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any, get_args

import pytest

from backends.contract import BackendGroup
from backends.upstream import UpstreamBackend
from backends.upstream_options import UpstreamOptions
from gateway.pipeline import handle_task
from router.task import Strategy
from tests.e2e.events import TERMINALS, check_response
from tests.integration.fault_server import FaultServer
from tests.unit.gateway.doubles import until
from tests.unit.gateway.test_pipeline import World

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
BEFORE = ("status 500", "status 429", "hang before headers", "hang before the first token")
MIDWAY = ("hang midway", "garbage", "error event", "cut", "end without a terminal")
GROUPS: tuple[BackendGroup, ...] = ("fast", "deep")
WAIT_S = 20.0  # bounds a hang

# How it may end when the deep engine fails in the middle. What it said in `brief` was seen or not,
# as the moment had it.
BROKEN_OFF: dict[str, tuple[str, ...]] = {
    "brief": ("completed", "failed"),
    "race": ("completed",),
    "hedge": ("failed",),
    "refine": ("failed",),
    "breadth": ("failed",),
    "delegate": ("completed",),  # it was not asked
}


class Site:
    """A gateway over two fault servers: chat completions the fast one, Responses the deep one."""

    def __init__(self, fast: FaultServer, deep: FaultServer, faults: dict[str, str]) -> None:
        self.servers = {"fast": fast, "deep": deep}
        for group, plan in faults.items():
            self.servers[group].plan = [plan]
        self.world = World()
        self.upstreams = {
            group: UpstreamBackend(
                name=name,
                options=UpstreamOptions(
                    base_url=self.servers[group].base_url(protocol),
                    protocol=protocol,
                    upstream_model="told",
                    model=f"{name}-model",
                    group=group,
                    probe_path=None,
                    max_retries=0,
                    # Only a wait that will be in vain is short: load must not decide a test.
                    first_token_timeout_s=0.3 if "before" in faults.get(group, "") else WAIT_S,
                    idle_timeout_s=0.3 if "midway" in faults.get(group, "") else WAIT_S,
                ),
            )
            for group, name, protocol in (
                ("fast", "wafer", "chat"),
                ("deep", "gpu", "responses"),
            )
        }
        self.world.gw.backends = {b.name: b for b in self.upstreams.values()}

    async def run(self, strategy: Strategy) -> dict[str, Any]:
        """One task to its end; what its terminal event says."""
        metadata = {"strategy": strategy}
        if strategy == "hedge":
            metadata["hedge_after_ms"] = "100"
        async with asyncio.timeout(WAIT_S):
            await self.world.run("parallel", metadata=metadata)
        check_response(self.world.heard.events)
        self.check_stopped()
        return self.world.terminal

    def check_stopped(self) -> None:
        for upstream in self.upstreams.values():
            stats = upstream.stats()
            assert (stats.num_running, stats.num_waiting) == (0, 0)


async def with_site(stack: AsyncExitStack, **faults: str) -> Site:
    """`faults`: group -> what its server does."""
    fast, deep = [await stack.enter_async_context(FaultServer.running()) for _ in GROUPS]
    site = Site(fast, deep, faults)
    for upstream in site.upstreams.values():
        stack.push_async_callback(upstream.close)
    return site


async def check_fault(strategy: Strategy, group: BackendGroup, plan: str) -> None:
    async with AsyncExitStack() as stack:
        site = await with_site(stack, **{group: plan})
        terminal = await site.run(strategy)
    case = f"{strategy}, {group}: {plan}"
    expected: tuple[str, ...] = ("completed",)
    if group == "deep" and plan in MIDWAY:
        expected = BROKEN_OFF[strategy]
    if strategy == "delegate" and group == "fast" and plan in MIDWAY:
        expected = ("failed",)  # it holds the conversation: what it says is the answer
    assert terminal["status"] in expected, case
    routing = terminal["routing"]
    name = "wafer" if group == "fast" else "gpu"
    rows = [row for row in routing["generations"] if row["backend"] == name]
    if any(row["state"] == "failed" for row in rows):
        assert any(name in error for error in routing["errors"]), case
    if terminal["status"] == "completed" and group == "deep":
        assert routing["answered_by"] == "wafer", case
    usages = routing["usage"].values()
    assert terminal["usage"]["total_tokens"] == sum(u["total_tokens"] for u in usages), case


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_each_fault_of_either_engine(strategy: Strategy) -> None:
    faults = [(group, plan) for group in GROUPS for plan in (*BEFORE, *MIDWAY)]
    await asyncio.gather(*(check_fault(strategy, group, plan) for group, plan in faults))


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_both_engines_fail(strategy: Strategy) -> None:
    async with AsyncExitStack() as stack:
        site = await with_site(stack, fast="status 500", deep="status 500")
        terminal = await site.run(strategy)
    assert terminal["status"] == "failed"
    assert terminal["error"]["code"] == "server_error"
    assert terminal["output"] == []
    assert any("wafer" in error for error in terminal["routing"]["errors"])


@pytest.mark.parametrize(
    "plan", ["hang before headers", "hang before the first token", "hang midway"]
)
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_client_that_vanishes_takes_all_generations_with_it(
    strategy: Strategy, plan: str
) -> None:
    """The gateway has closed every connection within a turn of its loop after the cancel."""
    async with AsyncExitStack() as stack:
        site = await with_site(stack)
        for server in site.servers.values():
            server.plan = [plan]
        metadata = {"route": "parallel", "strategy": strategy, "hedge_after_ms": "0"}
        pump = asyncio.create_task(handle_task(site.world.gw, site.world.job(metadata=metadata)))
        asked = [s for g, s in site.servers.items() if strategy != "refine" or g == "fast"]
        if strategy in ("breadth", "delegate"):
            asked = [site.servers["fast"]]
        async with asyncio.timeout(WAIT_S):
            for server in asked:
                await server.asked.wait()
            if plan == "hang midway" and strategy not in ("race", "hedge"):
                await until(lambda: "response.output_text.delta" in site.world.heard.types)
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
            site.check_stopped()
            await site.world.check()
            for server in asked:
                await server.left.wait()
    assert not any(event["type"] in TERMINALS for event in site.world.heard.events)


@pytest.mark.parametrize("strategy", ["race", "hedge"])
async def test_the_loser_is_left_at_once(strategy: Strategy) -> None:
    """Its connection is closed while the winner may still be speaking."""
    async with AsyncExitStack() as stack:
        site = await with_site(stack)
        site.servers["deep"].plan = ["hang before the first token"]
        terminal = await site.run(strategy)
        async with asyncio.timeout(WAIT_S):
            await site.servers["deep"].left.wait()
    assert terminal["status"] == "completed"
    states = {row["backend"]: row["state"] for row in terminal["routing"]["generations"]}
    assert states == {"gpu": "cancelled", "wafer": "finished"}
    assert "errors" not in terminal["routing"], "a loser did not fail"
