"""Holds what a scrape reads: the latest report of each part that keeps its own counts."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from backends.contract import BackendStats
from gateway.access.reports import AccessReport
from gateway.store.reports import LedgerReport
from router.learn.experience import Experience
from router.learn.report import LearningReport, learning_report
from router.pools.pools import PoolsReport


class WorkersReport(msgspec.Struct, frozen=True):
    """Says how a supervisor's workers stand."""

    num_serving: int = 0
    num_wanted: int = 0
    num_restarts: int = 0  # after crashes
    num_behind: int = 0  # that could not take the configuration that was read last


class Reports(msgspec.Struct):
    """Holds the latest report of each part."""

    version: str = ""
    backends: Sequence[BackendStats] = ()
    pools: PoolsReport = PoolsReport(
        mode="redis", num_gateways=1, num_unsettled=0, num_uncharged=0, num_recoveries=0
    )
    ledger: LedgerReport = LedgerReport()
    learning: LearningReport = learning_report(Experience(), 0)
    workers: WorkersReport = WorkersReport()
    access: AccessReport = AccessReport()
    # (tenant, group, pool as in labels) -> what is used of it and what it holds.
    levels: Mapping[tuple[str, str, str], tuple[float, float]] = {}
    num_redis_restarts: int = 0  # of the embedded one
    certificate_expires_s: float = 0.0  # Unix time; 0: TLS is not served
    # Names of the engines behind a link. Workers say nothing: their supervisor's own engines are
    # behind one as well, and no other gateway's.
    links: Collection[str] = ()


Read = Callable[[Reports], Mapping[tuple[str, ...], float]]  # label values -> value


def single(value: Callable[[Reports], float]) -> Read:
    """Reads one value, without labels."""
    return lambda reports: {(): value(reports)}


def per_label(values: Callable[[Reports], Mapping[str, float]]) -> Read:
    """Reads values by their one label."""
    return lambda reports: {(label,): value for label, value in values(reports).items()}


def per_backend(value: Callable[[BackendStats], float]) -> Read:
    """Reads a value of each backend."""
    return lambda reports: {(stats.info.name,): value(stats) for stats in reports.backends}


def per_engine(value: Callable[[BackendStats], float]) -> Read:
    """Reads a value of each backend by name and group."""
    return lambda reports: {
        (stats.info.name, stats.info.group): value(stats) for stats in reports.backends
    }


def per_model(value: Callable[[BackendStats], float]) -> Read:
    """Reads a value of each backend by model and name, as vLLM does."""
    return lambda reports: {
        (stats.info.model, stats.info.name): value(stats) for stats in reports.backends
    }


def per_group(counts: Callable[[BackendStats], bool]) -> Read:
    """Counts backends by group; a group that has none has no series."""

    def read(reports: Reports) -> Mapping[tuple[str, ...], float]:
        by_group: dict[tuple[str, ...], float] = {}
        for stats in reports.backends:
            key = (stats.info.group,)
            by_group[key] = by_group.get(key, 0) + counts(stats)
        return by_group

    return read


MAX_PAIRED = 8  # backends whose pairs have series before anything happened
# Label values of series that are there from the start, from the backends that there are.
ERRORS = ("server_error", "server_is_overloaded")  # that backends usually fail with


def routed_models(reports: Reports) -> Iterable[tuple[str, str]]:
    """Yields each route with a model that its tasks may run on."""
    for stats in reports.backends:
        yield stats.info.group, stats.info.model
        yield "parallel", stats.info.model


def simulated_models(reports: Reports) -> Iterable[tuple[str, str]]:
    """Yields the model and the name of each backend that says how long its phases took."""
    for stats in reports.backends:
        if stats.info.simulated:
            yield stats.info.model, stats.info.name


def backend_errors(reports: Reports) -> Iterable[tuple[str, str]]:
    """Yields each backend with what it usually fails with."""
    return ((stats.info.name, code) for stats in reports.backends for code in ERRORS)


def backend_pairs(reports: Reports) -> Iterable[tuple[str, str]]:
    """Yields pairs of backends, the second of which may stand in for the first."""
    names = [stats.info.name for stats in reports.backends[:MAX_PAIRED]]
    return ((name, other) for name in names for other in names if name != other)
