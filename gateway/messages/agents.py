"""Reads what Claude Code says of the agent that asks, from a request's headers.

Its `x-claude-code-request-class` comes only with `CLAUDE_CODE_GATEWAY_HINT_HEADERS=1`; without it
the request's own shape tells. Seen from Claude Code 2.1.330, 2026-11-22.
"""

from collections.abc import Mapping

from router.classify.agent import MAX_LABEL_CHARS, UNKNOWN_AGENT, Agent, AgentRole

MAX_ID_CHARS = 128
_CLIENT = "claude-cli/"  # its user agent begins so

# A compaction goes where its conversation does, whose prefix it has.
_ROLES: dict[str, AgentRole] = {
    "main": "main",
    "compaction": "main",
    "subagent": "subagent",
    "workflow": "subagent",
    "auxiliary": "auxiliary",
    "side_reply": "auxiliary",
}


def agent_of(
    headers: Mapping[str, str], *, is_marked_subagent: bool, is_small_model: bool, is_form: bool
) -> Agent:
    """Returns what is known of the agent.

    For requests without such a header the body has marks: that of a sub-agent in the system prompt,
    a model named like the small one of Anthropic, which clients use beside the conversation, and a
    form to be filled in without tools (`is_form`), as Claude Code asks for titles.
    """
    named = headers.get("x-claude-code-request-class", "")
    agent_id = headers.get("x-claude-code-agent-id", "")
    session = headers.get("x-claude-code-session-id", "")
    is_claude_code = headers.get("user-agent", "").startswith(_CLIENT)
    role = _ROLES.get(named)
    if role is None:
        if agent_id or is_marked_subagent:
            role = "subagent"
        elif is_small_model or (is_form and is_claude_code):
            role = "auxiliary"
        elif is_claude_code:
            role = "main"
        else:
            return UNKNOWN_AGENT
    parent = headers.get("x-claude-code-parent-agent-id") or (session if agent_id else "")
    return Agent(
        role=role,
        subagent=headers.get("x-claude-code-agent-type", "")[:MAX_LABEL_CHARS] or None,
        request_kind=named[:MAX_LABEL_CHARS] or None,
        thread_id=(agent_id or session)[:MAX_ID_CHARS] or None,
        parent_thread_id=parent[:MAX_ID_CHARS] or None,
        turn_id=headers.get("x-claude-code-prompt-id", "")[:MAX_ID_CHARS] or None,
    )
