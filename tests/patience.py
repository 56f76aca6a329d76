"""Decides how long a test waits for what shall come to be: no broken product makes one hang."""

import asyncio
import contextlib
import io
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

LIMIT_S = 90.0  # for a test's setup, itself, or its teardown, unless its mark `patience` says more
AGAIN_S = 1.0  # then it is stopped, and again: code under test may catch what stops it
UNTIL_S = 5.0  # of this process's CPU, which a busy machine does not use up


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""
    give_up_s = time.process_time() + UNTIL_S
    while not condition():
        assert time.process_time() < give_up_s, "it never came to be so"
        await asyncio.sleep(0)  # turns of the loop: no clock decides a test that passes


@contextlib.contextmanager
def limited(limit_s: float = LIMIT_S) -> Iterator[None]:
    """Fail what runs here for longer than the limit, with where its tasks stand."""
    began_s = time.monotonic()

    def stop(number: int, frame: FrameType | None) -> None:
        # With more processes than two for each core, all take longer in proportion.
        crowd = os.getloadavg()[0] / (2 * (os.cpu_count() or 1))
        longest_s = limit_s * max(1.0, crowd)
        if time.monotonic() - began_s >= longest_s:
            stacks = ""
            with contextlib.suppress(RuntimeError):  # no loop runs
                asyncio.get_running_loop().stop()  # uvloop's passes over what is raised
                stacks = _stacks()
            pytest.fail(f"not done after {longest_s:.0f} s\n{stacks}")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _stacks() -> str:
    """Returns where the tasks of the running loop wait."""
    written = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(file=written)
    return written.getvalue()
