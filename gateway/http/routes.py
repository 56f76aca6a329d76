"""Serves the routes: each authenticates, calls one function, and answers. This is an edge."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, delete, get, post
from litestar.exceptions import HTTPException
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response.base import ASGIResponse
from litestar.utils.path import normalize_path
from litestar.utils.scope.state import ScopeState

from backends.relay.options import RelayedPath
from gateway.access.socket_tickets import LIFE_S
from gateway.access.subprotocols import PLAIN, TICKET_PREFIX
from gateway.http.batch_route import NDJSON
from gateway.http.chat import answer_chat
from gateway.http.fast_routes import answer_response
from gateway.http.faults import (
    fault_of,
    field_faults,
    missing_query_name,
    speaks_messages,
    told,
)
from gateway.http.idempotency import answered_once
from gateway.http.messages import (
    answer_messages,
    count_messages,
    list_models,
    one_model,
)
from gateway.http.model_list import find_model
from gateway.http.relays import answer_relayed
from gateway.http.runbooks import HANDLERS as RUNBOOKS
from gateway.http.scrape import scraped
from gateway.http.services import Post, Services, services_of
from gateway.http.streams import (
    JSON,
    AnyRequest,
    create_compaction,
    error_response,
    json_response,
    request_context,
)
from gateway.http.usage import usage_view
from gateway.metrics.metrics import CONTENT_TYPE
from gateway.task.outcomes import take_feedback
from gateway.wire.errors import OR_CONTINUE, ProtocolError, check_limit
from gateway.wire.events import CompactBody, CountBody, decode
from gateway.wire.items import wire_item
from router.classify.task import Tenant
from router.policy.policy import AUTO

MAX_LISTED_ITEMS = 100  # per page of input_items; OpenAI's limit
# For the schema alone: `check_limit` says in one go what is expected.
_PAGE_LENGTH = QueryParameter(schema_extra={"minimum": 1, "maximum": MAX_LISTED_ITEMS})


def _caller(request: AnyRequest) -> tuple[Services, Tenant]:
    """Raises ProtocolError without a key that is known here."""
    services = services_of(request)
    return services, services.caller(request.scope, request.headers)


async def _answered(post: Post, request: AnyRequest) -> ASGIResponse:
    services, tenant = _caller(request)
    content, path = await request.document(), request.scope["path"]
    return await answered_once(
        post, path, services, tenant, content, request.receive, request.headers
    )


@get("/v1/responses")
async def responses_without_upgrade() -> ASGIResponse:
    """Answers 426: only that tells Codex at once to use HTTP instead."""
    message = "Upgrade to a WebSocket, or POST to this address."
    error = ProtocolError("upgrade_required", message, headers={"upgrade": "websocket"})
    return error_response(error)


@post("/v1/responses")
async def post_response(request: AnyRequest) -> ASGIResponse:
    """Makes one response: as JSON, as SSE, or in the background."""
    return await _answered(answer_response, request)


@get("/v1/responses/{response_id:str}")
async def get_response(
    request: AnyRequest,
    response_id: FromPath[str],
    stream: FromQuery[bool] = False,
    starting_after: FromQuery[int] = -1,
) -> ASGIResponse:
    """Returns a stored response, or the events of a background one."""
    services, tenant = _caller(request)
    if stream:
        return await services.background.follow(tenant, response_id, starting_after)
    body = await services.background.read(tenant, response_id)
    if body is None:
        raise _not_found(response_id)
    return json_response(body)


@delete("/v1/responses/{response_id:str}", status_code=200)
async def delete_response(request: AnyRequest, response_id: FromPath[str]) -> ASGIResponse:
    """Forget a stored response."""
    services, tenant = _caller(request)
    services.gw.experience.pending_outcomes.forget(tenant.id, response_id)
    if not await services.background.delete(tenant, response_id):
        raise _not_found(response_id)
    await services.forget_response(response_id)
    await services.erasures["responses"].announce(response_id)
    return json_response({"id": response_id, "object": "response", "deleted": True})


@post("/v1/responses/{response_id:str}/cancel", status_code=200)
async def cancel_response(request: AnyRequest, response_id: FromPath[str]) -> ASGIResponse:
    """Stop a background response."""
    services, tenant = _caller(request)
    cancelled = await services.background.cancel(tenant, response_id)
    if cancelled is not None:
        return json_response(cancelled)
    if await services.gw.store.load(tenant.id, response_id) is None:
        raise _not_found(response_id)
    message = (
        "Only a background response can be cancelled so. Stop others by closing their connection, "
        "or on a WebSocket by 'response.cancel'."
    )
    raise ProtocolError("response_not_cancellable", message, param="response_id")


@post("/v1/responses/{response_id:str}/feedback", status_code=200)
async def post_feedback(request: AnyRequest, response_id: FromPath[str]) -> ASGIResponse:
    """Takes whether an answer did what was asked; the router learns from it."""
    services, tenant = _caller(request)
    feedback = await take_feedback(services.gw, tenant, response_id, await request.document())
    kind = {"id": response_id, "object": "response.feedback"}
    return json_response(kind | msgspec.to_builtins(feedback))


@get("/v1/responses/{response_id:str}/input_items")
async def get_input_items(
    request: AnyRequest,
    response_id: FromPath[str],
    limit: Annotated[int, _PAGE_LENGTH] = 20,
    order: FromQuery[Literal["asc", "desc"]] = "desc",
    after: FromQuery[str | None] = None,
) -> ASGIResponse:
    """Lists the items a response was given, a page at a time."""
    services, tenant = _caller(request)
    check_limit(limit, MAX_LISTED_ITEMS)
    items = await services.gw.store.input_items(tenant.id, response_id)
    if items is None:
        raise _not_found(response_id)
    tail = response_id.removeprefix("resp_")
    listed: dict[str, dict[str, Any]] = {}
    for number, entry in enumerate(items):
        item = wire_item(entry.item, f"in_{tail}{number:04x}")
        if item["id"] in listed:  # a client may send one twice, and 'after' is to name one of them
            item["id"] = f"in_{tail}{number:04x}"
        listed[item["id"]] = item
    ids = list(listed)
    if order != "asc":
        ids.reverse()
    if after is not None and after not in ids:
        raise ProtocolError("invalid_value", f"No item '{after[:80]}' in this list.", param="after")
    start = ids.index(after) + 1 if after is not None else 0
    page = [listed[key] for key in ids[start : start + limit]]
    return json_response(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": start + len(page) < len(listed),
        }
    )


@post("/v1/responses/input_tokens", status_code=200)
async def count_input_tokens(request: AnyRequest) -> ASGIResponse:
    """Counts the tokens that a request would bring, by the gateway's own rule."""
    services, tenant = _caller(request)
    body = decode(await request.document(), CountBody)
    if body.model is None:
        body = msgspec.structs.replace(body, model=AUTO)
    task = await request_context(services.gw, tenant, body)
    tokens = task.request.num_prompt_tokens
    return json_response({"object": "response.input_tokens", "input_tokens": tokens})


