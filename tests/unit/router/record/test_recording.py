"""The decision log's format: what a line holds, what it never holds, and that pandas' reader of
JSON lines and later versions can live with it."""

import json

import msgspec
import pytest

from backends.contract import Usage
from router.classify.task import Hints, Route
from router.classify.text_features import DENSE_NAMES
from router.decide.backend_speed import BackendSpeeds
from router.decide.decision import RankedRoute, Reason, RouteDecision, ShadowChoice
from router.decide.weighing import Facts
from router.policy.policy import parse_policy
from router.record.recording import (
    SCHEMA,
    DecisionRecord,
    RankedRecord,
    ShadowRecord,
    TaskOutcome,
    UsageRecord,
    decode_line,
    encode_line,
    record_of,
)
from router.record.seen import seen_of
from tests.unit.router.tasks import backend, of_class, task

SECRET = "canary-7f3a refactor the vault"
INFOS = {
    stats.info.name: stats.info for stats in (backend("wafer", "fast"), backend("gpu", "deep"))
}
ROUTE = RankedRoute(
    route=Route.PARALLEL,
    backends=("wafer", "gpu"),
    strategy="hedge",
    reason=Reason.RULE,
    why=f"Because of {SECRET}.",
    rule="deep-canary",
    canary=True,
)
TASK = task(
    SECRET,
    hints=Hints(
        route=Route.PARALLEL,
        deadline_us=2_500_000,
        metadata={"note": SECRET},
        reasoning_effort="high" + 100 * "!",
    ),
    conversation=SECRET,
    arrived_unix_s=1_700_000_000.1234,
)
DECISION = RouteDecision(
    task_id=TASK.id,
    task_class=msgspec.structs.replace(of_class("deep"), signals=(f'"{SECRET}" +1.0',)),
    ranked=(ROUTE,),
    policy_version="v7",
    chosen=ROUTE,
    shadow=ShadowChoice(policy_version="v8", route=Route.FAST, strategy=None, rule="class"),
)
COURSE = TaskOutcome(
    outcome="ok",
    answered_by="gpu",
    queued_us=1_000,
    ttft_us=2_500,
    tpot_us=512.5,
    duration_us=9_000_000,
    usages={
        "wafer": Usage(num_input_tokens=10, num_output_tokens=5),
        "gpu": Usage(num_input_tokens=10, num_cached_tokens=8, num_output_tokens=90, exact=False),
    },
    cost=115,
)


@pytest.mark.parametrize("is_control", [True, False])
def test_a_record_tells_what_a_canary_left_for_its_share(is_control: bool) -> None:
    left = msgspec.structs.replace(ROUTE, rule=None, canary=False, control=is_control)
    decision = msgspec.structs.replace(DECISION, ranked=(left,), chosen=left)
    record = decode_line(encode_line(record_of(TASK, decision, COURSE, INFOS)))
    assert (record.canary, record.control) == (False, is_control)


def test_a_line_tells_what_a_replay_needs() -> None:
    record = decode_line(encode_line(record_of(TASK, DECISION, COURSE, INFOS)))
    assert (record.schema, record.id, record.at) == (SCHEMA, TASK.id, 1_700_000_000.1234)
    assert (record.tenant, record.tier, record.policy) == ("acme", "pro", "v7")
    assert (record.prompt_tokens, record.expected_output_tokens) == (100, 500)
    assert (record.input_tokens, record.output_tokens, record.cost) == (20, 95, 115)
    assert (record.label, record.p_deep, record.kind) == ("deep", 0.9, "refactor")
    assert (record.route, record.rule, record.canary) == ("parallel", "deep-canary", True)
    assert record.backends == ("wafer", "gpu")
    assert record.ranked == (
        RankedRecord(route="parallel", strategy="hedge", backends=("wafer", "gpu"), reason="rule"),
    )
    assert record.shadow == ShadowRecord(policy="v8", route="fast", strategy=None, rule="class")
    assert (record.queued_ms, record.ttft_ms, record.tpot_ms) == (1.0, 2.5, 0.512)
    assert (record.duration_ms, record.deadline_ms) == (9_000.0, 2_500.0)
    assert record.usage[1] == UsageRecord(
        backend="gpu",
        model="gpu-model",
        group="deep",
        input_tokens=10,
        cached_tokens=8,
        output_tokens=90,
        exact=False,
    )
    assert len(record.shape) == len(DENSE_NAMES)


