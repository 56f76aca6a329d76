"""Series about backends: read from their snapshots at scrape time, and what they failed at.

An edge: it calls other edges.
"""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from backends.contract import BackendError, BackendStats


class BackendCollector(Collector):
    """Turns the latest snapshots into series: ours per backend, and vLLM's names per model.

    vLLM's names (its metrics design document, 2026) let dashboards made for it work unchanged.
    """

    def __init__(self) -> None:
        self.stats: tuple[BackendStats, ...] = ()

    def describe(self) -> Iterable[Metric]:
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        for name, text, value in _BACKEND_GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=("backend",))
            for stats in self.stats:
                gauge.add_metric((stats.info.name,), value(stats))
            yield gauge
        for name, text, value in _BACKEND_COUNTERS:
            counter = CounterMetricFamily(name, text, labels=("backend",))
            for stats in self.stats:
                counter.add_metric((stats.info.name,), value(stats))
            yield counter
        for name, text, value in _VLLM_GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=("model_name", "engine"))
            for stats in self.stats:
                gauge.add_metric((stats.info.model, stats.info.name), value(stats))
            yield gauge
        for name, text, value in _VLLM_COUNTERS:
            counter = CounterMetricFamily(name, text, labels=("model_name", "engine"))
            for stats in self.stats:
                counter.add_metric((stats.info.model, stats.info.name), value(stats))
            yield counter


class BackendFailures:
    """What backends failed at, and who took over."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._errors = Counter(
            "lanewise_backend_errors_total",
            "Generations that a backend failed.",
            ("backend", "reason"),
            registry=registry,
        )
        self._failovers = Counter(
            "lanewise_failovers_total",
            "Generations begun again on another backend of the group, before their first token.",
            ("from", "to", "reason"),
            registry=registry,
        )

    def failed(self, error: BackendError) -> None:
        """Counts a failed generation."""
        self._errors.labels(error.backend, error.code).inc()

    def replaced(self, error: BackendError, taken: str) -> None:
        """Counts a failed generation that `taken` began again."""
        self.failed(error)
        self._failovers.labels(error.backend, taken, error.code).inc()


def _kv_usage(stats: BackendStats) -> float:
    return stats.kv_used_tokens / stats.kv_capacity_tokens if stats.kv_capacity_tokens else 0.0


_Reading = tuple[str, str, Callable[[BackendStats], float]]

_BACKEND_GAUGES: tuple[_Reading, ...] = (
    ("lanewise_backend_up", "1 while the backend is healthy.", lambda s: float(s.healthy)),
    (
        "lanewise_backend_ejected",
        "1 while left alone for its failures.",
        lambda s: float(s.ejected),
    ),
    ("lanewise_backend_inflight", "Sequences that generate.", lambda s: s.num_running),
    ("lanewise_backend_waiting", "Sequences that wait for a place.", lambda s: s.num_waiting),
    ("lanewise_backend_warming", "Warm-ups under way.", lambda s: s.num_warming),
    ("lanewise_backend_max_seqs", "Sequences that fit at once.", lambda s: s.max_num_seqs),
    ("lanewise_backend_kv_usage_ratio", "Share of the KV cache held by sequences.", _kv_usage),
)
_BACKEND_COUNTERS: tuple[_Reading, ...] = (
    (
        "lanewise_upstream_continued",
        "Requests that brought an upstream new items alone.",
        lambda s: s.num_continued,
    ),
    (
        "lanewise_upstream_chains_lost",
        "Requests that an upstream could not continue, and that were sent whole.",
        lambda s: s.num_chains_lost,
    ),
)
_VLLM_GAUGES: tuple[_Reading, ...] = (
    ("vllm:num_requests_running", "Sequences that generate.", lambda s: s.num_running),
    ("vllm:num_requests_waiting", "Sequences that wait for a place.", lambda s: s.num_waiting),
    ("vllm:kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", _kv_usage),
)
_VLLM_COUNTERS: tuple[_Reading, ...] = (
    ("vllm:prompt_tokens", "Prompt tokens since start.", lambda s: s.num_prompt_tokens),
    ("vllm:generation_tokens", "Tokens generated since start.", lambda s: s.num_generated_tokens),
    ("vllm:prefix_cache_queries", "Prompt tokens looked up.", lambda s: s.num_prompt_tokens),
    ("vllm:prefix_cache_hits", "Prompt tokens found in a prefix.", lambda s: s.num_cached_tokens),
)
