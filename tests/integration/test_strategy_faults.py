"""Tests every strategy over connections that fail in every way: each task ends and settles once.

Both engines are upstreams on loopback; one of them fails. Whatever it does, the other one's answer
or an honest failure is what the client gets, `routing` names what failed, and nothing is left
running at either.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from backends.contract import BackendGroup
from backends.upstream.backend import UpstreamBackend
from backends.upstream.options import Protocol, UpstreamOptions
from gateway.task.pipeline import handle_task
from router.classify.task import Tenant
from router.strategies import machine
from router.waiting.rules import WaitingConfig
from tests.e2e.events import TERMINALS, check_response
from tests.integration.fault_server import FaultServer
from tests.patience import until
from tests.unit.gateway.doubles import MANY, TENANT
from tests.unit.gateway.world import World

BEFORE = ("status 500", "status 429", "hang before headers", "hang before the first token")
MIDWAY = ("hang midway", "garbage", "error event", "cut", "end without a terminal")
HANGS = ("hang before headers", "hang before the first token", "hang midway")
GROUPS: tuple[BackendGroup, ...] = ("fast", "deep")
NAMES = {"fast": "wafer", "deep": "gpu"}
STRATEGIES = ("hedge", "breadth", "delegate")
# How the two engines are spoken to.
WIRES: dict[str, dict[BackendGroup, Protocol]] = {
    "sse": {"fast": "chat", "deep": "responses"},
    "sockets": {"fast": "responses-ws", "deep": "responses-ws"},
}
WAIT_S = 60.0  # bounds a hang
ONE = msgspec.structs.replace(MANY, max_concurrent=1)
ONE_PLACE = Tenant(id="acme", tier="waits", limits={"fast": ONE, "deep": MANY})

# How it may end when the deep engine fails in the middle.
BROKEN_OFF: dict[str, tuple[str, ...]] = {
    "hedge": ("failed",),
    "breadth": ("failed",),
    "delegate": ("completed",),  # the sub-task failed, and the fast engine closes
}


@pytest.fixture(autouse=True)
def no_engine_is_given_up_for_its_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets engines be silent for long, as on a busy machine: load must not decide a test."""
    monkeypatch.setattr(machine, "PATIENCE_US", int(WAIT_S * 1e6))


class Site:
    """Is a gateway over two fault servers."""

    def __init__(
        self,
        fast: FaultServer,
        deep: FaultServer,
        wire: str,
        faults: dict[str, str],
        tenant: Tenant,
    ) -> None:
        self.servers = {"fast": fast, "deep": deep}
        for group, plan in faults.items():
            self.servers[group].plan = [plan]
        self.world = World(tenant=tenant, waiting=WaitingConfig(tiers={"waits": {"fast": 60_000}}))
        self.upstreams = {
            group: UpstreamBackend(
                name=NAMES[group],
                options=UpstreamOptions(
                    base_url=self.servers[group].base_url(protocol),
                    protocol=protocol,
                    upstream_model="told",
                    model=f"{NAMES[group]}-model",
                    group=group,
                    probe_path=None,
                    max_retries=0,
                    # Only a wait that will be in vain is short: load must not decide a test.
                    connect_timeout_s=WAIT_S,
                    first_token_timeout_s=0.3 if "before" in faults.get(group, "") else WAIT_S,
                    idle_timeout_s=0.3 if "midway" in faults.get(group, "") else WAIT_S,
                ),
            )
            for group, protocol in WIRES[wire].items()
        }
        self.world.gw.backends = {b.name: b for b in self.upstreams.values()}

    async def run(self, strategy: str, **metadata: str) -> dict[str, Any]:
        """Runs one task to its end; returns what its terminal event says."""
        async with asyncio.timeout(WAIT_S):
            job = self.world.job(metadata=hints(strategy) | metadata)
            await handle_task(self.world.gw, job)
            await self.world.check()
        check_response(self.world.heard.events)
        self.check_stopped()
        return self.world.terminal

    def check_stopped(self) -> None:
        for upstream in self.upstreams.values():
            stats = upstream.stats()
            assert (stats.num_running, stats.num_waiting) == (0, 0)


def hints(strategy: str) -> dict[str, str]:
    """Returns the metadata that asks for a strategy, or for one engine alone."""
    if strategy in ("fast", "deep"):
        return {"route": strategy}
    return {"route": "parallel", "strategy": strategy} | (
        {"hedge_after_ms": "100"} if strategy == "hedge" else {}
    )


async def with_site(
    stack: AsyncExitStack, wire: str = "sse", *, one_place: bool = False, **faults: str
) -> Site:
    """`faults`: group -> what its server does. With one fast place, tasks wait for it."""
    fast, deep = [await stack.enter_async_context(FaultServer.running()) for _ in GROUPS]
    site = Site(fast, deep, wire, faults, ONE_PLACE if one_place else TENANT)
    for upstream in site.upstreams.values():
        stack.push_async_callback(upstream.close)
    return site


