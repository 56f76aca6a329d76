"""Estimates how long a backend takes for a task, from past tasks and its queue."""

from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Sequence
from math import ceil

import msgspec

from backends.contract import BackendStats

MIN_SAMPLES = 5  # before a backend's measured speed counts
RECENT = 0.1  # weight of a new sample in the average
FORGETTING = 1.003  # growth of the quickest known times per sample
KEPT_WORDS, MIN_WORDS = 128, 20  # the latest times to first words, and how many count
LATE = 0.95  # of them come sooner
NOISE = 1.5  # smaller slowdowns come from prompts' lengths, not from load
LEAST_GAP = 0.5  # ours, of deep's usual time: engines nearer than that are compared as if so far


class BackendSpeed(msgspec.Struct):
    """Averages one backend's recent times, and keeps the quickest."""

    ttft_us: float = 0.0
    tpot_us: float = 0.0
    quick_ttft_us: float = 0.0
    quick_tpot_us: float = 0.0
    num_samples: int = 0
    first_words_us: deque[int] = msgspec.field(default_factory=deque)  # the latest last
    ordered_words_us: list[int] = []  # the same, the quickest first

    def note(self, ttft_us: float, tpot_us: float) -> None:
        """Counts a finished task's time to first token and mean time per further token."""
        self.num_samples += 1
        if self.num_samples == 1:
            self.ttft_us = self.quick_ttft_us = ttft_us
            self.tpot_us = self.quick_tpot_us = tpot_us
            return
        self.ttft_us = mean_us = self.ttft_us + RECENT * (ttft_us - self.ttft_us)
        quick_us = self.quick_ttft_us * FORGETTING
        self.quick_ttft_us = quick_us if quick_us < mean_us else mean_us
        self.tpot_us = mean_us = self.tpot_us + RECENT * (tpot_us - self.tpot_us)
        quick_us = self.quick_tpot_us * FORGETTING
        self.quick_tpot_us = quick_us if quick_us < mean_us else mean_us

    def note_words(self, first_words_us: int) -> None:
        """Counts how long an answer took to its first words, among the latest."""
        self.first_words_us.append(first_words_us)
        insort(self.ordered_words_us, first_words_us)
        if len(self.first_words_us) > KEPT_WORDS:
            oldest_us = self.first_words_us.popleft()
            del self.ordered_words_us[bisect_left(self.ordered_words_us, oldest_us)]


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """Says how long a task would take."""

    now_us: float
    usual_us: float  # with an idle engine


class BackendSpeeds:
    """Holds the speeds of all configured backends."""

    def __init__(self) -> None:
        self._speeds: defaultdict[str, BackendSpeed] = defaultdict(BackendSpeed)

    def note(self, backend: str, ttft_us: float, tpot_us: float) -> None:
        """Counts a finished task of a backend."""
        self._speeds[backend].note(ttft_us, tpot_us)

    def note_words(self, backend: str, first_words_us: int) -> None:
        """Counts how long an answer took to its first words, or how long it was waited for."""
        self._speeds[backend].note_words(first_words_us)

    def of(self, backend: str) -> BackendSpeed | None:
        """Returns what is measured of a backend; None if nothing is."""
        return self._speeds.get(backend)

    def remember(self, backend: str, speed: BackendSpeed) -> None:
        """Goes on from what was measured before."""
        self._speeds[backend] = speed

    def late_words_us(self, backend: str) -> float | None:
        """Returns in which time 95 % of its latest answers had words; None while they are few."""
        speed = self._speeds.get(backend)
        if speed is None or len(speed.first_words_us) < MIN_WORDS:
            return None
        return speed.ordered_words_us[ceil(LATE * len(speed.ordered_words_us)) - 1]

    def estimate(self, stats: BackendStats, num_output_tokens: int) -> Estimate | None:
        """Estimates the time to a complete answer; None until enough tasks were measured."""
        speed = self._speeds.get(stats.info.name)
        if speed is None or speed.num_samples < MIN_SAMPLES:
            return None
        usual_us = speed.quick_ttft_us + num_output_tokens * speed.quick_tpot_us
        now_us = speed.ttft_us + num_output_tokens * speed.tpot_us
        # In the time of one task all running ones end, and as many waiting ones start.
        if stats.num_waiting:
            now_us *= 1 + stats.num_waiting / max(1, stats.max_num_seqs)
        return Estimate(now_us, usual_us)

    def both(
        self, stats: Sequence[BackendStats], num_output_tokens: int
    ) -> tuple[Estimate, Estimate] | None:
        """Returns the best estimates of fast and deep, of healthy backends; None if one is unknown.

        Every backend of a group must be known, or its best is not.
        """
        fast: Estimate | None = None
        deep: Estimate | None = None
        for each in stats:
            if not each.takes_tasks:
                continue
            estimate = self.estimate(each, num_output_tokens)
            if estimate is None:
                return None
            if each.info.group == "fast":
                if fast is None or estimate.now_us < fast.now_us:
                    fast = estimate
            elif deep is None or estimate.now_us < deep.now_us:
                deep = estimate
        return None if fast is None or deep is None else (fast, deep)


def extra_wait(fast: Estimate, deep: Estimate) -> float:
    """Returns the extra wait for deep over fast, as a multiple of the usual one, less noise.

    Engines that usually take about as long have no such wait: what is a little of it may be noise.
    """
    usual_us = deep.usual_us - fast.usual_us
    lacking_us = max(0.0, LEAST_GAP * deep.usual_us - usual_us)
    usual_us = max(1.0, usual_us + lacking_us)
    multiple = max(0.0, deep.now_us - fast.now_us + lacking_us) / usual_us
    if multiple > NOISE:
        return multiple / NOISE
    return min(1.0, multiple * NOISE)
