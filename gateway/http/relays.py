"""Answers embeddings and legacy completions: passed on to the server that has the model.

They are no tasks: no engine of ours has them, and nothing is decided. Pools admit them, the usage
that the server reports is charged within what the request can cost, and the ledger has it.
This is an edge.
"""

import asyncio

from litestar.response.base import ASGIResponse
from litestar.types import Receive

from backends.relay.options import RelayedPath
from gateway.http.relayed_call import Asked, RelayedCall
from gateway.http.services import Headers, Services
from gateway.http.streams import JSON, EventStream, HttpAnswer
from gateway.transport.outbox import Outbox
from gateway.transport.response_cycle import attended
from gateway.wire.errors import ProtocolError, draining
from gateway.wire.events import decode
from router.classify.task import Tenant

_LEFT = "The client left before the answer came."


async def answer_relayed(
    path: RelayedPath,
    services: Services,
    tenant: Tenant,
    content: bytes,
    receive: Receive,
    _headers: Headers,
) -> ASGIResponse:
    """Answers with what the model's server answers, whole or as events.

    Raises `ProtocolError`: Not valid, not admitted, or the server failed before its first event.
    """
    gw, asked = services.gw, decode(content, Asked)
    relay = services.relays.find(path, asked.model)
    if gw.state.draining:
        raise draining()
    outbox = Outbox(gw.flush_timer, gw.max_unread_bytes) if asked.stream else None
    call = RelayedCall(gw, tenant, relay, asked, content, outbox)
    await call.reserve()
    pump = asyncio.create_task(call.run())
    if outbox is None:
        await attended(pump, receive)
        if pump.cancelled():
            raise ProtocolError("server_error", _LEFT)
        pump.result()
        return HttpAnswer(JSON.encode(), call.headers(), call.body)
    pump.add_done_callback(lambda _: call.opened.set())
    opening = asyncio.create_task(call.opened.wait())
    try:
        await attended(opening, receive)
    except asyncio.CancelledError:
        pump.cancel()
        raise
    if opening.cancelled():
        pump.cancel()
        raise ProtocolError("server_error", _LEFT)
    if pump.done():
        pump.result()
    return EventStream(gw, outbox, pump, call.headers())
