"""Tests a compaction before an answer, which settles once and ends once however it goes."""

import asyncio
from typing import Any

import pytest

from backends.contract import (
    Compaction,
    Finish,
    FinishReason,
    GenerateRequest,
    Message,
    Sink,
    Usage,
)
from gateway.task.pipeline import handle_task
from gateway.transport.byte_budgets import Budgets, ByteBudgets
from tests.e2e.events import check_response
from tests.unit.gateway.compacting import (
    COMPACTING,
    SummarizingBackend,
    held,
    is_summary,
    parent,
    run,
    world_of,
)
from tests.unit.gateway.doubles import (
    call,
    failure,
    stop,
    text,
)
from tests.unit.gateway.playing_backend import Script
from tests.unit.gateway.world import FULL, World


async def test_a_long_context_is_compacted_before_the_answer() -> None:
    world = world_of()
    ended = await run(world)
    assert ended is not None
    check_response(world.heard.events)
    assert world.heard.types[2:6] == [
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
        "response.in_progress",
    ]
    first = world.heard.events[0]["response"]["routing"]
    assert first["compaction"]["state"] == "running", "the client hears of it while it lasts"
    folded, answer = world.terminal["output"]
    assert folded["type"] == "compaction"
    assert folded["id"] == f"cmp_{world.terminal['id'].removeprefix('resp_')}0000"
    assert answer["content"][0]["text"] == "It is."

    summary, answered = [generation.request for generation in world.fast.generations]
    assert is_summary(summary)
    assert not is_summary(answered)
    kinds = [type(entry.item) for entry in answered.items]
    assert kinds == [Message, Message, Compaction, Message, Message, Message]
    said = answered.items[2].item
    assert isinstance(said, Compaction)
    assert (said.summary, said.number) == ("What was said.", 1)

    # The response's usage is the conversation's; what both used is charged, in one settlement.
    assert world.terminal["usage"]["input_tokens"] == 7
    assert world.terminal["usage"]["output_tokens"] == 5
    assert world.charged == [{"fast": 3_007 + 45}]
    (entry,) = world.entries
    assert entry.lines[0].output_tokens == 45
    routing = world.terminal["routing"]
    assert routing["usage"]["wafer"]["total_tokens"] == 3_052
    view = routing["compaction"]
    assert (view["state"], view["number"], view["max_per_conversation"]) == ("done", 1, 2)
    assert view["usage"]["wafer"]["output_tokens"] == 40
    assert view["tokens_before"] > 2_000 > view["tokens_after"]
    assert view["tokens_after"] == answered.num_prompt_tokens
    assert routing["context"]["used_tokens"] == answered.num_prompt_tokens + 5

    # The conversation goes on from there, and is stored so.
    assert ended.items[:-1] == answered.items
    assert sum(isinstance(entry.item, Compaction) for entry in ended.items) == 1
    stored = world.store.records["acme", world.terminal["id"]]
    assert (stored.ancestors, stored.input) == ((), answered.items)
    assert ended.lineage.num_items == len(ended.items)


async def test_both_are_reserved_for() -> None:
    world = world_of()
    await run(world)
    (reservation,) = world.pools.granted
    (demand,) = reservation.demands
    summary, answered = [generation.request for generation in world.fast.generations]
    assert demand.tokens > summary.num_prompt_tokens + answered.num_prompt_tokens


async def test_a_client_that_keeps_nothing_here_sends_it_back() -> None:
    world = world_of()
    ended = await run(world, store=False)
    assert ended is not None
    sent = world.terminal["output"]
    again = world_of()
    again.gw.seals = world.gw.seals
    asked = [*sent, {"role": "user", "content": "And then?"}]
    job = again.job(input=asked, store=False, metadata={"route": "fast"})
    await handle_task(again.gw, job)
    await again.check()
    request = again.fast.only.request
    assert [e.digest for e in request.items[:-1]] == [e.digest for e in ended.items]


@pytest.mark.parametrize("tenants", ["same", "other"])
async def test_one_that_cannot_be_opened_is_refused(tenants: str) -> None:
    world = world_of()
    await run(world)
    item = world.terminal["output"][0]
    again = World()
    if tenants == "same":
        again.gw.seals = world.gw.seals
        content = item["encrypted_content"]
        item = item | {"encrypted_content": content[:-8] + "AAAAAAAA"}
    await again.run(input=[item, {"role": "user", "content": "And then?"}])
    assert (again.refusal.code, again.refusal.param) == ("invalid_value", "input")
    assert "cannot be opened" in again.refusal.message


