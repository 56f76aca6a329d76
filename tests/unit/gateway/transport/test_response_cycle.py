"""Compares the heads that are written at once with uvicorn's."""

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.transport.response_cycle import ResponseCycle

DATE = (b"date", b"Sun, 29 Nov 2026 00:00:00 GMT")
TEXT = (b"content-type", b"text/plain; charset=utf-8")


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True


def made(kind: type[RequestResponseCycle], method: str, keep_alive: bool) -> RequestResponseCycle:
    transport = Transport()
    scope: Any = {"type": "http", "method": method}
    log = logging.getLogger("uvicorn.access")
    event = asyncio.Event()
    return kind(
        *(scope, transport, FlowControl(transport), log, log, False, [DATE], event),
        *(False, keep_alive, lambda: None),
    )


async def sent(kind: type[RequestResponseCycle], one: Any) -> tuple[Any, ...]:
    """Returns what a kind of cycle makes of an answer, and how it ends."""
    method, status, headers, bodies, keep_alive = one
    cycle = made(kind, method, keep_alive)
    fault = ""
    try:
        await cycle.send({"type": "http.response.start", "status": status, "headers": headers})
        for number, body in enumerate(bodies, start=1):
            more = number < len(bodies)
            message: Any = {"type": "http.response.body", "body": body, "more_body": more}
            await cycle.send(message)
    except (RuntimeError, ValueError) as error:
        fault = str(error)
    transport: Any = cycle.transport
    ways = cycle.response_started, cycle.response_complete, cycle.chunked_encoding, cycle.keep_alive
    return transport.written, transport.is_closed, fault, *ways


@pytest.mark.parametrize(
    "one",
    [
        ("POST", 200, [TEXT], [b"one", b"", b"two"], True),
        ("POST", 200, [TEXT], [b"one"], False),
        ("POST", 200, [], [b"one"], True),
        ("POST", 200, [TEXT, (b"Content-Length", b"3")], [b"one"], True),
        ("POST", 200, [TEXT, (b"content-length", b"2")], [b"one"], True),
        ("POST", 200, [TEXT, (b"content-length", b"4")], [b"one"], True),
        ("POST", 200, [(b"content-length", b"3"), (b"content-length", b"4")], [b"one"], True),
        ("POST", 200, [(b"content-length", b"no")], [b"one"], True),
        ("POST", 200, [(b"transfer-encoding", b"chunked"), TEXT], [b"one"], True),
        ("POST", 200, [(b"Connection", b"Close, x"), TEXT], [b"one"], True),
        ("POST", 200, [(b"connection", b"close"), TEXT], [b"one"], False),
        ("POST", 200, [(b"vary", b"a"), (b"vary", b"b")], [b"one"], True),
        ("POST", 200, [(b"X-Empty", b""), (b"x-tab", b"a\tb")], [b"one"], True),
        ("POST", 200, [(b"x", b"a\r\nb: c")], [b"one"], True),
        ("POST", 200, [(b"x\ny", b"a")], [b"one"], True),
        ("POST", 200, [(b"x y", b"a")], [b"one"], True),
        ("POST", 200, [(b"", b"a")], [b"one"], True),
        ("HEAD", 200, [TEXT], [b"one"], True),
        ("HEAD", 200, [TEXT, (b"content-length", b"3")], [b"one"], True),
        ("GET", 204, [(b"allow", b"GET")], [b""], True),
        ("GET", 304, [], [b""], False),
        ("GET", 599, [TEXT], [b"one"], True),
    ],
)
async def test_a_head_is_uvicorns(one: Any) -> None:
    assert await sent(ResponseCycle, one) == await sent(RequestResponseCycle, one)


async def test_a_head_waits_for_room_and_is_not_sent_to_who_left() -> None:
    start = {"type": "http.response.start", "status": 200, "headers": [TEXT]}
    cycle = made(ResponseCycle, "POST", keep_alive=True)
    transport: Any = cycle.transport
    cycle.flow.pause_writing()
    sending = asyncio.ensure_future(cycle.send(start))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert not transport.written
    cycle.flow.resume_writing()
    await sending
    assert transport.written.startswith(b"HTTP/1.1 200 OK\r\ndate: ")
    gone = made(ResponseCycle, "POST", keep_alive=True)
    gone.disconnected = True
    await gone.send(start)  # type: ignore[arg-type]
    transport = gone.transport
    assert (transport.written, gone.response_started) == (b"", False)