def test_nobodys_words_are_in_it_unless_the_policy_wants_them() -> None:
    line = encode_line(record_of(TASK, DECISION, COURSE, INFOS))
    assert b"canary-7f3a" not in line
    assert b"vault" not in line
    told = record_of(TASK, DECISION, COURSE, INFOS, with_text=True)
    assert told.text == SECRET
    long = record_of(task(10_000 * "x"), DECISION, COURSE, INFOS, with_text=True)
    assert long.text == 8_192 * "x"


def test_what_a_client_may_choose_is_short() -> None:
    record = record_of(task(hints=Hints(model=500 * "m")), DECISION, COURSE, INFOS)
    assert record.model == 64 * "m"
    assert record_of(TASK, DECISION, COURSE, INFOS).reasoning_effort == "high" + 60 * "!"


def test_turns_of_a_conversation_can_be_told_without_knowing_it() -> None:
    first = record_of(TASK, DECISION, COURSE, INFOS)
    later = record_of(msgspec.structs.replace(TASK, id="resp_2"), DECISION, COURSE, INFOS)
    other = msgspec.structs.replace(TASK, conversation="other")
    assert first.conversation == later.conversation
    assert first.conversation != record_of(other, DECISION, COURSE, INFOS).conversation


def test_a_task_that_no_route_could_take_has_a_line_too() -> None:
    course = TaskOutcome(outcome="invalid", error="context_length_exceeded", duration_us=10)
    record = record_of(TASK, None, course, INFOS)
    assert (record.outcome, record.error, record.route) == (
        "invalid",
        "context_length_exceeded",
        None,
    )
    refused = msgspec.structs.replace(DECISION, chosen=None)
    record = record_of(TASK, refused, course, INFOS)
    assert (record.route, record.label, record.rule) == (None, "deep", "deep-canary")


def test_what_a_decision_saw_is_in_its_line() -> None:
    policy = parse_policy(
        b"""
        [[rules]]
        name = "ads"
        when = { metadata = { team = ["ads"] } }
        route = "fast"
        percent = 10
        """
    )
    asked = task("x", hints=Hints(metadata={"team": "ads", "note": SECRET}), held_tokens=64)
    speeds = BackendSpeeds()
    speeds.note("gpu", 200_000, 20_000)
    facts = Facts(shares_left={"deep": 0.25}, backend_speeds=speeds, alarms=("p_deep moved",))
    busy = msgspec.structs.replace(backend("gpu", "deep"), num_running=3)
    stats = [backend("wafer", "fast"), busy]
    seen = seen_of(stats, facts)
    record = decode_line(
        encode_line(record_of(asked, DECISION, COURSE, INFOS, policy=policy, seen=seen))
    )
    assert record.metadata == {"team": "ads"}, "and nothing that no condition names"
    assert record.shares == {"ads": asked.share("ads")}
    assert record.context is not None
    assert record.context.held_tokens == 64
    assert record.seen == seen
    assert record.seen.engines[1].running == 3
    assert (record.seen.engines[1].ttft_us, record.seen.engines[1].samples) == (200_000, 1)
    assert (record.policy_number, record.limits) == (7, asked.tenant.limits)
    assert record.policy_digest == policy.digest


def test_every_line_has_every_column() -> None:
    """A table made of any lines has the same columns."""
    lines = [
        encode_line(record_of(TASK, DECISION, COURSE, INFOS)),
        encode_line(record_of(TASK, None, TaskOutcome(outcome="error", duration_us=1), INFOS)),
    ]
    for line in lines:
        assert tuple(json.loads(line)) == DecisionRecord.__struct_fields__
        assert line.count(b"\n") == 1


def test_lines_of_later_versions() -> None:
    line = json.loads(encode_line(record_of(TASK, DECISION, COURSE, INFOS)))
    later = decode_line(json.dumps(line | {"added_later": 1}).encode())
    first_schema = {name: line[name] for name in line if name not in ("seen", "limits", "context")}
    assert decode_line(json.dumps(first_schema | {"schema": 1}).encode()).seen is None
    assert later.id == TASK.id
    with pytest.raises(ValueError, match="schema 3; this Lanewise knows 2"):
        decode_line(json.dumps(line | {"schema": 3}).encode())
    with pytest.raises(ValueError, match="schema"):
        decode_line(json.dumps(line | {"schema": "x"}).encode())
    with pytest.raises(ValueError, match=r"malformed|truncated"):
        decode_line(b'{"schema": 1,')
