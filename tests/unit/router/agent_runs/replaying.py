"""Replays runs request by request through what decides them, without a gateway."""

import random
from typing import NamedTuple

import msgspec

from backends.contract import BackendGroup, ContextItem
from backends.prompt import prompt_size
from router.agent_runs.remembered_runs import RememberedRuns
from router.classify.classify import DEFAULT_BAND
from router.classify.task import Task, TaskClass
from router.decide.continuity import conversation_state
from router.decide.weighing import Facts, weigh
from router.policy.tradeoff import Tradeoff
from tests.unit.router.agent_runs.planted_runs import PlantedRun
from tests.unit.router.tasks import backend, of_class, task

STATS = (backend("wafer", "fast"), backend("gpu", "deep"))
NAMES: dict[BackendGroup, str] = {"fast": "wafer", "deep": "gpu"}


class Replayed(NamedTuple):
    """Says where each request of a run went."""

    run: PlantedRun
    labels: tuple[str, ...]

    @property
    def delay(self) -> int | None:
        """Returns how many requests after it was stuck it went up; None: it never did."""
        start = self.run.stuck_at or 0
        later = (n for n, label in enumerate(self.labels[start:]) if label == "deep")
        return next(later, None)

    @property
    def num_early(self) -> int:
        """Returns how many requests went up before it was stuck, or at all if it never was."""
        return self.labels[: self.run.stuck_at].count("deep")

    @property
    def num_moves(self) -> int:
        pairs = zip(self.labels, self.labels[1:], strict=False)
        return sum(before != after for before, after in pairs)


def replayed(
    run: PlantedRun,
    seed: int,
    *,
    asked: TaskClass | None = None,
    holder: BackendGroup = "fast",
) -> Replayed:
    """Replays a run that `holder` begins; without `asked` its ask is not deep, by the seed."""
    asked = asked or of_class(random.Random(f"{seed} {run}").choice(("interactive", "uncertain")))
    memory, labels = RememberedRuns(), []
    for num_items in run.requests:
        a_task = _task(run.items[:num_items], memory, holder)
        facts = Facts(conversation=conversation_state(a_task, STATS))
        label = weigh(Tradeoff(), DEFAULT_BAND, a_task, asked, STATS, facts).label
        if label == "uncertain":  # amid its calls a task stays where it is (`ranking`)
            label = "deep" if holder == "deep" else "interactive"
        labels.append(label)
        holder = "deep" if label == "deep" else "fast"
    return Replayed(run, tuple(labels))


def _task(items: tuple[ContextItem, ...], memory: RememberedRuns, holder: BackendGroup) -> Task:
    plain = task()
    num_tokens, prefix = prompt_size(None, (), plain.request.text_format, items)
    request = msgspec.structs.replace(
        plain.request, items=items, num_prompt_tokens=num_tokens, prefix=prefix
    )
    run = memory.run_of(plain.tenant.id, request)
    return msgspec.structs.replace(plain, request=request, run=run, last_backend=NAMES[holder])