@post("/v1/responses/compact", status_code=200)
async def compact_context(request: AnyRequest) -> ASGIResponse:
    """Returns a shorter context that stands for a longer one."""
    services, tenant = _caller(request)
    body = decode(await request.document(), CompactBody)
    return await create_compaction(services.gw, tenant, body, request.receive)


def _not_found(response_id: str) -> ProtocolError:
    message = f"Response '{response_id[:80]}' not found."
    return ProtocolError("response_not_found", message, param="response_id")


@post("/v1/chat/completions", status_code=200)
async def post_chat_completion(request: AnyRequest) -> ASGIResponse:
    """Answers in the older protocol, over the same pipeline."""
    return await _answered(answer_chat, request)


async def _answered_elsewhere(path: RelayedPath, request: AnyRequest) -> ASGIResponse:
    if not services_of(request).relays.has(path):
        served = _not_served(request.app.state.served, "POST", request.scope["path"])
        raise ProtocolError("not_found", f"{served} No server of {path} is configured.")
    return await _answered(partial(answer_relayed, path), request)


@post("/v1/embeddings", status_code=200)
async def post_embeddings(request: AnyRequest) -> ASGIResponse:
    """Passes the request on to the server that has the model, if one is configured."""
    return await _answered_elsewhere("embeddings", request)


@post("/v1/completions", status_code=200)
async def post_completion(request: AnyRequest) -> ASGIResponse:
    """Passes a legacy completion on to the server that has the model."""
    return await _answered_elsewhere("completions", request)


@post("/v1/messages", status_code=200)
async def post_message(request: AnyRequest) -> ASGIResponse:
    """Answers in Anthropic's protocol, over the same pipeline."""
    return await _answered(answer_messages, request)


@post("/v1/messages/count_tokens", status_code=200)
async def count_message_tokens(request: AnyRequest) -> ASGIResponse:
    """Counts the tokens that the request would bring, by the gateway's own rule."""
    services, tenant = _caller(request)
    return await count_messages(services, tenant, request.headers, await request.document())


