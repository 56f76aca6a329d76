"""Tests the driver on a real event loop. Waits are for what must happen, never for a time to pass.

The engine's clock is a hand-set one where exact times are asserted: then the loop's own sleeping
decides only when something is seen.
"""

import asyncio
from typing import Any

import pytest

from backends.drive.driver import MAX_TICK_US, Driver, monotonic_us
from tests.unit.wafer_engine.affine_cost import AffineCost
from wafer_engine.batching.engine import Engine
from wafer_engine.batching.sequence import Sequence


class HandClock:
    """Is a clock that moves when told, and by a little each time it is read."""

    def __init__(self) -> None:
        self.now_us = 1_000_000
        self.num_reads = 0

    def __call__(self) -> int:
        self.num_reads += 1
        self.now_us += 500
        return self.now_us


class RecordingReceiver:
    """Remembers what it is told; may do something on each piece."""

    def __init__(self, action: Any = None) -> None:
        self.pieces: list[tuple[int, int]] = []
        self.finish_us: int | None = None
        self.failure: str | None = None
        self.ended = asyncio.Event()
        self._action = action

    @property
    def num_tokens(self) -> int:
        return sum(number for number, _ in self.pieces)

    def advance(self, num_tokens: int, at_us: int) -> None:
        assert self.finish_us is None
        self.pieces.append((num_tokens, at_us))
        if self._action is not None:
            self._action()

    def finish(self, at_us: int) -> None:
        assert self.finish_us is None
        self.finish_us = at_us
        self.ended.set()

    def fail(self, message: str, at_us: int) -> None:
        self.failure = message
        self.ended.set()


def sequence(number: int, output: int, prompt: int = 10) -> Sequence:
    return Sequence(id=number, num_prompt_tokens=prompt, num_output_tokens=output)


async def test_tokens_arrive_with_the_engines_times() -> None:
    clock = HandClock()
    driver = Driver(Engine(AffineCost()), clock_us=clock)
    receiver = RecordingReceiver()
    driver.submit(sequence(1, 40), receiver)
    start_us = clock.now_us
    await asyncio.wait_for(receiver.ended.wait(), 20)
    first = receiver.pieces[0]
    assert first == (1, first[1])
    assert 0 <= first[1] - 1_000 - 1_000_500 <= start_us - 1_000_500
    assert receiver.finish_us == first[1] + 39 * 1_000
    assert receiver.num_tokens == 40
    times = [at_us for _, at_us in receiver.pieces]
    assert times == sorted(times)


async def test_an_engine_that_fails_once_lets_nobody_wait() -> None:
    engine = Engine(AffineCost())
    driver = Driver(engine)
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(told))
    advance = engine.advance

    def failing(now_us: int, *, progress: bool) -> Any:
        engine.advance = advance  # type: ignore[method-assign]
        raise KeyError("a fault")

    engine.advance = failing  # type: ignore[method-assign]
    lost, later = [RecordingReceiver() for _ in range(3)], RecordingReceiver()
    for number, receiver in enumerate(lost):
        driver.submit(sequence(number, 40), receiver)
    await asyncio.wait_for(asyncio.gather(*(one.ended.wait() for one in lost)), 20)
    assert [receiver.failure for receiver in lost] == ["the engine failed"] * 3
    assert [str(told["exception"]) for told in reported] == ["'a fault'"]
    driver.submit(sequence(9, 40), later)
    await asyncio.wait_for(later.ended.wait(), 20)
    assert later.num_tokens == 40


async def test_what_was_done_since_it_came_is_not_the_engines_time() -> None:
    clock = HandClock()
    driver = Driver(Engine(AffineCost()), clock_us=clock)
    receiver = RecordingReceiver()
    arrived_us = driver.now_us()
    clock.now_us += 100_000  # finding out what is to be said took that long
    driver.submit(sequence(1, 40), receiver, arrived_us)
    await asyncio.wait_for(receiver.ended.wait(), 20)
    assert receiver.pieces[0][1] == arrived_us + 1_000
    assert receiver.finish_us == arrived_us + 40 * 1_000


async def test_pieces_between_first_and_last_are_coalesced() -> None:
    driver = Driver(Engine(AffineCost(fixed_us=50)))
    receivers = [RecordingReceiver() for _ in range(5)]
    for number, receiver in enumerate(receivers):
        driver.submit(sequence(number, 2_000), receiver)
    await asyncio.wait_for(asyncio.gather(*(r.ended.wait() for r in receivers)), 20)
    for receiver in receivers:
        assert receiver.num_tokens == 2_000
        # 100 ms of tokens: a piece every 4 ms at most, and the first and the last.
        assert len(receiver.pieces) < 60
        assert receiver.pieces[0][0] == 1


