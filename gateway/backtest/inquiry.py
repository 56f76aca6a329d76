"""Answers an inquiry: which log, which policies, what else is different. This is an edge."""

import gc
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from backends.contract import BackendGroup
from gateway.backtest.fleets import Speeds, fleet_of, fleet_of_settings
from gateway.backtest.log_files import LogFileError, last_lines, read_lines, records_of
from gateway.config.backend_kinds import BackendConfig
from router.backtest.log_reader import read_records
from router.classify.task import Tenant
from router.comparison.comparison import BacktestQuestion, BacktestReport, Progress, back_test
from router.comparison.prediction import PolicyPrediction, PredictionCheck, check, prediction_of
from router.comparison.redecide import Redecider
from router.comparison.statistics import Slo
from router.money.cost import CostWeights
from router.money.prices import ModelPrice, PriceList
from router.policy.policy import Policy
from router.record.recording import DecisionRecord, EngineSettings
from router.waiting.rules import AdaptationConfig, WaitingConfig

MAX_TASKS = 1_000_000
# Few of the objects that a simulation makes are in cycles; looking for those took a seventh of it.
GC_THRESHOLDS = 50_000, 20, 100
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class InquiryError(Exception):
    """What is asked cannot be answered; the message says why and what to do."""


class Inquiry(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a back-test to be made, so that another process can make it."""

    paths: tuple[Path, ...] = ()
    lines: tuple[bytes, ...] = ()  # of a gateway that writes no log
    since_s: float | None = None  # Unix time; None: the whole log
    backends: tuple[BackendConfig, ...] | None = None  # None: those that the log names
    bases: dict[str, Policy] = {}  # policies that may have made the log, by version
    base: str | None = None  # the one that did; None: that of most tasks
    policies: dict[str, Policy] = {}
    tenants: dict[str, Tenant] = {}
    weights: dict[BackendGroup, CostWeights] = {}
    prices: tuple[ModelPrice, ...] = ()
    waiting: WaitingConfig = WaitingConfig()
    adaptation: AdaptationConfig = AdaptationConfig()
    slo: Slo = Slo()
    scale: float = 1.0
    slow: dict[str, float] = {}
    without: tuple[str, ...] = ()
    seed: int = 0


def answer(inquiry: Inquiry, on_progress: Progress | None = None) -> BacktestReport:
    """Reads the log and back-tests. Raises `InquiryError`."""
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        return back_test(question_of(inquiry), on_progress)
    except (LogFileError, ValueError) as error:
        raise InquiryError(str(error)) from error


class Answered(msgspec.Struct, frozen=True):
    """Holds a report, and the prediction of its last policy, if it is to be kept."""

    report: BacktestReport
    prediction: PolicyPrediction | None


def answer_to_keep(inquiry: Inquiry, version: str, made_s: float) -> Answered:
    """Back-tests one policy that is about to be applied. Raises `InquiryError`."""
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        asked = question_of(inquiry)
        report = back_test(asked)
    except (LogFileError, ValueError) as error:
        raise InquiryError(str(error)) from error
    if not report.policies:
        return Answered(report, None)
    tested = report.policies[-1]
    return Answered(report, prediction_of(report, tested, asked.logged, version, made_s))


def check_of(inquiry: Inquiry, prediction: PolicyPrediction) -> PredictionCheck | None:
    """Compares a prediction with the tasks that its policy has decided since.

    None while they are too few. Raises `InquiryError`.
    """
    try:
        decided = (each for each in _records(inquiry) if each.policy == prediction.policy)
        return check(prediction, read_records(decided))
    except LogFileError as error:
        raise InquiryError(str(error)) from error


def question_of(inquiry: Inquiry) -> BacktestQuestion:
    """Reads the log of an inquiry. Raises `InquiryError`, `LogFileError` or ValueError."""
    base = _base(inquiry)
    speeds = Speeds()
    settings: tuple[EngineSettings, ...] = ()
    for record in _records(inquiry):
        speeds.take(record)
        settings = record.engine_settings or settings
    if inquiry.backends is not None:
        fleet = fleet_of(inquiry.backends, speeds)
    elif settings:
        fleet = fleet_of_settings(settings, speeds)
    else:
        raise InquiryError(
            "the log does not say how its engines were configured; name the gateway's "
            "configuration with --config"
        )
    redecider = Redecider(base, {each.info.name: each.info for each in fleet.machines})
    logged = read_records(_watched(_records(inquiry), redecider.take))
    return BacktestQuestion(
        logged=logged,
        base=base,
        policies=inquiry.policies,
        fleet=fleet,
        tenants=inquiry.tenants,
        weights=inquiry.weights,
        prices=PriceList(inquiry.prices),
        waiting=inquiry.waiting,
        adaptation=inquiry.adaptation,
        slo=inquiry.slo,
        redecided=redecider.found,
        scale=inquiry.scale,
        slow=inquiry.slow,
        without=frozenset(inquiry.without),
        seed=inquiry.seed,
    )


def _records(inquiry: Inquiry) -> Iterator[DecisionRecord]:
    if inquiry.lines:
        lines: Iterable[bytes] = inquiry.lines
    elif inquiry.since_s is None:
        lines = read_lines(inquiry.paths)
    else:
        lines = last_lines(inquiry.paths, inquiry.since_s)
    for number, record in enumerate(records_of(lines)):
        if number >= MAX_TASKS:
            raise InquiryError(f"the log has more than {MAX_TASKS:,} tasks: take a part, --last 1h")
        if inquiry.since_s is None or record.at >= inquiry.since_s:
            yield record


def _watched(
    records: Iterable[DecisionRecord], take: Callable[[DecisionRecord], None]
) -> Iterator[DecisionRecord]:
    for record in records:
        take(record)
        yield record


def _base(inquiry: Inquiry) -> Policy:
    """Finds the policy that made the log, or most of it."""
    if inquiry.base is not None:
        return inquiry.bases[inquiry.base]
    versions = Counter(record.policy for record in _records(inquiry) if record.policy is not None)
    if not versions:
        raise InquiryError("no task of the log, or of this part of it, was decided by a policy")
    version = versions.most_common(1)[0][0]
    known = inquiry.bases.get(version)
    if known is None:
        raise InquiryError(
            f"policy {version!r} made the log: give its document with --base FILE "
            f"(`lanewise policy show` prints it)"
        )
    return known


def seconds_of(text: str) -> float:
    """Reads a duration like 15m; raises ValueError for another text."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r}: expected a number and s, m, h or d, like 15m")
    return float(found[1]) * _SECONDS[found[2]]
