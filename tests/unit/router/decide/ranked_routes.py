"""Ranks over one backend of each group."""

from collections.abc import Sequence

from backends.contract import BackendStats
from router.classify.task import Task, TaskClass
from router.decide.decision import RankedRoute, Refusal
from router.decide.ranking import rank
from router.policy.policy import DEFAULT_POLICY, Policy
from tests.unit.router.tasks import backend, of_class

WAFER = backend("wafer-0", "fast")

GPU = backend("gpu-0", "deep", window_tokens=262_144, images=True)

BOTH = (WAFER, GPU)


def ranked(
    a_task: Task,
    task_class: TaskClass | None = None,
    stats: Sequence[BackendStats] = BOTH,
    policy: Policy = DEFAULT_POLICY,
) -> tuple[RankedRoute, ...]:
    result = rank(policy, a_task, task_class or of_class(), stats)
    assert not isinstance(result, Refusal), result.message
    return result


def routes(result: tuple[RankedRoute, ...]) -> list[tuple[str, str]]:
    return [(route.route.value, route.reason.value) for route in result]
