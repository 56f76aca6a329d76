"""Remembers answers until it is known how good they were.

An outcome comes from one of these, surest first:

- `feedback`: the client reports it. It replaces whatever was inferred before.
- `escalated`: after the fast engine's answer the client requests the deep one by name.
- `retried`: it sends the same again, or complains.
- `accepted`: the conversation simply goes on.

All but the first are hints and have less weight. A task teaches at most once by hints.
"""

import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from backends.contract import BackendGroup, ContextItem, Message
from router.classify.task import Task
from router.decide.continuity import ConversationState
from router.learn.learning import NUM_TRAITS, TRAITS_VERSION, Floats, Observation

OutcomeSource = Literal["feedback", "escalated", "retried", "accepted"]
WEIGHTS: dict[OutcomeSource, float] = {
    "feedback": 1.0,
    "escalated": 0.7,
    "retried": 0.5,
    "accepted": 0.2,
}

_PACKED = struct.Struct(f"<{NUM_TRAITS}e")
MAX_PENDING = 8_192  # answers; about 500 bytes each


class PendingOutcome(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Describes one answer by numbers about its prompt, without any words."""

    tenant_id: str
    answered_by: BackendGroup
    others: tuple[BackendGroup, ...] = ()  # whose answer the client saw as well
    backend: str = ""  # that holds the conversation now
    p_gain: float
    traits: bytes  # float16
    version: str = TRAITS_VERSION
    pinned: bool = False  # the client chose the engine: a retry is no escalation
    taught_by: OutcomeSource | None = None
    taught: dict[BackendGroup, float] = {}

    def observation(self, source: OutcomeSource, success: dict[BackendGroup, float]) -> Observation:
        """Returns an outcome of this answer as what the learner takes."""
        vector = np.frombuffer(self.traits, "<f2").astype(np.float64)
        return Observation(vector, self.p_gain, success, WEIGHTS[source])

    @property
    def usable(self) -> bool:
        """Returns whether its traits are of this version."""
        return self.version == TRAITS_VERSION and len(self.traits) == 2 * NUM_TRAITS


def pack_traits(traits: Sequence[float] | Floats) -> bytes:
    """Packs traits as float16."""
    return _PACKED.pack(*traits)


class PendingOutcomes:
    """Holds one process's latest answers by response id and by digest."""

    def __init__(self, max_pending: int = MAX_PENDING) -> None:
        self._max_pending = max_pending
        self._pending: OrderedDict[tuple[str, str], PendingOutcome] = OrderedDict()
        self._ids: OrderedDict[tuple[str, int], str] = OrderedDict()

    def add(self, response_id: str, pending: PendingOutcome, digest: int | None) -> None:
        """Remembers an answer; a resent context is recognised by the `digest` of its message."""
        self._pending[pending.tenant_id, response_id] = pending
        if len(self._pending) > self._max_pending:
            self._pending.popitem(last=False)
        if digest is not None:
            self._ids[pending.tenant_id, digest] = response_id
            if len(self._ids) > self._max_pending:
                self._ids.popitem(last=False)

    def get(self, tenant_id: str, response_id: str) -> PendingOutcome | None:
        """Returns a tenant's response, if it is remembered."""
        return self._pending.get((tenant_id, response_id))

    def forget(self, tenant_id: str, response_id: str) -> None:
        """Drops a response that its client deleted."""
        self._pending.pop((tenant_id, response_id), None)

    def erase(self, tenant_id: str) -> None:
        """Drops all of a tenant's."""
        for kept in (self._pending, self._ids):
            for key in [key for key in kept if key[0] == tenant_id]:
                del kept[key]  # type: ignore[arg-type]

    def before(self, task: Task) -> PendingOutcome | None:
        """Returns the pending outcome of the last answer in a task's context."""
        digest = last_answer(task.request.items)
        response_id = None if digest is None else self._ids.get((task.tenant.id, digest))
        return None if response_id is None else self.get(task.tenant.id, response_id)


def last_answer(items: tuple[ContextItem, ...]) -> int | None:
    """Returns the digest of the last assistant message among the newest 32 items."""
    for entry in reversed(items[-32:]):
        if isinstance(entry.item, Message) and entry.item.role == "assistant":
            return entry.digest
    return None


def shown(
    pending: PendingOutcome, task: Task, conversation: ConversationState, *, wants_deep: bool
) -> tuple[OutcomeSource, float] | None:
    """Infers source and success of an answer from the client's next task; None amid tool calls."""
    if conversation.answers_tools or task.num_turns < 2:
        return None
    if not conversation.dissatisfied:
        return "accepted", 1.0
    if wants_deep and pending.answered_by == "fast" and not pending.pinned:
        return "escalated", 0.0
    return "retried", 0.0
