"""Series about warm-ups: how they ended, and what they had engines compute.

An edge: it calls other edges.
"""

from prometheus_client import CollectorRegistry, Counter


class WarmUpMetrics:
    """Counts; backends are configured and states a closed set."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ended = Counter(
            "lanewise_warm_ups_total",
            "Warm-ups that ended, by how far the backend was ready then.",
            ("backend", "state"),
            registry=registry,
        )
        self._computed = Counter(
            "lanewise_warm_up_tokens_total",
            "Prompt tokens that were computed for warm-ups.",
            ("backend",),
            registry=registry,
        )

    def ended(self, backend: str, state: str, num_computed_tokens: int) -> None:
        """Counts one."""
        self._ended.labels(backend, state).inc()
        self._computed.labels(backend).inc(num_computed_tokens)
