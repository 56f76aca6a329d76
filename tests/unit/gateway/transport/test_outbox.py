"""Tests the way out: the first delta at once, text that gathers, order, closing, a slow reader."""

import asyncio
import json
import random
from collections.abc import Sequence

import pytest

from backends.contract import Usage
from gateway.transport.flush_timer import FlushTimer
from gateway.transport.outbox import MAX_QUEUED_BYTES, Flushable, Outbox
from gateway.wire.response import Ending, ResponseStream
from tests.patience import until
from tests.sim.sleeping_loop import Punctual, SleepingLoop
from tests.unit.gateway.doubles import parsed_create, text

INTERVAL_S = 0.003
NEVER_S = 1000.0  # an interval that never ends within a test


class Written:
    """Keeps what a writer wrote; it can be held up like a full transport."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.room = asyncio.Event()
        self.room.set()

    async def write(self, frames: list[bytes]) -> None:
        await self.room.wait()
        self.frames += frames


class Counted(Flushable):
    """Is a stream that sends how often it was marked since its last flush."""

    def __init__(self, outbox: Outbox, name: str) -> None:
        self._outbox = outbox
        self._name = name
        self.num_marks = 0

    def mark(self) -> None:
        self.num_marks += 1
        self._outbox.mark(self)

    def flush(self) -> None:
        if self.num_marks:
            self._outbox.send(f"{self._name}{self.num_marks}".encode())
        self.num_marks = 0


class Talking(Flushable):
    """Is a stream with text of some size; it may be one that can pause."""

    def __init__(self, outbox: Outbox, *, can_pause: bool) -> None:
        self._outbox = outbox
        self._can_pause = can_pause
        self._num_bytes = 0
        self.is_paused = False

    def say(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        self._outbox.mark(self)

    def flush(self) -> None:
        self._outbox.send(b"x" * self._num_bytes)
        self._num_bytes = 0

    def gathered_bytes(self) -> int:
        return self._num_bytes

    def pause(self) -> bool:
        self.is_paused = self._can_pause
        return self._can_pause

    def resume(self) -> None:
        self.is_paused = False


def busy_timer() -> FlushTimer:
    """Returns a timer that lets no text pass, and never flushes within a test."""
    flush_timer = FlushTimer(NEVER_S)
    flush_timer.put_off()
    return flush_timer


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_frames_go_out_in_order_without_waiting_for_the_interval() -> None:
    outbox, written = Outbox(FlushTimer(NEVER_S)), Written()
    writer = asyncio.create_task(outbox.run(written.write))
    for number in range(3):
        outbox.send(str(number).encode())
    await turns()
    assert written.frames == [b"0", b"1", b"2"]
    outbox.send(b"3")
    await turns()
    assert written.frames[-1] == b"3"
    outbox.close()
    await writer


async def test_what_is_held_leaves_with_what_follows() -> None:
    outbox, written = Outbox(FlushTimer(NEVER_S)), Written()
    writes: list[int] = []

    async def write(frames: list[bytes]) -> None:
        writes.append(len(frames))
        await written.write(frames)

    writer = asyncio.create_task(outbox.run(write))
    outbox.emit("response.created", b"created")
    outbox.emit("response.created", b"in progress")
    await turns()
    assert written.frames == []
    outbox.send(b"first token")
    await turns()
    assert written.frames == [b"created", b"in progress", b"first token"]
    assert writes == [3]
    outbox.flush_due()  # its round, when nothing is left
    await turns()
    assert writes == [3]
    outbox.emit("response.created", b"created again")
    outbox.close()
    await writer
    assert written.frames[-1] == b"created again"


async def test_what_is_held_waits_no_longer_than_a_round() -> None:
    outbox, written = Outbox(FlushTimer(INTERVAL_S)), Written()
    writer = asyncio.create_task(outbox.run(written.write, lambda frames: False))
    outbox.emit("response.created", b"created")
    await until(lambda: written.frames == [b"created"])
    outbox.emit("response.created", b"and again")
    await until(lambda: len(written.frames) == 2)
    outbox.close()
    await writer


def test_opening_events_wait_for_fifty_ms_at_most() -> None:
    begun_s, waited_s = [0.0, 0.001, 0.012, 0.024, 0.026, 0.070], []
    late_s = 2 * 0.003  # the loop wakes up to 3 ms late, and the timer may have to wake twice

    async def hold(flush_timer: FlushTimer, begin_s: float) -> None:
        loop, outbox = asyncio.get_running_loop(), Outbox(flush_timer)
        left = asyncio.Event()

        async def write(frames: list[bytes]) -> None:
            assert frames == [b"created", b"in progress"]
            left.set()

        await asyncio.sleep(begin_s)
        writer, held_s = asyncio.create_task(outbox.run(write)), loop.time()
        outbox.emit("response.created", b"created")
        outbox.emit("response.in_progress", b"in progress")
        await left.wait()
        waited_s.append(loop.time() - held_s)
        outbox.close()
        await writer

    async def together() -> None:
        flush_timer = FlushTimer()
        await asyncio.gather(*(hold(flush_timer, each) for each in begun_s))

    with asyncio.Runner(loop_factory=lambda: SleepingLoop(random.Random(7))) as runner:
        runner.run(together())
    assert len(waited_s) == len(begun_s)
    assert min(waited_s) >= 0.024, "a quick first token takes them along"
    assert max(waited_s) <= 0.050 + late_s, "ADR 36"


def test_opening_events_that_are_alone_wait_once_whatever_the_time() -> None:
    waited_s = set()

    async def hold_often() -> None:
        loop, outbox, left = asyncio.get_running_loop(), Outbox(FlushTimer()), asyncio.Event()

        async def write(frames: list[bytes]) -> None:
            frames.clear()
            left.set()

        writer = asyncio.create_task(outbox.run(write))
        for _ in range(200):
            held_s = loop.time()
            outbox.emit("response.created", b"created")
            await left.wait()
            waited_s.add(round(loop.time() - held_s, 3))
            left.clear()
        outbox.close()
        await writer

    with asyncio.Runner(loop_factory=lambda: SleepingLoop(Punctual())) as runner:
        runner.run(hold_often())
    assert waited_s == {0.025}, "rounding would have some of them wait for a second look"


async def test_marks_gather_until_the_interval_ends() -> None:
    outbox, written = Outbox(FlushTimer(NEVER_S)), Written()
    writer = asyncio.create_task(outbox.run(written.write))
    stream = Counted(outbox, "s")
    for _ in range(4):
        stream.mark()
    await turns()
    outbox.send(b"other")
    await turns()
    assert written.frames == [b"other"], "a frame does not drag unripe text along"
    outbox.close()
    await writer
    assert written.frames == [b"other", b"s4"]


async def test_every_interval_ends() -> None:
    outbox, written = Outbox(FlushTimer(INTERVAL_S)), Written()
    writer = asyncio.create_task(outbox.run(written.write))
    stream = Counted(outbox, "s")
    for number in range(1, 4):
        for _ in range(number):
            stream.mark()
        await until(lambda: not stream.num_marks)
    outbox.close()
    await writer
    assert written.frames == [b"s1", b"s2", b"s3"]


async def test_the_last_event_leaves_at_once_with_all_before_it() -> None:
    outbox = Outbox(FlushTimer(NEVER_S))
    writes: list[list[bytes]] = []

    def write_now(frames: Sequence[bytes]) -> bool:
        writes.append([*frames])
        return True

    sizes: list[int] = []
    running = outbox.run(Written().write, write_now, note_sizes=sizes.extend)
    writer = asyncio.create_task(running)
    await turns()
    outbox.emit("response.created", b"created")
    await turns()
    assert writes == []
    outbox.emit("response.output_text.delta", b"first token")
    assert writes == []
    outbox.emit("response.completed", b"completed")
    assert writes == [[b"created", b"first token", b"completed"]]
    await turns()
    assert len(writes) == 1
    assert sizes == [7, 11, 9]
    outbox.close()
    await writer


async def test_closing_writes_what_is_left() -> None:
    outbox, written = Outbox(FlushTimer(NEVER_S)), Written()
    one, two = Counted(outbox, "a"), Counted(outbox, "b")
    one.mark()
    two.mark()
    one.mark()
    outbox.send(b"frame")
    outbox.close()
    await outbox.run(written.write)
    assert written.frames == [b"frame", b"a2", b"b1"]


async def test_a_closed_empty_outbox_is_done_at_once() -> None:
    outbox = Outbox(FlushTimer(NEVER_S))
    outbox.close()
    await outbox.run(Written().write)


async def test_a_slow_reader_makes_text_gather_and_shows_as_blocked() -> None:
    outbox, written = Outbox(FlushTimer(0.0)), Written()
    writer = asyncio.create_task(outbox.run(written.write))
    stream = Counted(outbox, "s")
    assert outbox.blocked_since_s is None
    written.room.clear()
    outbox.send(b"stuck")
    await turns()
    assert outbox.blocked_since_s is not None
    for _ in range(1000):
        stream.mark()
        await asyncio.sleep(0)
    assert written.frames == []
    written.room.set()
    await until(lambda: len(written.frames) == 2)
    assert written.frames == [b"stuck", b"s1000"], "one frame, however long it took"
    assert outbox.blocked_since_s is None
    outbox.close()
    await writer


LIMIT = 1_000


async def test_what_is_unread_pauses_a_stream_and_is_read_before_it_goes_on() -> None:
    outbox, written, cuts = Outbox(FlushTimer(0.0), LIMIT), Written(), []
    writer = asyncio.create_task(outbox.run(written.write, cut=lambda: cuts.append(1)))
    own, shared = Talking(outbox, can_pause=True), Talking(outbox, can_pause=False)
    own.say(10 * LIMIT)
    shared.say(10 * LIMIT)
    await until(lambda: len(written.frames) == 2)
    assert not own.is_paused, "whatever it is that a client reads"
    written.room.clear()
    outbox.send(b"x" * LIMIT)
    await until(lambda: outbox.blocked_since_s is not None)
    own.say(1)
    await until(lambda: own.is_paused)
    shared.say(LIMIT - 1)
    await asyncio.sleep(0.01)  # looked at, and found within the limit
    assert not cuts, "the frames before it are no fault of a stream that cannot pause"
    written.room.set()
    await until(lambda: not own.is_paused)
    assert sum(map(len, written.frames)) == 22 * LIMIT
    outbox.close()
    await writer


async def test_a_client_is_cut_once_if_what_it_does_not_read_cannot_pause() -> None:
    outbox, written, cuts = Outbox(FlushTimer(0.0), LIMIT), Written(), []
    writer = asyncio.create_task(outbox.run(written.write, cut=lambda: cuts.append(1)))
    written.room.clear()
    outbox.send(b"stuck")
    await turns()
    shared = Talking(outbox, can_pause=False)
    while not cuts:
        shared.say(LIMIT // 10)
        await asyncio.sleep(0)
    for _ in range(100):
        shared.say(1)
        await asyncio.sleep(0)
    assert cuts == [1]
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)


async def test_a_write_that_fails_ends_the_writer() -> None:
    async def broken(frame: bytes) -> None:
        raise ConnectionResetError

    outbox = Outbox(FlushTimer(NEVER_S))
    outbox.send(b"x")
    with pytest.raises(ConnectionResetError):
        await outbox.run(broken)


async def test_text_marked_while_a_closing_writer_is_stuck_still_goes_out() -> None:
    outbox, written = Outbox(FlushTimer(0.0)), Written()
    writer = asyncio.create_task(outbox.run(written.write))
    written.room.clear()
    outbox.send(b"stuck")
    await turns()
    outbox.close()
    Counted(outbox, "s").mark()
    written.room.set()
    await asyncio.wait_for(writer, 20)
    assert written.frames == [b"stuck", b"s1"]


@pytest.mark.parametrize("interval_s", [0.0, INTERVAL_S])
async def test_a_response_through_an_outbox(interval_s: float) -> None:
    """The first delta leaves at once, then few frames hold many tokens, and none is lost."""
    outbox, written = Outbox(FlushTimer(interval_s)), Written()
    writer = asyncio.create_task(outbox.run(written.write))
    stream = ResponseStream(
        parsed_create(), lambda _, *frames: [*map(outbox.send, frames)], on_dirty=outbox.mark
    )
    stream.open(100, "m", {})
    stream.push(text("0 "))
    await turns()
    assert b'"delta":"0 "' in written.frames[-1]
    for number in range(1, 300):
        stream.push(text(f"{number} "))
        if number % 10 == 0:
            await asyncio.sleep(0)
    ending = Ending(status="completed", usage=Usage())
    stream.close_items(ending)
    stream.finish(ending, 101, {})
    stream.send_terminal()
    outbox.close()
    await writer
    whole = "".join(f"{number} " for number in range(300))
    assert whole.encode() in written.frames[-1]
    assert len(written.frames) < 100
    numbers = [json.loads(frame)["sequence_number"] for frame in written.frames]
    assert numbers == list(range(len(numbers)))


async def test_too_much_that_waits_holds_the_reader_back() -> None:
    outbox = Outbox(FlushTimer(0))
    for _ in range(5):
        outbox.send(bytes(MAX_QUEUED_BYTES // 4))
    waiting = asyncio.create_task(outbox.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    written: list[bytes] = []

    async def write(frame: bytes) -> None:
        written.append(frame)

    outbox.close()
    await outbox.run(write)
    await waiting
    assert len(written) == 5


class Transport:
    """Takes what is written at once, while it has room."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.is_broken = False
        self.has_room = True
        self.num_writes = 0

    def write_now(self, frames: Sequence[bytes]) -> bool:
        if self.is_broken:
            raise ConnectionResetError
        if not self.has_room:
            return False
        self.num_writes += 1
        self.frames += frames
        return True


