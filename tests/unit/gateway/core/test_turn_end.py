"""What is put off is done at the turn's end, step by step, whatever one of it does."""

import asyncio
from collections.abc import Iterator

import pytest

from gateway.core.turn_end import TurnEnd


def steps(made: list[str], name: str) -> Iterator[None]:
    """Says when each of two steps is taken."""
    made.append(f"{name}, counted")
    yield
    made.append(f"{name}, noted")


async def test_steps_are_taken_together_after_the_turn() -> None:
    made: list[str] = []
    end = TurnEnd()
    loop = asyncio.get_running_loop()
    loop.call_soon(end.put_off, steps(made, "first"))
    loop.call_soon(end.put_off, steps(made, "second"))
    loop.call_soon(made.append, "the turn's last")
    await asyncio.sleep(0)
    assert made == ["the turn's last"]
    await asyncio.sleep(0)
    assert made[1:] == ["first, counted", "second, counted", "first, noted", "second, noted"]


async def test_they_come_before_what_is_begun_later() -> None:
    """A stream's next task is begun later, and may ask what the last one has taught."""
    made: list[str] = []
    end = TurnEnd()

    async def next_task() -> None:
        made.append("next task")

    end.put_off(steps(made, "first"))
    await asyncio.create_task(next_task())
    assert made == ["first, counted", "first, noted", "next task"]


async def test_one_that_fails_is_logged_and_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made: list[str] = []
    end = TurnEnd()

    def failing() -> Iterator[None]:
        yield
        raise IndexError("it has no second step")

    end.put_off(failing())
    end.put_off(steps(made, "second"))
    await asyncio.sleep(0)
    assert made == ["second, counted", "second, noted"]
    assert "IndexError" in caplog.text
