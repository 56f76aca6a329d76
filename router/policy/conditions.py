"""Defines the conditions of a policy's rules: a typed tree of tests, compiled once.

There are no expressions and no regular expressions, so evaluation is always finite and cheap.
A new test is one field of `When` and one row of `_ACTUAL`. Its name says how it compares:
`..._from` and `..._below` are bounds, a list must contain the value, a boolean must be equal.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from backends.contract import BackendGroup, BackendStats
from router.classify.agent import AgentRole
from router.classify.kinds import Kind, kind_of
from router.classify.task import Label, Task, TaskClass
from router.classify.words import words_of
from router.policy.calendar_window import Window
from router.policy.positions import Path

MAX_CONDITION_DEPTH = 8
MAX_CONDITION_NODES = 200  # of one rule

Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[int, Meta(ge=0)]
Load = Annotated[float, Meta(ge=0)]
Names = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...],
    Meta(min_length=1, max_length=256),
]
NestedWhen = Annotated[tuple["When", ...], Meta(min_length=1)]


class Situation(msgspec.Struct, frozen=True, dict=True):
    """Holds what conditions test of a task; expensive parts are computed when first needed."""

    task: Task
    task_class: TaskClass
    stats: Sequence[BackendStats] = ()

    @cached_property
    def words(self) -> list[bytes]:
        """Returns the prompt's words, in lower case and in order."""
        return self.task.reading.words

    @cached_property
    def kind(self) -> Kind | None:
        """Returns the kind of work that the prompt names."""
        return kind_of(self.words)

    def load(self, group: BackendGroup) -> float | None:
        """Returns the load of a group's least loaded healthy backend, or None without one."""
        stats = [s for s in self.stats if s.info.group == group and s.takes_tasks]
        return min((load_of(s) for s in stats), default=None)


def load_of(stats: BackendStats) -> float:
    """Returns the used share of batch or KV cache, whichever is larger; tasks wait from 1 on."""
    batch = (stats.num_running + stats.num_waiting) / (stats.max_num_seqs or 1)
    cache = stats.kv_used_tokens / (stats.kv_capacity_tokens or 1)
    return batch if batch > cache else cache


