"""Sends what is hostile, and says what was wrong with the answer: nothing, if the gateway held.

A fault is a status of 5xx, an answer that never comes, a connection that hangs, words of the
gateway's insides, or the blame of another.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httptools
import websockets

from tests.hostile.wire import KEY

ANSWER_TIMEOUT_S = 30.0  # bounds a hang
UNFINISHED_TIMEOUT_S = 0.2  # that it stays open is right; that it answers is, too
MAX_HELD_BYTES = 64 << 20

# Words that only the gateway's insides say, and the store, which is not to blame for a request.
LEAKED = re.compile(
    r"Traceback|\.py\b|site-packages|NoneType|object has no|msgspec\.|litestar|uvicorn|lw1:|Redis"
    r"|codec can't|unexpected keyword|<class|0x[0-9a-f]{8}",
)
TERMINALS = ("response.completed", "response.incomplete", "response.failed")
SILENT = ("response.processed", "response.cancel")  # frames that may have no answer of their own


class Target(NamedTuple):
    """Names a gateway on loopback, and keys that hold there."""

    port: int
    key: str
    other_key: str  # of another tenant
    admin_key: str


class _Answers:
    """Reads the answers of one connection."""

    def __init__(self) -> None:
        self.done: list[tuple[int, bytes]] = []
        self._content: list[bytes] = []
        self.parser = httptools.HttpResponseParser(self)

    def read(self, chunk: bytes) -> None:
        """Takes what came; what is no HTTP any more is left."""
        with contextlib.suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.parser.feed_data(chunk)

    def on_body(self, content: bytes) -> None:
        self._content.append(content)

    def on_message_complete(self) -> None:
        status = self.parser.get_status_code()
        if status >= 200:  # 100 is followed by another
            self.done.append((status, b"".join(self._content)))
        self._content = []


def fault_of_answer(status: int, content: bytes) -> str:
    """Returns what is wrong with an answer; an empty string if nothing is."""
    shown = content[:300].decode(errors="replace")
    if status >= 500 and not (status == 503 and b"background responses" in content):
        return f"{status}: {shown}"
    if status < 400:
        return ""
    if found := LEAKED.search(content.decode(errors="replace")):
        return f"{status} says {found[0]!r}: {shown}"
    return ""


async def exchange(
    port: int,
    data: bytes,
    key: str,
    *,
    timeout_s: float = ANSWER_TIMEOUT_S,
    until_answered: bool = False,
    half_closes: bool = False,
) -> str:
    """Sends bytes, and reads until the gateway closes, or has answered; returns the fault.

    The connection's last request asks for the close, so a connection that stays open hangs. With
    `half_closes` it may be unfinished: then the end of what is sent ends the connection.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers, raw = _Answers(), b""
    try:
        writer.write(data.replace(KEY.encode(), key.encode()))
        async with asyncio.timeout(timeout_s):
            with contextlib.suppress(OSError):  # ENOTCONN, too: it has answered, and closed before
                await writer.drain()
                if half_closes:
                    writer.write_eof()
            with contextlib.suppress(ConnectionError):
                while (chunk := await reader.read(65_536)) and len(raw) < MAX_HELD_BYTES:
                    raw += chunk
                    answers.read(chunk)
                    if until_answered and (answers.done or raw.startswith(b"HTTP/1.1 101 ")):
                        break
    except TimeoutError:
        return "" if timeout_s == UNFINISHED_TIMEOUT_S else f"no end after {raw[:200]!r}"
    finally:
        writer.transport.abort()
    if raw and not answers.done and b" 101 " not in raw[:20] and not raw.startswith(b"HTTP/1."):
        return f"no HTTP: {raw[:80]!r}"
    return next(filter(None, (fault_of_answer(*each) for each in answers.done)), "")


def posted(path: str, content: bytes, key: str = KEY, method: str = "POST") -> bytes:
    """Returns a well-formed request with this body."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + content


async def after_handshake(
    port: int, handshake: bytes, data: bytes, key: str, *, half_closes: bool = False
) -> str:
    """Upgrades, sends bytes and a close, and reads until the gateway closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            writer.write(handshake.replace(KEY.encode(), key.encode()))
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 101 " not in head:
                return f"no upgrade: {head[:80]!r}"
            num_bytes = 0
            with contextlib.suppress(OSError):
                writer.write(data + b"\x88\x82\x00\x00\x00\x00\x03\xe8")
                if half_closes:
                    await writer.drain()
                    writer.write_eof()
                while chunk := await reader.read(65_536):
                    num_bytes += len(chunk)
                    if found := LEAKED.search(chunk.decode(errors="replace")):
                        return f"it says {found[0]!r}"
    except TimeoutError:
        return "it neither answers nor closes"
    except asyncio.IncompleteReadError:
        return "closed without an answer"
    finally:
        writer.transport.abort()
    return ""


class HostileSocket:
    """Is a socket on which frame after frame is sent, each with a probe behind it."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket
        self._number = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, port: int, key: str) -> AsyncIterator["HostileSocket"]:
        """Upgrades with this key."""
        async with websockets.connect(
            f"ws://127.0.0.1:{port}/v1/responses",
            additional_headers={"authorization": f"Bearer {key}"},
            max_size=None,
            max_queue=None,
            compression=None,
            ping_interval=None,
        ) as socket:
            yield cls(socket)

    async def ask(self, frame: bytes | str) -> str:
        """Sends a text frame and reads until it was answered; returns the fault.

        The probe behind it has an answer of its own: what came before that was not swallowed.
        """
        self._number += 1
        probe = f"probe-{self._number}"
        try:
            await self._socket.send(frame, text=True)
            await self._socket.send(json.dumps({"type": probe}))
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._until_answered(frame, probe)
        except TimeoutError:
            return "no answer"
        except websockets.ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else 1006
            return "" if code in (1003, 1007, 1009) else f"closed with {code}"

    async def _until_answered(self, frame: bytes | str, probe: str) -> str:
        running: set[str] = set()
        is_probed, num_events, is_silent = False, 0, may_be_silent(frame)
        while not is_probed or running or not (num_events or is_silent):
            event: dict[str, Any] = json.loads(await self._socket.recv())
            if fault := fault_of_event(event):
                return fault
            if event["type"] == "error" and probe in event["error"]["message"]:
                is_probed = True
                continue
            num_events += 1
            if event["type"] == "response.created":
                running.add(event["response"]["id"])
            elif event["type"] in TERMINALS:
                running.discard(event["response"]["id"])
        return ""


def fault_of_event(event: dict[str, Any]) -> str:
    """Returns what is wrong with an event; an empty string if nothing is."""
    if event["type"] == "error":
        status = event["status"]
        if status >= 500:
            return f"{status}: {event['error']['message'][:300]}"
        text = json.dumps(event["error"])
    elif event["type"] in ("response.failed", "response.steer.failed", "response.inject.failed"):
        error = event.get("error") or event.get("response", {}).get("error")
        if error and error["code"] == "server_error":
            return f"failed: {error['message'][:300]}"
        text = json.dumps(error)
    else:
        return ""
    found = LEAKED.search(text)
    return f"it says {found[0]!r}: {text[:300]}" if found else ""


def may_be_silent(frame: bytes | str) -> bool:
    """Says whether a frame is one that needs no answer."""
    try:
        read = json.loads(frame)
    except (ValueError, RecursionError):
        return False
    return isinstance(read, dict) and read.get("type") in SILENT