async def test_a_round_writes_by_itself_and_in_order() -> None:
    outbox, written, transport = Outbox(FlushTimer(0.0)), Written(), Transport()
    writer = asyncio.create_task(outbox.run(written.write, transport.write_now))
    stream = Counted(outbox, "s")
    await turns()
    stream.mark()
    stream.mark()
    await until(lambda: bool(transport.frames))
    assert (transport.frames, written.frames) == ([b"s2"], [])
    outbox.send(b"frame")
    stream.mark()
    outbox.flush_due()  # in the same turn, behind a frame that waits for its end
    assert (transport.frames, written.frames) == ([b"s2", b"frame", b"s1"], [])
    outbox.close()
    stream.mark()
    await asyncio.wait_for(writer, 20)
    assert written.frames == [b"s1"], "what comes behind the close is the writer's"


async def test_what_a_turn_queues_goes_out_with_what_that_woke_in_one_write() -> None:
    outbox, written, transport = Outbox(busy_timer()), Written(), Transport()
    writer = asyncio.create_task(outbox.run(written.write, transport.write_now))
    await turns()
    stream = Counted(outbox, "s")
    stream.mark()
    outbox.send(b"one")
    outbox.send(b"two")
    asyncio.get_running_loop().call_soon(outbox.send, b"three")  # as a task that this turn wakes
    assert transport.frames == [], "the turn goes on"
    await turns(2)
    assert (transport.frames, transport.num_writes) == ([b"one", b"two", b"three"], 1)
    assert stream.num_marks == 1, "text waits for its round"
    transport.is_broken = True
    outbox.send(b"four")
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(writer, 20)
    assert written.frames == []


