"""Serves one HTTP request: writes a head at once, says when its client leaves, knows HTTP/1.0.

uvicorn searches, compares and joins each header by itself, and an answer of ours has some fifteen:
no other step of a short task took as many. Here all are checked and written together;
`tests/unit/gateway/transport/test_response_cycle.py` compares the two.

Its connection tells whoever watches a request that the client left, who else would need a task that
waits in ASGI's `receive`.

HTTP/1.0 knows no chunks: a body ends as its connection does (RFC 9112 6.1). uvicorn closes after
its answer to such a request, but sends a body of unknown length in chunks all the same, which the
client takes for the body. This is an edge.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

from gateway.transport.light_event import LightEvent

Receive = Callable[[], Awaitable[Any]]  # ASGI's

# Of these uvicorn finds out what they change.
_SAY_MORE = frozenset((b"connection", b"transfer-encoding"))
_WITHOUT_BODY = (204, 304)


class ResponseCycle(RequestResponseCycle):
    """Handles a request and its response."""

    on_left: Callable[[], object] | None = None  # called once if the client leaves before its end

    def watch(self, on_left: Callable[[], object]) -> Callable[[], object]:
        """Has `on_left` called once the client leaves; returns what ends that."""
        if self.disconnected or self.response_complete:
            return asyncio.get_running_loop().call_soon(on_left).cancel
        self.flow.resume_reading()  # as `receive` would: what is not read tells no end
        self.on_left = on_left
        return self.unwatch

    def unwatch(self) -> None:
        """Lets the client leave unnoticed."""
        self.on_left = None

    def leave(self) -> None:
        """Notes that the client is gone."""
        self.disconnected = True
        self.message_event.set()
        if not self.response_complete and (on_left := self.on_left) is not None:
            self.on_left = None
            on_left()

    def send(self, message: Any) -> Coroutine[Any, Any, None]:
        """Sends as uvicorn does."""
        if self.response_started or message["type"] != "http.response.start":
            return super().send(message)
        return self._begin(message)

    async def _begin(self, message: Any) -> None:
        """Writes a head; one that is not plain, or not now, is left to uvicorn."""
        headers = [*self.default_headers, *message.get("headers", ())]
        given = dict(headers)
        names = b"\n".join(given).lower().split(b"\n")
        told = dict(zip(names, given.values(), strict=False))
        if (
            self.access_log
            or self.disconnected
            or self.flow.write_paused
            or len(told) < len(headers)
            or not _SAY_MORE.isdisjoint(told)
            or HEADER_RE.search(b"".join(given))
            or HEADER_VALUE_RE.search(b"".join(given.values()))
        ):
            await super().send(message)
            return
        self.response_started = True
        self.waiting_for_100_continue = False
        lines = [STATUS_LINE[message["status"]][:-2], *map(b": ".join, told.items())]
        if (length := told.get(b"content-length")) is not None and self.chunked_encoding is None:
            self.expected_content_length, self.chunked_encoding = int(length.decode()), False
        if not self.keep_alive:
            lines.append(b"connection: close")
        has_body = self.scope["method"] != "HEAD" and message["status"] not in _WITHOUT_BODY
        if self.chunked_encoding is None and has_body:
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked")
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n")


class CycleUntilClose(ResponseCycle):
    """Handles a request in HTTP/1.0 and its response."""

    _is_unbounded = False  # the length of the body is not known

    async def send(self, message: Any) -> None:
        """Sends as uvicorn does, but no chunks."""
        if message["type"] == "http.response.start":
            self.keep_alive = False
            names = [name.lower() for name, _ in message.get("headers", ())]
            self._is_unbounded = b"content-length" not in names
            if self._is_unbounded:
                self.chunked_encoding = False
        elif self._is_unbounded:  # what there is now is all that is expected
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


async def _gone(receive: Receive) -> None:
    """Returns when the client has left; its request was read whole before."""
    while (await receive())["type"] != "http.disconnect":
        pass


def watched(receive: Receive, on_left: Callable[[], object]) -> Callable[[], object]:
    """Has `on_left` called once a client leaves, whose request was read whole; returns its end.

    Our server tells of it (`MeteredBody.watch`); what stands for a client is asked by a task.
    """
    if (watch := getattr(receive, "watch", None)) is not None:
        end: Callable[[], object] = watch(on_left)
        return end
    leaving = asyncio.ensure_future(_gone(receive))
    leaving.add_done_callback(lambda each: each.cancelled() or on_left())
    return leaving.cancel


async def attended(work: "asyncio.Task[Any]", receive: Receive) -> None:
    """Waits until work is done; a client that leaves first has it cancelled."""
    over = LightEvent()
    work.add_done_callback(lambda _: over.set())
    end_watching = watched(receive, work.cancel)
    try:
        await over.wait()
    finally:
        end_watching()
        if not work.done():
            work.cancel()
            await asyncio.wait((work,))