def check_named(response: dict[str, Any], case: str) -> None:
    """Checks that what failed is named, and that what was used is added up."""
    routing = response["routing"]
    failed = [row for row in routing["generations"] if row["state"] == "failed"]
    for row in failed:
        assert any(row["backend"] in error for error in routing["errors"]), case
    assert bool(failed) == ("errors" in routing), case
    billed = sum(usage["total_tokens"] for usage in routing["usage"].values())
    assert response["usage"]["total_tokens"] <= billed + response["usage"]["input_tokens"], case


async def check_fault(wire: str, strategy: str, group: BackendGroup, plan: str) -> None:
    async with AsyncExitStack() as stack:
        site = await with_site(stack, wire, **{group: plan})
        if strategy == "delegate" and group == "deep":
            site.servers["fast"].plan = ["hand on", "answer"]
        # Once the deep engine speaks nobody may join, however late its first word is.
        speaks = strategy == "hedge" and group == "deep" and plan in MIDWAY
        terminal = await site.run(strategy, **({"hedge_after_ms": "600000"} if speaks else {}))
    told = terminal["error"], terminal["routing"].get("errors")
    case = f"{wire}, {strategy}, {group}: {plan}: {told}"
    expected: tuple[str, ...] = ("completed",)
    if group == "deep" and plan in MIDWAY:
        expected = BROKEN_OFF[strategy]
    if strategy == "hedge" and group == "fast" and plan in MIDWAY:
        expected = ("completed", "failed")  # where the deep engine was late, this one spoke first
    assert terminal["status"] in expected, case
    check_named(terminal, case)
    if terminal["status"] == "completed" and group == "deep":
        assert terminal["routing"]["answered_by"] == "wafer", case
    if strategy == "delegate" and group == "deep":
        assert [row["state"] for row in terminal["routing"]["delegations"]] == ["failed"], case
        assert terminal["output"][-1]["phase"] == "final_answer", case


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_each_fault_of_either_engine(wire: str, strategy: str) -> None:
    faults = [(group, plan) for group in GROUPS for plan in (*BEFORE, *MIDWAY)]
    async with asyncio.TaskGroup() as checks:
        for group, plan in faults:
            checks.create_task(check_fault(wire, strategy, group, plan))


async def check_alone(wire: str, group: BackendGroup, plan: str) -> None:
    async with AsyncExitStack() as stack:
        site = await with_site(stack, wire, **{group: plan})
        terminal = await site.run(group)
    if plan in BEFORE and plan != "status 429":  # which refuses it
        assert terminal["status"] == "completed", (wire, group, plan)
        (moved,) = terminal["routing"]["failovers"]
        assert moved["from"] == NAMES[group]
        return
    assert terminal["status"] == "failed", (wire, group, plan)
    assert NAMES[group] in terminal["routing"]["errors"][0]
    assert bool(terminal["output"]) == (plan in MIDWAY), "what was said stays"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("group", GROUPS)
async def test_each_fault_of_an_engine_that_works_alone(wire: str, group: BackendGroup) -> None:
    async with asyncio.TaskGroup() as checks:
        for plan in (*BEFORE, *MIDWAY):
            checks.create_task(check_alone(wire, group, plan))


# What the only engine says -> the code, the end of the message, the field, `retry-after`.
TOLD: list[tuple[str, str, str, str | None, str | None]] = [
    ("status 429 7", "rate_limit_exceeded", "7. Please try again in 7s.", None, "7"),
    ("status 429", "rate_limit_exceeded", "429. Please try again in 1s.", None, "1"),
    ("status 400", "invalid_prompt", "told to: status 400", "temperature", None),
]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(("plan", "code", "words", "param", "wait"), TOLD)
async def test_what_an_only_engine_asks_for_reaches_the_client(
    wire: str,
    group: BackendGroup,
    plan: str,
    code: str,
    words: str,
    param: str | None,
    wait: str | None,
) -> None:
    """A stream says it in words, which clients read there; before one, status and headers do."""
    async with AsyncExitStack() as stack:
        site = await with_site(stack, wire, **{group: plan})
        job = site.world.job(metadata=hints(group))
        async with asyncio.timeout(WAIT_S):
            ended = await handle_task(site.world.gw, job)
            await site.world.check()
    error = site.world.terminal["error"]
    assert (error["code"], error.get("param")) == (code, param)
    assert error["message"].endswith(words)
    assert ended is not None
    fault = ended.ending.fault()
    assert fault is not None
    assert (fault.param, fault.headers.get("retry-after")) == (param, wait)


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_both_engines_fail(strategy: str) -> None:
    async with AsyncExitStack() as stack:
        site = await with_site(stack, fast="status 500", deep="status 500")
        terminal = await site.run(strategy)
    assert terminal["status"] == "failed"
    assert terminal["error"]["code"] == "server_error"
    assert terminal["output"] == []
    assert any("wafer" in error for error in terminal["routing"]["errors"])


