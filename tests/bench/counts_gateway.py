"""Runs the gateway of `counts.py` here, on asyncio's own loop, under a clock that waits.

Time stands still while the gateway works and passes only while it waits, for a timer or for the
next token of an answer: what happens after what then follows from the code alone, not from the
machine. Timers of more than `LONG_S` are put off while tasks are counted, so that periodic work and
time-outs stay out. Only what runs in the loop's callbacks counts, not the loop itself, nor what it
does when it is called: a gateway that serves has uvloop, where that is C.
"""

import _socket
import asyncio
import gc
import heapq
import json
import select
import selectors
import socket
import sys
import time
from asyncio import base_events, events, selector_events, transports, trsock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec

from tests.bench.counts_peer import Orders, Series

LONG_S = 0.05  # no timer of a task's own is longer
PUT_OFF_S = 1e6
GRACE_S = 0.001  # really waited for a timer at most: what comes from outside comes before it
TOKEN_S = 0.02  # between two tokens of an upstream, which so sends fifty a second
QUIET_S = 0.03  # nothing happens for so long: the task is over, its settlement included
MESSAGE_BYTES = 65_536  # of the control socket
LOOP_FILES = tuple(
    module.__file__ for module in (base_events, events, selector_events, transports, trsock)
)
Counts = dict[str, float]
KINDS = ("plain", "calls", "bytecodes")  # of counting, each of tasks of its own


class Clock:
    """Tells the time that passes only while the loop waits."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def seconds(self) -> float:
        """Returns what `time.monotonic` and `time.perf_counter` would."""
        return self.now_s

    def nanoseconds(self) -> int:
        """Returns the same in whole ones."""
        return int(self.now_s * 1e9)

    def install(self) -> None:
        """Installs the clock, before anything of ours is imported."""
        time.monotonic = time.perf_counter = self.seconds
        time.monotonic_ns = time.perf_counter_ns = self.nanoseconds


class RedisMonitor:
    """Says what other clients send to a Redis server, as itself sees it."""

    def __init__(self, path: str) -> None:
        self._lines = self._connect(path, b"MONITOR")
        self._marks = self._connect(path, b"PING")
        self._num_marks = 0

    def _connect(self, path: str, command: bytes) -> Any:
        end = socket.socket(socket.AF_UNIX)
        end.connect(path)
        file = end.makefile("rwb", buffering=0)
        file.write(command + b"\r\n")
        file.readline()
        return file

    def taken(self) -> int:
        """Counts commands since the last call; those that a script gives do not count."""
        self._num_marks += 1
        mark = b"mark-%d-" % self._num_marks
        self._marks.write(b"ECHO " + mark + b"\r\n")
        self._marks.readline(), self._marks.readline()
        num = 0
        while mark not in (line := self._lines.readline()):
            num += b" lua] " not in line
        return num


class Counter:
    """Counts what the gateway's callbacks do, by the kind of counting that is on."""

    def __init__(self, redis: RedisMonitor) -> None:
        self._redis = redis
        self.counts: Counts = {}
        self.kind: str | None = None
        self.num_turns = self.num_tasks = self.num_futures = 0
        self._python_calls = self._c_calls = self._encoded = self._decoded = 0
        self._socket_calls = self._bytecodes = 0
        self.hidden: set[CodeType] = set()  # the code of this file
        self._text_codes = {json.dumps.__code__: "_encoded", json.loads.__code__: "_decoded"}

    def begin(self, kind: str) -> None:
        """Begins from nought."""
        self._redis.taken()
        self.kind = kind
        for name in vars(self):
            if isinstance(getattr(self, name), int):
                setattr(self, name, 0)

    def end(self) -> Counts:
        """Returns what was counted since."""
        kind, self.kind = self.kind, None
        if kind == "calls":
            return {
                "Python calls": self._python_calls,
                "C calls": self._c_calls,
                "JSON encoded": self._encoded,
                "JSON decoded": self._decoded,
                "socket calls": self._socket_calls,
            }
        if kind == "bytecodes":
            return {"bytecodes": self._bytecodes}
        return {
            "tasks": self.num_tasks,
            "futures": self.num_futures,
            "Redis commands": self._redis.taken(),
            "loop turns": self.num_turns,
        }

    def run(self, handle: asyncio.Handle, plain: Callable[[asyncio.Handle], None]) -> None:
        """Runs one callback of the loop."""
        if self.kind == "calls":
            sys.setprofile(self._profile)
        elif self.kind == "bytecodes":
            sys.settrace(self._trace)
        try:
            plain(handle)
        finally:
            sys.setprofile(None)
            sys.settrace(None)

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call" and isinstance(arg.__self__, _socket.socket | select.epoll):
            self._socket_calls += 1
        if self._is_hidden(frame.f_code):
            return
        if event == "call":
            self._python_calls += 1
            if (name := self._text_codes.get(frame.f_code)) is not None:
                setattr(self, name, getattr(self, name) + 1)
        elif event == "c_call":
            self._c_calls += 1
            owner = arg.__self__
            if isinstance(owner, msgspec.json.Encoder) or arg is msgspec.json.encode:
                self._encoded += 1
            elif isinstance(owner, msgspec.json.Decoder) or arg is msgspec.json.decode:
                self._decoded += 1

    def _is_hidden(self, code: CodeType) -> bool:
        """Returns whether a function is of this file or of the loop."""
        return code in self.hidden or code.co_filename in LOOP_FILES

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            self._bytecodes += 1
        elif self._is_hidden(frame.f_code):
            return None
        elif event == "call":
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        return self._trace


