"""Offers an upstream that lies: of its usage, its length, and where its answer ends.

It speaks chat completions and Responses over SSE, and Responses over a WebSocket. A request says in
its prompt which lie it wants: `lie=NAME`, of `LIES`. Lies without an end go on until the connection
is closed; `num_open` counts those. A prompt with `tier=NAME` is answered in that service tier, as
far as it says, whichever was asked for.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

from websockets.exceptions import InvalidState
from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

NUM_WORDS = 400  # of a lie that has an end
FLOOD = 8 << 20
HUGE = 10**15
_LIE = re.compile(rb"lie=([a-z0-9 ]+)")
_TIER = re.compile(rb"tier=([a-z]+)")
_ASKED_TIER = re.compile(rb'"service_tier": ?"([a-z]+)"')
PIECES_TOGETHER = 20
_PAUSE_S = 0.0005  # between those of what never ends, for the sake of the machine

Usage = Any  # whatever stands for it: an object, null, or nonsense


class Answer:
    """Says one answer, in its protocol."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self.tier: dict[str, str] = {}  # a field of the answer

    async def event(self, event: dict[str, Any]) -> None:
        raise NotImplementedError

    async def say(self, text: str) -> None:
        """Says a piece of the text."""
        raise NotImplementedError

    async def call(self, number: int, name: str, arguments: str) -> None:
        """Makes a whole call of a function."""
        raise NotImplementedError

    async def end(self, num_input: Any, num_output: Any, num_cached: Any = 0) -> None:
        """Says the reason and the usage."""
        raise NotImplementedError

    async def junk(self, piece: bytes) -> None:
        """Sends bytes that are no event."""
        raise NotImplementedError

    async def line(self, piece: bytes) -> None:
        """Sends more of an event that has no end."""
        raise NotImplementedError


