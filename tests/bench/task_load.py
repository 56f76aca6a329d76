"""Sends short tasks at a fixed concurrency to any OpenAI-compatible server; prints latencies.

    python tests/bench/task_load.py --url http://127.0.0.1:8080/v1 --key sk-lanewise-dev \
        --model lanewise-fast --mode responses-ws --concurrency 50 --tasks 2000

A closed loop: each of the concurrent streams sends its next request when its last has ended. Raw
`asyncio` protocols over uvloop, which read no more of an answer than where its first token and its
end are, so that the load costs little beside a gateway. With `--hold` it connects, warms up, prints
`{"ready": true}` and begins when it reads a line, so that whoever started it can look at clocks.
"""

import argparse
import asyncio
import base64
import itertools
import json
import os
import secrets
import sys
import time
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import httptools
import uvloop

Mode = Literal["responses-ws", "responses-sse", "responses-json", "chat-sse", "chat-json"]

_FAILED = (b'"response.failed"', b'"type":"error"', b'"type": "error"', b"event: error")
_ENDED = (b'"response.completed"', b'"response.incomplete"')


_NUMBER = b"#NUMBER#"  # in a prompt: another number each time, as long as this
_numbers = itertools.count(secrets.randbelow(10**8))


def numbered(request: bytes) -> bytes:
    """Returns the request, with the next number where one is to be."""
    return request.replace(_NUMBER, b"%08d" % (next(_numbers) % 10**8))


class Stopwatch:
    """Hands out requests until there are enough, and keeps what they took."""

    def __init__(self, num_tasks: int) -> None:
        self._left = num_tasks
        self._running = 0
        self.first_s: list[float] = []
        self.total_s: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> bool:
        """Says whether there is one more to send."""
        if self._left == 0 or self.done.done():
            return False
        self._left -= 1
        self._running += 1
        return True

    def end(self, sent_s: float, first_s: float, ended_s: float) -> None:
        """Notes that one has ended."""
        self.first_s.append((first_s or ended_s) - sent_s)
        self.total_s.append(ended_s - sent_s)
        self._running -= 1
        if self._left == 0 and self._running == 0 and not self.done.done():
            self.done.set_result(None)

    def fail(self, why: str) -> None:
        """Notes that something went wrong: the figures would mean nothing."""
        if not self.done.done():
            self.done.set_exception(RuntimeError(why[:500]))


class _Connection(asyncio.Protocol):
    """Holds what HTTP and sockets have in common."""

    watch: Stopwatch

    def __init__(self) -> None:
        self.is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: Any = None
        self._is_closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_closing:
            return
        if self.is_open.done():
            self.watch.fail(f"the server closed a connection: {exc}")
        else:
            self.is_open.set_exception(ConnectionError(f"no connection: {exc}"))

    def close(self) -> None:
        self._is_closing = True
        self._transport.close()


class HttpConnection(_Connection):
    """Sends one request after the other."""

    def __init__(self, request: bytes, is_chat: bool) -> None:
        super().__init__()
        self._request = request
        self._mark = b'"content":"' if is_chat else b"output_text.delta"
        self._parser: Any = httptools.HttpResponseParser(self)
        self._sent_s = self._first_s = 0.0
        self._body = b""
        self._status = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.is_open.set_result(None)

    def start(self) -> None:
        """Send until there is no more to send."""
        if self.watch.begin():
            self._sent_s, self._first_s, self._body = time.perf_counter(), 0.0, b""
            self._transport.write(numbered(self._request))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body
        if not self._first_s and self._mark in self._body:
            self._first_s = time.perf_counter()

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()

    def on_message_complete(self) -> None:
        if self._status != 200 or any(mark in self._body for mark in _FAILED):
            self.watch.fail(f"{self._status}: {self._body.decode(errors='replace')}")
            return
        self.watch.end(self._sent_s, self._first_s, time.perf_counter())
        self.start()


