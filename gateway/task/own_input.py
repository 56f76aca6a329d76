"""Reads a long request in pieces, between which others have a turn. This is an edge."""

import asyncio
import contextlib

from backends.contract import ContextItem
from backends.prompt import PIECE_ITEMS as PROMPT_PIECE_ITEMS
from backends.prompt import Prefix, begun_prefix, cache_salt, extend_prefix
from gateway.task.json_marks import MAX_MARKS, MarkCount
from gateway.transport.ids import new_id
from gateway.wire.errors import ProtocolError
from gateway.wire.events import CreateBody
from gateway.wire.items import MAX_INPUT_ITEMS, PIECE_ITEMS, InputReader
from gateway.wire.requests import ParsedCreate, countable_tokens, parse_create
from router.classify.task import StorePolicy

LONG_BYTES = 65_536  # a longer message is read in steps, between which other tasks have a turn


async def read_input(
    body: CreateBody, max_tokens: int, *, num_bytes: int = 0
) -> InputReader | None:
    """Reads a request's items, up to one that is not valid; None if they are few, or too many.

    Of a message of more than `LONG_BYTES`, few items are read here, too, and not in the turn of the
    event loop in which it was decoded. `num_bytes` is the message's size.
    """
    value, is_long = body.input, num_bytes > LONG_BYTES
    if is_long:
        await asyncio.sleep(0)
    least = 0 if is_long else PIECE_ITEMS
    if not isinstance(value, list) or not least < len(value) <= MAX_INPUT_ITEMS:
        return None
    reader = InputReader(value, max_tokens=countable_tokens(body, max_tokens))
    with contextlib.suppress(ProtocolError):  # who parses the request comes to it again
        while reader.read_piece():  # noqa: ASYNC110 - one turn for everyone else, no wait
            await asyncio.sleep(0)
    return reader


async def check_values(document: str | bytes) -> None:
    """Raises `ProtocolError` if a JSON document has more values than may be decoded at once."""
    if len(document) <= MAX_MARKS:
        return
    # The marks are ASCII, so that any encoding which extends it will do.
    text = document if isinstance(document, str) else document.decode("latin-1")
    counted = MarkCount(text)
    while counted.read_piece():  # noqa: ASYNC110 - one turn for everyone else, no wait
        await asyncio.sleep(0)


async def make_prefix(
    parsed: ParsedCreate, items: tuple[ContextItem, ...], tenant_id: str
) -> Prefix:
    """Makes the prefix of a request's prompt, in pieces."""
    salt = cache_salt(tenant_id)
    prefix = begun_prefix(parsed.body.instructions, parsed.tools, parsed.text_format, salt)
    for start in range(0, len(items), PROMPT_PIECE_ITEMS):
        extend_prefix(prefix, items[start : start + PROMPT_PIECE_ITEMS], salt)
        await asyncio.sleep(0)
    return tuple(prefix)


async def parse_request(
    body: CreateBody,
    *,
    generate: bool = True,
    max_tokens: int,
    store: StorePolicy = "asked",
    num_bytes: int = 0,
) -> ParsedCreate:
    """Checks a request of so many bytes as `parse_create` does, giving way to others meanwhile.

    It gets an id of its own.
    """
    own_input = await read_input(body, max_tokens, num_bytes=num_bytes)
    return parse_create(
        body,
        f"resp_{new_id()}",
        generate=generate,
        max_tokens=max_tokens,
        own_input=own_input,
        store=store,
    )