class ChatAnswer(Answer):
    """Says chat completion chunks as server-sent events."""

    async def junk(self, piece: bytes) -> None:
        await self._send(b": " + piece + b"\n\n")

    async def line(self, piece: bytes) -> None:
        await self._send(piece)

    async def event(self, event: dict[str, Any]) -> None:
        await self._send(b"data: " + json.dumps(event).encode() + b"\n\n")

    async def _choice(self, delta: dict[str, Any], reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        await self.event({"choices": [choice], **self.tier})

    async def say(self, text: str) -> None:
        await self._choice({"content": text})

    async def call(self, number: int, name: str, arguments: str) -> None:
        function = {"name": name, "arguments": arguments}
        call = {"index": number, "id": f"call_{number}", "function": function}
        await self._choice({"tool_calls": [call]})

    async def end(self, num_input: Any, num_output: Any, num_cached: Any = 0) -> None:
        await self._choice({}, "stop")
        details = {"cached_tokens": num_cached}
        usage = {"prompt_tokens": num_input, "prompt_tokens_details": details}
        await self.event({"choices": [], "usage": {**usage, "completion_tokens": num_output}})


class ResponsesAnswer(ChatAnswer):
    """Says Responses events as server-sent events."""

    num_items = 0

    async def say(self, text: str) -> None:
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        await self.event({"type": "response.output_text.delta", **place, "delta": text})

    async def call(self, number: int, name: str, arguments: str) -> None:
        call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        item = {**call, "name": name, "arguments": arguments}
        for kind in ("added", "done"):
            event = {"type": f"response.output_item.{kind}", "output_index": number, "item": item}
            await self.event(event)

    async def end(self, num_input: Any, num_output: Any, num_cached: Any = 0) -> None:
        details = {"cached_tokens": num_cached}
        usage = {"input_tokens": num_input, "input_tokens_details": details}
        response = {"id": "resp_1", "usage": {**usage, "output_tokens": num_output}, **self.tier}
        await self.event({"type": "response.completed", "response": response})


class SocketAnswer(ResponsesAnswer):
    """Says the same as messages of a WebSocket."""

    def __init__(self, socket: "_Socket") -> None:
        super().__init__(socket.send)
        self._socket = socket
        self._is_begun = False  # the message without an end

    async def event(self, event: dict[str, Any]) -> None:
        await self._send(json.dumps(event).encode())

    async def junk(self, piece: bytes) -> None:
        await self.event({"type": "response.made_up", "junk": piece.decode()})

    async def line(self, piece: bytes) -> None:
        await self._socket.send_fragment(piece, is_first=not self._is_begun)
        self._is_begun = True


class _Socket:
    """Is a server's end of a WebSocket, over streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = ServerProtocol(max_size=None)

    async def messages(self, head: bytes) -> AsyncIterator[bytes]:
        """Yields what comes, after the handshake that begins with this head."""
        protocol = self._protocol
        protocol.receive_data(head)
        while True:
            for event in protocol.events_received():
                if isinstance(event, Request):
                    protocol.send_response(protocol.accept(event))
                elif event.opcode is Opcode.TEXT:
                    yield bytes(event.data)
            await self._flush()
            data = await self._reader.read(1 << 16)
            if not data:
                raise ConnectionError
            protocol.receive_data(data)

    async def send(self, message: bytes) -> None:
        self._protocol.send_text(message)
        await self._flush()

    async def send_fragment(self, piece: bytes, *, is_first: bool) -> None:
        if is_first:
            self._protocol.send_text(piece, fin=False)
        else:
            self._protocol.send_continuation(piece, fin=False)
        await self._flush()

    async def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            self._writer.write(data)
        await self._writer.drain()


Lie = Callable[[Answer], Awaitable[None]]


def _usage_lie(num_input: Any, num_output: Any, num_cached: Any = 0) -> Lie:
    async def lie(answer: Answer) -> None:
        for word in ("One, ", "two, ", "three."):
            await answer.say(word)
        await answer.end(num_input, num_output, num_cached)

    return lie


def _endless(piece: Callable[[Answer, int], Awaitable[None]]) -> Lie:
    async def lie(answer: Answer) -> None:
        await answer.say("Well, ")
        number = 1
        while True:
            await piece(answer, number)
            number += 1
            if number % PIECES_TOGETHER == 0:
                await asyncio.sleep(_PAUSE_S)

    return lie


async def _ignores_its_limit(answer: Answer) -> None:
    for _ in range(NUM_WORDS):
        await answer.say("word ")
    await answer.end(30, NUM_WORDS)


async def _says_it_at_once(answer: Answer) -> None:
    await answer.say("word " * (FLOOD // 5))
    await answer.end(30, 7)


async def _names_no_function(answer: Answer) -> None:
    await answer.call(1, "f" * FLOOD, "{}")
    await answer.end(30, 7)


async def _ends_often(answer: Answer) -> None:
    await answer.say("One, two, three.")
    for number in range(20):
        await answer.end(30, 10 ** (number + 3))
        await answer.say("And more. ")


async def _mixes_ids(answer: Answer) -> None:
    for number in range(3_000):
        place = {"item_id": f"msg_{number % 7}", "output_index": number, "summary_index": number}
        event = {"type": "response.output_text.delta", **place, "delta": "x "}
        await answer.event(
            {**event, "choices": [{"index": number % 3, "delta": {"content": "x "}}]}
        )
    await answer.end(30, HUGE)


async def _unknown(answer: Answer, number: int) -> None:
    await answer.event({"type": "response.output_text.annotation.added", "annotation": number})


async def _empty(answer: Answer, _: int) -> None:
    await answer.say("")


async def _word(answer: Answer, number: int) -> None:
    await answer.say(f"word{number} ")


async def _unbroken(answer: Answer, _: int) -> None:
    await answer.say("a" * 4_096)


async def _call(answer: Answer, number: int) -> None:
    await answer.call(number, "f", "{}")


async def _comment(answer: Answer, _: int) -> None:
    await answer.junk(b"x" * 16_384)


async def _line_without_end(answer: Answer) -> None:
    await answer.say("Well, ")
    await answer.line(b'data: {"choices": "')
    while True:
        await answer.line(b"x" * 16_384)
        await asyncio.sleep(_PAUSE_S)


LIES: dict[str, Lie] = {
    "none": _usage_lie(30, 7),
    "huge output": _usage_lie(30, HUGE),
    "huge input": _usage_lie(HUGE, 7),
    "huge cached": _usage_lie(30, 7, HUGE),
    "over 63 bits": _usage_lie(2**63 + 7, 2**63 + 7, 2**63 + 7),
    "over 64 bits": _usage_lie(10**30, 10**30, 10**30),
    "negative": _usage_lie(-5, -7, -1),
    "fractions": _usage_lie(0.5, 1.5, 0.1),
    "strings": _usage_lie("30", "7", "x"),
    "truths": _usage_lie(True, True, True),
    "nulls": _usage_lie(None, None, None),
    "lists": _usage_lie([30], {"a": 7}, []),
    "ignores its limit": _ignores_its_limit,
    "never stops": _endless(_word),
    "never breaks a word": _endless(_unbroken),
    "says nothing for ever": _endless(_empty),
    "annotates for ever": _endless(_unknown),
    "comments for ever": _endless(_comment),
    "calls for ever": _endless(_call),
    "a line without end": _line_without_end,
    "all at once": _says_it_at_once,
    "a name of megabytes": _names_no_function,
    "ends often": _ends_often,
    "mixes ids": _mixes_ids,
}


class LyingUpstream:
    """Counts what it is asked, and what it still says."""

    def __init__(self) -> None:
        self.num_requests = 0
        self.asked_tiers: list[str] = []  # of each request, "" for none
        self.num_open = 0  # answers under way
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        server = cls()
        listener = await asyncio.start_server(server._serve, "127.0.0.1", 0)
        server.port = listener.sockets[0].getsockname()[1]
        try:
            yield server
        finally:
            listener.close()
            for writer in server._writers:
                writer.transport.abort()
            await listener.wait_closed()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def _lie(self, body: bytes, answer: Answer) -> None:
        found = _LIE.findall(body)
        self.num_requests += 1
        self.asked_tiers += [tier.decode() for tier in _ASKED_TIER.findall(body) or [b""]]
        tiers = _TIER.findall(body)
        answer.tier = {"service_tier": tiers[-1].decode()} if tiers else {}
        self.num_open += 1
        try:
            await LIES[found[-1].decode().strip()](answer)
        finally:
            self.num_open -= 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(piece: bytes) -> None:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()

        self._writers.add(writer)
        try:
            while True:
                raw = await reader.readuntil(b"\r\n\r\n")
                head = raw.decode().lower()
                if "upgrade: websocket" in head:
                    socket = _Socket(reader, writer)
                    async for message in socket.messages(raw):
                        await self._lie(message, SocketAnswer(socket))
                if head.startswith("get"):  # the probe
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                    continue
                (length,) = re.findall(r"content-length: (\d+)", head)
                body = await reader.readexactly(int(length))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n"
                )
                kind = ChatAnswer if "/chat/completions" in head else ResponsesAnswer
                await self._lie(body, kind(send))
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError, InvalidState):
            pass  # it left
        finally:
            self._writers.discard(writer)
            writer.close()