class SocketConnection(_Connection):
    """Is a WebSocket, with one stream or several."""

    def __init__(self, upgrade: bytes, requests: list[bytes]) -> None:
        super().__init__()
        self._upgrade = upgrade
        self._frames = [masked(request) for request in requests]
        self._buffer = b""
        self._sent_s = [0.0] * len(requests)
        self._first_s = [0.0] * len(requests)

    def close(self) -> None:
        """Says goodbye: one that vanished gets its last answers again if it asks the same."""
        self._transport.write(masked(b"", CLOSE))
        super().close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        transport.write(self._upgrade)  # type: ignore[attr-defined]

    def start(self) -> None:
        """Start every stream."""
        for slot in range(len(self._frames)):
            self._start(slot)

    def _start(self, slot: int) -> None:
        if self.watch.begin():
            self._sent_s[slot], self._first_s[slot] = time.perf_counter(), 0.0
            self._transport.write(numbered(self._frames[slot]))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self.is_open.done():
            head, mark, rest = self._buffer.partition(b"\r\n\r\n")
            if not mark:
                return
            if b" 101 " not in head[:20]:
                self.is_open.set_exception(ConnectionError(head.decode(errors="replace")))
                return
            self._buffer = rest
            self.is_open.set_result(None)
        self._read_frames()

    def _read_frames(self) -> None:
        buffer, start = self._buffer, 0
        while len(buffer) - start >= 2:
            opcode, size, body = buffer[start] & 0x0F, buffer[start + 1], start + 2
            if size == 126:
                size, body = int.from_bytes(buffer[body : body + 2], "big"), body + 2
            elif size == 127:
                size, body = int.from_bytes(buffer[body : body + 8], "big"), body + 8
            if len(buffer) < body + size:
                break
            if opcode < 8:
                self._take(buffer[body : body + size])
            elif opcode == 9:
                self._transport.write(masked(buffer[body : body + size], 0x8A))
            start = body + size
        self._buffer = buffer[start:]

    def _take(self, event: bytes) -> None:
        if b"output_text.delta" in event:
            slot = self._slot(event)
            if not self._first_s[slot]:
                self._first_s[slot] = time.perf_counter()
        elif any(mark in event for mark in _ENDED):
            slot = self._slot(event)
            self.watch.end(self._sent_s[slot], self._first_s[slot], time.perf_counter())
            self._start(slot)
        elif any(mark in event for mark in _FAILED):
            self.watch.fail(event.decode(errors="replace"))

    def _slot(self, event: bytes) -> int:
        """Returns the number of a stream: they are named s0, s1, ..."""
        if len(self._frames) == 1:
            return 0
        name: str = json.loads(event)["stream_id"]
        return int(name[1:])


CLOSE = 0x88  # FIN, and a close frame's opcode


def masked(payload: bytes, first: int = 0x81) -> bytes:
    """Returns a client's frame; its mask is zero, which changes nothing and costs nothing."""
    size = len(payload)
    if size < 126:
        head = bytes((first, 0x80 | size))
    else:
        head = bytes((first, 0x80 | 126)) + size.to_bytes(2, "big")
    return head + bytes(4) + payload


