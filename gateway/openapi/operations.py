"""Lists what operations take and give, where no type of their handlers says it.

This is an edge.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from gateway.chat.request import ChatBody
from gateway.openapi import shapes
from gateway.openapi.events import EVENTS, LiveEvent
from gateway.task.outcomes import Feedback
from router.record.batch import BatchDecision, BatchError, BatchPrompt

JSON, SSE, LINES, TEXT = (
    "application/json",
    "text/event-stream",
    "application/x-ndjson",
    "text/plain",
)


class Operation(NamedTuple):
    """Says what one operation takes and gives."""

    path: str
    method: str
    answers: tuple[tuple[str, Any], ...]  # media type, what is in it
    body: Any = None
    takes: str = JSON
    refuses: tuple[tuple[str, Any], ...] = ()  # status, of refusals with a body of their own


def _json(kind: Any) -> tuple[tuple[str, Any], ...]:
    return ((JSON, kind),)


_ANTHROPIC = (("default", shapes.AnthropicError), ("400", shapes.AnthropicError))
_STREAMED = ((JSON, shapes.ResponseObject), (SSE, EVENTS))
_RESPONSE = "/v1/responses/{response_id}"

OPERATIONS = (
    Operation("/v1/responses", "get", ()),
    Operation("/v1/responses", "post", _STREAMED, shapes.Create),
    Operation(_RESPONSE, "get", _STREAMED),
    Operation(_RESPONSE, "delete", _json(shapes.DeletedResponse)),
    Operation(f"{_RESPONSE}/cancel", "post", _json(shapes.ResponseObject)),
    Operation(f"{_RESPONSE}/feedback", "post", _json(shapes.TakenFeedback), Feedback),
    Operation(f"{_RESPONSE}/input_items", "get", _json(shapes.InputItems)),
    Operation("/v1/responses/input_tokens", "post", _json(shapes.InputTokens), shapes.Count),
    Operation("/v1/responses/compact", "post", _json(shapes.CompactedContext), shapes.Compact),
    Operation(
        "/v1/chat/completions",
        "post",
        ((JSON, shapes.ChatCompletion), (SSE, shapes.ChatChunk)),
        ChatBody,
    ),
    Operation("/v1/embeddings", "post", ((JSON, dict[str, Any]),), shapes.RelayedBody),
    Operation(
        "/v1/completions",
        "post",
        ((JSON, dict[str, Any]), (SSE, dict[str, Any])),
        shapes.RelayedBody,
    ),
    Operation(
        "/v1/messages",
        "post",
        ((JSON, shapes.AnthropicMessage), (SSE, shapes.Item)),
        shapes.Messages,
        refuses=_ANTHROPIC,
    ),
    Operation(
        "/v1/messages/count_tokens",
        "post",
        _json(shapes.CountedTokens),
        shapes.Messages,
        refuses=_ANTHROPIC,
    ),
    Operation("/v1/route", "post", ((LINES, (BatchDecision, BatchError)),), BatchPrompt, LINES),
    Operation("/v1/socket_tickets", "post", _json(shapes.SocketTicket)),
    Operation("/v1/models", "get", _json((shapes.Models, shapes.ModelPage))),
    Operation("/v1/models/{model}", "get", _json((shapes.Model, shapes.ModelEntry))),
    Operation("/v1/usage", "get", _json(shapes.OwnUsage)),
    Operation("/metrics", "get", ((TEXT, str),)),
    Operation("/healthz", "get", _json(shapes.Alive)),
    Operation("/health", "get", _json(shapes.Alive)),
    Operation("/readyz", "get", _json(shapes.Readiness), refuses=(("503", shapes.NotReady),)),
    Operation("/admin/events", "get", ((SSE, LiveEvent),)),
)


def described() -> tuple[dict[tuple[str, str], dict[str, Any]], dict[str, Any]]:
    """Returns what to put into each operation, by path and method, and all schemas by name."""
    kinds = list(dict.fromkeys(_kinds()))
    found, schemas = msgspec.json.schema_components(
        [*kinds, *shapes.BY_HAND], ref_template=shapes.REF
    )
    by_kind: dict[Any, dict[str, Any]] = dict(zip(kinds, found, strict=False))

    def schema_of(kind: Any) -> dict[str, Any]:
        if isinstance(kind, tuple):
            return {"anyOf": [by_kind[each] for each in kind]}
        return by_kind[kind]

    operations: dict[tuple[str, str], dict[str, Any]] = {}
    for each in OPERATIONS:
        content = {name: {"schema": schema_of(kind)} for name, kind in each.answers}
        responses: dict[str, Any] = {}
        if content:
            responses["200"] = {"description": "Done", "content": content}
        for status, kind in each.refuses:
            refusal = {JSON: {"schema": schema_of(kind)}}
            responses[status] = {"description": "Refused", "content": refusal}
        operation: dict[str, Any] = {"responses": responses}
        if each.body is not None:
            taken = {each.takes: {"schema": schema_of(each.body)}}
            operation["requestBody"] = {"required": True, "content": taken}
        operations[each.path, each.method] = operation
    return operations, schemas


def _kinds() -> Iterator[Any]:
    for each in OPERATIONS:
        for kind in (each.body, *(kind for _, kind in (*each.answers, *each.refuses))):
            if isinstance(kind, tuple):
                yield from kind
            elif kind is not None:
                yield kind
