"""Writes the response object: what never changes is encoded once, and the rest behind it.

The comment of each field is what the SDKs and docs/protocol.md say of it: `make sdk` writes both.
"""

from typing import Literal

import msgspec

from gateway.wire.events import NULL
from gateway.wire.output_items import ResponseUsage
from gateway.wire.requests import ParsedCreate
from gateway.wire.routing import RoutedRejoin, Routing, Unrouted

_encode = msgspec.json.encode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_AUTO = msgspec.Raw(b'"auto"')
_TIERS = {"auto": "default", "fast": "priority"}  # as responses name the tier that was used


class ReasoningEcho(msgspec.Struct, frozen=True, gc=False):
    """Repeats `reasoning` of the request."""

    effort: str | None  # how much reasoning was asked for
    summary: str | None  # the kind of summary that was asked for


class TextEcho(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Repeats `text` of the request."""

    format: msgspec.Raw  # plain text, or a JSON schema that the text follows
    verbosity: str | None = None  # how wordy the text was asked to be


_PLAIN_TEXT = msgspec.Raw(b'{"type":"text"}')
_NO_TEXT_ASKED, _NO_REASONING_ASKED = TextEcho(_PLAIN_TEXT), ReasoningEcho(None, None)


class ResponseError(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Says why a response failed."""

    code: str  # for programs
    message: str  # for people
    param: str | None = None  # the field of the request that was wrong


class IncompleteDetails(msgspec.Struct, frozen=True, gc=False):
    """Says why a response is incomplete."""

    # `max_output_tokens` or `content_filter`; ours are `steered`, `cancelled` and `awaited`
    reason: str | None


class ResponseStart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Holds what is the same in every event of a response."""

    id: str  # names the response; the next one continues it by `previous_response_id`
    object: Literal["response"]  # the kind of object
    created_at: int  # Unix time in seconds when it began
    background: bool  # whether it outlives its request
    instructions: str | None  # the request's instructions
    max_output_tokens: int | None  # the request's limit of the output
    max_tool_calls: int | None  # the request's limit of tool calls
    metadata: dict[str, str]  # the request's metadata, hints for the router among them
    parallel_tool_calls: bool  # whether tools may be called at once
    previous_response_id: str | None  # the response that this one continues
    prompt_cache_key: str | None  # the request's name for its conversation
    reasoning: ReasoningEcho  # how the request wanted the reasoning
    safety_identifier: str | None  # the request's name for its user
    store: bool  # whether the response is kept
    temperature: float  # the request's temperature, else 1
    text: TextEcho  # how the request wanted the text
    tool_choice: msgspec.Raw  # which tools may or must be called
    tools: list[msgspec.Raw]  # the request's tools
    top_logprobs: int  # the request's number of log probabilities; there are none
    top_p: float  # the request's share of nucleus sampling, else 1
    truncation: str  # the request's truncation, else `disabled`
    user: str | None  # the request's name for its user, as older clients send it


class ResponseState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Holds what changes from event to event."""

    output: list[msgspec.Raw]  # the items that are done
    model: str  # the model that answers
    service_tier: str  # at the end the tier that was used, before that the one that was asked for
    status: str  # `queued`, `in_progress`, `completed`, `incomplete`, `failed` or `cancelled`
    completed_at: int | None  # Unix time in seconds, once it is completed
    error: ResponseError | None  # why it failed
    incomplete_details: IncompleteDetails | None  # why it is incomplete
    usage: ResponseUsage | None  # at the end: the context, and the answer with its reasoning
    routing: Routing | Unrouted | None = None  # ours: where it ran and why, as in the table above


BEGUN = ResponseState(  # nothing has come yet
    output=[],
    model="",
    service_tier="",
    status="in_progress",
    completed_at=None,
    error=None,
    incomplete_details=None,
    usage=None,
)


def start_json(parsed: ParsedCreate, created_at: int) -> bytes:
    """Writes what never changes, as JSON without its closing brace.

    Tools and format are the client's own bytes, copied: Codex sends 40 KB of tools every turn. A
    pretty-printed client's are compacted, as a line of SSE must hold no line break.
    """
    body = parsed.body
    reasoning, text = _NO_REASONING_ASKED, _NO_TEXT_ASKED
    if (asked := body.reasoning) is not None:
        reasoning = ReasoningEcho(asked.effort, asked.summary or asked.generate_summary)
    if body.text is not None:
        format_asked = _PLAIN_TEXT if body.text.format == NULL else body.text.format
        text = TextEcho(format_asked, body.text.verbosity or None)
    start = ResponseStart(
        id=parsed.id,
        object="response",
        created_at=created_at,
        background=body.background is True,
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        max_tool_calls=body.max_tool_calls,
        metadata=body.metadata or {},
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        prompt_cache_key=body.prompt_cache_key,
        reasoning=reasoning,
        safety_identifier=body.safety_identifier,
        store=body.store is not False,
        temperature=1.0 if body.temperature is None else body.temperature,
        text=text,
        tool_choice=_AUTO if body.tool_choice == NULL else body.tool_choice,
        tools=body.tools or [],
        top_logprobs=body.top_logprobs or 0,
        top_p=1.0 if body.top_p is None else body.top_p,
        truncation=body.truncation or "disabled",
        user=body.user,
    )
    written = _encode(start)
    if b"\n" in written or b"\r" in written:
        written = msgspec.json.format(written, indent=-1)
    return written[:-1]


def asked_tier(service_tier: str | None) -> str:
    """Returns the tier that a request asks for, as responses name it."""
    tier = service_tier or "default"
    return _TIERS.get(tier, tier)


def queued_json(parsed: ParsedCreate, created_at: int) -> bytes:
    """Writes the object of a response that has not begun."""
    tier = asked_tier(parsed.body.service_tier)
    state = msgspec.structs.replace(
        BEGUN, model=parsed.body.model, service_tier=tier, status="queued"
    )
    return b"%b,%b" % (start_json(parsed, created_at), _encode(state)[1:])


def failed_json(response: bytes, error: ResponseError) -> bytes:
    """Rewrites the object of an unfinished response as failed."""
    fields = _decode_fields(response)
    return _encode({**fields, "status": "failed", "error": error})


def rejoined_json(
    response: bytes, rejoined: RoutedRejoin, output: list[msgspec.Raw] | None = None
) -> bytes:
    """Rewrites an object for a client that came back to it.

    `output` are the items that the client holds, and makes it the object of a response that runs.
    """
    read = _decode_fields(response)
    routing = _decode_fields(read["routing"]) if "routing" in read else {}
    fields: dict[str, object] = {**read, "routing": {**routing, "rejoined": rejoined}}
    if output is not None:
        fields |= dict.fromkeys(("completed_at", "error", "incomplete_details", "usage"))
        fields |= {"status": "in_progress", "output": output}
    return _encode(fields)
