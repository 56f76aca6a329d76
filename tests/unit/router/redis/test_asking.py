"""A call whose reply is late ends with that reply, and with no other that was late as well."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import hiredis

from router.redis.servers import NUM_SLOTS, RedisServers, Script
from router.redis.url import RedisTarget

BUDGET_S = 0.2
LATE_S = 1.5 * BUDGET_S  # after the first attempt, and within the second
SCRIPT = Script("return 7", 1)

Answer = Callable[[asyncio.StreamWriter, str], Awaitable[None]]


async def node(answer: Answer) -> asyncio.Server:
    """Begins a server on loopback that answers each command by its first word."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = hiredis.Reader()
        while arrived := await reader.read(1 << 16):
            commands.feed(arrived)
            while (command := commands.gets()) is not False:
                await answer(writer, command[0].decode())
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


async def test_the_reply_of_a_redirected_call_may_be_late() -> None:
    writers: list[Any] = []

    async def moved_to(writer: asyncio.StreamWriter, word: str) -> None:
        if word != "EVALSHA":
            return
        writers.append(writer)
        if len(writers) == 1:  # the second attempt's connection has no answer at all
            await asyncio.sleep(LATE_S)
            writer.write(b"+OK\r\n:7\r\n")

    new = await node(moved_to)

    async def moved_from(writer: asyncio.StreamWriter, word: str) -> None:
        if word == "CLUSTER":
            host = b"*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % port_of(old)
            writer.write(b"*1\r\n*3\r\n:0\r\n:%d\r\n" % (NUM_SLOTS - 1) + host)
        else:
            writer.write(b"-ASK 0 127.0.0.1:%d\r\n" % port_of(new))

    old = await node(moved_from)
    target = RedisTarget(kind="cluster", addresses=(("127.0.0.1", port_of(old)),))
    servers = RedisServers(target, budget_us=round(BUDGET_S * 1e6))
    try:
        assert await servers.run(SCRIPT, ("key",)) == 7
    finally:
        await servers.close()
        old.close()
        new.close()


async def test_a_script_that_was_loaded_late_is_no_reply_to_its_call() -> None:
    writers: list[asyncio.StreamWriter] = []

    async def answer(writer: asyncio.StreamWriter, word: str) -> None:
        if writer not in writers:
            writers.append(writer)
        if len(writers) > 1:  # the second attempt's connection
            writers[0].write(b"+digest\r\n")
            writer.write(b":7\r\n")
        elif word == "EVALSHA":
            writer.write(b"-NOSCRIPT it is missing\r\n")

    server = await node(answer)
    target = RedisTarget(kind="single", addresses=(("127.0.0.1", port_of(server)),))
    servers = RedisServers(target, budget_us=round(BUDGET_S * 1e6))
    heard: list[object] = []
    servers.on_late = lambda _script, _arguments, reply: heard.append(reply)
    try:
        assert await servers.run(SCRIPT, ("key",)) == 7
        assert heard == [], "what was loaded took no effect"
    finally:
        await servers.close()
        server.close()