class Load:
    """Holds the connections of one run."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._asked = arguments
        self._url = urlsplit(arguments.url)
        self._connections: list[Any] = []

    async def connect(self) -> None:
        """Open all connections."""
        asked, loop = self._asked, asyncio.get_running_loop()
        per_socket = asked.streams_per_socket if asked.mode == "responses-ws" else 1
        host, port = self._url.hostname, self._url.port or 80
        for first in range(0, asked.concurrency, per_socket):
            num = min(per_socket, asked.concurrency - first)
            _, connection = await loop.create_connection(
                lambda num=num: self._made(num), host, port
            )
            async with asyncio.timeout(10):
                await connection.is_open
            self._connections.append(connection)

    async def run(self, num_tasks: int) -> Stopwatch:
        """Send so many tasks; returns what they took."""
        watch = Stopwatch(num_tasks)
        for connection in self._connections:
            connection.watch = watch
        for connection in self._connections:
            connection.start()
        async with asyncio.timeout(self._asked.timeout_s):
            await watch.done
        return watch

    def close(self) -> None:
        """Drop all connections."""
        for connection in self._connections:
            connection.close()

    def _made(self, num_streams: int) -> _Connection:
        asked, path = self._asked, self._url.path
        body: dict[str, Any] = {"model": asked.model}
        if asked.mode.startswith("chat"):
            path += "/chat/completions"
            body |= {"messages": [{"role": "user", "content": asked.text}]}
            body |= {asked.limit_field or "max_tokens": asked.tokens}
        else:
            path += "/responses"
            body |= {"input": asked.text, "max_output_tokens": asked.tokens, "store": asked.store}
        if asked.mode == "responses-ws":
            event = {"type": "response.create", **body}
            names = [{"stream_id": f"s{n}"} for n in range(num_streams)]
            events = [event] if num_streams == 1 else [event | name for name in names]
            key = base64.b64encode(os.urandom(16)).decode()
            socket = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-key": key}
            upgrade = self._head("GET", path, socket | {"sec-websocket-version": "13"})
            return SocketConnection(upgrade, [json.dumps(each).encode() for each in events])
        if asked.mode.endswith("sse"):
            body["stream"] = True
        content = json.dumps(body).encode()
        head = {"content-type": "application/json", "content-length": str(len(content))}
        return HttpConnection(
            self._head("POST", path, head) + content, asked.mode.startswith("chat")
        )

    def _head(self, method: str, path: str, headers: dict[str, str]) -> bytes:
        asked = self._asked
        every = dict(line.split("=", 1) for line in asked.header)
        every |= {"host": self._url.netloc, "authorization": f"Bearer {asked.key}", **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in every.items())
        return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


def percentile(values: list[float], share: float) -> float:
    """Returns the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Connect, warm up, run; what it took."""
    load = Load(arguments)
    await load.connect()
    await load.run(arguments.warm_up or arguments.concurrency)
    if arguments.hold:
        print(json.dumps({"ready": True}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    started_s, cpu_s = time.perf_counter(), time.process_time()
    watch = await load.run(arguments.tasks)
    wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    load.close()

    def milliseconds(values: list[float]) -> dict[str, float]:
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
        return {name: round(percentile(values, s) * 1e3, 3) for name, s in shares.items()}

    return {
        "tasks": arguments.tasks,
        "wall_s": round(wall_s, 4),
        "tasks_per_s": round(arguments.tasks / wall_s, 1),
        "load_cpu_us_per_task": round(cpu_s / arguments.tasks * 1e6, 1),
        "first_token_ms": milliseconds(watch.first_s),
        "total_ms": milliseconds(watch.total_s),
    }


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True, help="up to and with /v1")
    parser.add_argument("--key", default="none")
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--model", default="fake")
    parser.add_argument("--mode", choices=get_args(Mode), default="responses-ws")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--streams-per-socket", type=int, default=1, help="needs stream_id")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=0, help="tasks before the clock starts")
    parser.add_argument("--tokens", type=int, default=16, help="of an answer, at most")
    parser.add_argument("--limit-field", help="the chat field for --tokens; max_tokens")
    parser.add_argument("--text", default="Say hello.")
    parser.add_argument(
        "--new-prompts", action="store_true", help="a number behind the text of each"
    )
    parser.add_argument("--store", action="store_true", help="have responses stored")
    parser.add_argument("--hold", action="store_true", help="begin when a line comes in")
    parser.add_argument("--timeout-s", type=float, default=300.0)
    arguments = parser.parse_args()
    if arguments.new_prompts:
        arguments.text += f" {_NUMBER.decode()}"
    print(json.dumps(uvloop.run(run(arguments))), flush=True)


if __name__ == "__main__":
    main()
