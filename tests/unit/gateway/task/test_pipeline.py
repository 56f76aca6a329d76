"""Tests one task from request to settlement: every path settles once, ends once, leaves nothing."""

import asyncio
import gc
import itertools
import random
import weakref
from typing import Any

import msgspec
import pytest

from backends.contract import (
    BackendError,
    BackendGroup,
    Delta,
    Finish,
    FinishReason,
    FunctionCall,
    Message,
    TextPart,
    Usage,
)
from backends.prompt import measure
from gateway.core.job import Ended
from gateway.store.stored_response import MAX_ANCESTORS, Lineage, StoredResponse
from gateway.task.pipeline import handle_task
from gateway.wire.errors import ProtocolError
from gateway.wire.response import Ending, ResponseStream
from router.classify.task import GroupLimits, Tenant
from router.strategies.table import STRATEGIES
from tests.e2e.events import TERMINALS, check_response
from tests.patience import until
from tests.unit.gateway.doubles import (
    TENANT,
    DictStore,
    call,
    failure,
    stop,
    text,
)
from tests.unit.gateway.playing_backend import ANSWER, Script
from tests.unit.gateway.world import FULL, World

DOWN = BackendError("gpu", "server_error", "down", retryable=True)
LIMITED = BackendError("wafer", "rate_limit_exceeded", "limited", retryable=True)


async def test_a_simulated_speed_that_was_not_measured_is_named() -> None:
    basis = "taken over from RTX-4090: not measured on this GPU, within about 25%"
    for said in ("", basis):
        world = World()
        world.fast._info = msgspec.structs.replace(world.fast.info, speed_basis=said)
        await world.run()
        (backend,) = world.terminal["routing"]["backends"]
        assert backend.get("speed_basis", "") == said


async def test_an_answer() -> None:
    world = World()
    ended = await world.run()
    assert ended is not None
    check_response(world.heard.events)
    assert world.terminal["status"] == "completed"
    assert world.terminal["output"][0]["content"][0]["text"] == "It is."
    assert world.terminal["model"] == "wafer-model"
    assert world.terminal["usage"]["total_tokens"] == 12
    routing = world.terminal["routing"]
    assert (routing["route"], routing["reason"]) == ("fast", "hint")
    assert routing["usage"]["wafer"]["output_tokens"] == 5
    assert world.charged == [{"fast": 12}]
    assert world.outcomes() == {("fast", "ok"): 1}
    assert ended.backend == "wafer"
    assert [type(entry.item) for entry in ended.items] == [Message, Message]
    assert world.sample("lanewise_ttft_seconds_count", route="fast", model="wafer-model") == 1
    assert world.sample("lanewise_queue_wait_seconds_count", route="fast") == 1
    assert world.sample("lanewise_ratelimit_settled_tokens_total", group="fast") == 12


@pytest.mark.parametrize(
    ("route", "metadata"),
    [("fast", {}), ("parallel", {"strategy": "breadth"}), ("parallel", {"strategy": "delegate"})],
)
async def test_what_a_task_leaves_is_freed_without_the_garbage_collector(
    route: str, metadata: dict[str, str]
) -> None:
    world = World()
    await world.run(route, metadata=metadata)  # caches of the first one
    world.fast.generations.clear()
    world.deep.generations.clear()
    gc.collect()
    gc.disable()
    try:
        job = world.job(metadata={"route": route} | metadata)
        its_writer = weakref.finalize(job.writer, lambda: None)
        itself = weakref.finalize(job, lambda: None)
        await handle_task(world.gw, job)
        await world.gw.detached.settled()
        world.fast.generations.clear()
        world.deep.generations.clear()
        del job
        await asyncio.sleep(0)
        assert not world.refusals
        assert not itself.alive, "a cycle holds the job"
        assert not its_writer.alive, "a cycle holds the response"
    finally:
        gc.enable()


