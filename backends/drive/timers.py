"""Calls back after a delay, to within a few microseconds where the system has such timers.

An event loop counts in milliseconds and rounds up. A first token that is due in 1,700 us would be
seen after 2 or 3 ms, and after twice that if the driver wakes twice for it: as long as all of the
gateway's own work on the task. Linux has timers that are file descriptors (timerfd_create(2)),
which a loop watches like a socket; Python offers them from 3.13 on, so this calls the C library.
The plain twin is `LoopTimer`; `tests/unit/backends/drive/test_timers.py` compares the two.
This is an edge.
"""

import asyncio
import ctypes
import os
from collections.abc import Callable
from typing import Protocol

LOOP_LEAST_US = 1_000  # the resolution of event loops; less would spin

# linux/time.h and linux/timerfd.h
_CLOCK_MONOTONIC = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # TFD_NONBLOCK and TFD_CLOEXEC are the same bits
_COUNT_BYTES = 8  # of a read, which returns how often the timer expired


class Timer(Protocol):
    """Calls back once for each `set`, later, from the event loop; never early."""

    def set(self, delay_us: int) -> None:
        """Schedules the call after that delay, in place of the one before; 0 or less means now."""
        ...

    def clear(self) -> None:
        """Cancels the call; harmless when repeated."""
        ...

    def close(self) -> None:
        """Closes the timer; harmless when repeated."""
        ...


class LoopTimer:
    """Uses the loop's own timers, in whole milliseconds."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def set(self, delay_us: int) -> None:
        self.clear()
        self._handle = self._loop.call_later(max(delay_us, LOOP_LEAST_US) / 1e6, self._call)

    def clear(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def close(self) -> None:
        self.clear()


class _Spec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("s", ctypes.c_long),
        ("ns", ctypes.c_long),
    )


class FineTimer:
    """Uses a kernel timer that the loop watches."""

    def __init__(self, call: Callable[[], None]) -> None:
        """Raises OSError if the system has no timerfd, or no file descriptor is left."""
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "timerfd_create"):
            raise OSError("this system has no timerfd_create")
        self._file: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Spec()
        self._is_open = True
        self._loop.add_reader(self._file, self._on_time)

    def set(self, delay_us: int) -> None:
        self._arm(max(delay_us, 0) * 1_000 + 1)  # 0 would disarm it

    def clear(self) -> None:
        self._arm(0)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._file)
            os.close(self._file)

    def _arm(self, delay_ns: int) -> None:
        """Sets the timer again; this forgets an expiry that was not read yet."""
        if self._is_open:
            self._spec.s, self._spec.ns = divmod(delay_ns, 1_000_000_000)
            self._libc.timerfd_settime(self._file, 0, ctypes.byref(self._spec), None)

    def _on_time(self) -> None:
        try:
            os.read(self._file, _COUNT_BYTES)
        except BlockingIOError:
            return  # set again, or cleared, since the loop saw it expire
        self._call()


def make_timer(call: Callable[[], None]) -> Timer:
    """Makes the most precise timer that the system has. Must run inside the event loop."""
    try:
        return FineTimer(call)
    except OSError:
        return LoopTimer(call)