class Waiting(selectors.DefaultSelector):
    """Waits for the gateway's loop; when nothing is left to do, it hears the peer."""

    def __init__(self, clock: Clock, counter: Counter, control: socket.socket) -> None:
        super().__init__()
        self._clock = clock
        self._counter = counter
        self.control = control
        self.found: list[tuple[Series, str, Counts]] = []
        self.is_counting = False
        self.on_over: Callable[[], None] = lambda: None

    def select(self, timeout: float | None = None) -> Any:
        """Returns what is ready; a timer's time comes when nothing else does."""
        self._counter.num_turns += 1
        if (events := super().select(0)) or timeout == 0:
            return events
        if timeout is not None and (timeout < LONG_S or not self.is_counting):
            events = super().select(min(timeout, GRACE_S) if self.is_counting else timeout)
            if not events:
                self._clock.now_s += max(timeout, 0.0) + 2e-6  # clocks that round down, too
            return events
        while True:
            select.select([self.fileno(), self.control], [], [])
            if events := super().select(0):
                return events
            message = self.control.recv(MESSAGE_BYTES, socket.MSG_PEEK)
            if message != b"rest" and (events := super().select(QUIET_S)):
                return events
            self.control.recv(MESSAGE_BYTES)
            if message == b"rest":
                self._clock.now_s += TOKEN_S
            if message == b"over" or not message:
                self.is_counting = False
                self.on_over()
                return []
            self._hear(message)

    def _hear(self, message: bytes) -> None:
        verb, _, rest = message.partition(b" ")
        if verb == b"begin":
            self._counter.begin(rest.decode())
        elif verb == b"end":
            kind = self._counter.kind
            counts = self._counter.end()
            if rest and kind is not None:
                self.found.append((msgspec.json.decode(rest, type=Series), kind, counts))
        self.control.sendall(b"done")


class Loop(asyncio.SelectorEventLoop):
    """Is asyncio's own loop, and counts what it makes."""

    def __init__(self, selector: Waiting, clock: Clock, counter: Counter) -> None:
        super().__init__(selector)
        self._waiting = selector
        self._clock = clock
        self._counter = counter

    def time(self) -> float:
        return self._clock.now_s

    def create_future(self) -> Any:
        self._counter.num_futures += 1
        return super().create_future()

    def create_task(self, *arguments: Any, **more: Any) -> Any:
        self._counter.num_tasks += 1
        return super().create_task(*arguments, **more)

    def call_at(self, when: float, *arguments: Any, **more: Any) -> Any:  # type: ignore[override]
        if self._waiting.is_counting and when - self._clock.now_s > LONG_S:
            when += PUT_OFF_S
        return super().call_at(when, *arguments, **more)

    def put_off(self, by_s: float) -> None:
        """Move every timer that is not due soon."""
        for handle in self._scheduled:  # type: ignore[attr-defined]
            if handle._when - self._clock.now_s > LONG_S:
                handle._when += by_s
        heapq.heapify(self._scheduled)  # type: ignore[attr-defined]


@contextmanager
def counted_callbacks(counter: Counter) -> Iterator[None]:
    """Sends every callback of the loop through `counter`."""
    handles: Any = asyncio.Handle
    plain = handles._run
    handles._run = lambda handle: counter.run(handle, plain)
    try:
        yield
    finally:
        handles._run = plain


def run(
    control: socket.socket, orders: Orders, config: Path, redis_path: str
) -> list[tuple[Series, str, Counts]]:
    """Serve on a free port until the peer is through; what was counted, task by task."""
    clock, counter = Clock(), Counter(RedisMonitor(redis_path))
    clock.install()
    waiting = Waiting(clock, counter, control)
    ours = (Clock, Counter, Waiting, Loop)
    counter.hidden = {f.__code__ for kind in ours for f in vars(kind).values() if callable(f)}
    # How often timers are compared when one more is set depends on how the others lie.
    counter.hidden.add(asyncio.TimerHandle.__lt__.__code__)
    loops = asyncio.Runner(loop_factory=lambda: Loop(waiting, clock, counter))
    with counted_callbacks(counter), loops as runner:
        runner.run(_serve(waiting, orders, config.read_bytes(), f"unix://{redis_path}"))
    return waiting.found


async def _serve(waiting: Waiting, orders: Orders, toml: bytes, redis_url: str) -> None:
    # Only now, since modules take functions of the clock when they are imported.
    from backends.drive import beats, driver, timers
    from gateway.config.config import load_config
    from gateway.process.addresses import addresses, listen
    from gateway.process.app import services
    from gateway.process.server import serve_on

    beats.PHASE_S = 0.0  # periodic work begins at the same moments in each run
    timed: Any = driver
    timed.make_timer = timers.LoopTimer  # the kernel's has a clock of its own
    config = load_config(toml, {}, port=0, redis_url=redis_url)
    loop: Any = asyncio.get_running_loop()
    over = loop.create_future()

    def begin(port: int) -> None:
        gc.disable()
        url = f"http://127.0.0.1:{port}/v1"
        loop.put_off(PUT_OFF_S)
        waiting.is_counting = True
        waiting.control.sendall(msgspec.json.encode(msgspec.structs.replace(orders, url=url)))

    def end() -> None:
        loop.put_off(-PUT_OFF_S)
        over.set_result(None)

    waiting.on_over = end
    with listen(*addresses(config)[0]) as listener:
        async with services(config) as made:
            stop_after = asyncio.ensure_future(_until(over))
            await serve_on([listener], made, begin, stop_after=stop_after)


async def _until(over: "asyncio.Future[None]") -> None:
    await over