async def test_the_terminal_comes_before_the_books(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting, learning and the ledger are nothing that a client waits for."""
    world = World()
    experience, books = world.gw.experience, []
    for part, name in (
        (experience, "note_held"),
        (experience, "note_answer"),
        (experience.backend_speeds, "note"),
        (world.gw.metrics, "task_finished"),
    ):
        plain = getattr(part, name)

        def note(*args: Any, name: str = name, plain: Any = plain, **more: Any) -> Any:
            if name not in books:
                books.append(name)
            return plain(*args, **more)

        monkeypatch.setattr(part, name, note)
    seen: list[list[str]] = []
    job = world.job(metadata={"route": "fast"}, store=False)
    plain_emit = world.heard.emit

    def emit(event_type: str, /, *frames: bytes) -> None:
        plain_emit(event_type, *frames)
        if event_type in TERMINALS:
            seen.append([*books])
            assert not world.entries

    job.writer = ResponseStream(job.parsed, emit)
    assert await handle_task(world.gw, job) is not None
    await world.check()
    assert seen == [[]]
    assert set(books) == {"note_held", "note_answer", "note", "task_finished"}
    assert world.entries


async def test_the_terminal_comes_after_the_settlement_and_the_store() -> None:
    world = World()
    seen: list[tuple[int, int]] = []
    emit = world.heard.emit

    def watching(event_type: str, /, *frames: bytes) -> None:
        if event_type in TERMINALS:
            seen.append((len(world.pools.settled), len(world.store.records)))
        emit(event_type, *frames)

    world.heard.emit = watching  # type: ignore[method-assign]
    await world.run()
    assert seen == [(1, 1)], "what a client does next finds both done"


# fast script, deep script, route, strategy, status, details or error code, outcome, charged
ENDS: list[tuple[Script, Script, str, str, str, str | None, str, dict[BackendGroup, int]]] = [
    (ANSWER, [], "fast", "", "completed", None, "ok", {"fast": 12}),
    ([], ANSWER, "deep", "", "completed", None, "ok", {"deep": 12}),
    ([stop(0)], [], "fast", "", "completed", None, "ok", {"fast": 7}),
    ([], ANSWER, "parallel", "hedge", "completed", None, "ok", {"deep": 12}),
    (ANSWER, ANSWER, "parallel", "breadth", "completed", None, "ok", {"fast": 60, "deep": 12}),
    ([text("x"), failure()], [], "fast", "", "failed", "server_error", "error", {"fast": 8}),
    (
        ANSWER,
        [failure("gpu")],
        "parallel",
        "hedge",
        "completed",
        None,
        "ok",
        {"fast": 12, "deep": 8},
    ),
    (
        [failure()],
        [failure("gpu")],
        "parallel",
        "hedge",
        "failed",
        "server_error",
        "error",
        {"fast": 8, "deep": 8},
    ),
    (
        [text("x"), Finish(FinishReason.LENGTH, Usage(7, 0, 1), 0)],
        [],
        "fast",
        "",
        "incomplete",
        "max_output_tokens",
        "ok",
        {"fast": 8},
    ),
    (
        [Finish(FinishReason.CONTENT_FILTER, Usage(7), 0)],
        [],
        "fast",
        "",
        "incomplete",
        "content_filter",
        "ok",
        {"fast": 7},
    ),
]


@pytest.mark.parametrize(
    ("fast", "deep", "route", "strategy", "status", "why", "outcome", "charged"), ENDS
)
async def test_ends(
    fast: Script,
    deep: Script,
    route: str,
    strategy: str,
    status: str,
    why: str | None,
    outcome: str,
    charged: dict[BackendGroup, int],
) -> None:
    world = World(fast, deep)
    ended = await world.run(route, metadata={"strategy": strategy} if strategy else {})
    assert ended is not None
    assert ended.ending.status == status
    check_response(world.heard.events)
    assert world.terminal["status"] == status
    told = (world.terminal["incomplete_details"] or {}).get("reason")
    assert (world.terminal["error"] or {"code": told})["code"] == why
    assert world.charged_in_all == charged
    assert world.outcomes() == {(route, outcome): 1}
    assert world.refusals == []
    (stored,) = world.store.records.values()
    assert stored.can_continue == (status != "failed")


async def test_a_break_within_a_call_says_so() -> None:
    world = World([call('{"cmd": "rm -rf build"}'), failure()])
    await world.run(tools=[{"type": "function", "name": "look", "parameters": {}}])
    check_response(world.heard.events)
    assert world.terminal["output"] == []
    assert world.terminal["error"] == {
        "code": "server_error",
        "message": "The answer broke off before its tool call was complete (it broke). Do not run "
        "that call, and send the request again.",
    }


NO_FAST: dict[BackendGroup, GroupLimits] = {
    "fast": GroupLimits(requests_per_min=0, tokens_per_min=0, max_concurrent=0),
    "deep": TENANT.limits["deep"],
}


async def test_hedge_reserves_for_each_engine_by_itself() -> None:
    world = World([failure()], [failure("gpu")])
    await world.run("parallel", metadata={"strategy": "hedge"})
    assert world.terminal["status"] == "failed"
    response_id = world.terminal["id"]
    settled = [(f"{response_id}-0", {"fast": 8}), (response_id, {"deep": 8})]
    assert sorted(world.pools.settled) == sorted(settled)
    world = World(ANSWER, [failure("gpu")], tenant=Tenant(id="a", tier="b", limits=NO_FAST))
    await world.run("parallel", metadata={"strategy": "hedge"})
    assert world.terminal["status"] == "failed", "nobody is left to answer"
    assert len(world.terminal["routing"]["errors"]) == 2


TINY = GroupLimits(requests_per_min=1, tokens_per_min=1_000_000, max_concurrent=8)


async def test_a_refusal_by_the_pools() -> None:
    world = World(tenant=Tenant(id="tiny", tier="default", limits={"fast": TINY}))
    await world.run()
    world.heard.take()
    assert await world.run() is None
    assert world.heard.events == []
    assert world.refusal.code == "rate_limit_exceeded"
    headers = world.refusal.headers
    assert (headers["retry-after"], headers["x-ratelimit-remaining-requests"]) == ("60", "0")
    assert world.outcomes() == {("fast", "ok"): 1, ("none", "rate_limited"): 1}
    refused = {"group": "fast", "tier": "default", "result": "reject", "limit": "rpm"}
    refused["mode"] = "redis"
    assert world.sample("lanewise_ratelimit_decisions_total", **refused) == 1


async def test_pools_that_never_answered() -> None:
    world = World()
    world.pools.available = False
    await world.failover.greet()
    num_calls = world.pools.num_calls
    assert await world.run() is None
    assert world.pools.num_calls == num_calls, "nobody waits for what is known to be away"
    headers = world.refusal.headers
    assert (world.refusal.code, headers["retry-after"]) == ("server_is_overloaded", "1")
    assert headers["x-lanewise-ratelimit-mode"] == "degraded"
    assert world.fast.generations == []
    assert world.outcomes() == {("none", "shed"): 1}
    assert world.sample("lanewise_ratelimit_degraded") == 1


async def test_without_its_pools_a_gateway_limits_tasks_by_itself() -> None:
    world = World()
    await world.run()
    world.heard.take()
    world.pools.available = False
    ended = await world.run()
    assert ended is not None
    assert world.terminal["status"] == "completed"
    assert world.terminal["routing"]["ratelimit_mode"] == "degraded"
    admitted = {"group": "fast", "tier": "default", "result": "admit", "limit": "none"}
    for mode in ("redis", "degraded"):
        assert world.sample("lanewise_ratelimit_decisions_total", **admitted, mode=mode) == 1
    assert world.sample("lanewise_ratelimit_redis_seconds_count", op="settle", status="error") == 1
    assert world.failover.report.num_unsettled == 1
    world.pools.available = True
    await world.failover.check()
    assert world.failover.report.num_unsettled == 0
    assert len(world.pools.adopted) == 1
    assert world.charged == [{"fast": 12}, {"fast": 12}], "each once"


REFUSALS: list[tuple[dict[str, Any], dict[str, Any], str, str | None, str]] = [
    ({}, {"model": "unknown"}, "model_not_found", "model", "invalid"),
    ({}, {"previous_response_id": "resp_x"}, "previous_response_not_found", None, "invalid"),
    ({}, {"input": [{"id": "msg_x"}]}, "item_not_found", "input", "invalid"),
    ({}, {"input": "word " * 200_000}, "context_length_exceeded", "input", "invalid"),
    ({"fast_refuses": FULL}, {}, "server_is_overloaded", None, "shed"),
    ({"fast_refuses": LIMITED}, {}, "rate_limit_exceeded", None, "rate_limited"),
    ({"fast_refuses": RuntimeError("a bug")}, {}, "server_error", None, "error"),
]


@pytest.mark.parametrize(("backends", "fields", "code", "param", "outcome"), REFUSALS)
async def test_refusals(
    backends: dict[str, Any],
    fields: dict[str, Any],
    code: str,
    param: str | None,
    outcome: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(**backends)
    if "model" in fields:
        assert await handle_task(world.gw, world.job(**fields)) is None
        await world.check()
    else:
        assert await world.run(**fields) is None
    assert world.refusal.code == code
    assert world.heard.events == [], "no response was opened"
    assert param is None or world.refusal.param == param
    assert {kind for _, kind in world.outcomes()} == {outcome}
    assert all(tokens == 0 for charge in world.charged for tokens in charge.values())
    assert bool(caplog.records) == (code == "server_error"), "our own faults are logged"


async def test_one_backend_that_refuses_leaves_the_other() -> None:
    world = World(deep_refuses=DOWN)
    await world.run("parallel")
    check_response(world.heard.events)
    assert world.charged_in_all == {"fast": 12, "deep": 0}
    assert world.terminal["routing"]["errors"] == [str(DOWN)]
    labels = {"backend": "gpu", "reason": "server_error"}
    assert world.sample("lanewise_backend_errors_total", **labels) == 1


async def test_draining_takes_nothing_new() -> None:
    world = World()
    world.gw.state.draining = True
    assert await world.run() is None
    assert (world.refusal.code, world.refusal.headers["retry-after"]) == ("server_draining", "1")
    assert world.outcomes() == {("none", "shed"): 1}


@pytest.mark.parametrize("reason", ["steered", "cancelled"])
@pytest.mark.parametrize("route", ["fast", "parallel"])
async def test_stops(reason: Any, route: str) -> None:
    world = World([text("Half")], [])
    metadata = {"strategy": "breadth", "judge": "false"} if route == "parallel" else {}
    job = world.job(metadata={"route": route} | metadata)
    pump = asyncio.create_task(handle_task(world.gw, job))
    await until(lambda: job.writer.num_events > 3)
    job.stop(reason)
    job.stop("steered" if reason == "cancelled" else "cancelled")
    ended = await pump
    await world.check()
    check_response(world.heard.events)
    assert world.terminal["incomplete_details"] == {"reason": reason}
    assert ended is not None
    assert ended.ending.reason == reason
    said = ended.items[-1].item
    assert isinstance(said, Message)
    assert said.content == (TextPart("Half"),)
    generations = world.fast.generations
    assert [each.num_cancels for each in generations] == [1] * len(generations)
    assert world.charged_in_all == {"fast": 9 * len(generations)}
    assert world.outcomes() == {(route, "ok" if reason == "steered" else "cancelled"): 1}


async def test_a_stop_before_the_start_ends_it_at_its_first_token() -> None:
    world = World([text("never said")])
    job = world.job(metadata={"route": "fast"}, store=False)
    job.stop("cancelled")
    await handle_task(world.gw, job)
    await world.check()
    check_response(world.heard.events)
    assert world.terminal["output"] == []


async def test_a_cancelled_background_response() -> None:
    world = World([text("Half")])
    job = world.job(metadata={"route": "fast"}, background=True)
    job.stop("cancelled")
    ended = await handle_task(world.gw, job)
    await world.check()
    assert ended is not None
    assert ended.ending.status == "cancelled"
    (stored,) = world.store.records.values()
    assert not stored.can_continue
    assert world.outcomes() == {("fast", "cancelled"): 1}


async def test_open_calls_are_named() -> None:
    custom = Delta(1, call("").kind.__class__.CUSTOM_CALL, "ls", 1, 0, "call_2", "shell")
    world = World([call("{}"), custom, stop()])
    ended = await world.run()
    assert ended is not None
    assert ended.open_calls == (
        {"type": "function_call_output", "call_id": "call_1", "name": "look"},
        {"type": "custom_tool_call_output", "call_id": "call_2"},
    )
    assert isinstance(ended.items[1].item, FunctionCall)


async def test_calls_that_were_cut_are_not_open() -> None:
    custom = Delta(1, call("").kind.__class__.CUSTOM_CALL, "ls", 1, 0, "call_2", "shell")
    world = World([call("{}"), custom, Finish(FinishReason.LENGTH, Usage(7, 0, 3, 0), 0)])
    ended = await world.run()
    assert ended is not None
    assert ended.open_calls == (
        {"type": "function_call_output", "call_id": "call_1", "name": "look"},
    )


# -- faults of ours ----------------------------------------------------------------------------


class Faulty(ResponseStream):
    """Is a writer with one broken method."""

    broken = ""

    def open(self, created_at: int, model: str, routing: dict[str, Any]) -> None:
        if self.broken == "open":
            raise RuntimeError("a bug")
        super().open(created_at, model, routing)

    def finish(self, ending: Ending, completed_at: int, routing: dict[str, Any]) -> bytes:
        if self.broken == "finish" and ending.status != "failed":
            raise RuntimeError("a bug")
        return super().finish(ending, completed_at, routing)


@pytest.mark.parametrize("broken", ["open", "finish"])
async def test_a_fault_of_ours_is_told_and_leaves_nothing(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    job = world.job(metadata={"route": "fast"}, store=False)
    writer = Faulty(job.parsed, world.heard.emit)
    writer.broken = broken
    job.writer = writer
    ended = await handle_task(world.gw, job)
    await world.check()
    assert world.outcomes() == {("fast", "error"): 1}
    assert "failed inside the gateway" in caplog.text
    if broken == "open":
        assert ended is None
        assert world.refusal.code == "server_error"
        assert world.fast.only.num_cancels == 1, "nobody would hear it"
    else:
        assert ended is not None
        assert ended.ending.status == "failed"
        assert world.terminal["error"]["code"] == "server_error"
        check_response(world.heard.events)


@pytest.mark.parametrize(
    ("part", "cache_options"),
    [
        ("admit.decide", {}),
        ("pipeline.SideReservations", {}),
        ("pipeline.Warming", {"prewarm": True}),
        ("pipeline.decided_routing", {"prewarm": True}),
    ],
)
async def test_a_fault_behind_the_grant_gives_it_back(
    part: str, cache_options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any) -> None:
        raise RuntimeError("a bug")

    world = World()
    monkeypatch.setattr(f"gateway.task.{part}", broken)
    assert await world.run(prompt_cache_options=cache_options) is None
    await world.check()
    assert world.refusal.code == "server_error"
    assert world.pools.held(world.tenant) == 0


async def test_a_store_that_fails_costs_only_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    class Unavailable(DictStore):
        """Is a store whose Redis is away."""

        async def save(
            self, tenant_id: str, response_id: str, stored: StoredResponse, **options: Any
        ) -> None:
            raise ProtocolError("server_is_overloaded", "The response store does not answer.")

    world = World()
    world.gw.store = Unavailable()
    ended = await world.run()
    assert ended is not None
    assert world.terminal["status"] == "completed"
    assert ended.lineage.ids == ()
    assert "could not be stored" in caplog.text
    assert {vars(record)["once"] for record in caplog.records}, "an outage is not told once a task"


# -- the client leaves -------------------------------------------------------------------------

CASES: dict[str, dict[str, Any]] = {
    "fast": {"metadata": {"route": "fast"}},
    "hedge": {"metadata": {"route": "parallel", "strategy": "hedge"}},
    "hedge, joined": {
        "metadata": {"route": "parallel", "strategy": "hedge", "hedge_after_ms": "0"}
    },
    "breadth": {"metadata": {"route": "parallel", "strategy": "breadth"}},
    "unstored": {"metadata": {"route": "deep"}, "store": False},
    "continued": {"metadata": {"route": "fast"}, "previous_response_id": f"resp_{1:048x}"},
    "warm-up": {"input": [], "prompt_cache_options": {"prewarm": True}},
}


@pytest.mark.parametrize("case", CASES)
async def test_a_client_that_leaves_at_any_moment_leaves_nothing(case: str) -> None:
    """It is cancelled after every possible number of turns of the loop, up to its natural end."""
    for num_turns in itertools.count():
        assert num_turns < 100
        world = World()
        if case == "continued":
            await world.run()
            world.heard.take()
        num_before, num_settled = len(world.fast.generations), len(world.charged)
        pump = asyncio.create_task(handle_task(world.gw, world.job(**CASES[case])))
        for _ in range(num_turns):
            await asyncio.sleep(0)
        if pump.done():
            break
        pump.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pump
        await world.check()
        assert world.refusals == []
        kinds = world.heard.types
        assert sum(kind in TERMINALS for kind in kinds) == 0, "it had not come so far"
        started = world.fast.generations[num_before:] + world.deep.generations
        charged = [sum(tokens.values()) for tokens in world.charged[num_settled:]]
        assert not started or sum(charged) > 0, "what was generated is paid"
    assert num_turns > (1 if case == "warm-up" else 5)


async def test_whatever_interrupts_it_nothing_is_left() -> None:
    """Stops and departures at random moments, several tasks at a time."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    scripts: list[Script] = [ANSWER, [text("x")], [failure()], [call("{}"), stop()], [stop(0)]]
    for _ in range(25):
        world = World(
            chance.choice(scripts),
            [piece for piece in chance.choice(scripts) if not isinstance(piece, Finish)],
            fast_refuses=chance.choice([None, None, FULL]),
        )
        jobs = [
            world.job(
                metadata={
                    "route": chance.choice(["fast", "deep", "parallel"]),
                    "strategy": chance.choice(tuple(STRATEGIES)),
                },
                store=chance.random() < 0.5,
            )
            for _ in range(4)
        ]
        pumps = [asyncio.create_task(handle_task(world.gw, job)) for job in jobs]
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
            which = chance.randrange(4)
            act = chance.random()
            if act < 0.1:
                jobs[which].stop("steered")
            elif act < 0.2:
                jobs[which].stop("cancelled")
            elif act < 0.25:
                pumps[which].cancel()
        for job in jobs:
            job.stop("cancelled")
        await asyncio.gather(*pumps, return_exceptions=True)
        await world.check()
        own: dict[str, list[str]] = {}
        for event in world.heard.events:
            if "response" in event:
                own.setdefault(event["response"]["id"], []).append(event["type"])
        for job, pump in zip(jobs, pumps, strict=True):
            terminals = [kind for kind in own.get(job.parsed.id, []) if kind in TERMINALS]
            assert len(terminals) <= 1
            if not pump.cancelled():
                assert len(terminals) == (pump.result() is not None)


# -- contexts and the store --------------------------------------------------------------------


async def test_a_warm_up_is_held_and_can_be_continued() -> None:
    world = World()
    job = world.job(
        input=[{"role": "developer", "content": "rules"}], prompt_cache_options={"prewarm": True}
    )
    ended = await handle_task(world.gw, job)
    await world.check()
    assert ended is not None
    assert world.heard.types == ["response.created", "response.in_progress", "response.completed"]
    assert world.terminal["output"] == []
    assert world.terminal["usage"]["output_tokens"] == 0
    assert world.terminal["usage"]["input_tokens"] == ended.items[0].num_tokens
    (reservation,) = world.pools.granted
    assert [demand.tokens for demand in reservation.demands] == [0], "a request, and no tokens"
    assert world.charged == [{"fast": 7}], "what the engine says that it computed"
    assert world.sample("lanewise_warm_ups_total", backend="wafer", state="held") == 1
    (warm,) = world.terminal["routing"]["warm"]
    assert (warm["backend"], warm["state"], warm["held_tokens"]) == ("wafer", "held", 7)
    assert ended.backend == "wafer", "the next turn stays there"
    world.heard.take()
    await world.run(previous_response_id=job.parsed.id)
    warm, turn = (generation.request for generation in world.fast.generations)
    assert (warm.generate, turn.generate) == (False, True)
    assert len(turn.items) == 2


async def test_chains_are_continued_from_the_store() -> None:
    world = World()
    first = await world.run(input="one")
    assert first is not None
    second = await world.run(input="two", previous_response_id=f"resp_{1:048x}")
    assert second is not None
    third = world.job(
        input="three", previous_response_id=f"resp_{2:048x}", metadata={"route": "fast"}
    )
    await handle_task(world.gw, third)
    await world.check()
    request = world.fast.generations[-1].request
    assert request.items[: len(second.items)] == second.items
    assert len(request.items) == 5
    assert third.last_backend == "wafer"
    record = world.store.records["acme", third.parsed.id]
    assert record.ancestors == (f"resp_{1:048x}", f"resp_{2:048x}")
    assert [type(entry.item) for entry in record.input] == [Message]
    assert record.num_own == 1


async def test_a_failed_response_cannot_be_continued() -> None:
    world = World([failure()])
    await world.run(model="wafer-model")
    await world.run(previous_response_id=f"resp_{1:048x}")
    assert world.refusal.code == "previous_response_not_found"


async def test_another_tenant_finds_nothing() -> None:
    world = World()
    await world.run()
    world.tenant = Tenant(id="other", tier="default", limits=TENANT.limits)
    await world.run(previous_response_id=f"resp_{1:048x}")
    assert world.refusal.code == "previous_response_not_found"


async def test_an_unstored_turn_is_part_of_the_next_stored_record() -> None:
    world = World()
    first = await handle_task(world.gw, world.job(input="one", store=False, model="wafer-model"))
    assert first is not None
    assert world.store.records == {}
    job = world.job(input="two", parent=first, previous_response_id="resp_1", model="wafer-model")
    second = await handle_task(world.gw, job)
    assert second is not None
    record = world.store.records["acme", job.parsed.id]
    assert (record.ancestors, len(record.input), record.num_own) == ((), 3, 1)
    assert (second.lineage.ids, second.lineage.num_items) == ((job.parsed.id,), 4)


async def test_a_long_chain_starts_a_new_record() -> None:
    world = World()
    items = tuple(measure(Message("user", (TextPart(str(n)),))) for n in range(9))
    parent = Ended(
        ending=Ending(status="completed", usage=Usage()),
        items=items,
        backend=None,
        lineage=Lineage(tuple(f"resp_{n}" for n in range(MAX_ANCESTORS)), len(items)),
    )
    job = world.job(input="x", parent=parent, model="wafer-model")
    ended = await handle_task(world.gw, job)
    assert ended is not None
    record = world.store.records["acme", job.parsed.id]
    assert (record.ancestors, len(record.input), record.num_own) == ((), 10, 1)
    assert (ended.lineage.ids, ended.lineage.num_items) == ((job.parsed.id,), 11)


LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize(("tools", "told"), [((), 300), ((LOOK,), 7)], ids=["held", "not held"])
async def test_a_turn_is_told_no_smaller_input_than_the_one_it_continues(
    tools: tuple[Any, ...], told: int, is_stored: bool
) -> None:
    """Its engine may count in fewer tokens. Where it has fewer tools, it does hold less."""
    world = World(deep=[text("Yes."), stop(num_input_tokens=300)])
    ended = await world.run("deep", tools=tools, store=is_stored)
    for _ in range(2):
        asked: Any = {"metadata": {"route": "fast"}, "previous_response_id": world.terminal["id"]}
        world.heard.events.clear()
        job = world.job(parent=None if is_stored else ended, store=is_stored, **asked)
        ended = await handle_task(world.gw, job)
        assert world.terminal["usage"]["input_tokens"] == told
        assert world.terminal["routing"]["usage"]["wafer"]["input_tokens"] == 7


async def test_items_are_referred_to_by_id() -> None:
    world = World()
    first = await world.run(input="one")
    assert first is not None
    said = first.items[-1].item
    assert said.id is not None
    await world.run(input=[{"type": "item_reference", "id": said.id}, {"role": "user"}])
    assert world.fast.generations[-1].request.items[0].item == said
    await world.run(
        input=[{"id": said.id}, {"role": "user"}], previous_response_id=f"resp_{1:048x}"
    )
    assert [entry.item for entry in world.fast.generations[-1].request.items].count(said) == 2
