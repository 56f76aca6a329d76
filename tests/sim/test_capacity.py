"""Tests a capacity that follows its engine, on a simulated clock: overload, half lost, recovery."""

import random

import pytest

from router.waiting.capacity import Capacity, CapacityBounds, Load, first_capacity, step

BOUNDS = CapacityBounds(min_concurrent=2, max_concurrent=64)
STEP_S = 0.1
PHASE_S = 150.0
WORK_S = 4.0  # mean, alone on its engine


class SharedEngine:
    """Tasks share an engine's power equally once there are more of them than it has places.

    It says nothing of its queue; what can be seen is that everything takes longer.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._running: list[list[float]] = []  # work left, work in all, seconds so far
        self.stretches: list[float] = []  # of those that ended: seconds over work
        self.num_refused = 0

    def advance(self, power: int, limit: float, arrivals_per_s: float) -> None:
        speed = min(1.0, power / max(1, len(self._running)))
        for task in self._running:
            task[0] -= STEP_S * speed
            task[2] += STEP_S
        self.stretches += [task[2] / task[1] for task in self._running if task[0] <= 0]
        self._running = [task for task in self._running if task[0] > 0]
        if self._chance.random() < arrivals_per_s * STEP_S:
            if len(self._running) < limit:
                work_s = self._chance.uniform(0.5 * WORK_S, 1.5 * WORK_S)
                self._running.append([work_s, work_s, 0.0])
            else:
                self.num_refused += 1

    @property
    def num_running(self) -> int:
        return len(self._running)


def run_phase(
    engine: SharedEngine, capacity: Capacity, power: int, clock: list[int]
) -> list[float]:
    """Runs for two and a half minutes at 1.3 times what the engine can do; returns its limits."""
    limits: list[float] = []
    for number in range(round(PHASE_S / STEP_S)):
        engine.advance(power, capacity.limit, 1.3 * power / WORK_S)
        clock[0] += round(STEP_S * 1e6)
        if number % 10 == 9:
            recent = engine.stretches[-8:]
            load = Load(
                num_in_flight=engine.num_running,
                num_running=0,
                num_waiting=0,
                max_num_seqs=0,
                kv_usage=0.0,
                reports=False,
                token_us=1_000 * sum(recent) / len(recent) if recent else None,
            )
            before = capacity.limit
            step(capacity, load, BOUNDS, clock[0])
            assert abs(capacity.limit - before) <= max(1.0, 0.25 * before)
            limits.append(capacity.limit)
    return limits


def goodput(engine: SharedEngine, since: int) -> float:
    """Returns tasks per second that took at most half as long again as on an idle engine."""
    return sum(stretch <= 1.5 for stretch in engine.stretches[since:]) / PHASE_S


@pytest.mark.parametrize("seed", range(3))
def test_an_engine_that_says_nothing_loses_half_and_gets_it_back(seed: int) -> None:
    engine, clock = SharedEngine(seed), [0]
    capacity = Capacity(16.0)
    good: list[float] = []
    means: list[float] = []
    for power in (16, 8, 16):
        since = len(engine.stretches)
        limits = run_phase(engine, capacity, power, clock)
        good.append(goodput(engine, since))
        means.append(sum(limits[-60:]) / 60)
    # What can be done at best is power / WORK_S: 4, 2 and 4 a second.
    assert good[0] > 2.8
    assert good[1] > 0.8
    assert good[2] > 2.6
    assert means[1] < 0.75 * means[0]
    assert means[2] > 1.2 * means[1]

    unlimited, fixed = SharedEngine(seed), Capacity(64.0)
    for _ in range(round(PHASE_S / STEP_S)):
        unlimited.advance(8, fixed.limit, 1.3 * 8 / WORK_S)
    assert good[1] > 2 * goodput(unlimited, 0), "letting everything in serves nobody"


@pytest.mark.parametrize("seed", range(3))
def test_an_engine_that_reports_its_queue_is_kept_full_and_no_fuller(seed: int) -> None:
    """It has 32 places, then 8, then 32; demand is always more."""
    chance = random.Random(seed)
    load = Load(
        num_in_flight=0, num_running=0, num_waiting=0, max_num_seqs=32, kv_usage=0.2, reports=True
    )
    capacity = first_capacity(BOUNDS, load)
    assert capacity.limit == 32
    now_us = 0
    for places in (32, 8, 32):
        waits: list[int] = []
        for _ in range(60):
            now_us += 1_000_000
            in_flight = int(capacity.limit) - chance.randrange(2)
            running = min(places, in_flight)
            load = Load(
                num_in_flight=in_flight,
                num_running=running,
                num_waiting=in_flight - running,
                max_num_seqs=32,
                kv_usage=0.2,
                reports=True,
            )
            step(capacity, load, BOUNDS, now_us)
            waits.append(load.num_waiting)
        assert max(waits[-30:]) <= max(3, places // 4), "little waits where nobody can see it"
        assert capacity.limit >= 0.8 * places, "and nothing lies idle"


ROWS: list[tuple[str, dict[str, float], str]] = [
    ("idle", {"num_in_flight": 3}, "none"),
    ("used up", {"num_in_flight": 15}, "up"),
    ("one waits", {"num_in_flight": 16, "num_waiting": 1}, "none"),
    ("many wait", {"num_in_flight": 16, "num_waiting": 5}, "down"),
    ("its memory fills up", {"num_in_flight": 16, "kv_usage": 0.9}, "none"),
    ("its memory is full", {"num_in_flight": 16, "kv_usage": 0.97}, "down"),
]


@pytest.mark.parametrize(("case", "seen", "direction"), ROWS)
def test_reported_load(case: str, seen: dict[str, float], direction: str) -> None:
    fields = {"num_running": 16, "num_waiting": 0, "max_num_seqs": 16, "kv_usage": 0.1} | seen
    capacity = Capacity(16.0)
    assert step(capacity, Load(**fields, reports=True), BOUNDS, 0) == direction, case  # type: ignore[arg-type]
    assert 12.0 <= capacity.limit <= 20.0


def test_cuts_come_once_a_second() -> None:
    capacity = Capacity(40.0)
    load = Load(
        num_in_flight=40,
        num_running=10,
        num_waiting=30,
        max_num_seqs=10,
        kv_usage=0.1,
        reports=True,
    )
    moves = [step(capacity, load, BOUNDS, now_us) for now_us in (0, 500_000, 1_000_000)]
    assert moves == ["down", "none", "down"]
    assert capacity.limit == 40 * 0.75 * 0.75


def test_bounds_hold() -> None:
    load = Load(
        num_in_flight=64, num_running=2, num_waiting=62, max_num_seqs=2, kv_usage=1.0, reports=True
    )
    capacity = first_capacity(BOUNDS, load)
    for now_s in range(100):
        step(capacity, load, BOUNDS, now_s * 1_000_000)
    assert capacity.limit == BOUNDS.min_concurrent
    idle = Load(
        num_in_flight=64, num_running=64, num_waiting=0, max_num_seqs=64, kv_usage=0.1, reports=True
    )
    for now_s in range(100, 300):
        step(capacity, idle, BOUNDS, now_s * 1_000_000)
    assert capacity.limit == BOUNDS.max_concurrent
