"""Answers an inquiry: which log, which policies, what else is different. This is an edge."""

import gc
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from backends.contract import BackendGroup
from gateway.backtest.fleets import Speeds, fleet_of, fleet_of_settings, has_servers
from gateway.backtest.log_files import LogFileError, records_in, records_of
from gateway.config.backend_kinds import BackendConfig
from router.backtest.fleet import EngineFleet
from router.backtest.log_reader import read_records
from router.classify.task import Tenant
from router.comparison.comparison import BacktestQuestion, BacktestReport, Progress, back_test
from router.comparison.prediction import PolicyPrediction, PredictionCheck, check, prediction_of
from router.comparison.redecide import Redecider
from router.comparison.statistics import Slo
from router.money.cost import CostWeights
from router.money.prices import ModelPrice, PriceList
from router.policy.policy import Policy
from router.record.recording import DecisionRecord, EngineSettings, decode_line
from router.waiting.rules import AdaptationConfig, WaitingConfig

MAX_TASKS = 1_000_000
# Few of the objects that a simulation makes are in cycles; looking for those took a seventh of it.
GC_THRESHOLDS = 50_000, 20, 100
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class _Glance(msgspec.Struct):
    """Holds the little that must be known of a log before its tasks are read."""

    at: float
    duration_ms: float = 0.0
    policy: str | None = None
    policy_digest: str | None = None
    engine_settings: tuple[EngineSettings, ...] = ()


_GLANCE = msgspec.json.Decoder(_Glance)
Line = TypeVar("Line", _Glance, DecisionRecord)


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
    stored_s: dict[str, float] = {}  # version -> Unix time from which it can have decided tasks
    digests: dict[str, str] = {}  # version -> its document's; of other documents it is not the name
    policies: dict[str, Policy] = {}
    tenants: dict[str, Tenant] = {}
    weights: dict[BackendGroup, CostWeights] = {}
    prices: tuple[ModelPrice, ...] = ()
    ceilings: dict[BackendGroup, int] = {}
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
        return back_test(question_of(inquiry, on_progress), on_progress)
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
        lines = _lines(inquiry, decode_line)
        decided = (each for each in lines if each.policy == prediction.policy)
        return check(prediction, read_records(decided))
    except LogFileError as error:
        raise InquiryError(str(error)) from error


def question_of(inquiry: Inquiry, on_progress: Progress | None = None) -> BacktestQuestion:
    """Reads the log of an inquiry. Raises `InquiryError`, `LogFileError` or ValueError."""
    inquiry, seen = _looked_through(inquiry, on_progress)
    settings = seen.settings
    if not settings and inquiry.backends is None and inquiry.since_s is not None:
        settings = _settings_before(inquiry)
    base, fleet = _base(inquiry, seen), _fleet(inquiry, settings)
    redecider = Redecider(base, {each.info.name: each.info for each in fleet.machines})
    records = _lines(inquiry, decode_line, "reading the log", on_progress)
    logged = read_records(records, redecider.take)
    return BacktestQuestion(
        logged=logged,
        base=base,
        policies=inquiry.policies,
        fleet=fleet,
        tenants=inquiry.tenants,
        weights=inquiry.weights,
        prices=PriceList(inquiry.prices),
        ceilings=inquiry.ceilings,
        waiting=inquiry.waiting,
        adaptation=inquiry.adaptation,
        slo=inquiry.slo,
        redecided=redecider.found,
        versions=dict(seen.versions),
        scale=inquiry.scale,
        slow=inquiry.slow,
        without=frozenset(inquiry.without),
        seed=inquiry.seed,
    )


class _Seen(msgspec.Struct):
    """Holds what a first look at a log finds."""

    versions: Counter[str] = msgspec.field(default_factory=Counter)  # tasks of each
    documents: dict[str, str] = {}  # digest -> the version's name
    settings: tuple[EngineSettings, ...] = ()


