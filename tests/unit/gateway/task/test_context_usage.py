"""Tests how full a context is: bands, and the turn that crosses into another."""

from typing import Any

import pytest

from backends.contract import FunctionCall, FunctionCallOutput, Item, Message, TextPart
from backends.prompt import measure
from gateway.task.context_usage import band, context_use
from tests.e2e.events import check_response
from tests.unit.gateway.doubles import RecordingBackend, stop, text
from tests.unit.gateway.playing_backend import PlayingBackend
from tests.unit.gateway.world import World
from tests.unit.router.tasks import task


@pytest.mark.parametrize(
    ("used_tokens", "expected"),
    [
        (0, "sharp"),
        (299, "sharp"),
        (300, "drift"),
        (599, "drift"),
        (600, "compaction_likely"),
        (799, "compaction_likely"),
        (800, "compaction_certain"),
        (1_000, "compaction_certain"),
    ],
)
def test_bands(used_tokens: int, expected: str) -> None:
    assert band(used_tokens, 1_000) == expected


def said(role: Any, words: int) -> Item:
    return Message(role, (TextPart("word " * words),))


@pytest.mark.parametrize(
    ("items", "num_output_tokens", "crossed_from"),
    [
        ((said("user", 100),), 0, None),
        ((said("user", 400),), 0, "sharp"),  # the first message alone does it
        ((said("user", 200),), 200, "sharp"),  # the answer does
        ((said("user", 400), said("assistant", 10), said("user", 5)), 10, None),  # long since so
        ((said("user", 200), said("assistant", 150), said("user", 5)), 0, None),
        ((said("user", 200), said("assistant", 50), said("user", 100)), 0, "sharp"),
        (
            (
                said("user", 50),
                FunctionCall("call_1", "look", "{}"),
                FunctionCallOutput("call_1", (TextPart("word " * 600),)),
            ),
            0,
            "sharp",  # over two bands at once
        ),
    ],
)
def test_crossing(
    items: tuple[Item, ...], num_output_tokens: int, crossed_from: str | None
) -> None:
    measured = tuple(measure(item) for item in items)
    num_tokens = sum(entry.num_tokens for entry in measured)
    use = context_use(task(items=measured, prompt_tokens=num_tokens), num_output_tokens, 1_000)
    assert use.crossed_from == crossed_from
    assert use.used_percent == round((num_tokens + num_output_tokens) / 10, 1)


@pytest.mark.parametrize("asked", [True, False])
async def test_a_client_that_asks_is_warned(asked: bool) -> None:
    world = World()
    wafer = PlayingBackend("wafer", "fast", [text("Yes."), stop(200)], window_tokens=600)
    world.gw.backends = {"wafer": wafer, "gpu": RecordingBackend("gpu", "deep")}
    metadata = {"context_events": "true"} if asked else {}
    await world.run(metadata=metadata, max_output_tokens=300)
    check_response(world.heard.events)
    view = world.terminal["routing"]["context"]
    assert (view["band"], view["crossed_from"]) == ("drift", "sharp")
    warnings = [event for event in world.heard.events if event["type"] == "response.context"]
    assert len(warnings) == asked
    for event in warnings:
        assert event["response_id"] == world.terminal["id"]
        assert {name: event[name] for name in view} == view
        assert world.heard.events[-2] is event