# Strategy, what the fast server does with its requests, then the deep one: where it hangs.
PHASES: list[tuple[str, list[str], list[str]]] = [
    ("breadth", ["answer"], ["hang"]),
    ("delegate", ["hand on", "hang"], ["answer"]),
    ("delegate", ["hand on", "answer"], ["hang"]),
    ("delegate", ["hand on", "answer", "hang"], ["answer"]),
]


@pytest.mark.parametrize("plan", HANGS)
@pytest.mark.parametrize(("strategy", "fast", "deep"), PHASES)
async def test_a_client_that_vanishes_in_a_later_phase(
    strategy: str, fast: list[str], deep: list[str], plan: str
) -> None:
    """The one that hangs then is left, and nothing begins any more."""
    async with AsyncExitStack() as stack:
        site = await with_site(stack)
        for group, plans in (("fast", fast), ("deep", deep)):
            site.servers[group].plan = [plan if each == "hang" else each for each in plans]
        hung, number = ("fast", len(fast)) if "hang" in fast else ("deep", len(deep))
        job = site.world.job(metadata=hints(strategy))
        pump = asyncio.create_task(handle_task(site.world.gw, job))
        async with asyncio.timeout(WAIT_S):
            await until(lambda: site.servers[hung].num_requests >= number)
            pump.cancel()
            await asyncio.sleep(0)  # one turn of the event loop
            site.check_stopped()
            await asyncio.gather(pump, return_exceptions=True)
            await site.world.check()
            await site.servers[hung].left.wait()
        num_requests = [server.num_requests for server in site.servers.values()]
        await asyncio.sleep(0)
        assert [server.num_requests for server in site.servers.values()] == num_requests
    assert not any(event["type"] in TERMINALS for event in site.world.heard.events)


@pytest.mark.parametrize("plan", HANGS)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("strategy", [*STRATEGIES, *GROUPS])
async def test_a_client_that_vanishes_takes_all_generations_with_it(
    strategy: str, wire: str, plan: str
) -> None:
    """The gateway has closed every connection within a turn of its loop after the cancel."""
    async with AsyncExitStack() as stack:
        site = await with_site(stack, wire)
        for server in site.servers.values():
            server.plan = [plan]
        metadata = hints(strategy)
        if strategy == "hedge":  # whoever speaks has won: then the other is not there any more
            metadata["hedge_after_ms"] = "600000" if plan == "hang midway" else "0"
        pump = asyncio.create_task(handle_task(site.world.gw, site.world.job(metadata=metadata)))
        asked = list(site.servers.values())
        if strategy in ("breadth", "delegate", "fast"):
            asked = [site.servers["fast"]]
        elif strategy == "deep" or metadata.get("hedge_after_ms") == "600000":
            asked = [site.servers["deep"]]
        async with asyncio.timeout(WAIT_S):
            for server in asked:
                await server.asked.wait()
            if plan == "hang midway" and strategy != "delegate":  # which holds its first words
                said = {"response.output_text.delta", "response.reasoning_summary_text.delta"}
                await until(lambda: bool(said & {*site.world.heard.types}))
            pump.cancel()
            await asyncio.sleep(0)  # one turn of the event loop
            site.check_stopped()
            await asyncio.gather(pump, return_exceptions=True)
            await site.world.check()
            for server in asked:
                await server.left.wait()
    assert not any(event["type"] in TERMINALS for event in site.world.heard.events)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("plan", ["answer", "status 500", "garbage", "cut"])
async def test_variations_that_wait_for_one_place_come_one_after_the_other(
    plan: str, wire: str
) -> None:
    """Whatever becomes of the second, it gives its place to the third."""
    async with AsyncExitStack() as stack:
        site = await with_site(stack, wire, one_place=True)
        site.servers["fast"].plan = ["answer", plan, "answer"]
        terminal = await site.run("breadth", n="3")
    check_named(terminal, plan)
    assert terminal["status"] == "completed"
    assert terminal["routing"]["answered_by"] == "gpu"
    assert terminal["routing"]["variations"] == {"asked": 3, "whole": 3 if plan == "answer" else 2}


@pytest.mark.parametrize("wire", WIRES)
async def test_the_loser_is_left_at_once(wire: str) -> None:
    """Its connection is closed while the winner may still be speaking."""
    async with AsyncExitStack() as stack:
        site = await with_site(stack, wire)
        site.servers["deep"].plan = ["hang before the first token"]
        # A loser that is cancelled while it connects never reaches its server, which then has
        # nothing to close: so the winner does not answer before the loser was asked.
        site.servers["fast"].may_answer = site.servers["deep"].asked
        terminal = await site.run("hedge")
        async with asyncio.timeout(WAIT_S):
            await site.servers["deep"].left.wait()
    assert terminal["status"] == "completed"
    states = {row["backend"]: row["state"] for row in terminal["routing"]["generations"]}
    assert states == {"gpu": "cancelled", "wafer": "finished"}
    assert "errors" not in terminal["routing"], "a loser did not fail"
