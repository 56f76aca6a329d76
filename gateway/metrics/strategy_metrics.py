"""Series about tasks that ran on both engines: how each strategy ended, who won, what was lost."""

from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter

from backends.contract import BackendGroup, Usage
from router.pools.pools import GROUPS
from router.strategies.table import STRATEGIES

# `degraded`: an answer, though a part failed; then the other engine gave it, or had less to go by.
StrategyOutcome = Literal["ok", "degraded", "error", "cancelled"]


class StrategyMetrics:
    """See the module."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._tasks = Counter(
            "lanewise_strategy_tasks_total",
            "Tasks that ran on both engines, by how they ended.",
            ("strategy", "outcome"),
            registry=registry,
        )
        self._wins = Counter(
            "lanewise_strategy_wins_total",
            "Answers of a race or hedge, by the engine that gave them.",
            ("strategy", "route"),
            registry=registry,
        )
        self._wasted = Counter(
            "lanewise_strategy_wasted_tokens_total",
            "Input and output tokens of generations that a strategy began and then cancelled.",
            ("strategy", "route"),
            registry=registry,
        )
        for (
            strategy,
            record,
        ) in STRATEGIES.items():  # none reads as 0, not as a missing series
            for outcome in get_args(StrategyOutcome):
                self._tasks.labels(strategy, outcome)
            for group in GROUPS:
                self._wasted.labels(strategy, group)
                if record.competes:
                    self._wins.labels(strategy, group)

    def ended(
        self, strategy: str, outcome: StrategyOutcome, answered_by: BackendGroup | None
    ) -> None:
        """Counts a task; `answered_by` where there was an answer."""
        self._tasks.labels(strategy, outcome).inc()
        if STRATEGIES[strategy].competes and answered_by is not None:
            self._wins.labels(strategy, answered_by).inc()

    def wasted(self, strategy: str, group: BackendGroup, usage: Usage) -> None:
        """Counts what a generation used that was cancelled for another's sake."""
        tokens = usage.num_input_tokens + usage.num_output_tokens
        self._wasted.labels(strategy, group).inc(tokens)
