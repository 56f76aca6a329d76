"""A plain upgrade and the long way through `websockets` come to the same."""

import asyncio
from typing import Any

import pytest
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode

from gateway.config.config import Config
from gateway.process.server import uvicorn_config
from gateway.transport import http_protocol, socket_protocol
from gateway.transport.keepalive import KeepAlive
from gateway.transport.socket_handshake import plain_key
from gateway.transport.socket_protocol import ABORT, ANSWERS, TAKE_BY, VISIT, WRITE, WRITE_NOW

KEY = "dGhlIHNhbXBsZSBub25jZQ=="  # RFC 6455 1.3
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
PLAIN = {
    "Host": "gateway",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
    "Authorization": "Bearer k",
}


def head(line: str = "GET /v1/responses HTTP/1.1", more: str = "", **changed: str | None) -> bytes:
    """Returns a request; a header that is None is left out."""
    wanted = PLAIN | {name.replace("_", "-"): value for name, value in changed.items()}
    headers = "".join(f"{name}: {value}\r\n" for name, value in wanted.items() if value is not None)
    return f"{line}\r\n{headers}{more}\r\n".encode("latin-1")


PLAIN_ONES = {
    "as libraries send it": head(),
    "of a browser": head(
        Connection="keep-alive, Upgrade",
        Origin="https://example.com",
        Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits",
    ),
    "in other cases": head(Connection="UPGRADE", Upgrade="WebSocket"),
    "with a query and escapes": head("GET /v1%2Fresponses?a=%20b&c HTTP/1.1"),
    "with a header twice": head(more="Cookie: a\r\nCookie: b\r\n"),
    "with letters beyond ASCII": head(Cookie="caf\xe9"),
}
LONG_ONES = {
    "no key": head(Sec_WebSocket_Key=None),
    "a short key": head(Sec_WebSocket_Key="dGhl"),
    "a key that is no base64": head(Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZ!=="),
    "two keys": head(more=f"Sec-WebSocket-Key: {KEY}\r\n"),
    "another version": head(Sec_WebSocket_Version="8"),
    "a subprotocol": head(Sec_WebSocket_Protocol="chat"),
    "two origins": head(more="Origin: a\r\nOrigin: b\r\n"),
    "another token": head(Connection="Upgrade, TE"),
    "a body": head(Content_Length="0"),
    "a POST": head("POST /v1/responses HTTP/1.1"),
    "many headers": head(more="X: y\r\n" * 130),
    "a long line": head(Cookie="x" * 9_000),
    "a key beyond ASCII": head(Sec_WebSocket_Key="\xe9" * 22 + "=="),
    "an extension beyond ASCII": head(Sec_WebSocket_Key=None, Sec_WebSocket_Extensions="\xe9"),
}


class Wire(asyncio.Transport):
    """Keeps what the other side would get."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 99), "sockname": ("10.0.0.2", 80)})
        self.written = b""
        self.is_closed = False
        self.protocol: Any = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self.protocol
        return protocol

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def connected(app: Any) -> tuple[ServerState, Wire]:
    """Connects a client to an application, as the server does."""
    config = uvicorn_config(app, Config(), KeepAlive(20.0))
    config.load()
    state, wire = ServerState(), Wire()
    wire.protocol = config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]
    wire.protocol.connection_made(wire)
    return state, wire


async def reads_all(scope: Any, receive: Any, send: Any) -> None:
    """Accepts a socket, and takes its messages until it ends."""
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def conversation(request: bytes) -> dict[str, Any]:
    """Returns all that the application and the client see of an upgrade and of one message."""
    seen: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen["scope"] = {name: value for name, value in scope.items() if name != "state"}
        seen["scope"]["headers"] = list(scope["headers"])
        seen["ways"] = sorted(scope["state"])
        seen["first"] = await receive()
        await send({"type": "websocket.accept", "headers": [(b"x-request-id", b"req_1")]})
        seen["headers left"] = list(scope["headers"])
        seen["message"] = await receive()
        seen["end"] = await receive()

    state, wire = connected(app)
    state.default_headers = [(b"date", b"now")]
    wire.protocol.data_received(request)
    for _ in range(4):
        await asyncio.sleep(0)
    seen["answer"], wire.written = wire.written, b""
    if "message" not in seen and not wire.is_closed:
        wire.protocol.data_received(Frame(Opcode.TEXT, b"{}").serialize(mask=True))
        wire.protocol.data_received(Frame(Opcode.PING, b"?").serialize(mask=True))
        seen["pong"] = wire.written
        await asyncio.sleep(0)
    seen["closed"] = wire.is_closed
    wire.protocol.connection_lost(None)
    await asyncio.gather(*state.tasks)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not state.connections
    return seen


@pytest.mark.parametrize("request_", PLAIN_ONES.values(), ids=PLAIN_ONES)
async def test_a_plain_upgrade_is_what_the_long_way_makes_of_it(
    request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = await conversation(request_)
    monkeypatch.setattr(http_protocol, "plain_key", lambda *_: None)
    assert short == await conversation(request_)
    assert short["answer"].startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert ACCEPT in short["answer"]
    assert short["message"] == {"type": "websocket.receive", "text": "{}"}
    assert short["pong"] == b"\x8a\x01?"
    assert short["ways"] == sorted([ABORT, ANSWERS, TAKE_BY, VISIT, WRITE, WRITE_NOW])
    assert short["headers left"] == []


@pytest.mark.parametrize("request_", LONG_ONES.values(), ids=LONG_ONES)
async def test_what_is_not_plain_goes_the_long_way(
    request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[bytes | None] = []

    def noted(*upgrade: Any) -> bytes | None:
        keys.append(plain_key(*upgrade))
        return keys[-1]

    monkeypatch.setattr(http_protocol, "plain_key", noted)
    seen = await conversation(request_)
    assert keys == [None]
    assert seen["answer"].startswith(b"HTTP/1.1 ")
    assert b" 500 " not in seen["answer"]
    assert seen["closed"] == (b" 101 " not in seen["answer"])


async def test_one_that_went_while_it_was_let_in_is_told_of_as_gone() -> None:
    gone: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        wire.protocol.connection_lost(None)
        try:
            await send({"type": "websocket.accept"})
        except OSError:
            gone.append("accept")
            raise

    state, wire = connected(app)
    wire.protocol.data_received(head())
    for _ in range(6):
        await asyncio.sleep(0)
    assert gone == ["accept"]
    assert wire.written == b""
    assert not state.connections


@pytest.mark.parametrize("num_pieces", [1, 2])
async def test_bad_utf_8_that_comes_with_a_close_changes_nothing(num_pieces: int) -> None:
    """The close cannot be answered by another; a fault in the protocol would cut the connection."""
    told: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        told.append((await receive())["type"])

    state, wire = connected(app)
    wire.protocol.data_received(head())
    for _ in range(4):
        await asyncio.sleep(0)
    wire.written = b""
    is_one = num_pieces == 1
    pieces = Frame(Opcode.TEXT, b"\xff", fin=is_one).serialize(mask=True)
    pieces += b"" if is_one else Frame(Opcode.CONT, b"\xfe").serialize(mask=True)
    wire.protocol.data_received(pieces + Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=True))
    for _ in range(4):
        await asyncio.sleep(0)
    assert told == ["websocket.disconnect"]
    assert wire.written.startswith(b"\x88")
    wire.protocol.connection_lost(None)
    await asyncio.gather(*state.tasks)


async def test_a_thousand_messages_that_come_at_once_are_read_in_turn_with_others() -> None:
    num_turns, most, taken = 0, 0, []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            taken.append(message)

    state, wire = connected(app)
    wire.protocol.data_received(head())
    for _ in range(4):
        await asyncio.sleep(0)
    message = Frame(Opcode.TEXT, b"{}").serialize(mask=True)
    protocol = wire.protocol
    protocol.data_received(message * 5_000)
    while len(taken) < 5_000:
        before, num_turns = len(taken), num_turns + 1
        await asyncio.sleep(0)
        most = max(most, len(taken) - before)
    assert not protocol.read_paused
    assert most <= 5_000 // 2, "others had a turn"
    wire.protocol.connection_lost(None)
    await asyncio.gather(*state.tasks)


async def test_a_pong_that_may_lie_unread_is_not_late() -> None:
    state, wire = connected(reads_all)
    wire.protocol.data_received(head())
    for _ in range(4):
        await asyncio.sleep(0)
    protocol = wire.protocol
    protocol.keep_alive()
    protocol.data_received(Frame(Opcode.TEXT, b"{}").serialize(mask=True) * 5_000)
    assert protocol.read_paused
    protocol.keep_alive()
    assert not protocol.close_sent
    while protocol.read_paused:  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0)
    protocol.keep_alive()
    assert protocol.close_sent, "all was read, and no pong was in it"
    protocol.connection_lost(None)
    await asyncio.gather(*state.tasks)


async def test_a_pong_that_is_being_waited_for_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    state, wire = connected(reads_all)
    wire.protocol.data_received(head())
    for _ in range(4):
        await asyncio.sleep(0)
    protocol = wire.protocol
    asked = asyncio.create_task(protocol.answers())
    await asyncio.sleep(0)
    protocol.keep_alive()
    assert not protocol.close_sent, "the wheel comes round just behind that ping"
    pong = Frame(Opcode.PONG, protocol.pending_ping_payload)
    protocol.data_received(pong.serialize(mask=True))
    assert await asked
    monkeypatch.setattr(socket_protocol, "ANSWER_S", 0.0)
    assert not await protocol.answers()
    protocol.keep_alive()
    assert protocol.close_sent, "nobody waits for that pong any more"
    protocol.connection_lost(None)
    await asyncio.gather(*state.tasks)


async def test_a_message_in_thousands_of_parts_takes_little_more_than_its_bytes() -> None:
    told: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        told.extend([await receive(), await receive()])

    state, wire = connected(app)
    wire.protocol.data_received(head())
    for _ in range(4):
        await asyncio.sleep(0)
    protocol = wire.protocol
    for _ in range(2):
        protocol.data_received(Frame(Opcode.TEXT, b"a", fin=False).serialize(mask=True))
        most = 0
        for number in range(5_000):
            part = Frame(Opcode.CONT, b"%d" % (number % 10), fin=False).serialize(mask=True)
            protocol.data_received(part)
            most = max(most, len(protocol.frames))
        assert 1_000 < most < 1_040
        protocol.data_received(Frame(Opcode.CONT, b"z").serialize(mask=True))
        await asyncio.sleep(0)
    assert [message["text"] for message in told] == ["a" + "0123456789" * 500 + "z"] * 2
    wire.protocol.connection_lost(None)
    await asyncio.gather(*state.tasks)


@pytest.mark.parametrize("changed", [{}, {"Upgrade": None, "Connection": None}])
async def test_too_many_headers_are_refused(changed: dict[str, None]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("it was asked")

    state, wire = connected(app)
    wire.protocol.data_received(head(more="X: y\r\n" * 300, **changed))
    for _ in range(4):
        await asyncio.sleep(0)
    assert wire.written.startswith(b"HTTP/1.1 431 ")
    wire.protocol.connection_lost(None)
    await asyncio.gather(*state.tasks)
