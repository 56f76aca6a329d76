"""Reads what Codex says of the agent that asks, from a request's `client_metadata`.

Over HTTP the request's headers say it, too. The headers of a socket's handshake are of its first
request: they go stale. Seen from Codex CLI 0.169.0, 2026-11-22. What is not as expected is ignored,
since these are hints.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from backends.upstream.chain import SOCKET_TRACEPARENT
from gateway.wire.events import NULL
from router.classify.agent import MAX_LABEL_CHARS, UNKNOWN_AGENT, Agent, AgentRole

TURN_STATE = "x-codex-turn-state"
MAX_ID_CHARS = 128
MAX_TURN_STATE_CHARS = 512  # ours are shorter; a longer one is none of ours
_AUXILIARY = ("compact", "memory_consolidation")  # of the open set of labels: no user waits


class _TurnMetadata(msgspec.Struct, frozen=True):
    """Carries `x-codex-turn-metadata`: JSON in a string."""

    request_kind: Any = None
    subagent_kind: Any = None
    thread_source: Any = None
    parent_thread_id: Any = None


class _ClientMetadata(
    msgspec.Struct,
    frozen=True,
    rename={
        "subagent": "x-openai-subagent",
        "parent_thread_id": "x-codex-parent-thread-id",
        "turn_metadata": "x-codex-turn-metadata",
        "turn_state": TURN_STATE,
        "traceparent": SOCKET_TRACEPARENT,
    },
):
    """Carries `client_metadata` as Codex sends it; other clients may send any object."""

    thread_id: Any = None
    turn_id: Any = None
    subagent: Any = None
    parent_thread_id: Any = None
    turn_metadata: Any = None
    turn_state: Any = None
    traceparent: Any = None


_client_metadata = msgspec.json.Decoder(_ClientMetadata)
_turn_metadata = msgspec.json.Decoder(_TurnMetadata)
_NO_TURN_METADATA = _TurnMetadata()


def agent_of(client_metadata: msgspec.Raw) -> Agent:
    """Returns what a request's `client_metadata` says of its agent, if anything."""
    if client_metadata == NULL:
        return UNKNOWN_AGENT
    try:
        told = _client_metadata.decode(client_metadata)
    except msgspec.MsgspecError:  # no object: another client's
        return UNKNOWN_AGENT
    turn = _NO_TURN_METADATA
    if isinstance(told.turn_metadata, str):
        with suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
            turn = _turn_metadata.decode(told.turn_metadata)
    label = _short(told.subagent) or _short(turn.subagent_kind)
    parent = _short(told.parent_thread_id, MAX_ID_CHARS)
    parent = parent or _short(turn.parent_thread_id, MAX_ID_CHARS)
    thread = _short(told.thread_id, MAX_ID_CHARS)
    role: AgentRole | None = "main" if thread else None
    if label or parent or turn.thread_source == "subagent":
        role = _role_of(label)
    return Agent(
        role=role,
        subagent=label,
        request_kind=_short(turn.request_kind),
        thread_id=thread,
        parent_thread_id=parent,
        turn_id=_short(told.turn_id, MAX_ID_CHARS),
        turn_state=_short(told.turn_state, MAX_TURN_STATE_CHARS),
        traceparent=_short(told.traceparent, MAX_ID_CHARS),
    )


_OF_AGENTS = {"x-openai-subagent", "x-codex-parent-thread-id", TURN_STATE, "traceparent"}


def with_headers(agent: Agent, headers: Mapping[str, str]) -> Agent:
    """Returns what an HTTP request says of its agent: by its body, else by its headers."""
    if _OF_AGENTS.isdisjoint(headers):
        return agent
    label = agent.subagent or _short(headers.get("x-openai-subagent"))
    parent = agent.parent_thread_id
    parent = parent or _short(headers.get("x-codex-parent-thread-id"), MAX_ID_CHARS)
    state = agent.turn_state or _short(headers.get(TURN_STATE), MAX_TURN_STATE_CHARS)
    traced = agent.traceparent or _short(headers.get("traceparent"), MAX_ID_CHARS)
    known = (agent.subagent, agent.parent_thread_id, agent.turn_state, agent.traceparent)
    if (label, parent, state, traced) == known:
        return agent
    role = _role_of(label) if label or parent else agent.role
    return msgspec.structs.replace(
        agent,
        role=role,
        subagent=label,
        parent_thread_id=parent,
        turn_state=state,
        traceparent=traced,
    )


def is_codex(headers: Mapping[str, str]) -> bool:
    """Says whether a request or a handshake is Codex'; others may not know its events."""
    return headers.get("originator", "").startswith("codex_")


def _role_of(label: str | None) -> AgentRole:
    return "auxiliary" if label in _AUXILIARY else "subagent"


def _short(value: object, max_chars: int = MAX_LABEL_CHARS) -> str | None:
    return value[:max_chars] if isinstance(value, str) and value else None