@pytest.mark.parametrize("room", ["enough", "too little"])
async def test_what_one_opens_to_is_in_flight_until_the_end(room: str) -> None:
    world = world_of()
    await run(world)
    item = world.terminal["output"][0]
    again = World()
    again.gw.seals = world.gw.seals
    in_flight = ByteBudgets(1 << 20 if room == "enough" else 200, 1 << 20)
    again.gw.budgets = Budgets(in_flight=in_flight)
    assert in_flight.take(again.tenant.id, 100)  # of another request
    await again.run(input=[item, {"role": "user", "content": "And then?"}])
    assert in_flight.num_bytes == 100
    if room == "enough":
        assert again.terminal["status"] == "completed"
    else:
        assert again.refusal.code == "rate_limit_exceeded"
        assert in_flight.num_refused == 1


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        ([failure()], "it broke"),
        ([text("Half"), failure()], "it broke"),
        ([stop(0)], "no summary"),
        ([call("{}"), stop(3)], "no summary"),
        ([text("No."), Finish(FinishReason.CONTENT_FILTER, Usage(7, 0, 1), 0)], "no summary"),
    ],
)
async def test_where_it_fails_the_answer_is_given_all_the_same(summary: Script, why: str) -> None:
    world = world_of(summary)
    ended = await run(world)
    check_response(world.heard.events)
    assert world.terminal["status"] == "completed"
    assert [item["type"] for item in world.terminal["output"]] == ["message"]
    view = world.terminal["routing"]["compaction"]
    assert (view["state"], why in view["error"]) == ("failed", True)
    whole = world.fast.generations[-1].request
    assert len(whole.items) == len(parent().items) + 1
    assert ended is not None
    assert ended.items[:-1] == whole.items
    used = world.terminal["routing"]["usage"]["wafer"]["total_tokens"]
    assert used > world.terminal["usage"]["total_tokens"]
    assert world.charged == [{"fast": used}], "what the attempt used counts"


async def test_a_backend_that_takes_no_summary() -> None:
    world = world_of()
    start = world.fast.start
    world.fast.start = lambda request, sink: refuse_summary(request, sink, start)  # type: ignore
    await run(world)
    assert world.terminal["status"] == "completed"
    assert world.terminal["routing"]["compaction"]["state"] == "failed"


def refuse_summary(request: GenerateRequest, sink: Sink, start: Any) -> Any:
    if is_summary(request):
        raise FULL
    return start(request, sink)


async def test_where_it_fails_and_nothing_fits_the_numbers_are_told() -> None:
    """The summary's prompt fits the window, the whole one does not."""
    world = world_of([failure()], window_tokens=3_200)
    world.gw.backends = {"wafer": world.fast}
    ended = await run(world, input="word " * 400)
    check_terminal_error(world, "context_length_exceeded")
    assert "3200" in world.terminal["error"]["message"]
    assert "it broke" in world.terminal["error"]["message"]
    assert ended is not None
    assert ended.ending.status == "failed"
    assert len(world.fast.generations) == 1


async def test_too_long_for_any_window_until_it_is_compacted() -> None:
    world = world_of(window_tokens=3_200)
    world.gw.backends = {"wafer": world.fast}
    await run(world, input="word " * 400)
    assert world.terminal["status"] == "completed"
    assert world.terminal["routing"]["compaction"]["tokens_before"] > 3_200


async def test_an_answer_that_cannot_begin_after_it() -> None:
    world = world_of()
    start = world.fast.start
    world.fast.start = lambda request, sink: refuse_answer(request, sink, start)  # type: ignore
    await run(world)
    check_terminal_error(world, "server_error")
    assert world.charged == [{"fast": 3_040}], "the summary was made"


def refuse_answer(request: GenerateRequest, sink: Sink, start: Any) -> Any:
    if not is_summary(request):
        raise FULL
    return start(request, sink)


def check_terminal_error(world: World, code: str) -> None:
    assert world.heard.types[:2] == ["response.created", "response.in_progress"]
    assert world.terminal["status"] == "failed"
    assert world.terminal["error"]["code"] == code
    assert world.refusals == []


