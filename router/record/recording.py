"""Defines the decision log: one line of JSON per task, written when it ends, for back-tests.

Of a prompt, its size, shape and kind are recorded, and its text only if the policy sets
`record_text`. docs/decision-log.md describes every field; changing a meaning raises `SCHEMA`.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import msgspec

from backends.contract import BackendGroup, BackendInfo, Usage
from router.classify.kinds import Kind, kind_of
from router.classify.task import GroupLimits, OptionValue, Task
from router.classify.text_features import Reading, dense, once
from router.decide.decision import RouteDecision, ShadowChoice
from router.policy.policy import Policy
from router.policy.rules import shares_of
from router.record.seen import ContextRecord, GenerationRecord, RunRecord, SeenRecord, context_of

SCHEMA = 2
MAX_TEXT_CHARS = 8_192  # of a prompt, where it is recorded
MAX_NAME_CHARS = 64  # of texts that a client may choose freely
# What `RunRecord` holds, in its order.
_OF_RUN = attrgetter(
    *("calm_steps", "num_stuck", "goes_on", "num_tokens"),
    *("wants_more", "gives_thanks", "was_thanked"),
)


class EngineSettings(msgspec.Struct, frozen=True):
    """Records how a backend was configured; `options` of simulated ones only."""

    name: str
    kind: str
    info: BackendInfo
    options: dict[str, Any] = {}


class RankedRecord(msgspec.Struct, frozen=True, gc=False):
    """Records one route that the task might have taken."""

    route: str
    strategy: str | None
    backends: tuple[str, ...]
    reason: str


class ShadowRecord(msgspec.Struct, frozen=True):
    """Records what the shadow policy would have decided."""

    policy: str
    route: str
    strategy: str | None
    rule: str


class UsageRecord(msgspec.Struct, frozen=True, gc=False):
    """Records what one backend used."""

    backend: str
    model: str
    group: BackendGroup
    input_tokens: int
    cached_tokens: int  # of the input, from a KV prefix
    output_tokens: int
    exact: bool


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Records a task, its decision and its outcome; null where it did not get so far."""

    schema: int = SCHEMA
    id: str  # the response's
    at: float  # Unix time of arrival
    tenant: str
    tier: str
    conversation: str | None = None  # a hash: the same for all its turns
    policy: str | None = None  # the version that decided: v7, or a configured policy's own name
    policy_number: int | None = None  # 7; 0: a configured policy
    policy_digest: str | None = None  # what the SHA-256 of its document begins with
    key: str | None = None  # the id of the key that it came with
    limits: dict[BackendGroup, GroupLimits] = {}  # the tenant's

    # The request.
    model: str
    asked_route: str | None = None
    asked_strategy: str | None = None
    reasoning_effort: str | None = None
    service_tier: str | None = None
    deadline_ms: float | None = None
    max_wait_ms: float | None = None
    strategy_options: dict[str, int | bool] = {}
    metadata: dict[str, str] = {}  # of the keys that the policy's conditions name
    shares: dict[str, float] = {}  # by which the policy's canaries go, by seed
    agent_role: str | None = None
    subagent: str | None = None
    request_kind: str | None = None
    generate: bool = True
    ask_tokens: int | None = None
    prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    turns: int | None = None
    tools: int | None = None
    has_images: bool | None = None
    answers_tools: bool | None = None
    run_stuck: bool | None = None
    run_steady: bool | None = None
    strain: float | None = None
    failed_results: int | None = None
    repeated_calls: int | None = None
    edits: int | None = None
    tests_pass: bool | None = None
    dissatisfied: bool | None = None
    kind: str | None = None
    has_files: bool | None = None
    context: ContextRecord | None = None
    run: RunRecord | None = None
    shape: tuple[float, ...] = ()  # `router.classify.text_features.DENSE_NAMES`
    text: str | None = None  # the prompt, only where the policy says `record_text`

    # The classifier's opinion.
    label: str | None = None
    p_deep: float | None = None
    p_gain: float | None = None
    p_security: float | None = None
    security_sensitive: bool | None = None
    expected_output_tokens: int | None = None

    # The decision.
    ranked: tuple[RankedRecord, ...] = ()
    route: str | None = None  # taken; null: refused
    strategy: str | None = None
    backends: tuple[str, ...] = ()
    reason: str | None = None
    rule: str | None = None
    canary: bool = False
    control: bool = False  # of a canary
    shadow: ShadowRecord | None = None
    seen: SeenRecord | None = None  # by the decision

    # The outcome.
    outcome: str  # as in `lanewise_requests_total`
    error: str | None = None  # the protocol's code
    answered_by: str | None = None
    queued_ms: float | None = None  # until its stream let it start
    waited_ms: float | None = None  # until its pools let it start
    left_ms: float | None = None  # until its client had gone, or had it stopped
    limited_by: str | None = None  # the pool that refused it: group and unit
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    duration_ms: float
    usage: tuple[UsageRecord, ...] = ()
    generations: tuple[GenerationRecord, ...] = ()
    input_tokens: int = 0  # over all backends
    output_tokens: int = 0
    cost: int = 0  # weighted tokens, as the pools were charged
    engine_settings: tuple[EngineSettings, ...] = ()  # in some lines only


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Describes how a task ended; None where it did not get so far."""

    outcome: str
    error: str | None = None
    answered_by: str | None = None
    queued_us: int | None = None
    ttft_us: int | None = None
    tpot_us: float | None = None
    duration_us: int
    usages: Mapping[str, Usage] = {}  # backend -> what it used
    cost: int = 0
    waited_us: int | None = None
    left_us: int | None = None
    generations: tuple[GenerationRecord, ...] = ()


def record_of(
    task: Task,
    decision: RouteDecision | None,
    ended: TaskOutcome,
    backends: Mapping[str, BackendInfo],
    *,
    with_text: bool = False,
    with_shape: bool = True,
    policy: Policy | None = None,
    seen: SeenRecord | None = None,
) -> DecisionRecord:
    """Makes a task's record; without a route `decision` is None.

    Only a log needs the shape and the context. `policy` is the tenant's, which decided.
    """
    hints, request, run = task.hints, task.request, task.run
    reading = task.reading
    record = DecisionRecord(
        id=task.id,
        at=round(task.arrived_unix_s * 1e6) / 1e6,
        tenant=task.tenant.id,
        tier=task.tenant.tier,
        conversation=task.conversation_digest,
        key=task.tenant.key_id or None,
        limits=task.tenant.limits,
        model=hints.model[:MAX_NAME_CHARS],
        asked_route=hints.route.value if hints.route else None,
        asked_strategy=hints.strategy,
        reasoning_effort=hints.reasoning_effort and hints.reasoning_effort[:MAX_NAME_CHARS],
        service_tier=hints.service_tier and hints.service_tier[:MAX_NAME_CHARS],
        deadline_ms=None if hints.deadline_us is None else hints.deadline_us / 1e3,
        max_wait_ms=None if hints.max_wait_us is None else hints.max_wait_us / 1e3,
        strategy_options=_numbers(hints.strategy_options) if hints.strategy_options else {},
        policy_digest=None if policy is None else policy.digest,
        metadata=_metadata(hints.metadata, policy) if policy and hints.metadata else {},
        shares=shares_of(policy, task) if policy is not None and policy.canary_seeds else {},
        agent_role=hints.agent.role,
        subagent=hints.agent.subagent and hints.agent.subagent[:MAX_NAME_CHARS],
        request_kind=hints.agent.request_kind and hints.agent.request_kind[:MAX_NAME_CHARS],
        generate=task.generate,
        ask_tokens=task.num_last_message_tokens,
        prompt_tokens=request.num_prompt_tokens,
        max_output_tokens=request.max_output_tokens,
        turns=task.num_turns,
        tools=len(request.tools),
        has_images=task.has_images,
        answers_tools=run.answers_tools,
        run_stuck=run.stuck,
        run_steady=run.steady,
        strain=run.strain,
        failed_results=run.num_failed,
        repeated_calls=run.num_repeated,
        edits=run.num_edits,
        tests_pass=run.tests_pass,
        dissatisfied=run.dissatisfied,
        kind=_kind(reading),
        has_files=task.has_files,
        context=context_of(task) if with_shape else None,
        run=RunRecord(*_OF_RUN(run)),
        seen=seen,
        shape=tuple(round(number, 3) for number in dense(reading, reading.num_chars))
        if with_shape
        else (),
        text=task.last_user_message[:MAX_TEXT_CHARS] if with_text else None,
        outcome=ended.outcome,
        duration_ms=ended.duration_us / 1e3,
    )
    record = _with_end(record, ended, backends)
    return record if decision is None else _with_decision(record, decision)


def _with_end(
    record: DecisionRecord, ended: TaskOutcome, backends: Mapping[str, BackendInfo]
) -> DecisionRecord:
    """Adds how a task ended."""
    queued_us, ttft_us, tpot_us = ended.queued_us, ended.ttft_us, ended.tpot_us
    usage: tuple[UsageRecord, ...] = ()
    input_tokens = output_tokens = 0
    for name, used in ended.usages.items():
        info, num_input, num_output = backends[name], used.num_input_tokens, used.num_output_tokens
        tokens = num_input, used.num_cached_tokens, num_output
        usage += (UsageRecord(name, info.model, info.group, *tokens, used.exact),)
        input_tokens += num_input
        output_tokens += num_output
    return msgspec.structs.replace(
        record,
        error=ended.error,
        answered_by=ended.answered_by,
        queued_ms=None if queued_us is None else queued_us / 1e3,
        waited_ms=None if ended.waited_us is None else ended.waited_us / 1e3,
        left_ms=None if ended.left_us is None else ended.left_us / 1e3,
        generations=ended.generations,
        ttft_ms=None if ttft_us is None else ttft_us / 1e3,
        tpot_ms=None if tpot_us is None else round(tpot_us) / 1e3,
        usage=usage,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost=ended.cost,
    )


def _with_decision(record: DecisionRecord, decision: RouteDecision) -> DecisionRecord:
    """Adds the classifier's opinion and the decision."""
    task_class, ranked, chosen = decision.task_class, decision.ranked, decision.chosen
    first = chosen or (ranked[0] if ranked else None)
    might: tuple[RankedRecord, ...] = ()
    for each in ranked:
        might += (RankedRecord(each.route, each.strategy, each.backends, each.reason),)
    limited_by = None if decision.refusal is None else decision.refusal.limited_by
    return msgspec.structs.replace(
        record,
        policy=decision.policy_version,
        policy_number=policy_number(decision.policy_version),
        label=task_class.label,
        p_deep=task_class.p_deep,
        p_gain=task_class.p_gain,
        p_security=task_class.p_security,
        security_sensitive=task_class.security_sensitive,
        expected_output_tokens=task_class.expected_output_tokens,
        ranked=might,
        route=None if chosen is None else chosen.route,
        strategy=None if chosen is None else chosen.strategy,
        backends=() if chosen is None else chosen.backends,
        reason=None if first is None else first.reason,
        rule=None if first is None else first.rule,
        canary=first is not None and first.canary,
        control=first is not None and first.control,
        limited_by=None if limited_by is None else " ".join(limited_by),
        shadow=None if decision.shadow is None else _shadow_record(decision.shadow),
    )


