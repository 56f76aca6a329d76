"""Reads a request of many items in pieces, between which others have a turn. This is an edge."""

import asyncio
import contextlib

from gateway.wire.errors import ProtocolError
from gateway.wire.events import CreateBody
from gateway.wire.items import MAX_INPUT_ITEMS, PIECE_ITEMS, InputReader
from gateway.wire.requests import ParsedCreate, countable_tokens, parse_create
from router.classify.task import StorePolicy


async def read_input(body: CreateBody, max_tokens: int) -> InputReader | None:
    """Reads a request's items, up to one that is not valid; None if they are few, or too many."""
    value = body.input
    if not isinstance(value, list) or not PIECE_ITEMS < len(value) <= MAX_INPUT_ITEMS:
        return None
    reader = InputReader(value, max_tokens=countable_tokens(body, max_tokens))
    with contextlib.suppress(ProtocolError):  # who parses the request comes to it again
        while reader.read_piece():  # noqa: ASYNC110 - one turn for everyone else, no wait
            await asyncio.sleep(0)
    return reader


async def parse_request(
    body: CreateBody,
    response_id: str,
    *,
    generate: bool = True,
    max_tokens: int,
    store: StorePolicy = "asked",
) -> ParsedCreate:
    """Checks a request as `parse_create` does, giving way to others meanwhile."""
    own_input = await read_input(body, max_tokens)
    return parse_create(
        body,
        response_id,
        generate=generate,
        max_tokens=max_tokens,
        own_input=own_input,
        store=store,
    )
