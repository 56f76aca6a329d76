"""Serves as those do that we relay: a token per event, at a rate, over three protocols.

Speaks Responses over a WebSocket, Responses over SSE and chat completions over SSE, as
`fake_upstream.py` does, but a token at a time: every answer gets `--rate` tokens a second of
`firehose.py`'s text, begun where its prompt says ("Go on from 17"). Events are cut from prepared
pieces and each answer's leave in a write of their own, as servers' do.

    python tests/bench/token_upstream.py --port 9000 --rate 100
"""

import argparse
import asyncio
import re
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import uvloop

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.fake_upstream import Asked, Connection, chat_chunks, responses_events  # noqa: E402
from tests.bench.firehose import STRIDE_TOKENS, Text  # noqa: E402

TICK_S = 0.004
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

_encode = msgspec.json.encode
_PROMPT = re.compile(rb"Go on from (\d+)")
_TEXT = Text()


@cache
def _token(number: int) -> bytes:
    """Returns a token as JSON."""
    return _encode(_TEXT.piece(number, 1))


class Framing:
    """Says how a protocol wraps an event's JSON, and which events stand around the tokens.

    `delta` is split where the token's JSON stands.
    """

    def __init__(self, kind: str, stream_id: str | None, num_tokens: int) -> None:
        self._kind = kind
        self._named = {} if stream_id is None else {"stream_id": stream_id}
        model = "upstream"
        if kind == "chat":
            chunks = chat_chunks(model, 1)
            begun, delta, ended = chunks[:1], chunks[1], chunks[2:]
            ended[1]["usage"]["completion_tokens"] = num_tokens
        else:
            events = responses_events(model, 1)
            begun, delta, ended = events[:4], events[4], events[-1:]
            ended[0]["response"]["usage"]["output_tokens"] = num_tokens
        mark = b'"Hello "'
        before, _, after = _encode({**delta, **self._named}).partition(mark)
        self._before, self._after = before, after
        self.begin = b"".join(map(self._event, begun))
        self.end = b"".join(map(self._event, ended))
        if kind == "chat":
            self.end += b"data: [DONE]\n\n"

    def _event(self, event: dict[str, Any]) -> bytes:
        return self._wrapped(_encode({**event, **self._named}), event.get("type", ""))

    def _wrapped(self, payload: bytes, event_type: str) -> bytes:
        if self._kind == "chat":
            return b"data: " + payload + b"\n\n"
        if self._kind == "sse":
            return b"event: " + event_type.encode() + b"\ndata: " + payload + b"\n\n"
        size = len(payload)
        head = bytes((0x81, size)) if size < 126 else b"\x81\x7e" + size.to_bytes(2, "big")
        return head + payload

    def token(self, number: int) -> bytes:
        """Returns the event of one token."""
        payload = self._before + _token(number % _TEXT.num_tokens) + self._after
        return self._wrapped(payload, "response.output_text.delta")


class Answer:
    """Is one answer under way."""

    def __init__(self, connection: "Paced", asked: Asked, kind: str, start: int) -> None:
        self.connection = connection
        self.num_tokens = asked.max_output_tokens or asked.max_completion_tokens or 16
        self.framing = Framing(kind, asked.stream_id, self.num_tokens)
        self.is_chunked = kind != "socket"
        self.start = start
        self.num_sent = 0
        self.began_s = time.monotonic()

    def step(self, due: int) -> bytes:
        """Returns what is due by now."""
        due = min(due, self.num_tokens)
        position = self.start + self.num_sent
        data = b"".join(map(self.framing.token, range(position, position + due - self.num_sent)))
        self.num_sent = due
        return data + self.framing.end if due == self.num_tokens else data


class Paced(Connection):
    """Answers token by token."""

    answers: dict[Answer, None]  # of all connections

    def connection_lost(self, exc: Exception | None) -> None:
        for answer in [answer for answer in self.answers if answer.connection is self]:
            del self.answers[answer]

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        if self._key or not (prompt := _PROMPT.search(body)):
            super().on_message_complete()
            return
        kind = "chat" if self._url.endswith(b"/chat/completions") else "sse"
        self._url, self._body = b"", []
        self._begin(body, kind, int(prompt[1]))

    def _answer(self, payload: bytes) -> None:
        prompt = _PROMPT.search(payload)
        assert prompt is not None, payload[:200]
        self._begin(payload, "socket", int(prompt[1]))

    def _begin(self, body: bytes, kind: str, start: int) -> None:
        answer = Answer(self, msgspec.json.decode(body, type=Asked), kind, STRIDE_TOKENS * start)
        self.answers[answer] = None
        begin = answer.framing.begin
        self.write(HEAD + _chunk(begin) if answer.is_chunked else begin)

    def write(self, data: bytes) -> None:
        self._transport.write(data)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def pump(answers: dict[Answer, None], rate: float) -> None:
    """Send what is due, every tick, for ever."""
    while True:
        await asyncio.sleep(TICK_S)
        now_s = time.monotonic()
        for answer in list(answers):
            data = answer.step(int((now_s - answer.began_s) * rate))
            if not data:
                continue
            is_over = answer.num_sent == answer.num_tokens
            if is_over:
                del answers[answer]
            if answer.is_chunked:
                data = _chunk(data) + (b"0\r\n\r\n" if is_over else b"")
            answer.connection.write(data)


async def run(port: int, rate: float) -> None:
    """Serve for ever."""
    Paced.answers = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Paced(("upstream",)), "127.0.0.1", port, backlog=2048)
    async with server:
        await pump(Paced.answers, rate)


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, default=100.0, help="tokens/s of each answer")
    asked = parser.parse_args()
    uvloop.run(run(asked.port, asked.rate))


if __name__ == "__main__":
    main()
