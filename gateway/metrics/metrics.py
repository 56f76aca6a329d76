"""Counts every Prometheus metric of the gateway, on a registry of its own.

The pipeline reports values it already has, once per task; nothing here is called per token. What
the backends know is read from their snapshots when somebody scrapes. Times come in as microseconds
and leave as seconds, Prometheus's base unit. This is an edge.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import prometheus_client

from backends.contract import BackendError, BackendGroup, BackendStats
from backends.drive.beats import pause_s
from gateway.metrics import labels
from gateway.metrics.busiest import BusiestTenants
from gateway.metrics.counters import Counters
from gateway.metrics.engine_requests import EngineRequests
from gateway.metrics.finished_tasks import FinishedTasks
from gateway.metrics.metric_sums import snapshot_of
from gateway.metrics.reports import Reports
from gateway.metrics.table import METRICS
from gateway.store.ledger_entry import LedgerEntry
from gateway.store.reports import Recorded
from router.classify.task import Route, TaskClass
from router.learn.experience import Experience
from router.learn.report import learning_report
from router.money.prices import NUSD
from router.pools.pools import Demand, PoolCall, PoolsMode, PoolsReport, Unit
from router.strategies.table import STRATEGIES

CONTENT_TYPE = prometheus_client.exposition.CONTENT_TYPE_LATEST

MAX_TENANT_SERIES = 50  # the busiest tenants, with series of their own; others share "other"
MAX_TENANTS_KNOWN = 4_096  # whose traffic is compared for that
MAX_POLICIES = 6  # whose decisions have series; those of older ones end
OF_TENANTS = tuple(  # whose series end when others have overtaken their tenant
    metric.name for metric in METRICS if metric.ends and metric.labels[0] == labels.TENANT
)
LAG_INTERVAL_S = 0.25  # between two looks at the event loop's lag


class Metrics(Counters):
    """Holds the process's metrics; all of it belongs to the event loop's thread.

    What takes no working out needs no method: it is counted by its name.
    """

    def __init__(
        self,
        *,
        version: str,
        backends: Callable[[], Sequence[BackendStats]],
        experience: Experience | None = None,
    ) -> None:
        """Takes as `backends` what snapshots each; it and the rest are read at each scrape."""
        ours = (metric for metric in METRICS if metric.owner in ("gateway", "either"))
        super().__init__(ours, Reports(version=version), time.time)
        self.registry = prometheus_client.CollectorRegistry()
        self.registry.register(self)
        prometheus_client.ProcessCollector(registry=self.registry)
        prometheus_client.PlatformCollector(registry=self.registry)
        self._experience = experience
        self._backends = backends
        self.tenants = BusiestTenants(MAX_TENANT_SERIES, MAX_TENANTS_KNOWN)
        self._engine_requests = EngineRequests(self)
        self._finished = FinishedTasks(self, self.tenants)
        # Counts a task out, at the next look at the loop's lag or the next scrape.
        self.task_finished = self._finished.add
        # Takes what an engine said of a request; it is counted at the next scrape.
        self.engine_request = self._engine_requests.add
        # The sizes of messages of sockets: a write adds those that it sends.
        sizes = self.histograms["lanewise_ws_message_bytes"]
        self.message_bytes_in, self.message_bytes_out = sizes["in",], sizes["out",]
        self._policies: list[str] = []  # whose decisions have series, the latest last

    # Tasks

    def task_started(self) -> None:
        """Counts a task in; `task_finished` must follow on every path."""
        self.counts["lanewise_tasks_running"][()].value += 1

    def count_observed(self) -> None:
        """Counts what the tasks that ended were, and what was observed."""
        self._finished.count()
        super().count_observed()

    def spent(self, entry: LedgerEntry) -> None:
        """Counts the money of a ledger's entry; what has no price counts nothing."""
        spend = self.counts["lanewise_spend_usd_total"]
        for line in entry.lines:
            if line.cost_nusd:
                tenant = self.tenants.label(entry.tenant_id, 0)
                spend[tenant, line.model, entry.route].value += line.cost_nusd / NUSD

    def stage(self, name: labels.Stage, duration_us: float) -> None:
        """Records the gateway's own time for one stage of one task."""
        self.histograms["lanewise_gateway_overhead_seconds"][(name,)].observe(duration_us / 1e6)

    # Decisions

    def ranked(self, task_class: TaskClass, classify_us: int, policy_us: int) -> None:
        """Records how sure the classifier was, and how long the two stages of a ranking took."""
        stages = self.histograms["lanewise_gateway_overhead_seconds"]
        stages[("classify",)].observe(classify_us / 1e6)
        stages[("policy",)].observe(policy_us / 1e6)
        p_deep = task_class.p_deep
        confidence = self.histograms["lanewise_classifier_confidence"][(task_class.by_words,)]
        confidence.observe(p_deep if p_deep > 0.5 else 1 - p_deep)

    def decision(self, *, policy: str, rule: str, route: Route, mode: labels.Mode = "live") -> None:
        """Counts a route taken; `policy` and `rule` are names from the policy, never free text."""
        self.counts["lanewise_route_decisions_total"][policy, rule, route, mode].value += 1

    def policies_in_force(self, names: Sequence[str], version: int, shadow_version: int) -> None:
        """Says which policies decide."""
        self.counts["lanewise_policy_version"][("live",)].set(version)
        self.counts["lanewise_policy_version"][("shadow",)].set(shadow_version)
        latest = [name for name in self._policies if name not in names] + list(names)
        self._policies, superseded = latest[-MAX_POLICIES:], latest[:-MAX_POLICIES]
        decisions = self.counts["lanewise_route_decisions_total"]
        for key in [key for key in decisions if key[0] in superseded]:
            del decisions[key]

    def config_reload(self, result: labels.ConfigReload) -> None:
        """Counts a SIGHUP, and keeps whether the last one found a configuration to go by."""
        self.counts["lanewise_config_reloads_total"][(result,)].inc()
        self.counts["lanewise_config_reload_failed"][()].set(float(result == "invalid"))

    def recorded(self, result: Recorded, count: int = 1) -> None:
        """Counts lines of the decision log; a result may be counted in a thread of its own."""
        self.counts["lanewise_decision_records_total"][(result,)].inc(count)

    # Engines

    def failed(self, error: BackendError) -> None:
        """Counts a failed generation."""
        self.counts["lanewise_backend_errors_total"][error.backend, error.code].inc()

    def replaced(self, error: BackendError, taken: str) -> None:
        """Counts a failed generation that `taken` began again."""
        self.failed(error)
        self.counts["lanewise_failovers_total"][error.backend, taken, error.code].inc()

    def continued(self, error: BackendError, taken: str, reason: labels.Continuation) -> None:
        """Counts an answer that broke off and that `taken` went on with."""
        self.failed(error)
        self.counts["lanewise_continued_total"][error.backend, taken, reason].inc()

    def strategy_ended(
        self, strategy: str, outcome: labels.StrategyOutcome, answered_by: BackendGroup | None
    ) -> None:
        """Counts a task on both engines; `answered_by` where there was an answer."""
        self.counts["lanewise_strategy_tasks_total"][strategy, outcome].inc()
        if STRATEGIES[strategy].competes and answered_by is not None:
            self.counts["lanewise_strategy_wins_total"][strategy, answered_by].inc()

    # Pools

    def ratelimit(
        self,
        *,
        group: BackendGroup,
        tier: str,
        result: labels.Admission,
        mode: PoolsMode,
        limited_by: Unit | None = None,
    ) -> None:
        """Counts an admission or refusal; `group` is the pool's, or the route's first."""
        limit = "none" if limited_by is None else labels.LIMIT_NAMES[limited_by]
        asked = "admitted" if result == "admit" else limit
        self.counts["lanewise_pool_asks_total"][group, asked].value += 1
        decisions = self.counts["lanewise_ratelimit_decisions_total"]
        decisions[group, tier, result, limit, mode].value += 1

    def pools_call(self, op: PoolCall, answered: bool, duration_us: int) -> None:
        """Records one call to Redis's pools, and whether it was answered in time."""
        calls = self.histograms["lanewise_ratelimit_redis_seconds"]
        calls[op, "ok" if answered else "error"].observe(duration_us / 1e6)

    def reserved(self, demands: Iterable[Demand]) -> None:
        """Counts a reservation in; `settled` must follow with the same demands."""
        for demand in demands:
            group = (demand.group,)
            self.counts["lanewise_ratelimit_leases"][group].value += 1
            self.counts["lanewise_ratelimit_reserved_tokens"][group].value += demand.tokens

    def extended(self, before: Iterable[Demand], after: Iterable[Demand]) -> None:
        """Counts a reservation's growth; `settled` must follow with `after`."""
        reserved = self.counts["lanewise_ratelimit_reserved_tokens"]
        for held, grown in zip(before, after, strict=True):
            reserved[(grown.group,)].inc(grown.tokens - held.tokens)

    def settled(self, demands: Iterable[Demand], used_tokens: Mapping[BackendGroup, int]) -> None:
        """Counts a reservation out; `used_tokens`: group -> tokens charged, absent for none."""
        for demand in demands:
            group = (demand.group,)
            self.counts["lanewise_ratelimit_leases"][group].value -= 1
            self.counts["lanewise_ratelimit_reserved_tokens"][group].value -= demand.tokens
            if demand.group in used_tokens:
                settled = self.counts["lanewise_ratelimit_settled_tokens_total"][group]
                settled.value += used_tokens[demand.group]

    def pools_stand(self, report: PoolsReport) -> None:
        """Takes how things stand with Redis."""
        self.reports.pools = report

    # Sockets

    def ws_opened(self) -> None:
        """Counts a connection in; `ws_closed` must follow."""
        self.counts["lanewise_ws_connections"][()].inc()
        self.counts["lanewise_ws_opened_total"][()].inc()

    def ws_closed(self, code: int) -> None:
        """Counts a connection out; 1006 stands for a peer that vanished."""
        self.counts["lanewise_ws_connections"][()].dec()
        known = str(code) if code in labels.CLOSE_CODES else "other"
        self.counts["lanewise_ws_closed_total"][(known,)].inc()

    async def watch_loop(self) -> None:
        """Measures the event loop's lag for ever, and counts what was observed; cancel it to stop.

        So no more is gathered than is observed in `LAG_INTERVAL_S`.
        """
        lag = self.histograms["lanewise_event_loop_lag_seconds"][()]
        while True:
            before, wanted_s = time.perf_counter(), pause_s(LAG_INTERVAL_S)
            await asyncio.sleep(wanted_s)
            lag.observe(max(0.0, time.perf_counter() - before - wanted_s))
            self.count_observed()

    # Scrape

    async def render(self) -> bytes:
        """Returns all metrics in Prometheus's text format; its content type is `CONTENT_TYPE`.

        Backends are read here, on the loop; the text is made in a thread, because a large registry
        takes tens of milliseconds. Cancelling abandons the text, nothing else.
        """
        self._read()
        return await asyncio.to_thread(prometheus_client.generate_latest, self.registry)

    async def snapshot(self) -> bytes:
        """Returns the same as a snapshot in msgpack, for `gateway.metrics.metric_sums`."""
        self._read()
        return await asyncio.to_thread(
            lambda: msgspec.msgpack.encode(snapshot_of(self.registry.collect()))
        )

    def _read(self) -> None:
        self.reports.backends = tuple(self._backends())
        self.begin_open_series()
        self._engine_requests.count()
        self.count_observed()
        self._show_busiest()
        if self._experience is not None:
            now_us = time.monotonic_ns() // 1_000
            self.reports.learning = learning_report(self._experience, now_us)

    def _show_busiest(self) -> None:
        """Ends the series of tenants that others have overtaken."""
        gone = self.tenants.choose()
        for name in OF_TENANTS:
            series = self.counts[name]
            for values in [values for values in series if values[0] in gone]:
                del series[values]
        for tenant in self.tenants.shown:  # so that the first refusal shows
            for route in labels.ROUTE.values:
                self.counts["lanewise_tenant_rejected_total"][tenant, route]
