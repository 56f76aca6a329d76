"""Tests what a request's `client_metadata` says of the agent that asks."""

from typing import Any

import msgspec
import pytest

from gateway.wire.agents import agent_of, is_codex, with_headers
from gateway.wire.events import CreateBody, decode
from gateway.wire.requests import parse_create
from router.classify.agent import MAX_LABEL_CHARS, UNKNOWN_AGENT, Agent

THREAD = {"thread_id": "019a-7f", "turn_id": "t-1", "session_id": "019a-7f"}

# client_metadata, the role, the label, the request's kind
SAID: list[tuple[Any, str | None, str | None, str | None]] = [
    (None, None, None, None),
    ({}, None, None, None),
    ({"x": {"any": [1, None]}}, None, None, None),
    ("a text", None, None, None),
    ([1], None, None, None),
    (THREAD, "main", None, None),
    (THREAD | {"x-codex-turn-metadata": '{"request_kind":"turn"}'}, "main", None, "turn"),
    (THREAD | {"x-codex-turn-metadata": "no JSON"}, "main", None, None),
    (THREAD | {"x-codex-turn-metadata": "[1]"}, "main", None, None),
    (THREAD | {"x-codex-turn-metadata": '"\\ud800"'}, "main", None, None),
    (THREAD | {"x-codex-turn-metadata": '{"x":' + "[" * 10_000}, "main", None, None),
    (THREAD | {"x-codex-turn-metadata": {"request_kind": "turn"}}, "main", None, None),
    (THREAD | {"x-openai-subagent": "review"}, "subagent", "review", None),
    (THREAD | {"x-openai-subagent": "collab_spawn"}, "subagent", "collab_spawn", None),
    (THREAD | {"x-openai-subagent": "compact"}, "auxiliary", "compact", None),
    (
        THREAD | {"x-openai-subagent": "memory_consolidation"},
        "auxiliary",
        "memory_consolidation",
        None,
    ),
    (THREAD | {"x-openai-subagent": "of tomorrow"}, "subagent", "of tomorrow", None),
    (THREAD | {"x-openai-subagent": ["review"]}, "main", None, None),
    (THREAD | {"x-codex-parent-thread-id": "019a-70"}, "subagent", None, None),
    (
        THREAD | {"x-codex-turn-metadata": '{"subagent_kind":"compact","request_kind":"turn"}'},
        "auxiliary",
        "compact",
        "turn",
    ),
    (
        THREAD | {"x-codex-turn-metadata": '{"thread_source":"subagent"}'},
        "subagent",
        None,
        None,
    ),
]


@pytest.mark.parametrize(("metadata", "role", "label", "kind"), SAID)
def test_who_asks(metadata: Any, role: str | None, label: str | None, kind: str | None) -> None:
    agent = agent_of(msgspec.Raw(msgspec.json.encode(metadata)))
    assert (agent.role, agent.subagent, agent.request_kind) == (role, label, kind)


def test_a_request_carries_it_to_the_router() -> None:
    metadata = THREAD | {"x-openai-subagent": "review", "x-codex-parent-thread-id": "019a-70"}
    body = {"model": "auto", "input": "Read it.", "client_metadata": metadata}
    hints = parse_create(decode(msgspec.json.encode(body), CreateBody), "resp_1").hints
    assert hints.agent == Agent(
        role="subagent",
        subagent="review",
        thread_id="019a-7f",
        parent_thread_id="019a-70",
        turn_id="t-1",
    )


def test_what_a_client_says_is_bounded() -> None:
    metadata = {"x-openai-subagent": 10_000 * "x", "thread_id": 10_000 * "y"}
    agent = agent_of(msgspec.Raw(msgspec.json.encode(metadata)))
    assert len(agent.subagent or "") == MAX_LABEL_CHARS
    assert len(agent.thread_id or "") == 128
    assert agent_of(msgspec.Raw(b"null")) is UNKNOWN_AGENT


def test_over_http_headers_say_what_the_body_does_not() -> None:
    headers = {
        "x-openai-subagent": "review",
        "x-codex-parent-thread-id": "019a-70",
        "x-codex-turn-state": "lt1.a.b",
    }
    agent = with_headers(UNKNOWN_AGENT, headers)
    assert agent == Agent(
        role="subagent", subagent="review", parent_thread_id="019a-70", turn_state="lt1.a.b"
    )
    told = Agent(role="auxiliary", subagent="compact", parent_thread_id="p", turn_state="s")
    assert with_headers(told, headers) is told
    assert with_headers(told, {}) is told
    only_state = with_headers(Agent(role="main"), {"x-codex-turn-state": "s"})
    assert (only_state.role, only_state.turn_state) == ("main", "s")
    assert with_headers(UNKNOWN_AGENT, {"x-openai-subagent": ""}) is UNKNOWN_AGENT


def test_a_turns_state_comes_in_the_body() -> None:
    body = msgspec.json.encode(THREAD | {"x-codex-turn-state": "lt1.a.b"})
    assert agent_of(msgspec.Raw(body)).turn_state == "lt1.a.b"


@pytest.mark.parametrize(
    ("originator", "expected"),
    [("codex_exec", True), ("codex_cli_rs", True), ("other", False), (None, False)],
)
def test_codex_names_itself(originator: str | None, expected: bool) -> None:
    assert is_codex({} if originator is None else {"originator": originator}) is expected
