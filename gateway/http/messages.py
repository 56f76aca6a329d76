"""Answers Anthropic's Messages API: the same pipeline under its protocol. This is an edge."""

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar.response.base import ASGIResponse
from litestar.types import Receive

from gateway.http.services import Services
from gateway.http.streams import (
    JSON,
    EventStream,
    Exchange,
    HttpAnswer,
    json_response,
    request_context,
)
from gateway.messages.errors import (
    REQUEST_ID,
    error_body,
    error_headers,
    in_messages_terms,
    status_of,
)
from gateway.messages.models import meant_model, model_entries, model_page
from gateway.messages.ratelimit import anthropic_limits
from gateway.messages.request import MessagesRequest, read_messages
from gateway.messages.stream import MessageStream
from gateway.task.own_input import parse_request
from gateway.transport.ids import new_id
from gateway.transport.outbox import Outbox
from gateway.wire.errors import ProtocolError
from gateway.wire.requests import ParsedCreate
from router.classify.task import Tenant
from router.policy.policy import AUTO

_VERSION = "anthropic-version"  # a header that all clients of this API send, and no others


def speaks_messages(path: str, headers: Mapping[str, str]) -> bool:
    """Says whether a request expects answers in Anthropic's form."""
    return path.startswith(("/v1/messages", "/v1/v1/messages")) or _VERSION in headers


def messages_error(
    error: ProtocolError, unix_s: float
) -> tuple[dict[str, Any], int, dict[str, str]]:
    """Makes the body, status and headers of an error."""
    request_id = f"req_{new_id()}"
    headers = error_headers(error, request_id) | anthropic_limits(error.headers, unix_s)
    return error_body(error, request_id), status_of(error), headers


async def answer_messages(
    services: Services,
    tenant: Tenant,
    headers: Mapping[str, str],
    content: bytes,
    receive: Receive,
) -> HttpAnswer:
    """`POST /v1/messages`, whole or as events.

    Raises `ProtocolError`: Before the first event; afterwards errors are events.
    """
    gw = services.gw
    asked = _read(services, tenant, headers, content)
    parsed = await _parse(services, tenant, asked)
    if not asked.body.stream:
        whole = MessageStream(parsed, asked.body)
        exchange = Exchange(gw, tenant, parsed, whole)
        await exchange.whole(receive)
        if whole.fault is not None:
            raise whole.fault
        return HttpAnswer(JSON.encode(), _headers(services, exchange), whole.body)
    outbox = Outbox(gw.flush_timer, gw.max_unread_bytes)
    stream = MessageStream(parsed, asked.body, outbox.send, outbox.mark)
    exchange = Exchange(gw, tenant, parsed, stream)
    await exchange.until_open()
    return EventStream(gw, outbox, exchange.pump, _headers(services, exchange))


async def count_messages(
    services: Services, tenant: Tenant, headers: Mapping[str, str], content: bytes
) -> ASGIResponse:
    """`POST /v1/messages/count_tokens`; generates nothing and takes nothing from a pool."""
    asked = _read(services, tenant, headers, content, counts=True)
    try:
        task = await request_context(services.gw, tenant, asked.create)
    except ProtocolError as error:
        raise in_messages_terms(error, asked.json_paths) from None
    return json_response({"input_tokens": task.request.num_prompt_tokens}, headers=_named())


def list_models(
    services: Services, tenant: Tenant, limit: int, after_id: str | None, before_id: str | None
) -> ASGIResponse:
    """`GET /v1/models` for a client that sends `anthropic-version`."""
    page = model_page(_entries(services, tenant), limit, after_id, before_id)
    return json_response(page, headers=_named())


def one_model(services: Services, tenant: Tenant, model: str) -> ASGIResponse:
    """`GET /v1/models/{model}` for such a client. Raises `ProtocolError` if there is none."""
    entry = next((e for e in _entries(services, tenant) if e["id"] == model), None)
    if entry is None:
        raise ProtocolError("model_not_found", f"model: {model[:80]}")
    return json_response(entry, headers=_named())


def _entries(services: Services, tenant: Tenant) -> list[dict[str, object]]:
    infos = services.gw.infos.values()
    longest = max(info.max_output_tokens for info in infos)
    return model_entries(services.catalogue(tenant), longest)


def _read(
    services: Services,
    tenant: Tenant,
    headers: Mapping[str, str],
    content: bytes,
    *,
    counts: bool = False,
) -> MessagesRequest:
    asked = read_messages(content, headers, counts=counts)
    aliases = services.gw.state.policy.for_tenant(tenant.id).aliases
    known = {AUTO, *aliases, *(info.model for info in services.gw.infos.values())}
    model = meant_model(asked.body.model, known)
    create = msgspec.structs.replace(asked.create, model=model)
    return msgspec.structs.replace(asked, create=create)


async def _parse(services: Services, tenant: Tenant, asked: MessagesRequest) -> ParsedCreate:
    try:
        parsed = await parse_request(
            asked.create,
            f"resp_{new_id()}",
            generate=asked.body.max_tokens != 0,
            max_tokens=services.gw.max_context_tokens,
            store=tenant.store,
        )
    except ProtocolError as error:
        raise in_messages_terms(error, asked.json_paths) from None
    hints = msgspec.structs.replace(parsed.hints, agent=asked.agent)
    return msgspec.structs.replace(parsed, stop=asked.stop, hints=hints)


def _headers(services: Services, exchange: Exchange) -> dict[str, str]:
    headers = exchange.headers()
    return headers | anthropic_limits(headers, services.gw.wall_s()) | _named()


def _named() -> dict[str, str]:
    """Names the answer, as the SDKs show it with errors."""
    return {REQUEST_ID: f"req_{new_id()}"}
