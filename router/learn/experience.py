"""Remembers what a gateway process saw of past tasks, as `Facts` for the next decision.

Everything is bounded in memory and optional: a task can be decided without it.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from backends.contract import BackendGroup, BackendStats, ContextItem
from backends.prompt import is_answer
from router.agent_runs.remembered_runs import RememberedRuns, num_newest_items
from router.classify.task import Route, Task, TaskClass
from router.classify.text_features import MAX_KEPT, Reading
from router.decide.backend_speed import BackendSpeeds
from router.decide.continuity import ConversationState, conversation_state
from router.decide.weighing import Facts
from router.learn.drift import Monitor, load_reference, values_of
from router.learn.learning import GainLearner, trait_values, traits
from router.learn.pending_outcomes import (
    OutcomeSource,
    PendingOutcome,
    PendingOutcomes,
    last_answer,
    pack_traits,
    shown,
)
from router.pools.pools import Balance

MAX_TENANTS = 1_024  # with balances and monitors
MAX_LEARNERS = 256  # about 100 KB each
REFERENCE = load_reference()
MAX_WARM = 4_096  # prompts that were warmed up
MAX_HELD = 16_384  # prompts that were answered, or warmed up; about 200 bytes each
MAX_HELD_ENTRIES = 256  # of a prompt's prefix, the newest, that are looked up
STALE_US = 5_000_000  # pools refill, so older balances say nothing
LATELY_US = 30 * 60_000_000  # who was silent for longer has no traffic that could have moved
_NOTHING_NOTED: tuple[int, dict[BackendGroup, float]] = (-STALE_US, {})


class Experience:
    """Holds one process's knowledge of past tasks; belongs to one event loop."""

    def __init__(self) -> None:
        self.backend_speeds = BackendSpeeds()
        self.pending_outcomes = PendingOutcomes()
        self.learners: OrderedDict[str, GainLearner] = OrderedDict()
        self.num_outcomes: Counter[OutcomeSource] = Counter()  # since start; for metrics
        self.monitors: OrderedDict[str, Monitor] = OrderedDict()
        # Tenant -> time of the note, and the share left in each group's tightest pool.
        self._left: OrderedDict[str, tuple[int, dict[BackendGroup, float]]] = OrderedDict()
        self._warm: OrderedDict[tuple[str, int], str] = OrderedDict()  # tenant, prompt -> backend
        self._held: OrderedDict[tuple[str, int], str] = OrderedDict()  # the same, of all that ran
        self.runs = RememberedRuns()

    def arrival(self, task: Task, stats: Sequence[BackendStats]) -> ConversationState:
        """Returns a new task's conversation state, and learns what it implies of the last one."""
        conversation = conversation_state(task, stats)
        if task.num_turns < 2:  # no ask can tell what became of the one before
            return conversation
        before = self.pending_outcomes.before(task)
        if before is not None and before.taught_by is None and task.generate:
            named = next((s.info.group for s in stats if s.info.model == task.hints.model), None)
            wants_deep = task.hints.route is Route.DEEP or named == "deep"
            hint = shown(before, task, conversation, wants_deep=wants_deep)
            if hint is not None:
                self.teach(before, hint[0], {before.answered_by: hint[1]})
        return conversation

    def holder_of(self, task: Task) -> str | None:
        """Returns the backend that gave this context's last answer, if it is remembered.

        A context that is sent whole again is recognised by the prompt that was answered before,
        which it begins with, whatever it ends in; or by the words of its last answer.
        """
        items, prefix = task.request.items, task.request.prefix
        if len(items) == 1 and task.num_turns:
            return None  # it is an ask, and nothing was answered before it
        for num_since, (prompt, _) in enumerate(reversed(prefix[-1 - MAX_HELD_ENTRIES : -1]), 1):
            backend = self._held.get((task.tenant.id, prompt))
            if backend is not None:
                since = items[len(items) - num_newest_items(items, num_since) :]
                if any(is_answer(entry) for entry in since):
                    return backend
        before = self.pending_outcomes.before(task)
        return None if before is None else before.backend or None

    def warm_for(self, task: Task) -> tuple[str, int] | None:
        """Returns the backend that was warmed up for this context, and the tokens it holds."""
        if not self._warm:
            return None
        for prompt, num_tokens in reversed(task.request.prefix):
            backend = self._warm.get((task.tenant.id, prompt))
            if backend is not None:
                return backend, num_tokens
        return None

    def also_held(self, task: Task) -> dict[str, int]:
        """Returns the other backends that held some of this context, with its tokens."""
        found: dict[str, int] = {}
        for prompt, num_tokens in reversed(task.request.prefix[-MAX_HELD_ENTRIES:]):
            backend = self._held.get((task.tenant.id, prompt))
            if backend is not None and backend != task.last_backend:
                found.setdefault(backend, num_tokens)
        return found

    def facts(
        self,
        task: Task,
        task_class: TaskClass,
        reading: Reading,
        conversation: ConversationState,
        now_us: int,
    ) -> Facts:
        """Returns what is known for deciding this task."""
        tenant_id = task.tenant.id
        # Whoever learns from the answer moves both to the newest.
        learner = self.learners.get(tenant_id) or self.learner(tenant_id)
        monitor = self.monitors.get(tenant_id) or self.monitor(tenant_id)
        correction = learner.correction(traits(reading, task_class)) if learner.trust else 0.0
        return Facts(
            conversation=conversation,
            gain_correction=correction,
            num_outcomes=round(learner.num_outcomes) if correction else 0,
            explicit=learner.explicit if correction else 0.0,
            shares_left=self.shares_left(tenant_id, now_us),
            backend_speeds=self.backend_speeds,
            alarms=tuple(monitor.standing.alarms.values()),
        )

    def shares_left(self, tenant_id: str, now_us: int) -> dict[BackendGroup, float]:
        """Returns the share left in each group's tightest pool; nothing if that is not known."""
        noted_us, shares_left = self._left.get(tenant_id, _NOTHING_NOTED)
        return shares_left if now_us - noted_us < STALE_US else {}

    def asked_lately(self, tenant_id: str, now_us: int) -> bool:
        """Says whether a tenant asked for something in the last half hour."""
        noted = self._left.get(tenant_id)
        return noted is not None and now_us - noted[0] < LATELY_US

    def learner(self, tenant_id: str) -> GainLearner:
        """Returns a tenant's learner, a new one at its first task."""
        learner = self.learners.get(tenant_id)
        if learner is not None:
            self.learners.move_to_end(tenant_id)
            return learner
        learner = self.learners[tenant_id] = GainLearner()
        while len(self.learners) > MAX_LEARNERS:
            self.learners.popitem(last=False)
        return learner

    def monitor(self, tenant_id: str) -> Monitor:
        """Returns a tenant's drift monitor, a new one at its first task."""
        monitor = self.monitors.get(tenant_id)
        if monitor is not None:
            self.monitors.move_to_end(tenant_id)
            return monitor
        monitor = self.monitors[tenant_id] = Monitor(REFERENCE)
        while len(self.monitors) > MAX_TENANTS:
            self.monitors.popitem(last=False)
        return monitor

    def note_balances(
        self, tenant_id: str, balances: Iterable[Balance], now_us: int
    ) -> dict[BackendGroup, float]:
        """Keeps and returns the share that a tenant has left in each group's tightest pool."""
        noted_us, known = self._left.get(tenant_id, _NOTHING_NOTED)
        left: dict[BackendGroup, float] = {}
        for balance in balances:
            share = balance.remaining / (balance.limit or 1)
            if share < left.setdefault(balance.group, 1.0):
                left[balance.group] = share
        if now_us - noted_us < STALE_US:
            left = known | left
        self._left[tenant_id] = now_us, left
        self._left.move_to_end(tenant_id)
        if len(self._left) > MAX_TENANTS:
            self._left.popitem(last=False)
        return left

    def note_answer(
        self,
        task: Task,
        task_class: TaskClass,
        output: tuple[ContextItem, ...],
        *,
        answered_by: BackendGroup,
        others: tuple[BackendGroup, ...],
        backend: str,
        pinned: bool,
    ) -> PendingOutcome:
        """Remembers a completed answer until its outcome is known."""
        packed, values = _numbers_of(task.reading, task_class)
        monitor = self.monitor(task.tenant.id)
        monitor.note(values)
        if self.learner(task.tenant.id).trust == 1:
            monitor.settle()
        pending = PendingOutcome(
            tenant_id=task.tenant.id,
            answered_by=answered_by,
            others=others,
            backend=backend,
            p_gain=task_class.p_gain,
            traits=packed,
            pinned=pinned,
        )
        self.pending_outcomes.add(task.id, pending, last_answer(output))
        return pending

    def note_warm(self, task: Task, backend: str) -> None:
        """Remembers which backend holds a warmed-up prompt."""
        _note(self._warm, task, backend, MAX_WARM)
        self.note_held(task, backend)

    def note_held(self, task: Task, backend: str) -> None:
        """Remembers which backend has computed a prompt."""
        _note(self._held, task, backend, MAX_HELD)

    def erase(self, tenant_id: str) -> None:
        """Drops what is known of a tenant's tasks; its learner is reset by `LearnedStore`."""
        self.pending_outcomes.erase(tenant_id)
        self.monitors.pop(tenant_id, None)
        self._left.pop(tenant_id, None)
        self.runs.erase(tenant_id)
        for prompts in (self._warm, self._held):
            for key in [key for key in prompts if key[0] == tenant_id]:
                del prompts[key]

    def teach(
        self, pending: PendingOutcome, source: OutcomeSource, success: dict[BackendGroup, float]
    ) -> bool:
        """Learns an answer's outcome and unlearns an earlier one; False if its traits are old."""
        if not pending.usable:
            return False
        learner = self.learner(pending.tenant_id)
        if pending.taught_by is not None:
            learner.unlearn(pending.observation(pending.taught_by, pending.taught))
        learner.observe(pending.observation(source, success))
        pending.taught_by, pending.taught = source, success
        if "fast" in success:
            self.monitor(pending.tenant_id).note_outcome(1 - success["fast"])
        self.num_outcomes[source] += 1
        return True


@lru_cache(MAX_KEPT)
def _numbers_of(reading: Reading, task_class: TaskClass) -> tuple[bytes, tuple[float, ...]]:
    """Returns a prompt's packed traits, and what a monitor counts of it.

    An agent's loop asks with the same words at each of its steps.
    """
    found = trait_values(reading, task_class)
    return pack_traits(found), values_of(task_class.p_deep, reading, found)


def _note(prompts: OrderedDict[tuple[str, int], str], task: Task, backend: str, most: int) -> None:
    prefix = task.request.prefix
    if prefix:
        key = task.tenant.id, prefix[-1][0]
        prompts[key] = backend
        prompts.move_to_end(key)
        if len(prompts) > most:
            prompts.popitem(last=False)
