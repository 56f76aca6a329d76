"""What is put off is done at the turn's end, in order, whatever one of it does."""

import asyncio

import pytest

from gateway.core.turn_end import TurnEnd


async def test_calls_are_made_together_after_the_turn() -> None:
    made: list[str] = []
    end = TurnEnd()
    loop = asyncio.get_running_loop()
    loop.call_soon(end.put_off, lambda: made.append("first"))
    loop.call_soon(end.put_off, lambda: made.append("second"))
    loop.call_soon(made.append, "the turn's last")
    await asyncio.sleep(0)
    assert made == ["the turn's last"]
    await asyncio.sleep(0)
    assert made == ["the turn's last", "first", "second"]


async def test_they_come_before_what_is_begun_later() -> None:
    """As the next task of a stream is, which may ask what the last one has taught."""
    made: list[str] = []
    end = TurnEnd()

    async def next_task() -> None:
        made.append("next task")

    end.put_off(lambda: made.append("noted"))
    await asyncio.create_task(next_task())
    assert made == ["noted", "next task"]


async def test_one_that_fails_is_logged_and_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made: list[str] = []
    end = TurnEnd()
    end.put_off(lambda: made[0].upper() and None)
    end.put_off(lambda: made.append("second"))
    await asyncio.sleep(0)
    assert made == ["second"]
    assert "IndexError" in caplog.text