# Where a client's base address ends in "/v1" already. Their operations' ids would come twice in the
# schema, which is refused, so they are not in it.
_twice = partial(post, status_code=200, include_in_schema=False)
post_message_twice = _twice("/v1/v1/messages")(post_message.fn)
count_message_tokens_twice = _twice("/v1/v1/messages/count_tokens")(count_message_tokens.fn)


@post("/v1/route", status_code=200)
async def post_route(request: AnyRequest) -> ASGIResponse:
    """Says where each of many prompts would go: lines of JSON in and out; nothing runs."""
    services, tenant = _caller(request)
    decided = await services.route_batches.decide(tenant, await request.body())
    return ASGIResponse(body=decided, media_type=NDJSON)


@post("/v1/socket_tickets", status_code=200)
async def post_socket_ticket(request: AnyRequest) -> ASGIResponse:
    """Makes what a page opens one socket with, not a key: `new WebSocket(url, protocols)`."""
    services, tenant = _caller(request)
    ticket = await services.socket_tickets.make(tenant)
    return json_response(
        {
            "object": "socket_ticket",
            "ticket": ticket,
            "protocols": [PLAIN, TICKET_PREFIX + ticket],
            "expires_at": services.gw.wall_s() + LIFE_S,
        },
        headers={"cache-control": "no-store"},
    )


@get("/v1/models")
async def get_models(
    request: AnyRequest,
    limit: FromQuery[int] = 20,
    after_id: FromQuery[str | None] = None,
    before_id: FromQuery[str | None] = None,
) -> ASGIResponse:
    """Lists what `model` may be; in Anthropic's form, and in pages, for its clients."""
    services, tenant = _caller(request)
    if speaks_messages(request.scope["path"], request.headers):
        return list_models(services, tenant, limit, after_id, before_id)
    return json_response(services.catalogue(tenant))


@get("/v1/models/{model:path}")
async def get_model(request: AnyRequest, model: FromPath[str]) -> ASGIResponse:
    """Describes one model; names as Hugging Face's have a slash."""
    services, tenant = _caller(request)
    model = model.removeprefix("/")  # which the framework puts before a path
    if speaks_messages(request.scope["path"], request.headers):
        return one_model(services, tenant, model)
    return json_response(find_model(services.catalogue(tenant), model))


@get("/v1/usage")
async def get_usage(request: AnyRequest) -> ASGIResponse:
    """Shows the tenant's own pools, and what it has spent today."""
    services, tenant = _caller(request)
    return json_response(await usage_view(services.gw, services.ledger, tenant))


@get("/metrics")
async def get_metrics(request: AnyRequest) -> ASGIResponse:
    """Returns all metrics, for Prometheus."""
    services = services_of(request)
    fleet = services.fleet
    body = await (scraped(services) if fleet is None else fleet.metrics())
    return ASGIResponse(body=body, headers={"content-type": CONTENT_TYPE})


@get(["/healthz", "/health"])  # the second as vLLM and SGLang name it, and load generators ask
async def get_health() -> ASGIResponse:
    """Says that it lives: the event loop answers."""
    return json_response({"status": "ok"})


@get("/readyz")
async def get_readiness(request: AnyRequest) -> ASGIResponse:
    """Says whether it takes tasks: it does not drain, Redis answered once, its own engines run.

    One that only lost Redis stays ready: it limits tasks by itself, and there may be no better one.
    So does one whose upstreams are down, which all gateways share, or whose backends an admin
    drains; they are named.
    """
    services = services_of(request)
    gw, own = services.gw, services.own_engines
    down = services.backends_down()
    if gw.state.draining:
        return json_response({"status": "draining"}, 503)
    if not gw.pools.ready:
        return json_response({"status": "blind", "detail": "Redis has not answered yet."}, 503)
    if gone := [name for name in down if name in own]:
        detail = f"Engines of this gateway do not answer: {', '.join(gone)}."
        return json_response({"status": "no engine", "detail": detail, "backends_down": down}, 503)
    body = {"status": "ready", "pools": gw.pools.mode}
    named = {"backends_down": down, "backends_drained": services.backends_drained()}
    return json_response(body | {name: names for name, names in named.items() if names})


HANDLERS: list[Any] = [
    *(responses_without_upgrade, post_response, get_response, delete_response, cancel_response),
    *(post_feedback, get_input_items, count_input_tokens, compact_context),
    *(post_chat_completion, post_message, count_message_tokens),
    *(post_embeddings, post_completion),
    *(post_message_twice, count_message_tokens_twice),
    *(post_route, post_socket_ticket, get_models, get_model, get_usage),
    *(get_metrics, get_health, get_readiness),
    *RUNBOOKS,
]


Served = Mapping[str, set[str]]  # the methods of each path; its parts in braces may be anything


