"""`/admin/backtest` says what policies would have come to on the latest tasks, and what came of it.

This is an edge.
"""

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.params import JSONBody
from msgspec import Meta

from gateway.admin.guard import READS, require_writer
from gateway.backtest.apart import BacktestBusy
from gateway.backtest.inquiry import Answered, Inquiry, InquiryError, answer_to_keep, check_of
from gateway.backtest.log_files import with_rotated
from gateway.http.services import Services, services_of
from gateway.http.streams import AnyRequest
from gateway.metrics.labels import FIGURE
from gateway.wire.errors import ProtocolError
from router.comparison.comparison import BacktestReport
from router.comparison.prediction import PolicyPrediction, PredictionCheck
from router.comparison.statistics import Slo
from router.policy.policy import DEFAULT_POLICY, Policy, PolicyError, parse_policy
from router.policy.store import (
    MAX_VERSION,
    NoSuchVersion,
    PolicyStoreUnavailable,
    Stored,
    read_version,
)
from router.record.recording import encode_line
from router.redis.audit import AuditEntry

MAX_POLICIES = 4  # in one request
MAX_BASES = 32  # stored policies that are looked up, since they may have made a part of the log
WORKER, FIRST_WORKER = ".worker-", ".worker-1"  # in the path of a worker's own log
MAX_LAST_S = 86_400.0
CHECK_LAST_S = 86_400.0  # of the log, at most, that a prediction is compared with
Text = Annotated[str, Meta(max_length=1 << 18)]
Name = Annotated[str, Meta(max_length=256)]


class Backtest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Says what to back-test: the latest tasks of this gateway, under each of these documents."""

    last_s: Annotated[float, Meta(gt=0, le=MAX_LAST_S)] = 900.0
    policies: Annotated[dict[Name, Text], Meta(max_length=MAX_POLICIES)] = {}
    scale: Annotated[float, Meta(gt=0, le=20)] = 1.0  # times the traffic
    slow: Annotated[dict[Name, float], Meta(max_length=64)] = {}  # backend to its speed
    without: Annotated[tuple[Name, ...], Meta(max_length=64)] = ()
    slo: Slo = Slo()
    seed: int = 0
    # Keep the prediction of the one document for this stored version, which is to be applied.
    keep_for: Annotated[int, Meta(ge=1, le=MAX_VERSION)] | None = None


@post("/backtest", status_code=200, opt=READS)
async def post_backtest(request: AnyRequest, data: JSONBody[Backtest]) -> BacktestReport:
    """Says what would have come of the tasks; it makes one back-test at a time, within a minute."""
    services = services_of(request)
    if data.keep_for is not None:
        require_writer(request)
        await _check_kept(services, data, data.keep_for)
    policies = await services.apart(_parsed, data.policies)
    inquiry = await _inquiry(services, data, policies)
    version = "" if data.keep_for is None else f"v{data.keep_for}"
    answered = await _in_its_process(services, answer_to_keep, inquiry, version, time.time())
    assert isinstance(answered, Answered)
    if data.keep_for is not None and answered.prediction is not None:
        kept = msgspec.json.encode(answered.prediction)
        await services.policies.store.keep_prediction(data.keep_for, kept)
    return answered.report


async def _check_kept(services: Services, data: Backtest, version: int) -> None:
    """Raises `ProtocolError` where another thing is predicted than the version, put in force."""
    _, content = await services.policies.store.load(version)  # raises where there is none
    documents = [text.encode() for text in data.policies.values()]
    is_otherwise = data.scale != 1 or bool(data.slow) or bool(data.without)
    if documents != [content] or is_otherwise:
        message = (
            f"`keep_for` keeps what is said of version {version}: send its document alone in "
            "`policies`, without `scale`, `slow` or `without`."
        )
        raise ProtocolError("invalid_value", message, param="keep_for")


@get("/backtest/check")
async def get_backtest_check(request: AnyRequest) -> PredictionCheck:
    """Compares what came of the policy in force with what was predicted when it was applied."""
    services = services_of(request)
    number = services.policies.current.version
    kept = await services.policies.store.prediction(number)
    if kept is None:
        message = (
            f"Version {number} has no prediction: apply a policy with "
            "`lanewise policy apply FILE --require-backtest`."
        )
        raise ProtocolError("not_found", message)
    found = await checked(services, kept)
    if _looks_by_itself(services.config.recording.path):
        _show(services, found)
    if found is None:
        message = f"Too few tasks were decided by version {number} yet. Try again later."
        raise ProtocolError("not_found", message)
    return found


async def checked(services: Services, kept: bytes) -> PredictionCheck | None:
    """Compares a prediction with the log since; None: too few tasks came."""
    prediction = msgspec.json.decode(kept, type=PolicyPrediction)
    since_s = max(prediction.made_s, time.time() - CHECK_LAST_S)
    inquiry = _with_log(services, Inquiry(since_s=since_s))
    found = await _in_its_process(services, check_of, inquiry, prediction)
    assert found is None or isinstance(found, PredictionCheck)
    return found


async def check_prediction(services: Services) -> None:
    """Shows in the metrics what came of the policy in force; call it now and then.

    Zeros are shown where it has no prediction, so that the one before it is not blamed any more.
    """
    number, path = services.policies.current.version, services.config.recording.path
    if not _looks_by_itself(path):
        return
    with contextlib.suppress(ProtocolError, PolicyStoreUnavailable):
        kept = await services.policies.store.prediction(number) if number else None
        _show(services, None if kept is None else await checked(services, kept))


def _looks_by_itself(path: str | None) -> bool:
    """Of several workers on one machine the first does, as it reads the others' logs, too."""
    return path is not None and (WORKER not in path or path.endswith(FIRST_WORKER))


