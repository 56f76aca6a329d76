"""Answers Anthropic's Messages API: the same pipeline under its protocol. This is an edge."""

from collections.abc import Mapping
from functools import partial

import msgspec
from litestar.response.base import ASGIResponse
from litestar.types import Receive

from gateway.http.services import Services
from gateway.http.streams import (
    Exchange,
    HttpAnswer,
    answer_written,
    json_response,
    request_context,
)
from gateway.messages.errors import REQUEST_ID, in_messages_terms
from gateway.messages.models import meant_model, model_entries, model_page
from gateway.messages.ratelimit import anthropic_limits
from gateway.messages.request import MessagesRequest, read_messages
from gateway.messages.stream import MessageStream
from gateway.task.own_input import parse_request
from gateway.transport.ids import new_id
from gateway.wire.errors import ProtocolError
from gateway.wire.requests import ParsedCreate
from router.classify.task import Tenant
from router.policy.policy import AUTO


async def answer_messages(
    services: Services,
    tenant: Tenant,
    content: bytes,
    receive: Receive,
    headers: Mapping[str, str],
) -> HttpAnswer:
    """Answers `POST /v1/messages`, whole or as events.

    Raises `ProtocolError`: Before the first event; afterwards errors are events.
    """
    asked = _read(services, tenant, headers, content)
    parsed = await _parse(services, tenant, asked)
    return await answer_written(
        services.gw,
        tenant,
        parsed,
        receive,
        partial(MessageStream, parsed, asked.body),
        streams=bool(asked.body.stream),
        headers_of=partial(_headers, services),
    )


async def count_messages(
    services: Services, tenant: Tenant, headers: Mapping[str, str], content: bytes
) -> ASGIResponse:
    """Answers `POST /v1/messages/count_tokens`: nothing is generated nor taken from a pool."""
    asked = _read(services, tenant, headers, content, counts=True)
    try:
        task = await request_context(services.gw, tenant, asked.create)
    except ProtocolError as error:
        raise in_messages_terms(error, asked.json_paths) from None
    return json_response({"input_tokens": task.request.num_prompt_tokens}, headers=_named())


def list_models(
    services: Services, tenant: Tenant, limit: int, after_id: str | None, before_id: str | None
) -> ASGIResponse:
    """Answers `GET /v1/models` for a client that sends `anthropic-version`."""
    page = model_page(_entries(services, tenant), limit, after_id, before_id)
    return json_response(page, headers=_named())


def one_model(services: Services, tenant: Tenant, model: str) -> ASGIResponse:
    """Answers `GET /v1/models/{model}` for such a client, or raises `ProtocolError`."""
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
