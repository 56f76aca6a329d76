"""Adapts how many tasks a group of engines takes at once.

If an engine reports its queue and its KV cache, tasks that wait inside it or a nearly full cache
cut the limit, and a limit that is used up while nothing waits grows. If it does not (most
upstreams), the time per output token replaces round trips in TCP Vegas: its growth over the best
one estimates the hidden queue. (Latency would depend on the answers' sizes.)

A step is at most a quarter, or one task; cuts come at most once a second.
"""

import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Direction = Literal["up", "down", "none"]

MAX_STEP = 0.25  # of the limit
CUT = 0.9  # the smallest cut
GROWTH = 0.05
USED_UP = 0.8  # of the limit: below, more of it would change nothing
KV_FULL, KV_HIGH = 0.95, 0.85  # shares of the KV cache: cut, and grow no further
WAITING_SHARE = 0.1  # of what runs: more waiting inside the engine is too much
ALPHA, BETA = 1.0, 2.5  # Vegas: tasks in the unseen queue to grow below and to cut above
BASE_RISE = 1.001  # per step: the best latency is forgotten slowly, for engines change
CUT_PAUSE_US = 1_000_000


class CapacityBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds a group's limit, in tasks at once per gateway process."""

    min_concurrent: Annotated[int, Meta(ge=1, le=100_000)] = 4
    max_concurrent: Annotated[int, Meta(ge=1, le=100_000)] = 1_024


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a group's current load."""

    num_in_flight: int  # tasks of this process
    num_running: int  # sequences in the engines, whoever sent them
    num_waiting: int  # sequences that wait inside the engines
    max_num_seqs: int
    kv_usage: float  # 0..1, of the fullest engine
    reports: bool  # whether the engines report the last four at all
    token_us: float | None = None  # recent time per output token; None: nothing ended lately


class Capacity(msgspec.Struct):
    """Holds one group's limit and its history. Mutable."""

    limit: float
    base_us: float | None = None  # the best time per output token
    cut_us: int = -CUT_PAUSE_US


def first_capacity(bounds: CapacityBounds, load: Load) -> Capacity:
    """Returns the first limit, which is what the engines run at once."""
    return Capacity(float(_clamp(load.max_num_seqs, bounds)))


def step(capacity: Capacity, load: Load, bounds: CapacityBounds, now_us: int) -> Direction:
    """Adapts the limit; call it about once a second."""
    before = capacity.limit
    wanted = _by_report(capacity, load) if load.reports else _by_latency(capacity, load)
    if wanted < before and now_us - capacity.cut_us < CUT_PAUSE_US:
        return "none"
    most = max(1.0, before * MAX_STEP)
    wanted = max(before - most, min(before + most, wanted))
    capacity.limit = float(_clamp(wanted, bounds))
    if capacity.limit < before:
        capacity.cut_us = now_us
        return "down"
    return "up" if capacity.limit > before else "none"


def _by_report(capacity: Capacity, load: Load) -> float:
    limit = capacity.limit
    if load.num_waiting > max(1, WAITING_SHARE * load.num_running):
        return min(limit * CUT, load.num_in_flight - load.num_waiting)
    if load.kv_usage >= KV_FULL:
        return min(limit, load.num_in_flight) * CUT
    if load.num_waiting == 0 and load.kv_usage < KV_HIGH:
        return _grown(limit, load)
    return limit


def _by_latency(capacity: Capacity, load: Load) -> float:
    limit = capacity.limit
    if load.token_us is None or load.token_us <= 0:
        return limit
    base_us = capacity.base_us
    base_us = load.token_us if base_us is None else min(base_us * BASE_RISE, load.token_us)
    capacity.base_us = base_us
    unseen = min(limit, load.num_in_flight) * (1 - base_us / load.token_us)
    scale = max(1.0, math.log10(max(1.0, limit)))
    if unseen > BETA * scale:
        return min(limit * CUT, limit - 1)
    return _grown(limit, load) if unseen < ALPHA * scale else limit


def _grown(limit: float, load: Load) -> float:
    if load.num_in_flight < USED_UP * limit:
        return limit
    return limit + max(1.0, limit * GROWTH)


def _clamp(limit: float, bounds: CapacityBounds) -> float:
    return max(bounds.min_concurrent, min(max(bounds.min_concurrent, bounds.max_concurrent), limit))