def _show(services: Services, found: PredictionCheck | None) -> None:
    figures = {} if found is None else {each.figure: each for each in found.figures}
    counts = services.gw.metrics.counts
    for name in FIGURE.values:
        each = figures.get(name)
        error, interval = (each.error_ratio, each.interval_ratio) if each else (0.0, 0.0)
        counts["lanewise_backtest_error_ratio"][(name,)].set(error)
        counts["lanewise_backtest_interval_ratio"][(name,)].set(interval)


async def _in_its_process(services: Services, *call: Any) -> Any:
    """Makes a call in the process of back-tests, or raises `ProtocolError`."""
    try:
        return await services.backtests.call(*call)
    except BacktestBusy:
        raise ProtocolError(
            "server_is_overloaded",
            "Another back-test is being made here. Try again in 10s.",
            retry_after_us=10_000_000,
        ) from None
    except InquiryError as error:
        raise ProtocolError("invalid_value", f"No back-test: {error}.") from error


def _parsed(documents: dict[str, str]) -> dict[str, Policy]:
    """Parses documents. Raises `PolicyError`, which is a 400 as elsewhere."""
    return {name: parse_policy(text.encode(), name) for name, text in documents.items()}


async def _inquiry(services: Services, data: Backtest, policies: dict[str, Policy]) -> Inquiry:
    config, current = services.config, services.policies.current
    bases = {DEFAULT_POLICY.version: DEFAULT_POLICY}
    for each in (services.policies.configured, current.policy):
        bases[each.version] = each
    since_s = time.time() - data.last_s
    in_force = await _in_force_since(services, since_s)
    bases |= {policy.version: policy for _, policy in in_force}
    inquiry = Inquiry(
        since_s=since_s,
        backends=services.configured_backends,
        bases=bases,
        stored_s={policy.version: float(stored.at) for stored, policy in in_force},
        digests={name: each.digest for name, each in bases.items() if each.digest is not None},
        policies=policies,
        weights=config.cost_weights,
        prices=config.prices,
        ceilings=config.own_ceilings,
        waiting=config.waiting,
        adaptation=config.adaptation,
        slo=data.slo,
        scale=data.scale,
        slow=data.slow,
        without=data.without,
        seed=data.seed,
    )
    return _with_log(services, inquiry)


async def _in_force_since(services: Services, since_s: float) -> list[tuple[Stored, Policy]]:
    """Returns the stored versions that may have made the log since a Unix time, the latest first.

    Without those that cannot be had: it is only some policies fewer that are known.
    """
    found: list[tuple[Stored, Policy]] = []
    with contextlib.suppress(PolicyStoreUnavailable):
        for version in _versions_since(await services.policies.store.audit(), since_s):
            with contextlib.suppress(NoSuchVersion, PolicyError):
                stored, content = await services.policies.store.load(version)
                policy = await services.apart(read_version, version, content)
                found.append((stored, policy))
    return found


def _versions_since(entries: Iterable[AuditEntry], since_s: float) -> list[int]:
    """Lists the stored versions that were in force since then, of changes with the latest first."""
    versions: dict[int, None] = {}
    for entry in entries:
        if entry.action not in ("policies.activate", "policies.rollback"):
            continue
        versions[entry.after["active"]] = None
        if entry.at < since_s:  # what it put in force was so at that time
            break
        versions[entry.before["active"]] = None
    return [version for version in versions if version > 0][:MAX_BASES]


def _with_log(services: Services, inquiry: Inquiry) -> Inquiry:
    """Adds the log of this gateway: its files, else what is in memory."""
    recorder = services.gw.recorder
    path = services.config.recording.path
    if recorder is not None and recorder.is_writing and path is not None:
        own = Path(path)  # maybe one worker's part of the log
        whole_name = own.name.rpartition(WORKER)[0] or own.name
        paths = with_rotated(own.with_name(whole_name))
        return msgspec.structs.replace(inquiry, paths=tuple(paths))
    lines = () if recorder is None else tuple(map(encode_line, recorder.recent))
    if not lines:
        raise ProtocolError(
            "invalid_value", "No back-test: nothing is recorded; set recording.path first."
        )
    return msgspec.structs.replace(inquiry, lines=lines)


HANDLERS: list[Any] = [post_backtest, get_backtest_check]
