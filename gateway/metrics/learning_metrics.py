"""Series about what outcomes taught, read from the gateway's experience when somebody scrapes.

An edge: it calls other edges.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import get_args

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.learn.drift import SIGNALS, Sign
from router.learn.experience import Experience
from router.learn.pending_outcomes import OutcomeSource


class Observations(msgspec.Struct, frozen=True):
    """A snapshot of what was learned, for metrics."""

    outcomes: Mapping[OutcomeSource, int] = {}
    num_trusted: int = 0
    largest_distance: float = 0.0
    num_alarms: Mapping[Sign, int] = {}
    largest_psi: Mapping[str, float] = {}  # by signal


def observations_of(experience: Experience) -> Observations:
    """Taken on the event loop: the text is made elsewhere."""
    trusted = [learner for learner in experience.learners.values() if learner.trust]
    num_alarms: Counter[Sign] = Counter()
    largest_psi = dict.fromkeys(SIGNALS, 0.0)  # none is there before enough asks came
    for monitor in experience.monitors.values():
        num_alarms.update(monitor.standing.alarms.keys())  # a mapping would bring its values
        for signal, index in monitor.standing.psi.items():
            largest_psi[signal] = max(index, largest_psi[signal])
    return Observations(
        dict(experience.num_outcomes),
        len(trusted),
        max((learner.distance for learner in trusted), default=0.0),
        num_alarms,
        largest_psi,
    )


class LearningCollector(Collector):
    """Turns the latest snapshot into series."""

    def __init__(self) -> None:
        self.observations = Observations()

    def describe(self) -> Iterable[Metric]:
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        outcomes = CounterMetricFamily(
            "lanewise_learning_outcomes",
            "Outcomes learned from, by where they came from.",
            labels=("source",),
        )
        for source in get_args(OutcomeSource):
            outcomes.add_metric((source,), self.observations.outcomes.get(source, 0))
        yield outcomes
        yield GaugeMetricFamily(
            "lanewise_learning_tenants",
            "Tenants whose outcomes move their tasks' routes.",
            self.observations.num_trusted,
        )
        yield GaugeMetricFamily(
            "lanewise_learning_distance",
            "The largest root mean square by which a tenant's outcomes moved the gain.",
            self.observations.largest_distance,
        )
        alarms = GaugeMetricFamily(
            "lanewise_drift_alarms", "Tenants whose traffic has moved, by sign.", labels=("sign",)
        )
        for sign in get_args(Sign):
            alarms.add_metric((sign,), self.observations.num_alarms.get(sign, 0))
        yield alarms
        indexes = GaugeMetricFamily(
            "lanewise_drift_psi",
            "The largest population stability index of a tenant's asks, by signal.",
            labels=("signal",),
        )
        for signal, index in self.observations.largest_psi.items():
            indexes.add_metric((signal,), index)
        yield indexes
