"""Answers `POST /v1/chat/completions`: the same pipeline under the older protocol.

This is an edge.
"""

from litestar.types import Receive

from gateway.chat.request import parse_chat
from gateway.chat.stream import ChatStream
from gateway.http.services import Services
from gateway.http.streams import JSON, EventStream, Exchange, HttpAnswer
from gateway.transport.ids import new_id
from gateway.transport.outbox import Outbox
from gateway.wire.errors import ProtocolError
from router.classify.task import Tenant


async def answer_chat(
    services: Services, tenant: Tenant, content: bytes, receive: Receive
) -> HttpAnswer:
    """`POST /v1/chat/completions`: the older protocol, over the same pipeline.

    Raises `ProtocolError`: Before the first chunk; afterwards errors are chunks.
    """
    gw = services.gw
    chat, parsed, terms = parse_chat(content, f"resp_{new_id()}", gw.max_context_tokens)
    if not chat.stream:
        whole = ChatStream(parsed, chat)
        exchange = Exchange(gw, tenant, parsed, whole)
        try:
            await exchange.whole(receive)
        except ProtocolError as error:
            raise terms.told(error) from None
        return HttpAnswer(JSON.encode(), exchange.headers(), whole.body)
    outbox = Outbox(gw.flush_timer, gw.max_unread_bytes)
    exchange = Exchange(gw, tenant, parsed, ChatStream(parsed, chat, outbox.send, outbox.mark))
    try:
        await exchange.until_open()
    except ProtocolError as error:
        raise terms.told(error) from None
    return EventStream(gw, outbox, exchange.pump, exchange.headers())
