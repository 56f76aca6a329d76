"""Series about the way to Redis, read from the latest report when somebody scrapes.

An edge: it calls other edges.
"""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.pools.failover_pools import PoolsReport

_NOTHING_YET = PoolsReport(
    mode="redis", num_gateways=1, num_unsettled=0, num_uncharged=0, num_recoveries=0
)


class OutageCollector(Collector):
    """Turns how the pools stand into series."""

    def __init__(self) -> None:
        self.report = _NOTHING_YET

    def describe(self) -> Iterable[Metric]:
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        report = self.report
        yield GaugeMetricFamily(
            "lanewise_ratelimit_degraded",
            "1 while tasks are limited by this process's own pools, for Redis does not answer.",
            1 if report.mode == "degraded" else 0,
        )
        yield GaugeMetricFamily(
            "lanewise_gateways",
            "Gateways that live, as Redis last told this one.",
            report.num_gateways,
        )
        yield GaugeMetricFamily(
            "lanewise_ratelimit_unsettled",
            "Settlements that wait until Redis answers.",
            report.num_unsettled,
        )
        yield CounterMetricFamily(
            "lanewise_ratelimit_uncharged",
            "Settlements given up, since Redis stayed away for too long.",
            value=report.num_uncharged,
        )
        yield CounterMetricFamily(
            "lanewise_ratelimit_recoveries",
            "Times that Redis came back.",
            value=report.num_recoveries,
        )