def _shadow_record(shadow: ShadowChoice) -> ShadowRecord:
    return ShadowRecord(shadow.policy_version, shadow.route.value, shadow.strategy, shadow.rule)


def policy_number(version: str) -> int:
    """Returns the number of a stored policy's version; 0: a configured policy."""
    return int(version[1:]) if version[:1] == "v" and version[1:].isdecimal() else 0


def _numbers(options: Mapping[str, OptionValue]) -> dict[str, int | bool]:
    """Returns a strategy's options but for texts, which a client may choose freely."""
    return {name: value for name, value in options.items() if not isinstance(value, str)}


def _metadata(given: Mapping[str, str], policy: Policy) -> dict[str, str]:
    """Returns what is given of the metadata that the policy names."""
    names = policy.metadata_names
    if not names or not given:
        return {}
    return {name: given[name][:MAX_NAME_CHARS] for name in sorted(names) if name in given}


@once
def _kind(reading: Reading) -> Kind | None:
    return kind_of(reading.words)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(DecisionRecord)


def encode_line(record: DecisionRecord) -> bytes:
    """Encodes a record as its line, newline included."""
    return _ENCODER.encode(record) + b"\n"


def decode_line(line: bytes) -> DecisionRecord:
    """Decodes a record, ignoring unknown fields; `ValueError` for other lines or newer schemas."""
    record = _DECODER.decode(line)
    if record.schema > SCHEMA:
        raise ValueError(f"the line has schema {record.schema}; this Lanewise knows {SCHEMA}")
    return record
