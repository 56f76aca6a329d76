"""Supports the scripts: an upstream over chat completions that breaks off as often as told."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from typing import Any, Self

HEAD = "HTTP/1.1 200 OK\r\ncontent-type: {0}\r\nconnection: close\r\n\r\n"
WORDS = ("One", " two", " three", " four")


class FlakyUpstream:
    """`failing` is the share of its answers that break off amid their words."""

    def __init__(self, seed: int) -> None:
        self.failing = 0.0
        self.port = 0
        self._chance = random.Random(seed)

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, seed: int) -> AsyncIterator[Self]:
        upstream = cls(seed)
        server = await asyncio.start_server(upstream._serve, "127.0.0.1", 0)
        upstream.port = server.sockets[0].getsockname()[1]
        async with server:
            yield upstream

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = next(
                (line.split(":")[1] for line in head.split("\r\n") if "content-length:" in line),
                "0",
            )
            await reader.readexactly(int(length))
            if "/chat/completions" not in head:
                writer.write(HEAD.format("application/json").encode() + b'{"data": []}')
            else:
                await self._answer(writer)
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        breaks_off = self._chance.random() < self.failing
        writer.write(HEAD.format("text/event-stream").encode())
        for word in WORDS:
            writer.write(_chunk({"content": word}, None))
            await writer.drain()
            await asyncio.sleep(0.005)  # so that words are seen before it breaks
            if breaks_off and word == WORDS[1]:
                return
        writer.write(_chunk({}, "stop") + b"data: [DONE]\n\n")


def _chunk(delta: dict[str, Any], reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    usage = {"prompt_tokens": 9, "completion_tokens": len(WORDS)} if reason else None
    body = {"id": "c", "object": "chat.completion.chunk", "choices": [choice], "usage": usage}
    return b"data: " + json.dumps(body).encode() + b"\n\n"
