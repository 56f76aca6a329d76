"""Lets what a process does from time to time happen at the same moments.

To wake an idle process costs some hundred microseconds, whatever it then does: its caches are cold.
Twenty tasks with a period that began at twenty moments wake it at each of them. Here each waits for
the next multiple of its period, so that all wake it as often as the one with the shortest, if the
periods are multiples of each other. Each process counts from a moment of its own: those that share
a Redis do not come to it in step. This is an edge.
"""

import asyncio
import random
import time

EARLY_S = 0.002  # a loop counts in milliseconds, and may wake a moment before the beat
PHASE_S = random.random() * 60  # of this process


def until_beat_s(period_s: float, now_s: float, phase_s: float) -> float:
    """Returns how long it is until the next beat: more than nothing, and at most a period."""
    left_s = period_s - (now_s - phase_s) % period_s
    return left_s if left_s > min(EARLY_S, period_s / 2) else left_s + period_s


def pause_s(period_s: float) -> float:
    """Returns how long to sleep until the next beat of this process."""
    return until_beat_s(period_s, time.monotonic(), PHASE_S)


async def beat(period_s: float) -> None:
    """Sleeps until the next beat; so long at most, but for a moment."""
    await asyncio.sleep(pause_s(period_s))
