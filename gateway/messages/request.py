"""Reads a Messages request as the Responses request that means the same.

It is never stored: a client of this API sends the whole conversation each time.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.messages.agents import agent_of
from gateway.messages.blocks import MessageParam, TextBlock
from gateway.messages.conversation import Conversation
from gateway.messages.errors import NO_THREADS, in_messages_terms
from gateway.messages.fields import REFUSED
from gateway.messages.tools import ToolChoiceParam, ToolParam, offered, wire_choice, wire_tool
from gateway.wire.errors import ProtocolError
from gateway.wire.events import (
    CreateBody,
    Effort,
    ModelName,
    ReasoningParam,
    TextParam,
    decode,
)
from gateway.wire.fields import SEALED_REASONING
from router.classify.agent import Agent

_encode = msgspec.json.encode

MAX_MESSAGES = 100_000  # Anthropic's limit

# Claude Code's note to Anthropic's service, the first block of its system prompt: it differs from
# session to session, and would keep engines from sharing the prefix.
ATTRIBUTION = "x-anthropic-billing-header:"
_OF_SUBAGENT = "cc_is_subagent=true"

# Anthropic's guide calls a thinking budget of 16k and more large, of 4k and less small (2026-10).
LOW_BUDGET_TOKENS, MEDIUM_BUDGET_TOKENS = 4_096, 16_384


class ThinkingParam(msgspec.Struct, frozen=True):
    """Says whether the model thinks, and whether the client sees it."""

    type: str
    budget_tokens: Annotated[int, Meta(ge=1)] | None = None
    display: str | None = None

    @property
    def is_shown(self) -> bool:
        """Says whether the text of thoughts is wanted, and not only that there were some."""
        return self.display in (None, "summarized")


class FormatParam(msgspec.Struct, frozen=True):
    """Says which JSON the answer must be."""

    type: Literal["json_schema"]
    schema: msgspec.Raw


class OutputConfig(msgspec.Struct, frozen=True):
    """Says how hard to try, and in which form to answer."""

    effort: Effort | None = None
    format: FormatParam | None = None


class MessagesBody(msgspec.Struct, frozen=True, kw_only=True):
    """Is the body of `POST /v1/messages`; `gateway.messages.fields` tells each field's fate."""

    model: ModelName
    messages: Annotated[list[MessageParam], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_tokens: Annotated[int, Meta(ge=0)] | None = None  # required, but not to count
    stream: bool | None = None
    system: str | list[TextBlock] | None = None
    tools: list[ToolParam] | None = None
    tool_choice: ToolChoiceParam | None = None
    thinking: ThinkingParam | None = None
    output_config: OutputConfig | None = None
    output_format: FormatParam | None = None  # its former name
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    metadata: dict[str, Any] | None = None
    speed: str | None = None
    # Refused, as `gateway.messages.fields` says.
    compaction: Any = None
    container: Any = None
    mcp_servers: Any = None
    thread: Any = None

    @property
    def wants_thinking(self) -> bool:
        """Says whether there may be thinking blocks."""
        return self.thinking is not None and self.thinking.type != "disabled"


class MessagesRequest(msgspec.Struct, frozen=True):
    """Holds a request, and the Responses request that means the same."""

    body: MessagesBody
    create: CreateBody
    stop: tuple[str, ...]
    agent: Agent  # that asks
    json_paths: list[str]  # of the message that each item came from


def read_messages(
    content: bytes, headers: Mapping[str, str], *, counts: bool = False
) -> MessagesRequest:
    """Reads a request; `counts` if it is only to be counted.

    Raises `ProtocolError` if it is not valid; the message names the field as this API does.
    """
    try:
        body = decode(content, MessagesBody)
    except ProtocolError as error:
        raise in_messages_terms(error, []) from None
    if body.max_tokens is None and not counts:
        raise ProtocolError("missing_required_parameter", "max_tokens: Field required")
    _check_served(body)
    conversation = Conversation()
    system, is_harness = _system(body.system)
    if system and is_harness:
        conversation.begin(system)
    conversation.read(body.messages)
    defined = [decode(tool, ToolParam, "messages") for tool in conversation.defined]
    tools = offered([*(body.tools or ()), *defined], conversation.loaded)
    choice = body.tool_choice
    config = body.output_config or OutputConfig()
    form = config.format or body.output_format
    session, agent = _session(body, headers), headers.get("x-claude-code-agent-id")
    create = CreateBody(
        model=body.model,
        input=[msgspec.Raw(_encode(item)) for item in conversation.items],
        instructions=None if is_harness else system or None,
        store=False,
        tools=[wire_tool(tool) for tool in tools],
        tool_choice=wire_choice(choice, tools),
        parallel_tool_calls=False if choice and choice.disable_parallel_tool_use else None,
        max_output_tokens=body.max_tokens or None,
        reasoning=_reasoning(body.thinking, config.effort),
        text=None if form is None else TextParam(_text_format(form)),
        temperature=body.temperature,
        top_p=body.top_p,
        include=[SEALED_REASONING] if body.wants_thinking else None,
        metadata=_metadata(body) or None,
        service_tier="fast" if body.speed == "fast" else None,
        prompt_cache_key=":".join(filter(None, (session, agent))) or None,
    )
    return MessagesRequest(
        body, create, _stops(body), _agent(body, headers), conversation.json_paths
    )


def _check_served(body: MessagesBody) -> None:
    for name, says in REFUSED.items():
        if getattr(body, name):
            code = NO_THREADS if name == "thread" else "unsupported_parameter"
            raise ProtocolError(code, f"{name}: not supported here: {says}.")


def _stops(body: MessagesBody) -> tuple[str, ...]:
    stops = tuple(body.stop_sequences or ())
    if not all(stop.strip() for stop in stops):
        message = "stop_sequences: each stop sequence must contain non-whitespace"
        raise ProtocolError("invalid_value", message)
    return stops


def _system(system: str | list[TextBlock] | None) -> tuple[str, bool]:
    """Returns the system prompt, and whether it is Claude Code's own.

    That one speaks of "authorized security testing" before any task, so it must not be read as the
    instructions of a task that is security-sensitive.
    """
    blocks = [TextBlock(system)] if isinstance(system, str) else system or []
    texts = [block.text for block in blocks if not block.text.startswith(ATTRIBUTION)]
    return "\n\n".join(texts), len(texts) < len(blocks)


def _reasoning(thinking: ThinkingParam | None, effort: Effort | None) -> ReasoningParam | None:
    """Says how hard to think: by the effort, else by the budget; a summary where it is shown."""
    if thinking is None:
        return None if effort is None else ReasoningParam(effort)
    if thinking.type == "disabled":
        return ReasoningParam(effort or "none")
    budget_tokens = thinking.budget_tokens
    if effort is None and budget_tokens is not None:
        effort = "high" if budget_tokens >= MEDIUM_BUDGET_TOKENS else "medium"
        effort = "low" if budget_tokens < LOW_BUDGET_TOKENS else effort
    return ReasoningParam(effort, "auto" if thinking.is_shown else None)


def _text_format(form: FormatParam) -> msgspec.Raw:
    wire = {"type": "json_schema", "name": "output", "schema": form.schema, "strict": True}
    return msgspec.Raw(_encode(wire))


class _UserId(msgspec.Struct, frozen=True):
    """Is what Claude Code writes into `metadata.user_id`, as JSON."""

    session_id: str | None = None


def _session(body: MessagesBody, headers: Mapping[str, str]) -> str | None:
    """Finds what is the same for all requests of a session of Claude Code."""
    session = headers.get("x-claude-code-session-id")
    user_id = (body.metadata or {}).get("user_id")
    if session is None and isinstance(user_id, str) and user_id.startswith("{"):
        try:
            session = msgspec.json.decode(user_id, type=_UserId).session_id
        except (msgspec.DecodeError, RecursionError):
            return None  # it is opaque, and need not be JSON
    return session


def _metadata(body: MessagesBody) -> dict[str, str]:
    """Returns what a client says besides its user, which may be hints for the router."""
    metadata = (body.metadata or {}).items()
    return {name: value for name, value in metadata if name != "user_id" and isinstance(value, str)}


def _agent(body: MessagesBody, headers: Mapping[str, str]) -> Agent:
    first = body.system[0].text if isinstance(body.system, list) and body.system else ""
    has_format = body.output_config is not None and body.output_config.format is not None
    return agent_of(
        headers,
        is_marked_subagent=first.startswith(ATTRIBUTION) and _OF_SUBAGENT in first,
        is_small_model="haiku" in body.model.lower(),
        is_form=has_format and not body.tools,
    )
