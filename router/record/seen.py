"""Records what a decision saw besides its task: engines, pools, what was learned, what is held."""

from collections.abc import Sequence
from itertools import islice, takewhile

import msgspec

from backends.contract import BackendGroup, BackendStats
from backends.prompt import is_tool_output, is_user
from router.classify.task import Task
from router.decide.backend_speed import BackendSpeeds
from router.decide.continuity import MAX_BROUGHT
from router.decide.weighing import Facts

MAX_PREFIX = 32  # entries of a prompt's prefix, the newest


class EngineSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """Records one backend as the decision saw it; times are what its tasks took of late."""

    name: str
    healthy: bool = True
    running: int = 0
    waiting: int = 0
    max_num_seqs: int = 0
    kv_used_tokens: int = 0
    kv_capacity_tokens: int = 0
    ttft_us: float = 0.0
    tpot_us: float = 0.0
    quick_ttft_us: float = 0.0
    quick_tpot_us: float = 0.0
    samples: int = 0
    late_words_us: float | None = None  # 95 % of its answers have words within


class SeenRecord(msgspec.Struct, frozen=True):
    """Records the facts of one decision."""

    pools_left: dict[BackendGroup, float] = {}  # share of each group's tightest pool
    engines: tuple[EngineSeen, ...] = ()
    gain_correction: float = 0.0  # what outcomes had taught
    outcomes: int = 0  # behind it
    explicit: float = 0.0
    drift: tuple[str, ...] = ()  # alarms, in words


class ContextRecord(msgspec.Struct, frozen=True):
    """Records a prompt's context, as far as a decision and a prefix cache count it."""

    items: int = 0
    brought_tokens: int = 0  # in the newest items, which the client brought
    held_tokens: int = 0  # in the cache of `last_backend`
    held_turn: bool = False
    last_backend: str | None = None
    also_held: dict[str, int] = {}
    prefix: tuple[tuple[int, int], ...] = ()  # hash of the prompt so far, its tokens; the newest


class RunRecord(msgspec.Struct, frozen=True, gc=False):
    """Records what of an agent's run the other fields do not say."""

    calm_steps: int = 0
    stuck_times: int = 0
    goes_on: bool = False
    tokens: int = 0  # since the ask
    wants_more: bool = False
    gives_thanks: bool = False
    was_thanked: bool = False


NO_CONTEXT, NO_RUN = ContextRecord(), RunRecord()


class GenerationRecord(msgspec.Struct, frozen=True):
    """Records one generation; times are from the task's arrival."""

    backend: str
    part: str  # of its strategy: answer, verdict, subtask, ...
    state: str  # finished, cancelled, failed
    started_ms: float
    first_ms: float | None  # its first token, by its engine's clock
    last_ms: float | None
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int


def seen_of(stats: Sequence[BackendStats], facts: Facts) -> SeenRecord:
    """Returns what a decision saw; only a log needs it."""
    return SeenRecord(
        pools_left=facts.shares_left,
        engines=_engines(stats, facts.backend_speeds),
        gain_correction=facts.gain_correction,
        outcomes=facts.num_outcomes,
        explicit=facts.explicit,
        drift=facts.alarms,
    )


def _engines(stats: Sequence[BackendStats], speeds: BackendSpeeds | None) -> tuple[EngineSeen, ...]:
    found = []
    for each in stats:
        name = each.info.name
        speed = None if speeds is None else speeds.of(name)
        late_us = None if speeds is None else speeds.late_words_us(name)
        seen = EngineSeen(
            name,
            each.takes_tasks,
            each.num_running,
            each.num_waiting,
            each.max_num_seqs,
            each.kv_used_tokens,
            each.kv_capacity_tokens,
        )
        if speed is not None:
            seen = msgspec.structs.replace(
                seen,
                ttft_us=round(speed.ttft_us, 1),
                tpot_us=round(speed.tpot_us, 1),
                quick_ttft_us=round(speed.quick_ttft_us, 1),
                quick_tpot_us=round(speed.quick_tpot_us, 1),
                samples=speed.num_samples,
                late_words_us=late_us,
            )
        found.append(seen)
    return tuple(found)


def context_of(task: Task) -> ContextRecord:
    """Returns a task's context in numbers and hashes."""
    items = task.request.items
    recent = islice(reversed(items), MAX_BROUGHT)
    brought = takewhile(lambda entry: is_user(entry) or is_tool_output(entry), recent)
    return ContextRecord(
        items=len(items),
        brought_tokens=sum(entry.num_tokens for entry in brought),
        held_tokens=task.held_tokens,
        held_turn=task.held_turn,
        last_backend=task.last_backend,
        also_held=task.also_held,
        prefix=task.request.prefix[-MAX_PREFIX:],
    )