class When(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    dict=True,  # for what is compiled
    rename={"not_": "not"},
):
    """Holds conditions on a task; all that are given must hold."""

    # Tenant and request.
    tenants: Names | None = None
    tiers: Names | None = None
    models: Names | None = None  # as requested: auto, or an alias of the policy
    metadata: dict[str, Names] | None = None  # each key of the request's has one of the values
    reasoning_effort: Names | None = None
    service_tier: Names | None = None
    agent_role: tuple[AgentRole, ...] | None = None  # these three: as the client says
    subagent: Names | None = None
    request_kind: Names | None = None
    deadline_ms_below: Amount | None = None  # does not hold without a deadline

    # The classifier's opinion.
    labels: tuple[Label, ...] | None = None
    p_deep_from: Share | None = None
    p_deep_below: Share | None = None
    p_gain_from: Share | None = None
    p_gain_below: Share | None = None
    p_security_from: Share | None = None
    security_sensitive: bool | None = None
    output_tokens_from: Amount | None = None
    output_tokens_below: Amount | None = None

    # The last user message, not the context before it.
    kinds: tuple[Kind, ...] | None = None
    words: Names | None = None  # any of them; "a phrase", or "begin*"
    ask_tokens_from: Amount | None = None
    ask_tokens_below: Amount | None = None

    # The context.
    context_tokens_from: Amount | None = None  # the whole prompt
    context_tokens_below: Amount | None = None
    turns_from: Amount | None = None  # user messages so far
    turns_below: Amount | None = None
    has_tools: bool | None = None
    has_images: bool | None = None

    # What has happened since the ask, in an agent's run.
    run_stuck: bool | None = None
    run_steady: bool | None = None  # it has edited, or its tests pass, and nothing fails
    strain_from: Load | None = None
    strain_below: Load | None = None
    failed_results_from: Amount | None = None  # of tools, in a row
    failed_results_below: Amount | None = None
    repeated_calls_from: Amount | None = None  # the same call or failure as before
    repeated_calls_below: Amount | None = None
    edits_from: Amount | None = None  # that landed
    edits_below: Amount | None = None
    tests_pass: bool | None = None  # neither holds before tests have run
    dissatisfied: bool | None = None  # the user complains, or asks the same again
    answers_tools: bool | None = None  # the newest item is a tool's output

    # The engines and the time.
    fast_load_from: Load | None = None  # see `Situation.load`
    fast_load_below: Load | None = None
    deep_load_from: Load | None = None
    deep_load_below: Load | None = None
    time: Window | None = None

    # Branches of the tree.
    all: NestedWhen | None = None
    any: NestedWhen | None = None
    not_: "When | None" = None

    def holds(self, situation: Situation) -> bool:
        """Returns whether every condition holds."""
        for test in self.tests:  # noqa: SIM110 - half the time of all() and a generator
            if not test.holds(situation):
                return False
        return True

    def why_not(self, situation: Situation) -> list[str]:
        """Describes each condition that does not hold."""
        failed = (test for test in self.tests if not test.holds(situation))
        return [f"{test.text} ({test.seen(situation)})" for test in failed]

    @cached_property
    def tests(self) -> "tuple[Test, ...]":
        """Compiles the given conditions, once."""
        return tuple(_compiled(self))

    def walk(self, path: Path = ()) -> Iterator[tuple[Path, "When"]]:
        """Yields this node, whose path is `path`, and all nested ones with their paths."""
        yield path, self
        for name in ("all", "any"):
            for n, branch in enumerate(getattr(self, name) or ()):
                yield from branch.walk((*path, name, n))
        if self.not_ is not None:
            yield from self.not_.walk((*path, "not"))

    def size(self) -> tuple[int, int]:
        """Returns the depth and the number of nodes, tests included."""
        inside = list(self.walk())
        depth = 1 + max(sum(isinstance(step, str) for step in path) for path, _ in inside)
        return depth, sum(1 + len(when.tests) for _, when in inside)


class Test(NamedTuple):
    """Holds one compiled condition."""

    text: str  # as in the document: kinds = refactor, fix
    holds: Callable[[Situation], bool]
    seen: Callable[[Situation], str]  # describes the task's actual value


_Actual = Callable[[Situation], Any]

# Field without `_from` or `_below` -> the task's value.
_ACTUAL: dict[str, _Actual] = {
    "tenants": lambda s: s.task.tenant.id,
    "tiers": lambda s: s.task.tenant.tier,
    "models": lambda s: s.task.hints.model,
    "reasoning_effort": lambda s: s.task.hints.reasoning_effort,
    "service_tier": lambda s: s.task.hints.service_tier,
    "agent_role": lambda s: s.task.hints.agent.role,
    "subagent": lambda s: s.task.hints.agent.subagent,
    "request_kind": lambda s: s.task.hints.agent.request_kind,
    "deadline_ms": lambda s: None if (us := s.task.hints.deadline_us) is None else us / 1e3,
    "labels": lambda s: s.task_class.label,
    "p_deep": lambda s: s.task_class.p_deep,
    "p_gain": lambda s: s.task_class.p_gain,
    "p_security": lambda s: s.task_class.p_security,
    "security_sensitive": lambda s: s.task_class.security_sensitive,
    "output_tokens": lambda s: s.task_class.expected_output_tokens,
    "kinds": lambda s: s.kind,
    "ask_tokens": lambda s: s.task.num_last_message_tokens,
    "context_tokens": lambda s: s.task.request.num_prompt_tokens,
    "turns": lambda s: s.task.num_turns,
    "has_tools": lambda s: bool(s.task.request.tools),
    "has_images": lambda s: s.task.has_images,
    "run_stuck": lambda s: s.task.run.stuck,
    "run_steady": lambda s: s.task.run.steady,
    "strain": lambda s: s.task.run.strain,
    "failed_results": lambda s: s.task.run.num_failed,
    "repeated_calls": lambda s: s.task.run.num_repeated,
    "edits": lambda s: s.task.run.num_edits,
    "tests_pass": lambda s: s.task.run.tests_pass,
    "dissatisfied": lambda s: s.task.run.dissatisfied,
    "answers_tools": lambda s: s.task.run.answers_tools,
    "fast_load": lambda s: s.load("fast"),
    "deep_load": lambda s: s.load("deep"),
}