async def test_while_the_writer_is_stuck_a_round_writes_nothing() -> None:
    outbox, written, transport = Outbox(FlushTimer(0.0)), Written(), Transport()
    writer = asyncio.create_task(outbox.run(written.write, transport.write_now))
    written.room.clear()
    transport.has_room = False
    outbox.send(b"stuck")
    await turns()
    transport.has_room = True  # but what waits for it comes before
    stream = Counted(outbox, "s")
    for _ in range(3):
        stream.mark()
        outbox.flush_due()
        await turns()
    assert (transport.frames, stream.num_marks) == ([], 3), "text gathers in its stream"
    written.room.set()
    await until(lambda: len(written.frames) == 2)
    assert written.frames == [b"stuck", b"s3"]
    outbox.close()
    await writer


async def test_a_full_transport_leaves_a_round_to_the_writer() -> None:
    outbox, written = Outbox(FlushTimer(0.0)), Written()
    writer = asyncio.create_task(outbox.run(written.write, lambda frames: False))
    stream = Counted(outbox, "s")
    await turns()
    stream.mark()
    await until(lambda: written.frames == [b"s1"])
    outbox.close()
    await writer


async def test_a_round_that_fails_ends_the_writer() -> None:
    outbox, transport = Outbox(FlushTimer(0.0)), Transport()
    writer = asyncio.create_task(outbox.run(Written().write, transport.write_now))
    await turns()
    transport.is_broken = True
    Counted(outbox, "s").mark()
    outbox.flush_due()
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(writer, 20)


