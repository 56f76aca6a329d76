"""What one turn of the loop writes leaves together, in order, and before a close."""

import asyncio
from typing import Any, cast

from gateway.transport.gathered_writes import MAX_GATHERED_BYTES, GatheredWrites


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
