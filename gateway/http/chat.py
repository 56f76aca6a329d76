"""Answers `POST /v1/chat/completions`: the same pipeline under the older protocol.

This is an edge.
"""

from collections.abc import Mapping
from functools import partial

from litestar.types import Receive

from gateway.chat.request import parse_chat
from gateway.chat.stream import ChatStream
from gateway.http.services import Services
from gateway.http.streams import HttpAnswer, answer_written
from gateway.transport.ids import new_id
from gateway.wire.errors import ProtocolError
from router.classify.task import Tenant


async def answer_chat(
    services: Services, tenant: Tenant, content: bytes, receive: Receive, _: Mapping[str, str]
) -> HttpAnswer:
    """Answers `POST /v1/chat/completions`, whole or in chunks.

    Raises `ProtocolError`: Before the first chunk; afterwards errors are chunks.
    """
    gw = services.gw
    chat, parsed, terms = parse_chat(content, f"resp_{new_id()}", gw.max_context_tokens)
    make_writer = partial(ChatStream, parsed, chat, terms)
    try:
        return await answer_written(
            gw, tenant, parsed, receive, make_writer, streams=bool(chat.stream)
        )
    except ProtocolError as error:
        raise terms.told(error) from None