async def test_text_that_is_alone_leaves_without_a_round() -> None:
    outbox, written, transport = Outbox(FlushTimer(NEVER_S)), Written(), Transport()
    writer = asyncio.create_task(outbox.run(written.write, transport.write_now))
    await turns()
    alone, other = Counted(outbox, "a"), Counted(outbox, "b")
    alone.mark()
    other.mark()
    assert transport.frames == [], "the turn goes on"
    await turns(2)
    assert (transport.frames, other.num_marks) == ([b"a1"], 1), "one does, and others gather"
    alone.mark()
    await turns()
    assert (transport.frames, alone.num_marks) == ([b"a1"], 1), "as does what follows at once"
    outbox.close()
    await writer
    assert written.frames == [b"b1", b"a1"]


async def test_the_end_in_the_same_turn_takes_text_that_is_alone_along() -> None:
    outbox, transport = Outbox(FlushTimer(NEVER_S)), Transport()
    writer = asyncio.create_task(outbox.run(Written().write, transport.write_now))
    await turns()
    Counted(outbox, "s").mark()
    outbox.emit("response.completed", b"completed")
    await turns()
    assert (transport.frames, transport.num_writes) == ([b"s1", b"completed"], 1)
    outbox.close()
    await writer


async def test_text_behind_a_first_delta_waits_for_its_round() -> None:
    outbox, transport = Outbox(FlushTimer(NEVER_S)), Transport()
    writer = asyncio.create_task(outbox.run(Written().write, transport.write_now))
    await turns()
    outbox.emit("response.output_text.delta", b"first")
    await turns()
    stream = Counted(outbox, "s")
    stream.mark()
    await turns()
    assert (transport.frames, stream.num_marks) == ([b"first"], 1)
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)


