"""Serves the fake upstream's long answers at a pace: one event per token, when it is due.

    python tests/bench/paced_upstream.py --port 9000 [--certificate FILE.pem]

A prompt that holds "from 17 for 500 at 100" gets 500 tokens, from the 17th stride of the text on,
100 of them a second, each an event in a write of its own; "at 0" means all in one write.
`GET /sent/17` tells when each token was sent (microseconds of the monotonic clock, which on one
machine is everybody's). Everything else is answered as `fake_upstream.py` does; paths that engines'
routers ask before they trust a server get an empty object.
"""

import argparse
import asyncio
import json
import re
import ssl
import sys
import time
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import uvloop

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backends.tokenizer import token_ends  # noqa: E402
from tests.bench import fake_upstream  # noqa: E402
from tests.bench.firehose import PARAGRAPH, STRIDE_TOKENS  # noqa: E402

TOKENS = [PARAGRAPH[a:b] for a, b in pairwise([0, *token_ends(PARAGRAPH)])]
PROMPT = re.compile(rb"from (\d+) for (\d+) at (\d+)")
HEALTH_PATHS = (
    b"/health",
    b"/server_info",
    b"/get_server_info",
    b"/model_info",
    b"/get_model_info",
)
HEALTH_PATHS += (b"/health_generate", b"/version", b"/v1/health")
SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)


def tokens_of(stream: int, num_tokens: int) -> list[str]:
    """Returns what the stream of that number says."""
    start = stream * STRIDE_TOKENS
    return [TOKENS[(start + n) % len(TOKENS)] for n in range(num_tokens)]


class Answer(msgspec.Struct, frozen=True):
    """Is an answer as it goes over the wire."""

    head: bytes
    deltas: tuple[bytes, ...]
    tail: bytes


@lru_cache(maxsize=512)
def answer_of(kind: str, model: str, position: int, num_tokens: int) -> Answer:
    """Makes one answer for each position where streams begin: a stream's number modulo the text."""
    words = tokens_of(position, num_tokens)
    if kind == "chat":
        encoded = [
            _chunk(b"data: " + msgspec.json.encode(chunk) + b"\n\n")
            for chunk in fake_upstream.chunks_saying(model, words)
        ]
        end = _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        return Answer(SSE_HEAD + encoded[0], tuple(encoded[1:-2]), b"".join(encoded[-2:]) + end)
    events = fake_upstream.events_saying(model, words)
    payloads = [msgspec.json.encode(event) for event in events]
    if kind == "socket":
        encoded = [fake_upstream.text_frame(payload) for payload in payloads]
        head, end = b"", b""
    else:
        names = [event["type"].encode() for event in events]
        encoded = [
            _chunk(b"event: " + name + b"\ndata: " + payload + b"\n\n")
            for name, payload in zip(names, payloads, strict=True)
        ]
        head, end = SSE_HEAD, b"0\r\n\r\n"
    deltas = tuple(encoded[4:-4])
    return Answer(head + b"".join(encoded[:4]), deltas, b"".join(encoded[-4:]) + end)


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n" % len(body) + body + b"\r\n"


class Connection(fake_upstream.Connection):
    """Paces the answers that say how."""

    sent_us: ClassVar[
        dict[int, list[int]]
    ] = {}  # stream -> when each token was sent; shared by all

    def respond(self, path: bytes, body: bytes) -> None:
        """Answers one request over HTTP."""
        if path.startswith(b"/sent/"):
            sent = self.sent_us.pop(int(path.removeprefix(b"/sent/")), [])
            self.send_json(sent)
        elif path in HEALTH_PATHS:
            self.send_json({})
        elif (found := PROMPT.search(body)) and path.endswith(
            (b"/chat/completions", b"/responses")
        ):
            kind = "chat" if path.endswith(b"completions") else "sse"
            self._begin(kind, body, *map(int, found.groups()))
        else:
            super().respond(path, body)

    def _answer(self, payload: bytes) -> None:
        """Answers one message over a WebSocket."""
        if found := PROMPT.search(payload):
            self._begin("socket", payload, *map(int, found.groups()))
        else:
            super()._answer(payload)

    def _begin(self, kind: str, body: bytes, stream: int, num_tokens: int, rate: int) -> None:
        asked = fake_upstream.asked_of(body)
        position = stream % len(TOKENS)
        answer = answer_of(kind, asked.model, position, num_tokens)
        head, tail = (fake_upstream.numbered(part) for part in (answer.head, answer.tail))
        if rate == 0:
            self.send(b"".join((head, *answer.deltas, tail)))
            return
        self.send(head)
        self.sent_us[stream] = []
        self._go_on(answer.deltas, tail, self.sent_us[stream], time.monotonic(), 1 / rate)

    def _go_on(
        self, deltas: tuple[bytes, ...], tail: bytes, sent: list[int], began_s: float, gap_s: float
    ) -> None:
        """Send one token; then the next when it is due, or the end."""
        if self.is_lost:
            return
        sent.append(time.monotonic_ns() // 1000)
        num_sent = len(sent)
        if num_sent == len(deltas):
            self.send(deltas[-1] + tail)
            return
        self.send(deltas[num_sent - 1])
        wait_s = max(0.0, began_s + num_sent * gap_s - time.monotonic())
        loop = asyncio.get_running_loop()
        loop.call_later(wait_s, self._go_on, deltas, tail, sent, began_s, gap_s)


async def serve(port: int, certificate: Path | None) -> None:
    """Serves until it is stopped; says in one line of JSON where, with and without TLS."""
    loop = asyncio.get_running_loop()
    made = partial(Connection, ("fake",))
    plain = await loop.create_server(made, "127.0.0.1", port, backlog=1024)
    ports: dict[str, Any] = {"port": plain.sockets[0].getsockname()[1]}
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        secure = await loop.create_server(made, "127.0.0.1", 0, ssl=context, backlog=1024)
        ports["tls_port"] = secure.sockets[0].getsockname()[1]
    print(json.dumps(ports), flush=True)
    await plain.serve_forever()


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0: any, printed as JSON")
    parser.add_argument("--certificate", type=Path, help="PEM with chain and key: serve TLS, too")
    asked = parser.parse_args()
    uvloop.run(serve(asked.port, asked.certificate))


if __name__ == "__main__":
    main()
