"""Series about compactions: how many came to what, and how much shorter contexts became.

An edge: it calls other edges.
"""

from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram

# `automatic`: before an answer, by `context_management`; `requested`: nothing else was asked for.
CompactionKind = Literal["automatic", "requested"]
# The last two: a context over its threshold that stayed as it is.
CompactionOutcome = Literal["done", "failed", "stopped", "limit_reached", "nothing_to_fold"]
Moment = Literal["before", "after"]

TOKENS_BUCKETS = (1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3, 1e6)


class CompactionMetrics:
    """See the module."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._compactions = Counter(
            "lanewise_compactions_total",
            "Contexts that were to be compacted, by who asked and what came of it.",
            ("kind", "outcome"),
            registry=registry,
        )
        self._tokens = Histogram(
            "lanewise_compaction_tokens",
            "Prompt tokens before and after, of compactions that came off.",
            ("kind", "moment"),
            buckets=TOKENS_BUCKETS,
            registry=registry,
        )
        for kind in get_args(CompactionKind):  # so that none reads as 0, not as a missing series
            for outcome in get_args(CompactionOutcome):
                self._compactions.labels(kind, outcome)
            for moment in get_args(Moment):
                self._tokens.labels(kind, moment)

    def ended(self, kind: CompactionKind, outcome: CompactionOutcome) -> None:
        """Counts one."""
        self._compactions.labels(kind, outcome).inc()

    def shortened(self, kind: CompactionKind, num_before: int, num_after: int) -> None:
        """Records what one that came off has made of its context."""
        self._tokens.labels(kind, "before").observe(num_before)
        self._tokens.labels(kind, "after").observe(num_after)