async def test_text_that_is_alone_gathers_behind_a_write_that_waits() -> None:
    outbox, written, transport = Outbox(FlushTimer(NEVER_S)), Written(), Transport()
    writer = asyncio.create_task(outbox.run(written.write, transport.write_now))
    written.room.clear()
    transport.has_room = False
    outbox.send(b"stuck")
    await until(lambda: outbox.blocked_since_s is not None)
    transport.has_room = True
    stream = Counted(outbox, "s")
    stream.mark()
    await turns()
    assert (transport.frames, stream.num_marks) == ([], 1)
    written.room.set()
    outbox.close()
    await writer
    assert written.frames == [b"stuck", b"s1"]


async def test_a_round_writes_held_frames_only_with_text() -> None:
    outbox, transport = Outbox(busy_timer()), Transport()
    writer = asyncio.create_task(outbox.run(Written().write, transport.write_now))
    await turns()
    ended, goes_on = Counted(outbox, "a"), Counted(outbox, "b")
    ended.mark()
    ended.num_marks = 0  # its end has taken the text along
    outbox.emit("response.created", b"created")
    outbox.flush_due()
    assert transport.frames == [], "there was no text, and a first word is soon to come"
    goes_on.mark()
    outbox.flush_due()
    assert (transport.frames, transport.num_writes) == ([b"created", b"b1"], 1)
    outbox.close()
    await writer
