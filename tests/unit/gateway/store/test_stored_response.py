"""Tests stored records: whatever a conversation may hold comes back from its bytes unchanged."""

import random

import msgspec
import pytest

from backends.contract import (
    Compaction,
    ContextItem,
    CustomToolCall,
    CustomToolCallOutput,
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Item,
    Message,
    Reasoning,
    RefusalPart,
    TextPart,
)
from backends.prompt import measure
from gateway.store.stored_response import StoredResponse

PARTS = (
    TextPart("é日本😀\x00"),
    RefusalPart("no"),
    ImagePart("data:,", None, "low"),
    FilePart("f", "http://x", "a.pdf", "AA=="),
)
ITEMS: list[Item] = [
    Message("user", PARTS, "msg_1"),
    Message("assistant", (), None, "commentary"),
    FunctionCall("c", "f", "{}", "fc_1", "n"),
    FunctionCallOutput("c", PARTS),
    CustomToolCall("c", "f", "x", "ctc_1"),
    CustomToolCallOutput("c", PARTS, "cto_1"),
    Reasoning("rs_1", ("a",), ("b",), "sealed"),
    Compaction("sealed", "cmp_1"),
]


def round_trip(stored: StoredResponse) -> StoredResponse:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(stored), type=StoredResponse)


@pytest.mark.parametrize("item", ITEMS)
def test_every_kind_of_item_survives(item: Item) -> None:
    stored = StoredResponse(
        response=b'{"id":"resp_1"}',
        ancestors=("resp_0",),
        input=(measure(item),),
        output=(measure(item),),
        num_own=1,
        backend="wafer",
        can_continue=False,
    )
    assert round_trip(stored) == stored


def test_digests_of_any_size_survive() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for digest in (0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, chance.getrandbits(64)):
        items = (ContextItem(ITEMS[0], 3, digest),)
        stored = StoredResponse(response=b"", ancestors=(), input=items, output=(), num_own=0)
        assert round_trip(stored).input[0].digest == digest


def test_records_of_before_a_field_existed_can_be_read() -> None:
    old = {"response": b"{}", "ancestors": [], "input": [], "output": [], "num_own": 0}
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=StoredResponse)
    assert (read.backend, read.can_continue) == (None, True)
