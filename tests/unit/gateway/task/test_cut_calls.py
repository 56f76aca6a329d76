"""A call that broke off is no part of the context that goes on, unless somebody has answered it."""

import asyncio
from typing import Any

import msgspec
import pytest

from backends.contract import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
    TextPart,
)
from backends.prompt import measure
from gateway.core.job import Ended
from gateway.store.stored_response import StoredResponse
from gateway.task.cut_calls import cut_calls
from gateway.task.pipeline import handle_task
from tests.patience import until
from tests.unit.gateway.doubles import call, text
from tests.unit.gateway.playing_backend import ANSWER
from tests.unit.gateway.world import World

HALF = '{"city":'
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "no such city"}

ASK = Message("user", (TextPart("Weather?"),))
WHOLE = FunctionCall("call_1", "look", "{}")
CUT = msgspec.structs.replace(WHOLE, is_cut=True)
ANSWERED = FunctionCallOutput("call_1", (TextPart("sun"),))
CUSTOM = CustomToolCall("call_2", "shell", "ls -", is_cut=True)
CUSTOM_ANSWERED = CustomToolCallOutput("call_2", (TextPart("?"),))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([ASK], set()),
        ([ASK, WHOLE], set()),  # its output may come
        ([ASK, CUT], {1}),
        ([ASK, CUT, ASK, ANSWERED], set()),
        ([ASK, CUT, ANSWERED, ANSWERED], set()),
        ([ASK, FunctionCall("call_1", "look", HALF)], {1}),  # as earlier versions stored it
        ([ASK, FunctionCall("call_1", "look", "")], {1}),
        ([ASK, FunctionCall("call_1", "look", "[" * 100_000)], {1}),
        ([ASK, FunctionCall("call_1", "look", HALF), ANSWERED], set()),
        ([ASK, CUSTOM], {1}),
        ([ASK, CUSTOM, CUSTOM_ANSWERED], set()),
        ([ASK, msgspec.structs.replace(CUSTOM, is_cut=False)], set()),
        ([ASK, WHOLE, CUSTOM, ANSWERED], {2}),
        ([ASK, WHOLE, ANSWERED, CUT], {3}),
        ([ASK, CUT, ASK, WHOLE, ANSWERED], {1}),  # an engine may use an id again
        ([ASK, Reasoning("rs_1"), Reasoning("rs_2"), CUT], {1, 2, 3}),
        ([Reasoning("rs_1"), WHOLE, CUSTOM, ANSWERED], {2}),
        ([Reasoning("rs_1"), CUT], {0, 1}),
    ],
)
def test_which_calls_were_cut(items: list[Item], expected: set[int]) -> None:
    assert cut_calls([measure(item) for item in items]) == expected


async def cut_by_a_cancel(world: World, **fields: Any) -> Ended:
    """Cancels a response amid its call; the client is shown that."""
    world.fast.script = [text("I look."), call(HALF, 1)]
    job = world.job(input="Weather?", metadata={"route": "fast"}, tools=[LOOK], **fields)
    pump = asyncio.create_task(handle_task(world.gw, job))
    await until(lambda: job.writer.words()[1])
    job.stop("cancelled")
    ended = await pump
    assert ended is not None
    shown = world.terminal["output"][-1]
    assert (shown["status"], shown["arguments"]) == ("incomplete", HALF)
    world.heard.events.clear()
    world.fast.script = ANSWER
    return ended


async def ask_on(world: World, parent: Ended, is_stored: bool, **fields: Any) -> tuple[Ended, str]:
    """Continues the latest response; returns also the kinds of what the engine was sent."""
    previous = f"resp_{len(world.fast.generations):048x}"
    job = world.job(
        parent=None if is_stored else parent,
        previous_response_id=previous,
        metadata={"route": "fast"},
        store=is_stored,
        **fields,
    )
    ended = await handle_task(world.gw, job)
    await world.check()
    assert ended is not None
    world.heard.events.clear()
    items = world.fast.generations[-1].request.items
    return ended, " ".join(type(entry.item).__name__ for entry in items)


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_call_that_was_cut_is_left_out_of_what_goes_on(is_stored: bool) -> None:
    world = World()
    first = await cut_by_a_cancel(world, store=is_stored)
    second, sent = await ask_on(world, first, is_stored, input="Never mind.")
    assert sent == "Message Message Message"
    third, sent = await ask_on(world, second, is_stored, input="Go on.")
    assert sent == "Message " * 4 + "Message"
    assert [entry.item for entry in third.items[:3]] == [entry.item for entry in second.items[:3]]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_call_that_was_cut_and_run_goes_on_with_its_output(is_stored: bool) -> None:
    world = World()
    first = await cut_by_a_cancel(world, store=is_stored)
    _, sent = await ask_on(world, first, is_stored, input=[OUTPUT])
    assert sent == "Message Message FunctionCall FunctionCallOutput"


async def test_a_record_without_the_call_holds_the_whole_context() -> None:
    world = World()
    first = await cut_by_a_cancel(world)
    second, _ = await ask_on(world, first, is_stored=True, input="Never mind.")
    record = world.store.records["acme", f"resp_{2:048x}"]
    assert (record.ancestors, len(record.input), record.num_own) == ((), 3, 1)
    assert record.num_input_tokens == second.lineage.num_input_tokens
    assert (second.lineage.ids, second.lineage.num_items) == ((f"resp_{2:048x}",), 4)


async def test_what_an_earlier_version_stored_goes_on() -> None:
    """It did not say which calls were cut."""
    world = World()
    first = await cut_by_a_cancel(world)
    key = "acme", f"resp_{1:048x}"
    stored = world.store.records[key]
    written = msgspec.json.encode(stored).replace(b'"is_cut":true', b'"other":1')
    world.store.records[key] = msgspec.json.decode(written, type=StoredResponse)
    assert b'"is_cut":true' not in msgspec.json.encode(world.store.records[key])
    _, sent = await ask_on(world, first, is_stored=True, input="Never mind.")
    assert sent == "Message Message Message"


async def test_a_client_may_send_back_what_it_was_shown() -> None:
    world = World()
    cut = {"type": "custom_tool_call", "call_id": "c", "name": "shell", "input": "ls"}
    asked = {"type": "message", "role": "user", "content": "List."}
    await world.run(input=[asked, cut | {"status": "incomplete"}, asked])
    await world.run(input=[asked, cut | {"status": "completed"}, asked])
    sent = [len(generation.request.items) for generation in world.fast.generations]
    assert sent == [2, 3]
