"""Tests timers on a real event loop, the fine one and its plain twin: none is early."""

import asyncio
import sys
import time
from collections.abc import Callable

import pytest

from backends.drive.timers import FineTimer, LoopTimer, Timer, make_timer

KINDS = [
    pytest.param(LoopTimer, id="loop"),
    pytest.param(
        FineTimer,
        id="fine",
        marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux has timers as files"),
    ),
]
Make = Callable[[Callable[[], None]], Timer]


class Calls:
    """Keeps when it was called back."""

    def __init__(self) -> None:
        self.at_us: list[int] = []
        self.called = asyncio.Event()

    def __call__(self) -> None:
        self.at_us.append(now_us())
        self.called.set()


def now_us() -> int:
    return time.monotonic_ns() // 1000


async def turns(number: int = 20) -> None:
    """Let the loop look at what is due, a few times."""
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("delay_us", [-5, 0, 1, 300, 1_700, 12_345])
async def test_it_calls_once_and_never_early(make: Make, delay_us: int) -> None:
    calls = Calls()
    timer = make(calls)
    set_us = now_us()
    timer.set(delay_us)
    assert calls.at_us == []  # later, never from within
    await asyncio.wait_for(calls.called.wait(), 20)
    await turns()
    (at_us,) = calls.at_us
    # The loop's own clock is the same one, but its timers may count it in whole milliseconds.
    slack_us = 1_000 if make is LoopTimer else 0
    assert at_us - set_us >= delay_us - slack_us
    timer.close()


@pytest.mark.parametrize("make", KINDS)
async def test_setting_it_anew_replaces_what_was_set(make: Make) -> None:
    calls = Calls()
    timer = make(calls)
    timer.set(60_000_000)
    timer.set(0)
    await asyncio.wait_for(calls.called.wait(), 20)
    timer.set(60_000_000)
    await turns()
    assert len(calls.at_us) == 1
    timer.close()


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("end", ["clear", "close"])
async def test_what_has_run_out_and_was_not_told_is_forgotten(make: Make, end: str) -> None:
    calls = Calls()
    timer = make(calls)
    timer.set(0)
    deadline_us = now_us() + 3_000
    while now_us() < deadline_us:
        pass  # the loop cannot look meanwhile
    getattr(timer, end)()
    getattr(timer, end)()
    await turns()
    assert calls.at_us == []
    timer.close()


@pytest.mark.parametrize("make", KINDS)
async def test_it_can_be_set_from_within(make: Make) -> None:
    ended = asyncio.Event()
    num_calls = 0

    def again() -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 5:
            ended.set()
        else:
            timer.set(100)

    timer = make(again)
    timer.set(100)
    await asyncio.wait_for(ended.wait(), 20)
    assert num_calls == 5
    timer.close()


async def test_without_a_file_to_spare_the_loops_own_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: FineTimer, call: Callable[[], None]) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(FineTimer, "__init__", refuse)
    calls = Calls()
    timer = make_timer(calls)
    assert isinstance(timer, LoopTimer)
    timer.set(0)
    await asyncio.wait_for(calls.called.wait(), 20)
    timer.close()
