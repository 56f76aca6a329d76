"""Series about what outcomes taught, read from the gateway's experience when somebody scrapes."""

from collections.abc import Iterable, Mapping
from typing import get_args

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.experience import Experience
from router.trials import OutcomeSource


class Lessons(msgspec.Struct, frozen=True):
    """A snapshot of what was learned, for metrics."""

    outcomes: Mapping[OutcomeSource, int] = {}
    num_trusted: int = 0
    largest_distance: float = 0.0


def lessons_of(experience: Experience) -> Lessons:
    """Taken on the event loop: the text is made elsewhere."""
    trusted = [learner for learner in experience.learners.values() if learner.trust]
    return Lessons(
        dict(experience.num_outcomes),
        len(trusted),
        max((learner.distance for learner in trusted), default=0.0),
    )


class LearningCollector(Collector):
    """Turns the latest snapshot into series."""

    def __init__(self) -> None:
        self.lessons = Lessons()

    def describe(self) -> Iterable[Metric]:
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        outcomes = CounterMetricFamily(
            "lanewise_learning_outcomes",
            "Outcomes learned from, by where they came from.",
            labels=("source",),
        )
        for source in get_args(OutcomeSource):
            outcomes.add_metric((source,), self.lessons.outcomes.get(source, 0))
        yield outcomes
        yield GaugeMetricFamily(
            "lanewise_learning_tenants",
            "Tenants whose outcomes move their tasks' routes.",
            self.lessons.num_trusted,
        )
        yield GaugeMetricFamily(
            "lanewise_learning_distance",
            "The largest root mean square by which a tenant's outcomes moved the gain.",
            self.lessons.largest_distance,
        )
