"""Says the same to everybody, in OpenAI's protocols, to measure what stands before it.

    python tests/bench/fake_upstream.py --port 9000

Speaks Responses over a WebSocket, Responses over HTTP and chat completions, streaming or whole. An
answer has as many one-word deltas as the request's token limit allows, 16 at most, and leaves in
one write: what is measured is the server before it. `asyncio` protocols over uvloop, with answers
made once and kept: some tens of microseconds each.
"""

import argparse
import asyncio
import base64
import hashlib
import itertools
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import httptools
import msgspec
import uvloop
from websockets.frames import apply_mask  # type: ignore[attr-defined] # in C where there is one

MAX_DELTAS = 16
WORDS = ("Hello ", "from ", "a ", "server ", "that ", "says ", "the ", "same ")
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 1.3
_ID = "resp_" + "0" * 47 + "1"  # replaced by a number of as many digits


class Asked(msgspec.Struct):
    """Says what of a request makes a difference here."""

    model: str = "m"
    stream: bool = False
    stream_id: str | None = None
    max_output_tokens: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None

    @property
    def num_deltas(self) -> int:
        limits = (self.max_output_tokens, self.max_tokens, self.max_completion_tokens)
        return min(MAX_DELTAS, *(limit or MAX_DELTAS for limit in limits))


asked_of = msgspec.json.Decoder(Asked).decode
_numbers = itertools.count(1)


