"""Summarises learning and drift for metrics."""

from collections import Counter
from collections.abc import Mapping
from typing import get_args

import msgspec

from router.learn.drift import SIGNALS, Sign
from router.learn.experience import Experience
from router.learn.pending_outcomes import OutcomeSource


class LearningReport(msgspec.Struct, frozen=True):
    """Holds a snapshot of what was learned."""

    num_outcomes: Mapping[str, int]  # by source, since start
    num_trusted: int  # tenants whose outcomes move their tasks' routes
    largest_distance: float
    num_alarms: Mapping[str, int]  # by sign: tenants whose traffic has moved
    largest_psi: Mapping[str, float]  # by signal


def learning_report(experience: Experience, now_us: int) -> LearningReport:
    """Summarises a process's experience; call it in the experience's event loop.

    A tenant that asks for nothing any more, since it was deleted perhaps, could never end an alarm.
    """
    trusted = [learner for learner in experience.learners.values() if learner.trust]
    num_alarms: Counter[Sign] = Counter()
    largest_psi = dict.fromkeys(SIGNALS, 0.0)  # monitors have none before enough prompts came
    for tenant_id, monitor in experience.monitors.items():
        if not experience.asked_lately(tenant_id, now_us):
            continue
        num_alarms.update(monitor.standing.alarms.keys())  # a mapping would bring its values
        for signal, index in monitor.standing.psi.items():
            largest_psi[signal] = max(index, largest_psi[signal])
    return LearningReport(
        {source: experience.num_outcomes.get(source, 0) for source in get_args(OutcomeSource)},
        len(trusted),
        max((learner.distance for learner in trusted), default=0.0),
        {sign: num_alarms[sign] for sign in get_args(Sign)},
        largest_psi,
    )