async def test_an_idle_engine_has_no_timer_and_reads_no_clock() -> None:
    clock = HandClock()
    driver = Driver(Engine(AffineCost()), clock_us=clock)
    receiver = RecordingReceiver()
    driver.submit(sequence(1, 3), receiver)
    await asyncio.wait_for(receiver.ended.wait(), 20)
    num_reads = clock.num_reads
    for _ in range(50):
        await asyncio.sleep(0)
    assert clock.num_reads == num_reads
    assert driver.stats().num_running == 0


async def test_one_receiver_that_raises_hurts_no_other() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def fault() -> None:
        raise RuntimeError("broken pipe")

    driver = Driver(Engine(AffineCost()))
    bad, good = RecordingReceiver(fault), RecordingReceiver()
    driver.submit(sequence(1, 50), bad)
    driver.submit(sequence(2, 50), good)
    await asyncio.wait_for(good.ended.wait(), 20)
    assert good.num_tokens == 50
    assert len(bad.pieces) == 1
    assert not bad.ended.is_set()
    assert [str(context["exception"]) for context in told] == ["broken pipe"]
    assert driver.stats().kv_used_tokens == 0


async def test_cancelling_itself_and_others_from_within() -> None:
    driver = Driver(Engine(AffineCost()))
    cancelled: dict[int, int] = {}

    def cancel_both() -> None:
        for number in (1, 2):
            cancelled.setdefault(number, driver.cancel(number))

    first, second, third = RecordingReceiver(cancel_both), RecordingReceiver(), RecordingReceiver()
    for number, receiver in ((1, first), (2, second)):
        driver.submit(sequence(number, 9_000), receiver)  # too long to be over when it is cancelled
    driver.submit(sequence(3, 30), third)
    await asyncio.wait_for(third.ended.wait(), 20)
    assert cancelled[1] >= 1
    assert (len(first.pieces), second.pieces, third.num_tokens) == (1, [], 30)
    assert driver.stats().kv_used_tokens == 0


async def test_submitting_from_within() -> None:
    driver = Driver(Engine(AffineCost()))
    second = RecordingReceiver()
    started = []

    def start_second() -> None:
        if not started:
            started.append(driver.submit(sequence(2, 5), second))

    driver.submit(sequence(1, 5), RecordingReceiver(start_second))
    await asyncio.wait_for(second.ended.wait(), 20)
    assert second.num_tokens == 5


async def test_cancel_is_harmless_when_repeated_and_after_the_end() -> None:
    driver = Driver(Engine(AffineCost()))
    receiver = RecordingReceiver()
    driver.submit(sequence(1, 3), receiver)
    await asyncio.wait_for(receiver.ended.wait(), 20)
    assert driver.cancel(1) == 0
    driver.submit(sequence(2, 30), receiver)
    assert driver.cancel(2) == 0  # nothing generated yet
    assert driver.cancel(2) == 0


async def test_close_fails_everything_once_and_stops() -> None:
    driver = Driver(Engine(AffineCost(max_num_seqs=1)))
    receivers = [RecordingReceiver() for _ in range(3)]
    for number, receiver in enumerate(receivers):
        driver.submit(sequence(number, 10_000), receiver)
    driver.close("going away")
    driver.close("again")
    assert [receiver.failure for receiver in receivers] == ["going away"] * 3
    assert not driver.is_open
    stats = driver.stats()
    assert (stats.num_running, stats.num_waiting, stats.kv_used_tokens) == (0, 0, 0)


async def test_close_from_within() -> None:
    driver = Driver(Engine(AffineCost()))
    other = RecordingReceiver()
    driver.submit(sequence(1, 30), RecordingReceiver(lambda: driver.close("enough")))
    driver.submit(sequence(2, 30), other)
    await asyncio.wait_for(other.ended.wait(), 20)
    assert other.failure == "enough"


async def test_slow_receivers_stretch_the_tick_up_to_its_bound() -> None:
    extra_us = 0

    def work() -> None:
        nonlocal extra_us
        extra_us += 30_000  # handing this piece out took 30 ms

    engine = Engine(AffineCost(fixed_us=1_000))
    driver = Driver(engine, clock_us=lambda: monotonic_us() + extra_us)
    receiver = RecordingReceiver(work)
    driver.submit(sequence(1, 500), receiver)
    await asyncio.wait_for(receiver.ended.wait(), 20)
    gaps = [b[1] - a[1] for a, b in zip(receiver.pieces[2:], receiver.pieces[3:-1], strict=False)]
    assert gaps
    # Each tick took 30 ms and more, so the next waits the full bound after it.
    assert min(gaps) >= MAX_TICK_US


async def test_less_than_no_output_is_a_programming_error() -> None:
    driver = Driver(Engine(AffineCost()))
    with pytest.raises(AssertionError):
        driver.submit(sequence(1, -1), RecordingReceiver())