async def test_it_fails_over() -> None:
    world = world_of([failure()])
    spare = SummarizingBackend("wafer-b", "fast")
    world.gw.backends = {"wafer": world.fast, "wafer-b": spare, "gpu": world.deep}
    await run(world)
    assert world.terminal["routing"]["compaction"]["state"] == "done"
    assert is_summary(spare.generations[0].request)


@pytest.mark.parametrize(
    ("strategy", "by"),
    [("breadth", "wafer"), ("hedge", "gpu")],
)
async def test_of_two_engines_one_writes_it(strategy: str, by: str) -> None:
    world = world_of()
    await run(world, route="parallel", metadata={"strategy": strategy})
    assert world.terminal["status"] == "completed"
    view = world.terminal["routing"]["compaction"]
    assert (view["state"], list(view["usage"])) == ("done", [by])
    summaries = [
        generation.request
        for backend in (world.fast, world.deep)
        for generation in backend.generations
        if is_summary(generation.request)
    ]
    assert len(summaries) == 1


async def test_a_model_that_is_named_writes_it_too() -> None:
    world = world_of()
    await run(world, model="gpu-model", metadata={"route": "deep"})
    assert world.fast.generations == []
    assert len(world.deep.generations) == 2


@pytest.mark.parametrize("reason", ["cancelled", "steered", "draining"])
async def test_it_is_stopped(reason: Any) -> None:
    world, backend, job, pump = await held()
    job.stop(reason)
    ended = await pump
    await world.check()
    assert backend.only.num_cancels == 1, "nothing else begins"
    status = "failed" if reason == "draining" else "incomplete"
    assert (world.terminal["status"], world.terminal["output"]) == (status, [])
    assert world.charged == [{"fast": 2_009}]
    assert [entry.item for entry in ended.items[:-1]] == [entry.item for entry in parent().items]


async def test_its_client_leaves() -> None:
    world, backend, _, pump = await held()
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
    assert backend.only.num_cancels == 1, "at once"
    await world.check()
    assert world.charged == [{"fast": 2_009}]


async def test_at_the_limit_it_says_so() -> None:
    world = world_of()
    world.gw.max_compactions = 0
    await run(world)
    view = world.terminal["routing"]["compaction"]
    assert (view["state"], view["max_per_conversation"]) == ("limit_reached", 0)
    assert len(world.fast.generations) == 1
    small = world_of(window_tokens=2_500)
    small.gw.backends = {"wafer": small.fast}
    small.gw.max_compactions = 0
    await run(small)
    assert small.refusal.code == "context_length_exceeded"
    assert "It was not compacted" in small.refusal.message


@pytest.mark.parametrize("fields", [{"context_management": None}, {"context_management": []}])
async def test_nobody_asked(fields: dict[str, Any]) -> None:
    world = world_of()
    await run(world, **fields)
    assert "compaction" not in world.terminal["routing"]
    assert len(world.fast.generations) == 1


async def test_a_warm_up_is_left_alone() -> None:
    world = world_of()
    job = world.job(
        parent=parent(), context_management=COMPACTING, prompt_cache_options={"prewarm": True}
    )
    ended = await handle_task(world.gw, job)
    await world.check()
    assert ended is not None
    assert len(ended.items) == len(parent().items) + 1
    assert not any(is_summary(generation.request) for generation in world.fast.generations)


async def test_a_trigger_is_answered_by_the_compaction_alone() -> None:
    """Codex sends this to a provider that it takes for OpenAI."""
    world = world_of()
    fields: Any = {"context_management": None, "previous_response_id": "resp_stored"}
    fields["input"] = [{"type": "compaction_trigger"}]
    ended = await run(world, **fields)
    check_response(world.heard.events)
    assert [item["type"] for item in world.terminal["output"]] == ["compaction"]
    assert world.terminal["usage"]["output_tokens"] == 40
    assert world.charged == [{"fast": 3_040}]
    assert is_summary(world.fast.only.request)
    assert ended is not None
    assert [type(entry.item) for entry in ended.items] == [*[Message] * 3, Compaction]
    stored = world.store.records["acme", world.terminal["id"]]
    assert (stored.ancestors, stored.input) == ((), ended.items)
    failing = world_of([failure()])
    await run(failing, **fields)
    check_terminal_error(failing, "server_error")
