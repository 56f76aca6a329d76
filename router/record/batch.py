"""Decides about many prompts offline, from JSON lines to JSON lines.

Each line `{"id": str, "text": str}` becomes a `BatchDecision`, in the same order, or an error
`{"id": ..., "error": ...}` if it is malformed or if the policy refuses it.

Each prompt becomes a task like one that a client sends with nothing else, and is classified,
weighed and ranked as every task is; it is not admitted, so pools neither refuse nor pay.
"""

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from backends.contract import (
    BackendGroup,
    BackendInfo,
    BackendStats,
    ContextItem,
    GenerateRequest,
    Message,
    TextPart,
)
from backends.prompt import TooLongError, measure
from router.classify.classify import Opinion, features, form_opinion, served_model
from router.classify.linear_model import LinearModel
from router.classify.task import GroupLimits, Hints, Route, Task, TaskClass, Tenant
from router.classify.text_features import Reading
from router.decide.decision import Refusal
from router.decide.ranking import rank
from router.decide.weighing import NO_FACTS, Facts, weigh
from router.lone_surrogates import lone_surrogate
from router.policy.policy import Policy

Lane = Literal["interactive", "deep", "parallel"]

LANES: dict[Route, Lane] = {
    Route.FAST: "interactive",
    Route.DEEP: "deep",
    Route.PARALLEL: "parallel",
}

_MANY = 1 << 40
_LIMITS = GroupLimits(requests_per_min=_MANY, tokens_per_min=_MANY, max_concurrent=_MANY)
ANYONE = Tenant(id="anyone", tier="none", limits={"fast": _LIMITS, "deep": _LIMITS})


def _idle(group: BackendGroup) -> BackendStats:
    info = BackendInfo(
        name=group,
        model=group,
        group=group,
        window_tokens=_MANY,
        max_output_tokens=_MANY,
        accepts_images=True,
    )
    return BackendStats(
        info=info,
        healthy=True,
        num_running=0,
        num_waiting=0,
        max_num_seqs=_MANY,
        kv_used_tokens=0,
        kv_capacity_tokens=_MANY,
    )


# One engine of each group that takes everything, so that the policy alone decides.
IDLE = (_idle("fast"), _idle("deep"))


class BatchPrompt(msgspec.Struct, frozen=True):
    """Holds one line of input."""

    id: str
    text: str


class BatchDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds one line of output."""

    id: str
    lane: Lane
    p_deep: float
    security: bool
    p_security: float
    p_need_large: float  # a large model gets it right and a small one does not
    out_tokens: float
    route_us: float  # reading and classifying the text
    rank_us: float  # weighing the facts and ranking the routes
    reason: str  # `decision.Reason` of the route
    signals: tuple[str, ...]
    refused: str | None = None  # the error code of a refusal; the lane is the preferred one


class BatchError(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one line of output for a line without a decision."""

    id: str | None
    error: str


class _Named(msgspec.Struct, frozen=True):
    id: str | None = None


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what decisions are made by; it is the same for every line of a batch."""

    policy: Policy
    tenant: Tenant = ANYONE
    stats: Sequence[BackendStats] = IDLE
    model: LinearModel = msgspec.field(default_factory=served_model)
    hints: Hints = Hints()
    # By default nothing is known, as in a gateway that has run no task yet.
    facts: Callable[[Task, TaskClass, Reading], Facts] = lambda *_: NO_FACTS
    unix_s: float = 0.0  # time of arrival, for policies' time windows

    @property
    def own_policy(self) -> Policy:
        """Returns the policy with the tenant's overrides."""
        return self.policy.for_tenant(self.tenant.id)