def _response(model: str, status: str, text: str | None, num_deltas: int) -> dict[str, Any]:
    message = None if text is None else _item("completed", text)
    usage = {
        "input_tokens": 8,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": num_deltas,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 8 + num_deltas,
    }
    return {
        "id": _ID,
        "object": "response",
        "created_at": 1_790_000_000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": model,
        "output": [message] if message else [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage if message else None,
        "metadata": {},
    }


def _item(status: str, text: str | None) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    content = [] if text is None else [part]
    message = {"id": "msg_1", "type": "message", "role": "assistant"}
    return {**message, "status": status, "content": content}


def words(num_deltas: int) -> list[str]:
    """Returns what it says to everybody."""
    return [WORDS[n % len(WORDS)] for n in range(num_deltas)]


@lru_cache
def responses_events(model: str, num_deltas: int) -> tuple[dict[str, Any], ...]:
    """Returns an answer's events."""
    return events_saying(model, words(num_deltas))


def events_saying(model: str, words: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """Returns the events of an answer that says so, a delta for each word."""
    text, num_deltas = "".join(words), len(words)
    position = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    begun = _response(model, "in_progress", None, num_deltas)
    part: dict[str, Any] = {"type": "output_text", "text": ""}
    part |= {"annotations": [], "logprobs": []}
    added = {"output_index": 0, "item": _item("in_progress", None)}
    done = {"output_index": 0, "item": _item("completed", text)}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", **added},
        {"type": "response.content_part.added", **position, "part": part},
        *(
            {"type": "response.output_text.delta", **position, "delta": word, "logprobs": []}
            for word in words
        ),
        {"type": "response.output_text.done", **position, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **position, "part": {**part, "text": text}},
        {"type": "response.output_item.done", **done},
        {"type": "response.completed", "response": _response(model, "completed", text, num_deltas)},
    ]
    return tuple({**event, "sequence_number": n} for n, event in enumerate(events))


@lru_cache
def chat_chunks(model: str, num_deltas: int) -> tuple[dict[str, Any], ...]:
    """Returns a chat completion's chunks, the one with the usage last."""
    return chunks_saying(model, words(num_deltas))


def chunks_saying(model: str, words: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """Returns the same for one that says so."""
    head = {"id": _ID, "object": "chat.completion.chunk", "created": 1_790_000_000, "model": model}

    def chunk(delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    return (
        chunk({"role": "assistant", "content": ""}, None),
        *(chunk({"content": word}, None) for word in words),
        chunk({}, "stop"),
        {**head, "choices": [], "usage": _chat_usage(len(words))},
    )


def _chat_usage(num_deltas: int) -> dict[str, int]:
    return {"prompt_tokens": 8, "completion_tokens": num_deltas, "total_tokens": 8 + num_deltas}


@lru_cache
def _socket_answer(model: str, num_deltas: int, stream_id: str | None) -> bytes:
    """Returns all frames of an answer."""
    frames = []
    for event in responses_events(model, num_deltas):
        named = event if stream_id is None else {**event, "stream_id": stream_id}
        frames.append(text_frame(msgspec.json.encode(named)))
    return b"".join(frames)


def text_frame(payload: bytes) -> bytes:
    """Returns a server's frame (RFC 6455 5.2)."""
    size = len(payload)
    if size < 126:
        return bytes((0x81, size)) + payload
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2, "big") + payload
    return b"\x81\x7f" + size.to_bytes(8, "big") + payload


@lru_cache
def _sse_answer(model: str, num_deltas: int, is_chat: bool) -> bytes:
    """Returns a whole streamed answer, as one chunk."""
    if is_chat:
        chunks = chat_chunks(model, num_deltas)
        body = b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks)
        body += b"data: [DONE]\n\n"
    else:
        body = b"".join(
            b"event: " + event["type"].encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"
            for event in responses_events(model, num_deltas)
        )
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    return head + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"


@lru_cache
def _whole_answer(model: str, num_deltas: int, is_chat: bool) -> bytes:
    text = "".join(words(num_deltas))
    if not is_chat:
        return _json(_response(model, "completed", text, num_deltas))
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    head = {"id": _ID, "object": "chat.completion", "created": 1_790_000_000, "model": model}
    return _json({**head, "choices": [choice], "usage": _chat_usage(num_deltas)})


def _json(value: Any, status: bytes = b"200 OK") -> bytes:
    body = msgspec.json.encode(value)
    length = f"content-length: {len(body)}\r\n\r\n".encode()
    return b"HTTP/1.1 " + status + b"\r\ncontent-type: application/json\r\n" + length + body


class Connection(asyncio.Protocol):
    """Speaks HTTP until it is upgraded, then as a WebSocket."""

    def __init__(self, models: tuple[str, ...]) -> None:
        self._models = models
        self._parser: Any = httptools.HttpRequestParser(self)
        self._url = b""
        self._key = b""
        self._body: list[bytes] = []
        self._is_socket = False
        self._buffer = bytearray()
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def send(self, answer: bytes) -> None:
        """Write it now."""
        self._transport.write(answer)

    def send_json(self, value: Any, status: bytes = b"200 OK") -> None:
        """Answer an HTTP request."""
        self.send(_json(value, status))

    def data_received(self, data: bytes) -> None:
        if self._is_socket:
            self._buffer += data
            self._read_frames()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._upgrade()
        except httptools.HttpParserError as error:
            print(f"no HTTP: {error}", flush=True)
            self._transport.close()

    # -- HTTP: called by httptools -------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"sec-websocket-key":
            self._key = value

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._key:
            return
        path, body = self._url.partition(b"?")[0], b"".join(self._body)
        self._url, self._body = b"", []
        self.respond(path, body)

    def respond(self, path: bytes, body: bytes) -> None:
        """Answers one HTTP request."""
        if path.endswith(b"/models"):
            listed = [{"id": name, "object": "model", "created": 1} for name in self._models]
            self.send_json({"object": "list", "data": listed})
            return
        is_chat = path.endswith(b"/chat/completions")
        if not is_chat and not path.endswith(b"/responses"):
            self.send_json({"path": path.decode()}, b"404 Not Found")
            return
        asked = asked_of(body)
        answer = _sse_answer if asked.stream else _whole_answer
        self.send(numbered(answer(asked.model, asked.num_deltas, is_chat)))

    # -- WebSocket -----------------------------------------------------------------------------

    def _upgrade(self) -> None:
        self._is_socket = True
        accept = base64.b64encode(hashlib.sha1(self._key + _GUID).digest())
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-accept: " + accept + b"\r\n\r\n"
        )

    def _read_frames(self) -> None:
        buffer = self._buffer
        while len(buffer) >= 6:
            opcode, size, start = buffer[0] & 0x0F, buffer[1] & 0x7F, 2
            if size == 126:
                size, start = int.from_bytes(buffer[2:4], "big"), 4
            elif size == 127:
                size, start = int.from_bytes(buffer[2:10], "big"), 10
            end = start + 4 + size
            if len(buffer) < end:
                return
            payload = apply_mask(bytes(buffer[start + 4 : end]), bytes(buffer[start : start + 4]))
            del buffer[:end]
            if opcode == 1:
                self._answer(payload)
            elif opcode == 8:
                self._transport.write(bytes((0x88, len(payload))) + payload)
                self._transport.close()
                return
            elif opcode == 9:
                self._transport.write(bytes((0x8A, len(payload))) + payload)

    def _answer(self, payload: bytes) -> None:
        """Answers one message of a WebSocket."""
        if b'"response.create"' in payload:
            asked = asked_of(payload)
            frames = _socket_answer(asked.model, asked.num_deltas, asked.stream_id)
            self.send(numbered(frames))


def numbered(answer: bytes) -> bytes:
    """Returns the answer under an id of its own."""
    return answer.replace(_ID.encode(), b"resp_%048d" % next(_numbers))


async def serve(host: str, port: int, models: tuple[str, ...]) -> None:
    """Serves until it is stopped, and says where it listens."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(models), host, port, backlog=1024)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any, printed as JSON")
    parser.add_argument("--model", action="append", help="listed by GET /models; any is served")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.host, arguments.port, tuple(arguments.model or ("fake",))))


if __name__ == "__main__":
    main()
