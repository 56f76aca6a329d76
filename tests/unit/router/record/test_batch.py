"""Tests batches: each line in gives one out, in order, in the schema, by production's rules."""

import json
from itertools import count

import pytest

from gateway.wire.events import CreateBody
from gateway.wire.items import ItemReference
from gateway.wire.requests import make_task, parse_create
from router.classify.classify import Band, classify, features
from router.classify.task import Hints, Route, TaskClass
from router.decide.decision import Refusal
from router.decide.ranking import rank
from router.decide.weighing import weigh
from router.policy.policy import DEFAULT_POLICY, Choice, Policy
from router.record.batch import IDLE, Desk, decide_lines, lone_task
from tests.unit.router.tasks import FAST_ONLY, PRO, backend

DESK = Desk(policy=DEFAULT_POLICY)
DEEP = "Refactor the storage engine across the entire codebase"
TEXTS = (
    "fix the typo",
    DEEP,
    "Fix the sql injection",
    "Write a parser for dates",
    "",
    "x " * 9_000,
)


def decide(*lines: bytes, desk: Desk = DESK) -> list[dict[str, object]]:
    ticks = count(0, 5_000)
    return [json.loads(line) for line in decide_lines(lines, desk, lambda: next(ticks))]


def prompt(text: str, name: str = "a") -> bytes:
    return json.dumps({"id": name, "text": text, "more": 1}).encode()


def test_schema() -> None:
    (row,) = decide(prompt("fix the typo"))
    assert {name: type(value) for name, value in row.items()} == {
        "id": str,
        "lane": str,
        "p_deep": float,
        "security": bool,
        "p_security": float,
        "p_need_large": float,
        "out_tokens": float,
        "route_us": float,
        "rank_us": float,
        "reason": str,
        "signals": list,
    }
    assert (row["route_us"], row["rank_us"]) == (5.0, 5.0)


@pytest.mark.parametrize(
    ("text", "lane", "security", "reason"),
    [
        ("fix the typo", "interactive", False, "class"),
        (DEEP, "deep", False, "class"),
        ("Fix the sql injection", "deep", True, "security"),
    ],
)
def test_lanes(text: str, lane: str, security: bool, reason: str) -> None:
    (row,) = decide(prompt(text))
    assert (row["lane"], row["security"], row["reason"]) == (lane, security, reason)


@pytest.mark.parametrize("text", TEXTS[:4])
def test_a_line_is_decided_like_a_request_of_that_text(text: str) -> None:
    """The same text goes through the gateway's own intake, classifier and ranking."""
    stats = [backend("wafer-a", "fast"), backend("gpu-a", "deep")]
    parsed = parse_create(CreateBody(model="auto", input=text), "resp_1")
    items = tuple(i for i in parsed.input.items if not isinstance(i, ItemReference))
    task = make_task(parsed, items, PRO, last_backend=None, arrived_us=0, arrived_unix_s=0)
    task_class = classify(features(task), DEFAULT_POLICY.band)
    task_class = weigh(DEFAULT_POLICY.tradeoff, DEFAULT_POLICY.band, task, task_class, stats)
    ranked = rank(DEFAULT_POLICY, task, task_class, stats)
    assert not isinstance(ranked, Refusal)
    desk = Desk(policy=DEFAULT_POLICY, tenant=PRO, stats=stats)
    assert lone_task(text, desk).request.num_prompt_tokens == task.request.num_prompt_tokens
    (row,) = decide(prompt(text), desk=desk)
    lanes = {Route.FAST: "interactive", Route.DEEP: "deep", Route.PARALLEL: "parallel"}
    assert row["lane"] == lanes[ranked[0].route]
    assert row["p_deep"] == task_class.p_deep
    assert tuple(row["signals"]) == task_class.signals  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "lane"),
    [
        (Policy(band=Band(low=0.0, high=1.0)), "parallel"),
        (Policy(band=Band(low=0.0, high=0.0)), "deep"),
        (Policy(interactive=Choice(route=Route.DEEP)), "deep"),
    ],
)
def test_the_policy_decides(policy: Policy, lane: str) -> None:
    (row,) = decide(prompt("fix the typo"), desk=Desk(policy=policy))
    assert row["lane"] == lane


def test_the_tenant_and_the_engines_count() -> None:
    (row,) = decide(prompt(DEEP), desk=Desk(policy=DEFAULT_POLICY, tenant=FAST_ONLY))
    assert (row["lane"], row["reason"]) == ("interactive", "access")
    stats = [
        backend("wafer-a", "fast"),
        backend("gpu-a", "deep", healthy=False),
    ]
    (row,) = decide(prompt(DEEP), desk=Desk(policy=DEFAULT_POLICY, stats=stats))
    assert (row["lane"], row["reason"]) == ("interactive", "fallback")


def test_what_would_be_refused_says_so_and_has_a_lane_all_the_same() -> None:
    small = [backend("wafer-a", "fast", window_tokens=1_000)]
    (row,) = decide(prompt("x " * 9_000), desk=Desk(policy=DEFAULT_POLICY, stats=small))
    assert row["refused"] == "context_length_exceeded"
    assert row["lane"] in ("interactive", "deep", "parallel")


def test_a_model_that_does_not_exist_is_an_error() -> None:
    (row,) = decide(prompt("fix"), desk=Desk(policy=DEFAULT_POLICY, hints=Hints(model="gpt-0")))
    assert str(row["error"]).startswith("model_not_found: ")


def test_order_and_errors() -> None:
    lines = [
        prompt("a", "1"),
        b"\n",
        b"not json",
        b'{"id": "x"}',
        prompt("", "2"),
        b'{"id":3}',
        b"\xff",
    ]
    rows = decide(*lines, prompt("\ud800", "3"), b"[" * 100_000)
    assert [row["id"] for row in rows] == ["1", None, "x", "2", None, None, None, None]
    assert str(rows[1]["error"]).startswith("line 3: JSON is malformed")
    assert "text" in str(rows[2]["error"])
    assert str(rows[6]["error"]).startswith("line 8: \\ud800 is a lone surrogate")


def test_a_mark_before_the_first_line_is_passed_over() -> None:
    rows = decide(b"\xef\xbb\xbf" + prompt("a", "1"), b"\xef\xbb\xbf" + prompt("b", "2"))
    assert [row["id"] for row in rows] == ["1", None]
    assert str(rows[1]["error"]).startswith("line 2: ")
    assert "Expected {" in str(rows[1]["error"])


def test_idle_engines_take_everything() -> None:
    for text in TEXTS:
        ranked = rank(DEFAULT_POLICY, lone_task(text, DESK), _class(text), IDLE)
        assert not isinstance(ranked, Refusal)


def _class(text: str) -> TaskClass:
    return classify(features(lone_task(text, DESK)))