def lone_task(text: str, desk: Desk, name: str = "") -> Task:
    """Makes the task of a client that sends this text and nothing else."""
    items: tuple[ContextItem, ...] = ()
    max_tokens = max(stats.info.window_tokens for stats in desk.stats)
    try:
        items = (measure(Message("user", (TextPart(text),)), max_tokens),)
        num_tokens = items[0].num_tokens
    except TooLongError as error:
        num_tokens = error.num_tokens
    request = GenerateRequest(
        id=name,
        model=desk.hints.model,
        items=items,
        num_prompt_tokens=num_tokens,
        prefix=(),
        max_output_tokens=_MANY,
    )
    return Task(
        id=name,
        tenant=desk.tenant,
        request=request,
        hints=desk.hints,
        last_user_message=text,
        num_last_message_tokens=num_tokens,
        num_turns=1,
        has_images=False,
        last_backend=None,
        arrived_us=0,
        arrived_unix_s=desk.unix_s,
        conversation=name,
    )


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """Says where a task would go, and why it would be refused, if it would."""

    lane: Lane
    reason: str  # `decision.Reason`
    refused: str | None = None  # the protocol's code


def wish(task: Task, opinion: Opinion, desk: Desk) -> Wish | Refusal:
    """Returns the first of the ranked routes, or else of those with `IDLE` engines.

    A refusal means that no engine could run the task: the tenant or the model is at fault.
    """
    policy, task_class = desk.own_policy, opinion.task_class
    facts = desk.facts(task, task_class, opinion.features.reading)
    task_class = weigh(policy.tradeoff, policy.band, task, task_class, desk.stats, facts)
    ranked, code = rank(policy, task, task_class, desk.stats), None
    if isinstance(ranked, Refusal):
        refusal, code = ranked, ranked.code
        ranked = rank(policy, task, task_class, IDLE)
        if isinstance(ranked, Refusal):
            return refusal
    return Wish(lane=LANES[ranked[0].route], reason=ranked[0].reason.value, refused=code)


def decide_prompt(
    prompt: BatchPrompt, desk: Desk, clock_ns: Callable[[], int]
) -> BatchDecision | BatchError:
    """Decides about one prompt; the monotonic clock is for `route_us` and `rank_us` alone."""
    task = lone_task(prompt.text, desk, prompt.id)
    started_ns = clock_ns()
    opinion = form_opinion(features(task), desk.own_policy.band, desk.model)
    classified_ns = clock_ns()
    task_class = opinion.task_class
    wished = wish(task, opinion, desk)
    ranked_ns = clock_ns()
    if isinstance(wished, Refusal):
        return BatchError(id=prompt.id, error=f"{wished.code}: {wished.message}")
    return BatchDecision(
        id=prompt.id,
        lane=wished.lane,
        p_deep=task_class.p_deep,
        security=task_class.security_sensitive,
        p_security=task_class.p_security,
        p_need_large=task_class.p_gain,
        out_tokens=float(task_class.expected_output_tokens),
        route_us=(classified_ns - started_ns) / 1_000,
        rank_us=(ranked_ns - classified_ns) / 1_000,
        reason=wished.reason,
        signals=opinion.signals(),
        refused=wished.refused,
    )


def decide_line(line: bytes, number: int, desk: Desk, clock_ns: Callable[[], int]) -> bytes:
    """Decides about one line of JSON, without line breaks; `number` is for error messages."""
    found: BatchDecision | BatchError
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)  # as some editors begin a file
    try:
        found = decide_prompt(_PROMPT.decode(line), desk, clock_ns)
    except _UNREADABLE as error:
        why = lone_surrogate(line) or error
        found = BatchError(id=_name_of(line), error=f"line {number}: {why}. {_WANTED}")
    return msgspec.json.encode(found)


def decide_lines(
    lines: Iterable[bytes], desk: Desk, clock_ns: Callable[[], int]
) -> Iterator[bytes]:
    """Yields `decide_line` of each line that is not blank."""
    for number, line in enumerate(lines, start=1):
        if not line.isspace() and line:
            yield decide_line(line, number, desk, clock_ns)


_WANTED = 'Expected {"id": "...", "text": "..."}, both texts, on a line of its own.'
_PROMPT = msgspec.json.Decoder(BatchPrompt)
_NAMED = msgspec.json.Decoder(_Named)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def _name_of(line: bytes) -> str | None:
    """Returns the id of a malformed line, if it has one."""
    try:
        return _NAMED.decode(line).id
    except _UNREADABLE:
        return None
