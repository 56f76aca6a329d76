"""What one turn of the loop writes leaves together, in order, and before a close."""

import asyncio
import weakref
from types import SimpleNamespace
from typing import Any, cast

from gateway.transport.gathered_writes import MAX_GATHERED_BYTES, GatheredWrites
from gateway.transport.http_protocol import _write_body_now


class Bare:
    """Notes what is done to a transport."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def write(self, content: bytes) -> None:
        self.done.append(content)

    def close(self) -> None:
        self.done.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.done


def gathered() -> tuple[GatheredWrites, Bare]:
    bare = Bare()
    return GatheredWrites(cast("asyncio.Transport", bare)), bare


async def test_a_turn_is_one_write() -> None:
    writes, bare = gathered()
    writes.write(b"head ")
    writes.write(b"body")
    assert bare.done == [], "the turn goes on"
    await asyncio.sleep(0)
    assert bare.done == [b"head body"]
    writes.write(b"next")
    await asyncio.sleep(0)
    assert bare.done == [b"head body", b"next"]


async def test_a_close_comes_behind() -> None:
    writes, bare = gathered()
    writes.write(b"head ")
    writes.write(b"body")
    writes.close()
    await asyncio.sleep(0)
    assert bare.done == [b"head body", "closed"]
    assert writes.is_closing()


async def test_much_is_not_gathered() -> None:
    writes, bare = gathered()
    writes.write(b"head")
    writes.write(b"x" * MAX_GATHERED_BYTES)
    assert len(bare.done) == 1, "the transport has to know, so that it can say that it is full"
    await asyncio.sleep(0)
    assert len(bare.done) == 1


class Streaming:
    """Stands for uvicorn's cycle of a streamed answer that has begun."""

    disconnected = response_complete = False
    response_started = chunked_encoding = True
    flow = SimpleNamespace(write_paused=False)

    def __init__(self, transport: GatheredWrites) -> None:
        self.transport = transport


async def test_a_streamed_chunk_takes_the_head_along() -> None:
    writes, bare = gathered()
    cycle = Streaming(writes)
    writes.write(b"head ")
    for pieces in ((b"on", b"e"), (b"two",)):
        assert _write_body_now(cast("Any", weakref.ref(cycle)), pieces)
    assert bare.done == [b"head 3\r\none\r\n", b"3\r\ntwo\r\n"]
    await asyncio.sleep(0)
    assert len(bare.done) == 2
