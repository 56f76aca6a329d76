"""Keeps what a back-test said of a policy that was applied, and compares it with what came."""

import math
from collections.abc import Mapping
from statistics import fmean

import msgspec

from router.backtest.log_reader import Logged
from router.comparison.comparison import BacktestReport, Tested, own_times
from router.comparison.report import TITLES, shown
from router.comparison.statistics import Slo, TaskSummary, summarise
from router.comparison.table import logged_table

CHECKED = (
    "ttft_ms_p95",
    "latency_ms_p50",
    "latency_ms_p95",
    "slo_met",
    "refused",
    "tokens_per_task",
)
MIN_TASKS = 50  # of a log, for a check
_MOVED = 0.1  # share by which a cause must have changed to be named
_LEAST_SHARE = 0.05  # of a figure: no interval is narrower
_LEAST_POINTS = 0.01  # of a share


class ExpectedFigure(msgspec.Struct, frozen=True):
    """Holds one figure as predicted, and the 90 % interval of what may come."""

    value: float
    low: float
    high: float


class TakenForGranted(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a prediction took for granted."""

    tasks_per_s: float
    prompt_tokens: float  # mean, of a task
    output_tokens: float
    tpot_ms: float | None  # median
    overhead_ms: float  # of the gateway, before an engine starts


class PolicyPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a policy was predicted to come to."""

    policy: str  # v7
    made_s: float  # Unix time
    num_tasks: int
    slo: Slo
    figures: dict[str, ExpectedFigure]
    conditions: TakenForGranted


class CheckedFigure(msgspec.Struct, frozen=True, kw_only=True):
    """Compares one figure with what came."""

    figure: str
    predicted: float
    low: float
    high: float
    came: float
    error_ratio: float  # of what came over what was predicted, less 1; of shares: the difference
    interval_ratio: float  # how far off the interval allows it to be, in the same unit
    within: bool


class PredictionCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a check of a prediction."""

    policy: str
    made_s: float
    num_tasks: int
    figures: tuple[CheckedFigure, ...]
    causes: tuple[str, ...]  # what was not as taken for granted
    within: bool
    text: tuple[str, ...]


def prediction_of(
    report: BacktestReport, tested: Tested, logged: Logged, policy: str, made_s: float
) -> PolicyPrediction:
    """Returns the prediction of one policy of a report."""
    figures = {}
    for name in CHECKED:
        value = figure_of(tested.summary, name)
        if value is None:
            continue
        low, high = tested.intervals.get(name, (value, value))
        least = _LEAST_POINTS if _is_share(name) else _LEAST_SHARE * value
        most = 1.0 if _is_share(name) else math.inf
        figures[name] = ExpectedFigure(
            value,
            max(0.0, value - math.hypot(value - low, least)),
            min(most, value + math.hypot(high - value, least)),
        )
    return PolicyPrediction(
        policy=policy,
        made_s=made_s,
        num_tasks=report.num_tasks,
        slo=report.slo,
        figures=figures,
        conditions=conditions_of(logged, tested.summary),
    )


def conditions_of(logged: Logged, summary: TaskSummary) -> TakenForGranted:
    """Returns the conditions of a log, and of what its tasks came to."""
    arrivals = logged.arrivals
    span_s = (arrivals[-1].at_us - arrivals[0].at_us) / 1e6
    return TakenForGranted(
        tasks_per_s=len(arrivals) / max(1.0, span_s),
        prompt_tokens=fmean(arrival.prompt_tokens for arrival in arrivals),
        output_tokens=summary.output_tokens / max(1, summary.num_tasks),
        tpot_ms=summary.tpot_ms_p50,
        overhead_ms=own_times(logged).before_us / 1e3,
    )


def figure_of(summary: TaskSummary, name: str) -> float | None:
    """Returns a figure of a summary by its name."""
    if name == "tokens_per_task":
        return summary.weighted_tokens / max(1, summary.num_tasks)
    value: float | None = getattr(summary, name)
    return value


def check(prediction: PolicyPrediction, logged: Logged) -> PredictionCheck | None:
    """Compares a prediction with a log of that policy; None while its tasks are too few."""
    if len(logged.arrivals) < MIN_TASKS:
        return None
    came = summarise(logged_table(logged), prediction.slo)
    figures = tuple(
        _checked(name, expected, value)
        for name, expected in prediction.figures.items()
        if (value := figure_of(came, name)) is not None
    )
    causes = tuple(_causes(prediction.conditions, conditions_of(logged, came)))
    within = all(figure.within for figure in figures)
    text = [
        f"Policy {prediction.policy}: {len(logged.arrivals):,} tasks came, "
        f"{'all' if within else 'not all'} figures within their intervals.",
        *(_line(figure) for figure in figures),
        *(f"Not as taken for granted: {cause}." for cause in causes),
    ]
    return PredictionCheck(
        policy=prediction.policy,
        made_s=prediction.made_s,
        num_tasks=len(logged.arrivals),
        figures=figures,
        causes=causes,
        within=within,
        text=tuple(text),
    )


def _checked(name: str, expected: ExpectedFigure, came: float) -> CheckedFigure:
    scale = 1.0 if _is_share(name) else max(1e-9, expected.value)
    allowed = max(expected.high - expected.value, expected.value - expected.low)
    return CheckedFigure(
        figure=name,
        predicted=expected.value,
        low=expected.low,
        high=expected.high,
        came=came,
        error_ratio=(came - expected.value) / scale,
        interval_ratio=allowed / scale,
        within=expected.low <= came <= expected.high,
    )


def _is_share(name: str) -> bool:
    return name in ("slo_met", "refused")


def _line(figure: CheckedFigure) -> str:
    name = TITLES.get(figure.figure, figure.figure.replace("_", " "))
    values = (figure.predicted, figure.low, figure.high, figure.came)
    predicted, low, high, came = (shown(figure.figure, value) for value in values)
    verdict = "within" if figure.within else "OFF"
    return f"{name:20}{predicted:>12} ({low} to {high}), came {came}: {verdict}"


def _causes(before: TakenForGranted, now: TakenForGranted) -> list[str]:
    """Names what has changed since the prediction, so that what is off has a reason."""
    rows: Mapping[str, tuple[float | None, float | None]] = {
        "traffic (tasks per second)": (before.tasks_per_s, now.tasks_per_s),
        "prompts (tokens)": (before.prompt_tokens, now.prompt_tokens),
        "answers (tokens)": (before.output_tokens, now.output_tokens),
        "step times (TPOT, ms)": (before.tpot_ms, now.tpot_ms),
        "the gateway's own time (ms)": (before.overhead_ms, now.overhead_ms),
    }
    return [
        f"{name} {was:,.3g} -> {is_now:,.3g}"
        for name, (was, is_now) in rows.items()
        if was is not None and is_now is not None and abs(is_now - was) > _MOVED * max(was, 1e-9)
    ]
