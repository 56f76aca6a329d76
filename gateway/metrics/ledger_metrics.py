"""Series about the usage ledger, read from its report when somebody scrapes.

An edge: it calls other edges.
"""

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.store.ledger import LedgerReport


class LedgerCollector(Collector):
    """Turns the ledger's report into series; `report` is put in place once there is a ledger."""

    def __init__(self) -> None:
        self.report: Callable[[], LedgerReport] = LedgerReport

    def describe(self) -> Iterable[Metric]:
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        report = self.report()
        yield GaugeMetricFamily(
            "lanewise_ledger_waiting",
            "Entries of the usage ledger that Redis does not have yet.",
            report.num_waiting,
        )
        yield GaugeMetricFamily(
            "lanewise_ledger_entries",
            "Entries in Redis that are not exported, as last seen.",
            report.num_entries,
        )
        yield CounterMetricFamily(
            "lanewise_ledger_appended",
            "Entries appended.",
            value=report.num_appended,
        )
        lost = CounterMetricFamily(
            "lanewise_ledger_lost",
            "Entries lost: none had room in the process, or nobody exported them in time.",
            labels=("reason",),
        )
        lost.add_metric(("process_full",), report.num_lost)
        lost.add_metric(("stream_full",), report.num_dropped)
        yield lost