def _compiled(when: When) -> Iterator[Test]:
    for name in when.__struct_fields__:
        wanted = getattr(when, name)
        if wanted is None:
            continue
        if name in ("all", "any", "not_"):
            yield _branch(name, wanted)
        elif name == "time":
            yield _time(wanted)
        elif name == "words":
            yield _words(wanted)
        elif name == "metadata":
            yield from (_metadata(key, values) for key, values in wanted.items())
        else:
            yield _leaf(name, wanted)


def _leaf(name: str, wanted: Any) -> Test:
    stem = name.removesuffix("_from").removesuffix("_below")
    actual = _ACTUAL[stem]

    def seen(situation: Situation) -> str:
        value = actual(situation)
        shown = f"{value:.2f}" if isinstance(value, float) else str(value).lower()
        return f"here {'not given' if value is None else shown}"

    def is_from(situation: Situation) -> bool:
        return (value := actual(situation)) is not None and value >= wanted

    def is_below(situation: Situation) -> bool:
        return (value := actual(situation)) is not None and value < wanted

    if name.endswith("_from"):
        return Test(f"{stem} >= {wanted:g}", is_from, seen)
    if name.endswith("_below"):
        return Test(f"{stem} < {wanted:g}", is_below, seen)
    if isinstance(wanted, bool):
        return Test(f"{name} = {str(wanted).lower()}", lambda s: actual(s) is wanted, seen)
    values = frozenset(wanted)
    return Test(f"{name} = {_listed(wanted)}", lambda s: actual(s) in values, seen)


def _words(wanted: tuple[str, ...]) -> Test:
    single: set[bytes] = set()
    prefixes: list[bytes] = []
    phrases: list[bytes] = []
    for text in wanted:
        parts = words_of(text.rstrip("*").encode())
        if text.endswith("*") and len(parts) == 1:
            prefixes += parts
        elif len(parts) == 1:
            single.update(parts)
        elif parts:
            phrases.append(b" %b " % b" ".join(parts))
    starts = tuple(prefixes)

    def holds(situation: Situation) -> bool:
        words = situation.words
        if not single.isdisjoint(words):
            return True
        if starts and any(word.startswith(starts) for word in words):
            return True
        line = b" %b " % b" ".join(words) if phrases else b""
        return any(phrase in line for phrase in phrases)

    return Test(f"words = {_listed(wanted)}", holds, lambda _: "none of them is in the ask")


def _metadata(key: str, wanted: tuple[str, ...]) -> Test:
    values = frozenset(wanted)
    return Test(
        f"metadata.{key} = {_listed(wanted)}",
        lambda s: s.task.hints.metadata.get(key) in values,
        lambda s: f"here {s.task.hints.metadata.get(key, 'none')[:64]}",
    )


def _time(window: Window) -> Test:
    return Test(
        f"time in the window of {window.zone}",
        lambda s: window.holds(s.task.arrived_unix_s),
        lambda _: "it is outside",
    )


def _branch(name: str, wanted: Any) -> Test:
    if name == "not_":
        return Test("not", lambda s: not wanted.holds(s), lambda _: "what must not hold does")
    branches: tuple[When, ...] = wanted
    combined = all if name == "all" else any

    def seen(situation: Situation) -> str:
        text = "; ".join(text for branch in branches for text in branch.why_not(situation))
        return text if name == "all" else f"none holds: {text}"

    return Test(name, lambda s: combined(branch.holds(s) for branch in branches), seen)


def _listed(values: Sequence[str]) -> str:
    shown = ", ".join(values[:6])
    return f"{shown}, ... ({len(values)})" if len(values) > 6 else shown
