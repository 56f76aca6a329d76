"""`POST /v1/chat/completions`: the same pipeline under the older protocol."""

from litestar.types import Receive

from gateway.chat_request import parse_chat
from gateway.chat_stream import ChatStream
from gateway.gateway import Gateway
from gateway.http import JSON, Answer, EventStream, Exchange
from gateway.ids import new_id
from gateway.outbox import Outbox
from router.task import Tenant


async def create_chat_completion(
    gw: Gateway, tenant: Tenant, content: bytes, receive: Receive
) -> Answer:
    """`POST /v1/chat/completions`; `receive` tells when the client leaves.

    Raises:
        ProtocolError: Before the first chunk; afterwards errors are chunks.
    """
    chat, parsed = parse_chat(content, f"resp_{new_id()}", gw.max_context_tokens)
    outbox = Outbox(gw.rounds) if chat.stream else None
    stream = ChatStream(parsed, chat, outbox)
    exchange = Exchange(gw, tenant, parsed, stream)
    if outbox is None:
        await exchange.whole(receive)
        return Answer(JSON.encode(), exchange.headers(), stream.body)
    await exchange.until_open()
    return EventStream(gw, outbox, exchange.pump, exchange.headers())