def served_methods(routes: Iterable[Any]) -> Served:
    """Returns what an application's routes serve, without the framework's own OPTIONS."""
    of_http = (route for route in routes if hasattr(route, "methods"))
    return {route.path: set(map(str, route.methods)) - {"OPTIONS"} for route in of_http}


def methods_at(served: Served, path: str) -> set[str]:
    """Returns the methods that are served at a path, HEAD where GET is; none for unknown paths."""
    path = normalize_path(path)
    methods = served.get(path) or next(
        (methods for known, methods in served.items() if "{" in known and _fits(known, path)),
        set[str](),
    )
    return methods | ({"HEAD"} if "GET" in methods else set())


def _fits(known: str, path: str) -> bool:
    """Says whether a path is a known one, whose parts in braces may be anything."""
    theirs, ours = known.split("/"), path.split("/")
    if theirs[-1].endswith(":path}"):  # it takes all that is left
        ours[len(theirs) - 1 :] = ["/".join(ours[len(theirs) - 1 :])]
    return len(theirs) == len(ours) and all(
        part == own or part.startswith("{") for part, own in zip(theirs, ours, strict=True)
    )


def _not_served(served: Served, method: str, path: str) -> str:
    """Says of a path that is none of ours what there is."""
    if path == "/admin" or path.startswith("/admin/"):
        below = sorted(each for each in served if each.startswith("/admin/") and "{" not in each)
        names = f"{', '.join(below)}, and more (/schema)"
        return f"{method} {path[:200]} is not served here. Served are: {names}."
    shown = [
        f"{each} {known}"
        for known, methods in served.items()
        for each in sorted(methods)
        if known.startswith("/v1/") and not known.startswith("/v1/v1/") and "{" not in known
        if known not in ("/v1/embeddings", "/v1/completions")
    ]
    return f"{method} {path[:200]} is not served here. Served are: {', '.join(shown)}."


def answer_error(request: AnyRequest, error: ProtocolError) -> Response[bytes]:
    """Tells an error in the client's protocol, as Litestar's handlers of exceptions do."""
    unix_s = services_of(request).gw.wall_s()
    body, status, headers = told(error, request.scope["path"], request.headers, unix_s)
    encoded = msgspec.json.encode(body)
    return Response(encoded, media_type=JSON, status_code=status, headers=headers)


def on_http_error(request: AnyRequest, error: HTTPException) -> Response[bytes]:
    """Tells an error of the framework in the protocol's form."""
    if error.status_code == 413:
        limit_bytes = services_of(request).config.server.max_message_bytes
        message = f"A body may hold {limit_bytes} bytes. Send less{OR_CONTINUE}."
        return answer_error(request, ProtocolError("message_too_large", message))
    if error.status_code == 404:
        message = _not_served(request.app.state.served, request.method, request.scope["path"])
        return answer_error(request, ProtocolError("not_found", message))
    if error.status_code == 405:
        methods = ", ".join(sorted(methods_at(request.app.state.served, request.scope["path"])))
        message = f"{request.method} is not served at {request.scope['path']}, but {methods} is."
        refused = ProtocolError("method_not_allowed", message, headers={"allow": methods})
        return answer_error(request, refused)
    code = "invalid_value" if error.status_code < 500 else "server_error"
    # This does not read `request.url`, which fails where the "Host" is none.
    what = f"{request.method} {request.scope['path']}"
    # What is wrong with a body or a query is in its details.
    wrong = getattr(error, "extra", None)
    if (name := missing_query_name(error.detail)) is not None:
        message = f"{what}: Missing required parameter: {name!r}. /schema says what is expected."
        lacking = ProtocolError("missing_required_parameter", message, param=name)
        return answer_error(request, lacking)
    if not wrong:
        return answer_error(request, ProtocolError(code, f"{what}: {error.detail}"))
    arguments = request.route_handler.parsed_fn_signature.parameters
    types = {name: each.annotation for name, each in arguments.items()}
    sent = {**dict(request.query_params), **request.path_params}
    body = ScopeState.from_scope(request.scope).body
    faults = field_faults(wrong, types, sent, body if isinstance(body, bytes) else b"")
    words = " ".join(fault.message for fault in faults)
    message = f"{what}: {words} /schema says what is expected."
    return answer_error(request, ProtocolError(faults[0].code, message, param=faults[0].param))


def on_fault(request: AnyRequest, error: Exception) -> Response[bytes]:
    """Tells any other error: the protocol's own, or a fault of ours."""
    return answer_error(request, fault_of(request.method, request.scope["path"], error))


EXCEPTION_HANDLERS: dict[Any, Any] = {HTTPException: on_http_error, Exception: on_fault}
