"""Reads long answers as they come from any OpenAI-compatible server; prints cost and pace.

    python tests/bench/token_load.py --url http://127.0.0.1:8080/v1 --model auto \
        --mode responses-sse --streams 20 --tokens 1000 --rate 100 \
        --upstream http://127.0.0.1:9000

Behind the server stands `paced_upstream.py`. Each stream has a connection of its own and asks again
when an answer has ended, `--rounds` times in all. While tokens flow this process does nothing but
note what came when; what it means is read afterwards: whether every text is what the upstream sent,
how much later each token came than it was sent, and in how large lumps. It prints `{"ready": true}`
once it has connected and warmed up, begins when it reads a line, and prints `{"done": true}` before
it reads what it noted, so that whoever started it can look at clocks.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
import time
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httptools
import msgspec
import uvloop

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.paced_upstream import tokens_of  # noqa: E402
from tests.bench.task_load import CLOSE, masked, percentile  # noqa: E402

MODES = ("responses-ws", "responses-sse", "chat-sse")
# Nobody doubts that a fast model can do that; numbers for the upstream.
PROMPT = "Rename the variable, from {stream} for {tokens} at {rate}."
LAST = (b"response.completed", b'"type":"error"', b'"type": "error"', b"response.failed")
LUMP_S = 0.035  # an acknowledgement is delayed by 40 ms where Nagle's algorithm waits for it
STALL_S = 60.0  # without a byte: the server is not going to answer


decode = msgspec.json.Decoder().decode


class Arrival(NamedTuple):
    """Says what one read gave."""

    at_us: int  # monotonic
    data: bytes


class Answer(NamedTuple):
    """Is one answer as it came."""

    stream: int  # its number in the upstream
    asked_us: int
    arrivals: list[Arrival]


class Streamer(asyncio.Protocol):
    """Is one connection and the answers on it, one after the other."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._url = urlsplit(asked.url)
        self._transport: Any = None
        self._is_socket = asked.mode == "responses-ws"
        self._arrivals: list[Arrival] = []
        self._tail = b""
        self._rest = b""  # of a WebSocket frame
        self._frame_left = 0
        self._is_last = False  # the frame that is under way ends the answer
        loop = asyncio.get_running_loop()
        self.is_open: asyncio.Future[None] = loop.create_future()
        self._over: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if not self._is_socket:
            self.is_open.set_result(None)
            return
        key = base64.b64encode(os.urandom(16)).decode()
        more = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-key": key}
        path = f"{self._url.path}/responses"
        self._transport.write(self._head("GET", path, {**more, "sec-websocket-version": "13"}))

    async def request(self, stream: int, num_tokens: int, rate: int) -> Answer:
        """Asks for one answer, and takes it to its end."""
        self._over = asyncio.get_running_loop().create_future()
        self._arrivals, self._tail = [], b""
        self._rest, self._frame_left, self._is_last = b"", 0, False
        asked_us = time.monotonic_ns() // 1000
        self._transport.write(
            self._request(
                PROMPT.format(stream=stream, tokens=num_tokens, rate=rate), 2 * num_tokens
            )
        )
        num_seen = -1
        while num_seen != len(self._arrivals):  # a timer for each read would cost
            num_seen = len(self._arrivals)
            done, _ = await asyncio.wait([self._over], timeout=STALL_S)
            if done:
                self._over.result()
                return Answer(stream, asked_us, self._arrivals)
        raise TimeoutError(f"nothing for {STALL_S:.0f} s after {self._tail!r}")

    def _request(self, prompt: str, limit_tokens: int) -> bytes:
        asked, path = self._asked, self._url.path
        body: dict[str, Any] = {"model": asked.model}
        if asked.mode == "chat-sse":
            path += "/chat/completions"
            body |= {"messages": [{"role": "user", "content": prompt}], "max_tokens": limit_tokens}
        else:
            path += "/responses"
            body |= {"input": prompt, "max_output_tokens": limit_tokens, "store": False}
        if self._is_socket:
            return masked(json.dumps({"type": "response.create", **body}).encode())
        content = json.dumps({**body, "stream": True}).encode()
        more = {"content-type": "application/json", "content-length": str(len(content))}
        return self._head("POST", path, more) + content

    def _head(self, method: str, path: str, more: dict[str, str]) -> bytes:
        headers = dict(line.split("=", 1) for line in self._asked.header)
        headers |= {"host": self._url.netloc, "authorization": f"Bearer {self._asked.key}", **more}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()

    def data_received(self, data: bytes) -> None:
        if not self.is_open.done():
            head, mark, data = data.partition(b"\r\n\r\n")
            if not mark or b" 101 " not in head[:20]:
                self.is_open.set_exception(ConnectionError(head.decode(errors="replace")))
                return
            self.is_open.set_result(None)
        self._arrivals.append(Arrival(time.monotonic_ns() // 1000, data))
        self._tail = (self._tail + data)[-4096:] if len(data) < 4096 else data[-4096:]
        if self._is_socket:
            self._read_frames(data)
        elif self._tail.endswith(b"\r\n0\r\n\r\n"):
            self._end()
        elif len(self._arrivals) == 1 and b" 200 " not in data[:16] and not self._over.done():
            self._over.set_exception(ConnectionError(data.decode(errors="replace")[:1000]))

    def _read_frames(self, data: bytes) -> None:
        """Skip from frame to frame; only the last of an answer counts."""
        if self._frame_left > len(data):
            self._frame_left -= len(data)
            return
        if self._is_last:
            self._end()
            return
        buffer, at = self._rest + data[self._frame_left :], 0
        self._frame_left = 0
        while len(buffer) - at >= 2:
            size, body = buffer[at + 1] & 0x7F, at + 2
            if size >= 126:
                body += 2 if size == 126 else 8
                if len(buffer) < body:
                    break
                size = int.from_bytes(buffer[at + 2 : body], "big")
            start = buffer[body : body + 64]
            if len(start) < min(64, size):
                break
            opcode, at = buffer[at] & 0x0F, body + size
            if opcode == 9:
                self._transport.write(masked(buffer[body:at], 0x8A))
            self._is_last |= opcode == 8 or any(mark in start for mark in LAST)
        if self._is_last and at <= len(buffer):
            self._end()
        if at > len(buffer):
            self._frame_left, self._rest = at - len(buffer), b""
        else:
            self._rest = buffer[at:]

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        error = ConnectionError(f"the server closed the connection: {exc}; {self._tail!r}")
        for future in (self.is_open, self._over):
            if not future.done():
                future.set_exception(error)

    def close(self) -> None:
        """Leave it as a client does that has what it asked for, and comes back for nothing."""
        self._over.cancel()
        if self._is_socket:
            self._transport.write(masked(b"", CLOSE))
        self._transport.close()


# -- what came, read afterwards ------------------------------------------------------------


class Body:
    """Is the body of an HTTP answer, read by read."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def feed(self, data: bytes) -> bytes:
        """Returns what of the body is in it."""
        self._pieces = []
        self._parser.feed_data(data)
        return b"".join(self._pieces)


def events_of(answer: Answer, mode: str) -> Iterator[tuple[int, Any]]:
    """Yields (when it came, event) for each event of an answer."""
    rest, body = b"", Body()
    for arrival in answer.arrivals:
        if mode == "responses-ws":
            rest += arrival.data
            while len(rest) >= 2:
                size, start = rest[1] & 0x7F, 2
                if size >= 126:
                    start = 4 if size == 126 else 10
                    size = int.from_bytes(rest[2:start], "big")
                if len(rest) < start + size:
                    break
                if rest[0] & 0x0F == 1:
                    yield arrival.at_us, decode(rest[start : start + size])
                rest = rest[start + size :]
            continue
        rest = (rest + body.feed(arrival.data)).replace(b"\r\n", b"\n")
        *whole, rest = rest.split(b"\n\n")
        for event in whole:
            for line in event.split(b"\n"):
                if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                    yield arrival.at_us, decode(line[5:])


def deltas_of(answer: Answer, mode: str) -> list[tuple[int, str]]:
    """Yields (when it came, text) for each piece of an answer; raises where it holds an error."""
    deltas = []
    for at_us, event in events_of(answer, mode):
        if mode == "chat-sse":
            if "choices" not in event:
                raise RuntimeError(f"no chunk: {event}")
            text = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
        elif event["type"] == "response.output_text.delta":
            text = event["delta"]
        elif event["type"] in ("error", "response.failed", "response.incomplete"):
            raise RuntimeError(f"no answer: {event}")
        else:
            continue
        if text:
            deltas.append((at_us, text))
    return deltas


def read(answers: list[Answer], asked: argparse.Namespace) -> dict[str, Any]:
    """Returns texts, delays, lumps."""
    delays_us: list[float] = []
    gaps_us: list[float] = []
    first_us: list[float] = []
    wrong = num_arrivals = num_deltas = 0
    for answer in answers:
        deltas = deltas_of(answer, asked.mode)
        tokens = tokens_of(answer.stream, asked.tokens)
        wrong += "".join(text for _, text in deltas) != "".join(tokens)
        if not deltas:
            head = b"".join(arrival.data for arrival in answer.arrivals[:4])
            raise RuntimeError(f"no token in {head[:600]!r}")
        num_deltas += len(deltas)
        times_us = sorted({at_us for at_us, _ in deltas})
        num_arrivals += len(times_us)
        gaps_us += [after - before for before, after in pairwise(times_us)]
        first_us.append(deltas[0][0] - answer.asked_us)
        if asked.rate:
            with urllib.request.urlopen(f"{asked.upstream}/sent/{answer.stream}") as response:
                sent_us = json.load(response)
            delays_us += delays_of(deltas, tokens, sent_us)
    num_tokens = len(answers) * asked.tokens

    def milliseconds(values: list[float]) -> dict[str, float]:
        return {f"p{p}": percentile(values, p / 100) / 1e3 for p in (50, 99)} if values else {}

    return {
        "tokens": num_tokens,
        "wrong_texts": wrong,
        "tokens_per_delta": num_tokens / num_deltas,
        "tokens_per_arrival": num_tokens / num_arrivals,
        "lumps": sum(gap >= LUMP_S * 1e6 for gap in gaps_us) / max(1, len(gaps_us)),
        "gap_ms": milliseconds(gaps_us),
        "first_token_ms": milliseconds(first_us),
        "delay_ms": milliseconds(delays_us),
    }


def delays_of(deltas: list[tuple[int, str]], tokens: list[str], sent_us: list[int]) -> list[float]:
    """Times each token from its sending to when its last character was there."""
    delays, have, need = [], 0, 0
    pieces = iter(deltas)
    at_us = 0
    for token, was_sent_us in zip(tokens, sent_us, strict=True):
        need += len(token)
        while have < need:
            piece = next(pieces, None)
            if piece is None:
                return delays
            at_us, have = piece[0], have + len(piece[1])
        delays.append(float(at_us - was_sent_us))
    return delays


# -- the run ------------------------------------------------------------------------------


async def run(asked: argparse.Namespace) -> dict[str, Any]:
    """Connect, warm up, wait for the word, run; then read."""
    loop, url = asyncio.get_running_loop(), urlsplit(asked.url)
    streamers = []
    for _ in range(asked.streams):
        _, streamer = await loop.create_connection(
            lambda: Streamer(asked), url.hostname, url.port or 80
        )
        async with asyncio.timeout(STALL_S):
            await streamer.is_open
        streamers.append(streamer)
    warm = [s.request(n, 8, 0) for n, s in enumerate(streamers)]
    for answer in await asyncio.gather(*warm):
        if not deltas_of(answer, asked.mode):
            raise RuntimeError(f"no token in {answer.arrivals}")
    print(json.dumps({"ready": True}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)

    async def stream(number: int, streamer: Streamer) -> list[Answer]:
        if asked.rate:  # streams that begin at different times do not move in step
            await asyncio.sleep(number / asked.streams / asked.rate)
        numbers = range(number, asked.streams * asked.rounds, asked.streams)
        return [await streamer.request(n, asked.tokens, asked.rate) for n in numbers]

    began_s, cpu_s = time.perf_counter(), time.process_time()
    found = await asyncio.gather(*(stream(n, s) for n, s in enumerate(streamers)))
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    print(json.dumps({"done": True}), flush=True)
    for streamer in streamers:
        streamer.close()
    figures = read([answer for answers in found for answer in answers], asked)
    return {
        **figures,
        "wall_s": wall_s,
        "tokens_per_s": figures["tokens"] / wall_s,
        "load_busy": cpu_s / wall_s,
    }


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True, help="up to and with /v1")
    parser.add_argument("--upstream", required=True, help="where to ask when tokens were sent")
    parser.add_argument("--key", default="none")
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--model", default="fake")
    parser.add_argument("--mode", choices=MODES, default="responses-ws")
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=1000, help="of an answer")
    parser.add_argument("--rate", type=int, default=100, help="tokens/s of a stream; 0: at once")
    parser.add_argument("--rounds", type=int, default=1, help="answers of each stream")
    print(json.dumps(uvloop.run(run(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()