def _looked_through(inquiry: Inquiry, on_progress: Progress | None) -> tuple[Inquiry, _Seen]:
    """Finds who made a log, and tells its policies apart: a name is the latest document's."""
    decided: Counter[tuple[str, str | None]] = Counter()
    latest: dict[str, tuple[float, str]] = {}
    seen = _Seen()
    for line in _lines(inquiry, _GLANCE.decode, "looking through the log", on_progress):
        seen.settings = line.engine_settings or seen.settings
        if line.policy is None:
            continue
        decided[line.policy, line.policy_digest] += 1
        if line.policy_digest is not None:
            by = line.at, line.policy_digest
            latest[line.policy] = max(latest.get(line.policy, by), by)
    digests = {version: digest for version, (_, digest) in latest.items()} | inquiry.digests
    inquiry = replace(inquiry, digests=digests)
    for (version, digest), number in decided.items():
        name = _name(inquiry, version, digest)
        seen.versions[name] += number
        if digest is not None:
            seen.documents[digest] = name
    return inquiry, seen


def _settings_before(inquiry: Inquiry) -> tuple[EngineSettings, ...]:
    """Finds how engines were configured in the whole log: only every 500th line of it says so."""
    settings: tuple[EngineSettings, ...] = ()
    for line in records_in(inquiry.paths, _GLANCE.decode):
        settings = line.engine_settings or settings
    return settings


def _fleet(inquiry: Inquiry, settings: tuple[EngineSettings, ...]) -> EngineFleet:
    """Makes the engines, as configured or as the log names them; servers as the log has them."""
    if inquiry.backends is None and not settings:
        raise InquiryError(
            "the log does not say how its engines were configured; name the gateway's "
            "configuration with --config"
        )
    speeds = Speeds()
    if has_servers(settings if inquiry.backends is None else inquiry.backends):
        for record in _lines(inquiry, decode_line):
            speeds.take(record)
    if inquiry.backends is None:
        return fleet_of_settings(settings, speeds)
    return fleet_of(inquiry.backends, speeds)


def _lines(
    inquiry: Inquiry,
    decode: Callable[[bytes], Line],
    what: str = "",
    on_progress: Progress | None = None,
) -> Iterator[Line]:
    """Yields the lines that an inquiry is about; `what` is done is told."""

    total_bytes = 0

    def told(num_bytes: int) -> None:
        if on_progress is not None:
            on_progress(f"{what} (kB)", num_bytes // 1_000, total_bytes // 1_000)

    if inquiry.lines:
        lines = records_of(inquiry.lines, decode)
    else:
        total_bytes = sum(path.stat().st_size for path in inquiry.paths if path.exists())
        lines = records_in(inquiry.paths, decode, since_s=inquiry.since_s, on_bytes=told)
    for number, line in enumerate(lines):
        if number >= MAX_TASKS:
            raise InquiryError(f"the log has more than {MAX_TASKS:,} tasks: take a part, --last 1h")
        if inquiry.since_s is not None and line.at < inquiry.since_s:
            continue
        # A Redis that lost its policies numbers them from 1 again.
        if line.at + line.duration_ms / 1e3 < inquiry.stored_s.get(line.policy or "", 0.0):
            line = replace(line, policy=f"an earlier {line.policy}")
        elif line.policy is not None:
            name = _name(inquiry, line.policy, line.policy_digest)
            line = line if name == line.policy else replace(line, policy=name)
        yield line


def _name(inquiry: Inquiry, version: str, digest: str | None) -> str:
    """Names a policy of the log, apart from those of the same version with another document."""
    if digest is None or inquiry.digests.get(version, digest) == digest:
        return version
    return f"an earlier {version} ({digest})"


def _base(inquiry: Inquiry, seen: _Seen) -> Policy:
    """Finds the policy that made the log, or most of it."""
    if not seen.versions:
        log = ", ".join(map(str, inquiry.paths)) or "the log"
        raise InquiryError(f"no task of {log}, or of this part of it, was decided by a policy")
    version = seen.versions.most_common(1)[0][0]
    if inquiry.base is not None:
        base = inquiry.bases[inquiry.base]
        # A log knows a stored policy by its number, its document by a name of its own.
        if base.digest in seen.documents:
            return base.named(seen.documents[base.digest])
        return base if base.version in seen.versions else base.named(version)
    known = inquiry.bases.get(version)
    if known is None:
        raise InquiryError(
            f"policy {version!r} made the log: give its document with --base FILE "
            "(`lanewise policy show` prints it)"
        )
    return known


def seconds_of(text: str) -> float:
    """Reads a duration like 15m; raises ValueError for another text."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r}: expected a number and s, m, h or d, like 15m")
    return float(found[1]) * _SECONDS[found[2]]
