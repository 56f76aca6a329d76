"""Every Prometheus metric of the gateway, on a registry of its own.

The pipeline reports values it already has, once per task; nothing here is called per token.
What the backends know is read from their snapshots when somebody scrapes. Labels come from closed
sets: routes, outcomes, configured models and rules, never text a client sent. Times come in as
microseconds and leave as seconds, Prometheus's base unit.

An edge: it uses the event loop and the clock.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Info,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from backends.contract import BackendGroup, BackendStats, Usage
from gateway.metrics.adaptation_metrics import AdaptationMetrics
from gateway.metrics.backend_metrics import BackendCollector, BackendFailures
from gateway.metrics.compaction_metrics import CompactionMetrics
from gateway.metrics.counters import Tallies
from gateway.metrics.fleet_metrics import taken
from gateway.metrics.learning_metrics import LearningCollector, observations_of
from gateway.metrics.ledger_metrics import LedgerCollector
from gateway.metrics.outage_metrics import OutageCollector
from gateway.metrics.policy_metrics import PolicyMetrics
from gateway.metrics.strategy_metrics import StrategyMetrics
from gateway.metrics.waiting_metrics import WaitingMetrics
from gateway.metrics.warm_metrics import WarmUpMetrics
from router.classify.task import Route
from router.learn.experience import Experience
from router.pools.failover_pools import Call as PoolCall
from router.pools.failover_pools import PoolsReport
from router.pools.pools import Demand, PoolsMode, Unit

Outcome = Literal["ok", "rate_limited", "shed", "timeout", "error", "cancelled", "invalid"]
Stage = Literal["parse", "classify", "policy", "admit", "dispatch"]
Mode = Literal["live", "shadow", "canary"]
Admission = Literal["admit", "reject"]

CONTENT_TYPE = CONTENT_TYPE_LATEST

MAX_TENANT_SERIES = 50  # tenants with a series of their own; later ones share "other"
LAG_INTERVAL_S = 0.25  # between two looks at the event loop's lag

# Seconds. Durations double from 10 ms, as OpenTelemetry's GenAI conventions (2026) do; TTFT and
# TPOT follow them too, with finer steps below 10 ms, where all of a wafer's tokens fall.
DURATION_BUCKETS_S = tuple(0.01 * 2**n for n in range(14))
TTFT_BUCKETS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
TPOT_BUCKETS_S = (
    *(0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.5, 1.0),
)
OVERHEAD_BUCKETS_S = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.1),
)
REDIS_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
QUEUE_BUCKETS_S = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
LAG_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
CONFIDENCE_BUCKETS = tuple(n / 10 for n in range(1, 11))
MESSAGE_BUCKETS_BYTES = tuple(float(4**n) for n in range(3, 13))  # 64 B .. 16 MiB

CLOSE_CODES = (1000, 1001, 1006, 1008, 1009, 1011, 1012, 1013)  # RFC 6455 7.4; others: "other"


class Metrics:
    """The process's metrics: methods to report with, and `render` for the scrape.

    Not thread-safe on purpose: all methods belong to the event loop's thread.
    """

    def __init__(self, *, version: str, backends: Callable[[], Sequence[BackendStats]]) -> None:
        """Registers everything.

        Args:
            version: The gateway's version, for `lanewise_build_info`.
            backends: Gives a snapshot of every backend; called once per scrape, on the loop.
        """
        self.registry = CollectorRegistry()
        self._backends = backends
        self._snapshot = BackendCollector()
        self.registry.register(self._snapshot)
        self._learning = LearningCollector()
        self.registry.register(self._learning)
        self.experience: Experience | None = None  # read at each scrape
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        Info("lanewise_build", "The gateway that answers.", registry=self.registry).info(
            {"version": version}
        )
        self._tallies = Tallies(self.registry)
        self._tenants: set[str] = set()
        self._make_task_metrics()
        self._make_decision_metrics()
        self.policies = PolicyMetrics(self.registry, self._forget_policy)
        self._make_pool_metrics()
        self._make_socket_metrics()

    def _make_task_metrics(self) -> None:
        self._requests = self._tallies.counter(
            "lanewise_requests_total", "Tasks that ended, by outcome.", "route", "outcome"
        )
        self._duration = self._tallies.histogram(
            "lanewise_request_duration_seconds",
            "From a task's arrival to its terminal event.",
            DURATION_BUCKETS_S,
            "route",
            "outcome",
        )
        self._ttft = self._tallies.histogram(
            "lanewise_ttft_seconds",
            "From a task's arrival to its first token.",
            TTFT_BUCKETS_S,
            "route",
            "model",
        )
        self._tpot = self._tallies.histogram(
            "lanewise_time_per_output_token_seconds",
            "Mean time between a task's output tokens, the first excepted.",
            TPOT_BUCKETS_S,
            "route",
            "model",
        )
        self._tokens = self._tallies.counter(
            "lanewise_tokens_total",
            "Tokens used; input includes cached_input, output includes reasoning.",
            "route",
            "model",
            "type",
        )
        self._tenant_tokens = self._tallies.counter(
            "lanewise_tenant_tokens_total", "Input and output tokens by tenant.", "tenant", "route"
        )
        self._tenant_rejected = self._tallies.counter(
            "lanewise_tenant_rejected_total",
            "Tasks refused for a tenant's limits.",
            "tenant",
            "route",
        )
        self._running = self._tallies.gauge(
            "lanewise_tasks_running",
            "Tasks between arrival and terminal event.",
        )[()]

    def _make_decision_metrics(self) -> None:
        self._overhead = self._tallies.histogram(
            "lanewise_gateway_overhead_seconds",
            "The gateway's own time per task and stage.",
            OVERHEAD_BUCKETS_S,
            "stage",
        )
        self._decisions = self._tallies.counter(
            "lanewise_route_decisions_total",
            "Routes taken, by the rule that put them first.",
            "policy",
            "rule",
            "route",
            "mode",
        )
        self._confidence = self._tallies.histogram(
            "lanewise_classifier_confidence",
            "Probability the classifier gave to the label it chose.",
            CONFIDENCE_BUCKETS,
            "task",
        )
        self._escalations = self._tallies.counter(
            "lanewise_escalations_total",
            "Tasks that ran on another route than the one ranked first.",
            "from",
            "to",
            "reason",
        )
        self.failures = BackendFailures(self.registry)
        self.strategies = StrategyMetrics(self.registry)
        self.compactions = CompactionMetrics(self.registry)
        self.warm_ups = WarmUpMetrics(self.registry)

    def _make_pool_metrics(self) -> None:
        self._ratelimit = self._tallies.counter(
            "lanewise_ratelimit_decisions_total",
            "Admissions and refusals; limit names the pool that refused, none when admitted.",
            "route",
            "tier",
            "result",
            "limit",
            "mode",
        )
        self._redis = self._tallies.histogram(
            "lanewise_ratelimit_redis_seconds",
            "One call to the pools.",
            REDIS_BUCKETS_S,
            "op",
            "status",
        )
        self._reserved = self._tallies.gauge(
            "lanewise_ratelimit_reserved_tokens",
            "Tokens reserved by this process and not settled yet.",
            "route",
        )
        self._settled = self._tallies.counter(
            "lanewise_ratelimit_settled_tokens_total", "Tokens charged at settlement.", "route"
        )
        self._leases = self._tallies.gauge(
            "lanewise_ratelimit_leases", "Reservations this process holds.", "route"
        )
        self._reaped = self._tallies.counter(
            "lanewise_ratelimit_reaped_total",
            "Reservations taken back because their holder stopped renewing them.",
        )[()]
        self.waiting = WaitingMetrics(self.registry)
        self.adaptation = AdaptationMetrics(self.registry)
        self._outages = OutageCollector()
        self.registry.register(self._outages)
        self.ledger = LedgerCollector()
        self.registry.register(self.ledger)
        for group in ("fast", "deep"):  # so that "none" reads as 0, not as a missing series
            self._leases[(group,)].set(0)
            self._reserved[(group,)].set(0)

    def _make_socket_metrics(self) -> None:
        self._connections = self._tallies.gauge(
            "lanewise_ws_connections", "Open WebSocket connections."
        )[()]
        self._opened = self._tallies.counter(
            "lanewise_ws_opened_total", "WebSocket connections opened."
        )[()]
        self._closed = self._tallies.counter(
            "lanewise_ws_closed_total", "WebSocket connections closed, by close code.", "code"
        )
        self._stalls = self._tallies.counter(
            "lanewise_ws_send_stalls_total",
            "Writes that waited for a slow reader.",
        )[()]
        self._message_bytes = self._tallies.histogram(
            "lanewise_ws_message_bytes",
            "Size of WebSocket messages.",
            MESSAGE_BUCKETS_BYTES,
            "direction",
        )
        self._queue_wait = self._tallies.histogram(
            "lanewise_queue_wait_seconds",
            "From a task's arrival until its stream let it start.",
            QUEUE_BUCKETS_S,
            "route",
        )
        self._lag = self._tallies.histogram(
            "lanewise_event_loop_lag_seconds", "How late the event loop wakes.", LAG_BUCKETS_S
        )[()]

    # Tasks

    def task_started(self) -> None:
        """Counts a task in; `task_finished` must follow on every path."""
        self._running.inc()

    def task_finished(
        self,
        *,
        tenant_id: str,
        route: Route | None,
        outcome: Outcome,
        duration_us: int,
        usage_by_model: Mapping[str, Usage],
        first_model: str | None = None,
        ttft_us: int | None = None,
        tpot_us: float | None = None,
    ) -> None:
        """Counts a task out.

        Args:
            tenant_id: Whose it was.
            route: Where it ran; None when it was refused.
            outcome: How it ended.
            duration_us: From arrival to the terminal event.
            usage_by_model: Model id -> tokens used there, a cancelled backend's included.
            first_model: The model whose token came first; None when none came.
            ttft_us: From arrival to that token.
            tpot_us: Mean time between that model's tokens; None with fewer than two.
        """
        where = route.value if route is not None else "none"
        self._running.dec()
        self._requests[where, outcome].inc()
        self._duration[where, outcome].observe(duration_us / 1e6)
        if first_model is not None and ttft_us is not None:
            self._ttft[where, first_model].observe(ttft_us / 1e6)
        if first_model is not None and tpot_us is not None:
            self._tpot[where, first_model].observe(tpot_us / 1e6)
        tenant = self._tenant_label(tenant_id)
        for model, usage in usage_by_model.items():
            self._tokens[where, model, "input"].inc(usage.num_input_tokens)
            self._tokens[where, model, "cached_input"].inc(usage.num_cached_tokens)
            self._tokens[where, model, "output"].inc(usage.num_output_tokens)
            self._tokens[where, model, "reasoning"].inc(usage.num_reasoning_tokens)
            self._tenant_tokens[tenant, where].inc(usage.num_input_tokens + usage.num_output_tokens)
        if outcome == "rate_limited":
            self._tenant_rejected[tenant, where].inc()

    def queue_wait(self, route: Route, wait_us: int) -> None:
        """Records how long a task waited for its turn on its stream."""
        self._queue_wait[(route.value,)].observe(wait_us / 1e6)

    def stage(self, name: Stage, duration_us: float) -> None:
        """Records the gateway's own time for one stage of one task."""
        self._overhead[(name,)].observe(duration_us / 1e6)

    # Decisions

    def decision(self, *, policy: str, rule: str, route: Route, mode: Mode = "live") -> None:
        """Counts a route taken; `policy` and `rule` are names from the policy, never free text."""
        self._decisions[policy, rule, route.value, mode].inc()

    def _forget_policy(self, policy: str) -> None:
        """End the series of decisions by a policy."""
        for labels in [labels for labels in self._decisions if labels[0] == policy]:
            del self._decisions[labels]

    def confidence(self, label: str, probability: float) -> None:
        """Records how sure the classifier was of the label it chose."""
        self._confidence[(label,)].observe(probability)

    def escalation(self, *, ranked_first: Route, taken: Route, reason: str) -> None:
        """Counts a task that did not run where it was ranked first."""
        self._escalations[ranked_first.value, taken.value, reason].inc()

    # Pools

    def ratelimit(
        self,
        *,
        group: str,
        tier: str,
        result: Admission,
        limited_by: Unit | None = None,
        mode: PoolsMode = "redis",
    ) -> None:
        """Counts an admission or refusal; `group` is the pool's, or the route's first."""
        limit = "none" if limited_by is None else _LIMIT_NAMES[limited_by]
        self._ratelimit[group, tier, result, limit, mode].inc()

    def pools_call(self, op: PoolCall, answered: bool, duration_us: int) -> None:
        """Records one call to Redis's pools, and whether it was answered in time."""
        self._redis[op, "ok" if answered else "error"].observe(duration_us / 1e6)

    def reserved(self, demands: Iterable[Demand]) -> None:
        """Counts a reservation in; `settled` must follow with the same demands."""
        for demand in demands:
            self._leases[(demand.group,)].inc()
            self._reserved[(demand.group,)].inc(demand.tokens)

    def extended(self, before: Iterable[Demand], after: Iterable[Demand]) -> None:
        """Counts a reservation's growth; `settled` must follow with `after`."""
        for held, grown in zip(before, after, strict=True):
            self._reserved[(grown.group,)].inc(grown.tokens - held.tokens)

    def settled(self, demands: Iterable[Demand], used_tokens: Mapping[BackendGroup, int]) -> None:
        """Counts a reservation out; `used_tokens`: group -> tokens charged, absent for none."""
        for demand in demands:
            self._leases[(demand.group,)].dec()
            self._reserved[(demand.group,)].dec(demand.tokens)
            self._settled[(demand.group,)].inc(used_tokens.get(demand.group, 0))

    def reaped(self, count: int) -> None:
        """Counts reservations of dead holders that a call took back."""
        self._reaped.inc(count)

    def pools_stand(self, report: PoolsReport) -> None:
        """Takes how things stand with Redis."""
        self._outages.report = report

    # Sockets

    def ws_opened(self) -> None:
        """Counts a connection in; `ws_closed` must follow."""
        self._connections.inc()
        self._opened.inc()

    def ws_closed(self, code: int) -> None:
        """Counts a connection out; 1006 stands for a peer that vanished."""
        self._connections.dec()
        self._closed[(str(code) if code in CLOSE_CODES else "other",)].inc()

    def ws_message_in(self, num_bytes: int) -> None:
        """Records the size of a client's message."""
        self._message_bytes[("in",)].observe(num_bytes)

    def ws_messages_out(self, messages: Iterable[bytes]) -> None:
        """Records the sizes of messages to a client; called per write, not per token."""
        self._message_bytes[("out",)].observe_all(map(len, messages))

    def ws_stalled(self) -> None:
        """Counts a write that had to wait for a slow reader."""
        self._stalls.inc()

    async def watch_loop(self) -> None:
        """Measures the event loop's lag for ever; cancel it to stop."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(LAG_INTERVAL_S)
            self._lag.observe(max(0.0, time.perf_counter() - before - LAG_INTERVAL_S))

    # Scrape

    async def render(self) -> bytes:
        """All metrics in Prometheus's text format; its content type is `CONTENT_TYPE`.

        Backends are read here, on the loop; the text is made in a thread, because a large registry
        takes tens of milliseconds. Cancelling abandons the text, nothing else.
        """
        self._look()
        return await asyncio.to_thread(generate_latest, self.registry)

    async def snapshot(self) -> bytes:
        """The same, to be added up with others': `gateway.metrics.metric_sums`, in msgpack."""
        self._look()
        return await asyncio.to_thread(lambda: msgspec.msgpack.encode(taken(self.registry)))

    def _look(self) -> None:
        self._snapshot.stats = tuple(self._backends())
        if self.experience is not None:
            self._learning.observations = observations_of(self.experience)

    def _tenant_label(self, tenant_id: str) -> str:
        if tenant_id in self._tenants:
            return tenant_id
        if len(self._tenants) < MAX_TENANT_SERIES:
            self._tenants.add(tenant_id)
            return tenant_id
        return "other"


_LIMIT_NAMES: dict[Unit, str] = {
    "requests": "rpm",
    "tokens": "tpm",
    "concurrent": "conc",
    "tokens_day": "tpd",
}


def metric_names() -> frozenset[str]:
    """Every name a scrape can show, with the suffixes of its type: what dashboards may ask for."""
    suffixes: dict[str, tuple[str, ...]] = {
        "counter": ("_total",),
        "gauge": ("",),
        "histogram": ("_bucket", "_sum", "_count"),
        "info": ("_info",),
    }
    metrics = Metrics(version="", backends=tuple)
    names: set[str] = set()
    families: Iterable[Any] = metrics.registry.collect()
    for family in families:
        names.update(family.name + suffix for suffix in suffixes[family.type])
    return frozenset(names)
