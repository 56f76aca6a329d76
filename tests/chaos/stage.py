"""Supports the scenarios: what one is given, and how it gathers what did not hold."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple


class Stage(NamedTuple):
    """Says what a scenario is given; it returns what did not hold."""

    folder: Path  # logs stay here if it fails
    seed: int
    seconds: float  # of its load or fault


Scene = Callable[[Stage], Awaitable[list[str]]]


class Checks:
    """Checks the criteria of a scenario, and prints each with its figure."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def that(self, holds: bool, what: str) -> None:
        """Notes a criterion; `what` says it with its figure."""
        print(f"  {'held  ' if holds else 'FAILED'} {what}", flush=True)
        if not holds:
            self.failures.append(what)

    def below(self, figure: float, bound: float, what: str) -> None:
        """Notes that a figure is below its bound; one that is no number is not."""
        self.that(figure < bound, f"{what}: {figure:.4g}, to be below {bound:g}")

    def no_violation(self, watch: Any) -> None:
        """Notes the invariants."""
        told = "; ".join(watch.violations[:5]) or "none violated"
        self.that(not watch.violations, f"invariants, looked at {watch.num_looks} times: {told}")
