"""Fits an engine's constants to what its Prometheus metrics say: sums and counts, no requests.

Between two snapshots (or since the server's start) the metrics give a mean step: how many sequences
and prompt tokens it held, and how long it took. Each is one equation; so one snapshot moves the
constants a little from where they started, and several under different loads determine them.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from backends.gpu_engine.calibration.fit_requests import (
    FITTED,
    LEANING_OTHER,
    LEANING_OWN,
    MOST,
    FittedSet,
    MakeCost,
    intervals,
    startable,
)
from backends.gpu_engine.constants import GpuConstants
from wafer_engine.calibration.fit import Vector, fit_positive, jacobian, rounded

LEAST_STEPS = 100  # that a mean is of
NOISE = 0.03  # of a mean step's error, where there are too few to tell; assumed
_SAMPLE = re.compile(r"^(vllm:[\w:]+)(?:\{[^}]*\})?\s+(\S+)")
_NAMES = {
    "steps": ("vllm:iteration_tokens_total_count",),
    "prompt": ("vllm:prompt_tokens_total",),
    "output": ("vllm:generation_tokens_total",),
    "itl_s": ("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"),
    "itls": ("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"),
    "requests": ("vllm:request_prompt_tokens_count",),
    "request_prompt": ("vllm:request_prompt_tokens_sum",),
    "request_output": ("vllm:request_generation_tokens_sum",),
}


class MeanStep(msgspec.Struct, frozen=True):
    """Is the mean step of a time."""

    num_seqs: float
    context_tokens: float  # of all sequences
    prompt_tokens: float
    prompt_pairs: float
    step_us: float


def read_snapshots(paths: Sequence[Path]) -> list[MeanStep]:
    """Reads snapshots of one server in the order of their time: the mean step of each interval.

    Raises ValueError for a metric that is missing, and for snapshots that are not of one run.
    """
    steps = []
    before = dict.fromkeys(_NAMES, 0.0)
    for path in paths:
        now = _counters(path)
        gone = {name: now[name] - before[name] for name in now}
        if min(gone.values()) < 0:
            raise ValueError(f"{path}: counters fell; give snapshots of one run in order of time")
        if gone["steps"] < LEAST_STEPS or not gone["itls"] or not gone["requests"]:
            raise ValueError(
                f"{path}: {gone['steps']:.0f} steps since the snapshot before it: "
                f"at least {LEAST_STEPS} are needed"
            )
        steps.append(_mean_step(gone))
        before = now
    return steps


def _counters(path: Path) -> dict[str, float]:
    samples: dict[str, float] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        found = _SAMPLE.match(line)
        if found:
            samples[found[1]] = samples.get(found[1], 0.0) + float(found[2])
    counters = {}
    for name, spellings in _NAMES.items():
        known = [samples[spelling] for spelling in spellings if spelling in samples]
        if not known:
            raise ValueError(f"{path}: no metric {spellings[0]}: expected /metrics of vLLM's V1")
        counters[name] = known[0]
    return counters


def _mean_step(gone: dict[str, float]) -> MeanStep:
    prompt, output = (
        gone[name] / gone["requests"] for name in ("request_prompt", "request_output")
    )
    num_seqs = gone["output"] / gone["steps"]
    prompt_tokens = gone["prompt"] / gone["steps"]
    return MeanStep(
        num_seqs,
        num_seqs * (prompt + output / 2),
        prompt_tokens,
        prompt_tokens * (prompt + 1) / 2,
        gone["itl_s"] / gone["itls"] * 1e6,
    )


def fit_snapshots(steps: Sequence[MeanStep], start: GpuConstants, make_cost: MakeCost) -> FittedSet:
    """Fits the three constants to mean steps, leaning on a set to start with."""
    start = startable(start)
    leaning = LEANING_OTHER if start.basis else LEANING_OWN
    own = np.array([getattr(start, name) for name in FITTED])

    def errors(values: Vector) -> Vector:
        changed = dict(zip(FITTED, map(float, values), strict=True))
        cost = make_cost(msgspec.structs.replace(start, **changed))
        times = [
            cost.step_us_of(
                step.num_seqs, step.context_tokens, step.prompt_tokens, step.prompt_pairs
            )
            for step in steps
        ]
        return np.asarray(np.log(np.array(times) / np.array([step.step_us for step in steps])))

    most = np.array([MOST.get(name, np.inf) for name in FITTED])
    values = fit_positive(
        lambda at: np.concatenate([errors(at), leaning * np.log(at / own)]), own, most=most
    )
    slopes = jacobian(lambda at: errors(np.exp(at)), np.log(values), 1e-4)
    left = errors(values)
    variance = max(NOISE**2, float(left @ left) / max(1, len(left) - len(values)))
    return FittedSet(
        msgspec.structs.replace(
            start, **{name: rounded(float(at)) for name, at in zip(FITTED, values, strict=True)}
        ),
        intervals(FITTED, values, slopes, leaning, variance),
        float(np.abs(np.expm1(left)).mean()),
        len(steps),
        unit="snapshots",
    )
