"""Reads what Codex says of the agent that asks, from a request's `client_metadata`.

The headers of its handshake say the same, but of the socket's first request: they go stale. Seen
from Codex CLI 0.169.0, 2026-11-22. What is not as expected is ignored, since these are hints.
"""

from contextlib import suppress
from typing import Any

import msgspec

from gateway.wire.events import NULL
from router.classify.agent import MAX_LABEL_CHARS, UNKNOWN_AGENT, Agent, AgentRole

MAX_ID_CHARS = 128
_AUXILIARY = ("compact", "memory_consolidation")  # of the open set of labels: no user waits


class _TurnMetadata(msgspec.Struct, frozen=True):
    """`x-codex-turn-metadata`: JSON in a string."""

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
    },
):
    """`client_metadata` as Codex sends it; other clients may send any object."""

    thread_id: Any = None
    turn_id: Any = None
    subagent: Any = None
    parent_thread_id: Any = None
    turn_metadata: Any = None


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
        with suppress(msgspec.MsgspecError, UnicodeError):
            turn = _turn_metadata.decode(told.turn_metadata)
    label = _short(told.subagent) or _short(turn.subagent_kind)
    parent = _short(told.parent_thread_id, MAX_ID_CHARS)
    parent = parent or _short(turn.parent_thread_id, MAX_ID_CHARS)
    thread = _short(told.thread_id, MAX_ID_CHARS)
    role: AgentRole | None = None
    if label in _AUXILIARY:
        role = "auxiliary"
    elif label or parent or turn.thread_source == "subagent":
        role = "subagent"
    elif thread:
        role = "main"
    return Agent(
        role=role,
        subagent=label,
        request_kind=_short(turn.request_kind),
        thread_id=thread,
        parent_thread_id=parent,
        turn_id=_short(told.turn_id, MAX_ID_CHARS),
    )


def _short(value: object, max_chars: int = MAX_LABEL_CHARS) -> str | None:
    return value[:max_chars] if isinstance(value, str) and value else None
