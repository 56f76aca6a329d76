"""A request of many items holds nobody up: others have a turn between its pieces."""

import asyncio

import msgspec
import pytest

from backends.contract import ContextItem
from backends.prompt import cache_salt, prompt_size
from gateway.task.json_marks import MAX_MARKS
from gateway.task.own_input import LONG_BYTES, check_values, make_prefix, parse_request, read_input
from gateway.wire.errors import ProtocolError
from gateway.wire.events import CreateBody
from gateway.wire.items import MAX_INPUT_ITEMS, PIECE_ITEMS
from router.redis.cancelling import cancelled

ITEM = msgspec.Raw(b'{"role":"user","content":"hi"}')
BAD = msgspec.Raw(b'{"role":"nobody"}')
WINDOW = 131_072


def body(*items: msgspec.Raw) -> CreateBody:
    return CreateBody(model="auto", input=list(items))


async def test_others_have_a_turn_between_pieces() -> None:
    num_turns = 0

    async def other() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    parsed = await parse_request(body(*[ITEM] * MAX_INPUT_ITEMS), max_tokens=WINDOW)
    await cancelled(running)
    assert len(parsed.input.items) == MAX_INPUT_ITEMS
    assert num_turns >= MAX_INPUT_ITEMS // PIECE_ITEMS


async def test_few_items_are_read_at_once() -> None:
    assert await read_input(body(*[ITEM] * PIECE_ITEMS), WINDOW) is None
    assert await read_input(CreateBody(model="auto", input="hi"), WINDOW) is None


async def test_few_items_of_a_long_message_wait_for_another_turn() -> None:
    was_others_turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(was_others_turn.set)
    reader = await read_input(body(ITEM), WINDOW, num_bytes=LONG_BYTES + 1)
    assert was_others_turn.is_set()
    assert reader is not None
    assert len(reader.parsed().items) == 1


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([ITEM] * MAX_INPUT_ITEMS + [ITEM], "input"),
        ([ITEM] * 1_000 + [BAD] + [ITEM] * 1_000, "input[1000].role"),
    ],
)
async def test_what_is_not_valid_is_named_as_ever(items: list[msgspec.Raw], param: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        await parse_request(body(*items), max_tokens=WINDOW)
    assert refused.value.param == param


async def test_a_long_prefix_is_that_of_a_short_way() -> None:
    parsed = await parse_request(body(*[ITEM] * 2_000), max_tokens=WINDOW)
    items = tuple(item for item in parsed.input.items if isinstance(item, ContextItem))
    size = prompt_size(None, parsed.tools, parsed.text_format, items, cache_salt("acme"))
    assert await make_prefix(parsed, items, "acme") == size[1]


async def test_a_document_of_too_many_values_is_not_decoded() -> None:
    text = "[" + "[]," * MAX_MARKS + "1]"
    for document in (text, text.encode()):
        with pytest.raises(ProtocolError, match="message_too_large"):
            await check_values(document)
    await check_values(("é" * MAX_MARKS).encode())
