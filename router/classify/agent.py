"""Defines what a client says of the agent that asks. It is a hint: it never permits anything."""

from typing import Literal

import msgspec

# The conversation with the user; a helper with a conversation of its own; or the client's own
# housekeeping (titles, summaries, compactions, memories), whose words no user waits for.
AgentRole = Literal["main", "subagent", "auxiliary"]

MAX_LABEL_CHARS = 64


class Agent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Holds which part of an agent asks; None where its client does not say."""

    role: AgentRole | None = None
    subagent: str | None = None  # the client's own label, an open set: review, compact, Explore
    request_kind: str | None = None  # the client's own, an open set: turn, prewarm, compaction
    thread_id: str | None = None  # its conversation
    parent_thread_id: str | None = None  # the conversation that started it
    turn_id: str | None = None  # one ask of the user; a turn has many requests
    turn_state: str | None = None  # what a gateway gave it for its turn; not checked yet
    traceparent: str | None = None  # W3C's, of the span that asks; not checked yet


UNKNOWN_AGENT = Agent()
