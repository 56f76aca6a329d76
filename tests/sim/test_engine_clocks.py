"""Tests one engine, two clocks: whoever drives it, and however late, it tells the same story.

Workloads are random and seeded; a failure prints its seed.
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from functools import cache

import pytest

from tests.unit.wafer_engine.affine_cost import AffineCost
from wafer_engine.batching.engine import Engine, EngineStats, OutputRow
from wafer_engine.batching.sequence import Sequence

START_US = 1_750_000_000_000_000  # a clock that reads years, as real ones do


class Arrival:
    """Says what is done at an instant: a sequence added, or one cancelled."""

    def __init__(self, at_us: int, number: int, chance: random.Random) -> None:
        self.at_us = at_us
        self.number = number
        self.prompt = chance.randint(1, 500)
        self.output = chance.randint(1, 200)
        self.cancels = chance.choice([None] * 6 + [chance.randint(0, number)])
        conversation = chance.randint(0, 8)
        ends = sorted({*chance.sample(range(1, 501), 3), self.prompt})
        self.prefix = tuple((conversation * 1_000 + end, end) for end in ends if end <= self.prompt)

    def sequence(self) -> Sequence:
        """Returns a fresh sequence: the engine keeps its books in it."""
        return Sequence(
            id=self.number,
            num_prompt_tokens=self.prompt,
            num_output_tokens=self.output,
            prefix=self.prefix,
            end_prefix=(self.number + 1_000_000, self.prompt + self.output),
        )


def arrivals(seed: int, number: int = 120) -> list[Arrival]:
    chance = random.Random(seed)
    mean_us = chance.choice([3_000, 20_000, 100_000])
    at_us = START_US
    made = []
    for index in range(number):
        at_us += int(chance.expovariate(1 / mean_us))
        made.append(Arrival(at_us, index, chance))
    return made


def engine_for(seed: int, max_run_steps: int = 2**31) -> Engine:
    chance = random.Random(seed + 1)
    cost = AffineCost(
        fixed_us=chance.uniform(100, 2_000),
        seq_us=chance.uniform(0, 50),
        context_us=chance.uniform(0, 0.1),
        prefill_us=chance.uniform(0, 5),
        pair_us=chance.uniform(0, 0.001),
        max_num_seqs=chance.choice([1, 4, 16]),
        max_num_batched_tokens=chance.choice([17, 64, 512]),
        kv_capacity_tokens=chance.choice([720, 1_600, 20_000]),
        overhead_us=chance.choice([0, 0, 1_234]),
        long_prefill_tokens=chance.choice([0, 8, 32]),
    )
    return Engine(cost, max_run_steps=max_run_steps)


class Story:
    """Keeps what was told of each sequence."""

    def __init__(self) -> None:
        self.first_us: dict[int, int] = {}
        self.finish_us: dict[int, int] = {}
        self.num_tokens: dict[int, int] = defaultdict(int)
        self.cancelled: dict[int, int] = {}

    def hear(self, output: Iterable[OutputRow]) -> None:
        for number, num_tokens, at_us, finished in output:
            assert number not in self.finish_us, f"{number} goes on after its finish"
            assert number not in self.cancelled, f"{number} goes on after its cancellation"
            self.first_us.setdefault(number, at_us)
            self.num_tokens[number] += num_tokens
            if finished:
                self.finish_us[number] = at_us

    def told(self) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
        """Returns what must not depend on who asked when."""
        started = {n: t for n, t in self.first_us.items() if n not in self.cancelled}
        return started, self.finish_us, self.cancelled


def do(engine: Engine, arrival: Arrival, story: Story) -> None:
    engine.add(arrival.sequence(), arrival.at_us)
    if arrival.cancels is not None and arrival.cancels not in story.cancelled:
        num_generated = engine.cancel(arrival.cancels, arrival.at_us)
        if arrival.cancels not in story.finish_us:
            story.cancelled[arrival.cancels] = num_generated


@cache
def by_events(seed: int, max_run_steps: int = 2**31) -> tuple[Story, EngineStats]:
    """Drives it as a back-test does: from event to event, told of starts and finishes only."""
    engine, story = engine_for(seed, max_run_steps), Story()
    for arrival in arrivals(seed):
        while (next_us := engine.next_event_us()) is not None and next_us <= arrival.at_us:
            story.hear(engine.advance(next_us, progress=False))
        do(engine, arrival, story)
    while (next_us := engine.next_event_us()) is not None:
        story.hear(engine.advance(next_us, progress=False))
    return story, engine.stats()


def woken_late(seed: int) -> tuple[Story, EngineStats]:
    """Drives it as a busy process does: looks at it now and then, each time too late.

    A finish that is due but not yet heard of when its sequence is cancelled counts as heard, as it
    does for the other driver; so the engine is looked at just before each arrival.
    """
    chance = random.Random(seed + 2)
    engine, story = engine_for(seed), Story()
    now_us = START_US
    for arrival in arrivals(seed):
        while (now_us := now_us + chance.randint(1, 30_000)) < arrival.at_us:
            story.hear(engine.advance(now_us, progress=chance.random() < 0.5))
        now_us = arrival.at_us
        if arrival.cancels is not None:
            story.hear(engine.advance(now_us))
        do(engine, arrival, story)
    while engine.next_event_us() is not None:
        now_us += chance.randint(1, 300_000)
        story.hear(engine.advance(now_us))
    return story, engine.stats()


@pytest.mark.parametrize("seed", range(24))
def test_late_waking_changes_nothing(seed: int) -> None:
    on_time, stats = by_events(seed)
    late, late_stats = woken_late(seed)
    assert late.told() == on_time.told(), f"seed {seed}"
    assert late_stats == stats, f"seed {seed}"


@pytest.mark.parametrize("seed", range(24))
def test_nothing_is_lost_and_nothing_is_left(seed: int) -> None:
    story, stats = by_events(seed)
    expected = {a.number: a.output for a in arrivals(seed)}
    for number, output in expected.items():
        if number in story.cancelled:
            assert story.cancelled[number] <= output, f"seed {seed}"
            continue
        assert story.num_tokens[number] == output, f"seed {seed}, sequence {number}"
        assert number in story.finish_us, f"seed {seed}, sequence {number}"
    assert (stats.num_running, stats.num_waiting, stats.kv_used_tokens) == (0, 0, 0), f"{seed}"
    generated = sum(
        story.cancelled[n] if n in story.cancelled else story.num_tokens[n] for n in expected
    )
    assert stats.num_generated_tokens == generated, f"seed {seed}"


@pytest.mark.parametrize("seed", range(24))
def test_jumps_agree_with_single_steps(seed: int) -> None:
    jumped, stats = by_events(seed)
    stepped, stepped_stats = by_events(seed, max_run_steps=1)
    assert stepped_stats == stats, f"seed {seed}"
    assert stepped.finish_us.keys() == jumped.finish_us.keys(), f"seed {seed}"
    for number, at_us in jumped.finish_us.items():
        # Both are rounded up to whole microseconds: a sum that differs in its last digits may
        # fall on either side of one.
        tolerance_us = 1 + 1e-9 * (at_us - START_US)
        assert abs(stepped.finish_us[number] - at_us) <= tolerance_us, f"seed {seed}"


def test_the_workloads_include_preemption_and_reuse() -> None:
    stats = [by_events(seed)[1] for seed in range(24)]
    assert sum(one.num_preemptions > 5 for one in stats) > 2
    assert sum(one.num_cached_tokens > 1_000 for one in stats) > 2


@pytest.mark.parametrize("seed", range(12))
def test_first_tokens_come_in_order_of_arrival(seed: int) -> None:
    # Without preemption or reuse, which let a sequence overtake, nothing else may.
    engine, story = Engine(AffineCost(max_num_seqs=4, max_num_batched_tokens=64)), Story()
    for arrival in arrivals(seed):
        story.hear(engine.advance(arrival.at_us))
        sequence = arrival.sequence()
        sequence.prefix, sequence.end_prefix = (), None
        engine.add(sequence, arrival.at_us)
    while (next_us := engine.next_event_us()) is not None:
        story.hear(engine.advance(next_us, progress=False))
    assert engine.stats().num_preemptions == 0
    starts = [story.first_us[number] for number in range(len(story.first_us))]
    assert len(starts) == 120, f"seed {seed}"
    assert starts == sorted(starts), f"seed {seed}"
