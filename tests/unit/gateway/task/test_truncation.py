"""Tests which items go where a context is too long for every engine."""

import pytest

from backends.contract import (
    ContextItem,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
    TextPart,
)
from backends.prompt import measure
from gateway.task.pipeline import handle_task
from gateway.task.truncation import newest_items
from tests.unit.gateway.world import World


def said(text: str) -> Message:
    return Message("user", (TextPart(text),))


OLD, NEW, LAST = said("old " * 100), said("new " * 100), said("last " * 500)
CALL, OUTPUT = FunctionCall("c", "f", "{}"), FunctionCallOutput("c", (TextPart("18"),))


@pytest.mark.parametrize(
    ("items", "excess_tokens", "left"),
    [
        ((OLD, NEW, LAST), 1, (NEW, LAST)),
        ((OLD, NEW, LAST), 107, (NEW, LAST)),
        ((OLD, NEW, LAST), 108, (LAST,)),
        ((OLD, NEW, LAST), 10_000, (LAST,)),
        ((CALL, NEW, OUTPUT, LAST), 1, (NEW, LAST)),
        ((OLD, Reasoning("rs_1"), NEW, LAST), 1, (NEW, LAST)),
    ],
)
def test_the_oldest_items_go(
    items: tuple[Item, ...], excess_tokens: int, left: tuple[Item, ...]
) -> None:
    measured: list[ContextItem] = [measure(item) for item in items]
    assert tuple(entry.item for entry in newest_items(measured, excess_tokens)) == left


async def test_a_truncated_context_is_answered_and_goes_on() -> None:
    """What is dropped is gone for the next turn, too, however that continues."""
    world = World()
    long = [{"role": "user", "content": f"{number} " + "word " * 30_000} for number in range(10)]
    ended = await world.run(input=long, truncation="auto")
    assert ended is not None
    assert world.terminal["status"] == "completed"
    kept = [entry for entry in ended.items if isinstance(entry.item, Message)]
    assert 2 <= len(kept) < 10
    parent_id = world.terminal["id"]
    world.heard.take()
    following = world.job(previous_response_id=parent_id, input="go on")
    assert following.parent is None, "it is loaded from where it was stored"
    again = await handle_task(world.gw, following)
    assert again is not None
    assert len(again.items) == len(ended.items) + 2


async def test_a_last_item_that_fits_nowhere_is_refused() -> None:
    world = World()
    assert await world.run(input="word " * 300_000, truncation="auto") is None
    assert world.refusal.code == "context_length_exceeded"
    assert "maximum context length is" in world.refusal.message
