"""What a scrape reads: the latest report of each part that keeps its own counts."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from backends.contract import BackendStats
from gateway.store.reports import LedgerReport
from router.learn.experience import Experience
from router.learn.report import LearningReport, learning_report
from router.pools.pools import PoolsReport


class WorkersReport(msgspec.Struct, frozen=True):
    """How a supervisor's workers stand."""

    num_serving: int = 0
    num_wanted: int = 0
    num_restarts: int = 0  # after crashes


class Reports(msgspec.Struct):
    """All of them."""

    version: str = ""
    backends: Sequence[BackendStats] = ()
    pools: PoolsReport = PoolsReport(
        mode="redis", num_gateways=1, num_unsettled=0, num_uncharged=0, num_recoveries=0
    )
    ledger: LedgerReport = LedgerReport()
    learning: LearningReport = learning_report(Experience())
    workers: WorkersReport = WorkersReport()


Read = Callable[[Reports], Mapping[tuple[str, ...], float]]  # label values -> value


def single(value: Callable[[Reports], float]) -> Read:
    """Without labels."""
    return lambda reports: {(): value(reports)}


def per_label(values: Callable[[Reports], Mapping[str, float]]) -> Read:
    """By the values of its one label."""
    return lambda reports: {(label,): value for label, value in values(reports).items()}


def per_backend(value: Callable[[BackendStats], float]) -> Read:
    """By backend."""
    return lambda reports: {(stats.info.name,): value(stats) for stats in reports.backends}


def per_model(value: Callable[[BackendStats], float]) -> Read:
    """By model and backend, as vLLM does."""
    return lambda reports: {
        (stats.info.model, stats.info.name): value(stats) for stats in reports.backends
    }
