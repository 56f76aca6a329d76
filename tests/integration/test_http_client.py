"""Tests the client of upstreams over HTTP against a server that says just what a test wants."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from backends.net import http_client
from backends.net.http_client import MAX_DRY_BYTES, MAX_ERROR_BYTES, Answer, BrokenError, HttpClient

WAIT_S = 20.0  # bounds a hang
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n"
UNTIL_END = b"HTTP/1.1 200 OK\r\n\r\n"
Run = Callable[[Coroutine[Any, Any, None]], None]


class Told:
    """Answers each request with the next of `answers`; what ends in None closes."""

    def __init__(self, *answers: list[bytes | None]) -> None:
        self.answers = list(answers)
        self.num_connections = 0
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        self.left = asyncio.Event()  # a client has closed
        self.goes_on = asyncio.Event()  # behind an empty piece
        self._serving: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def client(
        self, tls: ssl.SSLContext | None = None, **options: Any
    ) -> AsyncIterator[HttpClient]:
        server = await asyncio.start_server(self._serve, "localhost", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        scheme = "http" if tls is None else "https"
        settings = {"connect_timeout_s": WAIT_S, "max_idle_s": 60.0, "max_idle": 2, **options}
        client = HttpClient(f"{scheme}://localhost:{port}", **settings)
        try:
            yield client
        finally:
            await client.close()
            self.goes_on.set()
            if self._serving:
                await asyncio.wait(self._serving, timeout=WAIT_S)
            server.close()
            await server.wait_closed()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._answer(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        await self._say(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _say(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The last is what uvloop raises where one writes to a client that has left.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, RuntimeError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().rpartition(b"content-length:")[2])
                self.requests.append(head + await reader.readexactly(size))
                self.asked.set()
                for piece in self.answers.pop(0):
                    if piece is None:
                        return
                    if not piece:
                        await self.goes_on.wait()
                    writer.write(piece)
                    await asyncio.sleep(0)
        self.left.set()


async def ask(
    client: HttpClient, enough: Callable[[bytes], bool] = lambda body: False
) -> tuple[Answer, bytes]:
    """Returns an answer with what was taken of its body."""
    taken = bytearray()

    def take(body: bytes) -> bool:
        taken.extend(body)
        return enough(bytes(taken))

    head = client.head("POST", "/v1/say", {"accept": "text/event-stream", "x-key": "k"})
    answer = await asyncio.wait_for(client.request(head, b"{}", take), WAIT_S)
    return answer, bytes(taken)


# What a server says -> the body, and whether its connection is used again.
ANSWERS: dict[str, tuple[list[bytes | None], bytes, bool]] = {
    "with its length": ([SIZED + b"abcdef"], b"abcdef", True),
    "in pieces": ([SIZED, b"abc", b"def"], b"abcdef", True),
    "in chunks": ([CHUNKED + b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"], b"abcdef", True),
    "a trailer": (
        [CHUNKED + b"6;x=y\r\nabcdef\r\n0\r\ncontent-encoding: gzip\r\n\r\n"],
        b"abcdef",
        True,
    ),
    "notices before it": (
        [
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + SIZED,
            b"abcdef",
        ],
        b"abcdef",
        True,
    ),
    "until the end": ([UNTIL_END, b"abc", b"def", None], b"abcdef", False),
    "an old server": ([b"HTTP/1.0 200 OK\r\ncontent-length: 6\r\n\r\nabcdef"], b"abcdef", False),
    "a last one": (
        [b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 6\r\n\r\nabcdef"],
        b"abcdef",
        False,
    ),
    "more than was asked for": ([SIZED + b"abcdef" + SIZED + b"ghijkl"], b"abcdef", False),
}


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("torn", [False, True], ids=["as it is", "byte by byte"])
@pytest.mark.parametrize("name", ANSWERS)
def test_answers(name: str, torn: bool, run: Run) -> None:
    pieces, body, is_kept = ANSWERS[name]
    if torn:
        pieces = [
            part
            for piece in pieces
            for part in ([None] if piece is None else [bytes((byte,)) for byte in piece])
        ]

    async def scenario() -> None:
        server = Told(pieces, [SIZED + b"second"])
        async with server.client() as client:
            answer, taken = await ask(client)
            assert (answer.status, taken) == (200, body)
            if name == "more than was asked for":
                await asyncio.wait_for(server.left.wait(), WAIT_S)
            assert (await ask(client))[1] == b"second"
        assert (server.num_connections == 1) is is_kept
        assert server.requests[0].startswith(b"POST /v1/say HTTP/1.1\r\nhost: localhost:")
        assert server.requests[0].endswith(b"\r\n\r\n{}")
        assert b"\r\nx-key: k\r\n" in server.requests[0]

    run(scenario())


# What a server says -> what is wrong, and whether an answer had begun.
FAULTS: dict[str, tuple[list[bytes | None], str, bool]] = {
    "nothing": ([None], "broke", False),
    "half a head": ([b"HTTP/1.1 200", None], "broke", False),
    "a cut body": ([SIZED + b"abc", None], "broke", True),
    "a cut chunk": ([CHUNKED + b"6\r\nabc", None], "broke", True),
    "no last chunk": ([CHUNKED + b"3\r\nabc\r\n", None], "broke", True),
    "no HTTP": ([b"220 smtp\r\n"], "not HTTP", False),
    "a chunk that is none": ([CHUNKED + b"zz\r\n"], "not HTTP", True),
    "another protocol": (
        [b"HTTP/1.1 101 Switch\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nabc"],
        "not HTTP",
        False,
    ),
    "an endless head": ([b"HTTP/1.1 200 OK\r\nx: " + b"y" * (MAX_DRY_BYTES + 1)], "without", False),
    "a coding": (
        [b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc"],
        "gzip",
        True,
    ),
}


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str, run: Run) -> None:
    pieces, complaint, begun = FAULTS[name]

    async def scenario() -> None:
        server = Told(pieces, [SIZED + b"abcdef"], [None])
        async with server.client() as client:
            with pytest.raises(BrokenError, match=complaint) as caught:
                await ask(client)
            assert caught.value.begun is begun
            assert not caught.value.stale
            assert (await ask(client))[1] == b"abcdef", "on a new connection"
            with pytest.raises(BrokenError) as caught:
                await ask(client)
            assert caught.value.stale, "a kept connection that was closed"
        assert server.num_connections == 2

    run(scenario())


async def test_other_statuses_bring_the_beginning_of_their_body() -> None:
    long = MAX_ERROR_BYTES + 1
    server = Told(
        [b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere\r\ncontent-length: 2\r\n\r\nno"],
        [b"HTTP/1.1 500 Oh\r\ncontent-length: %d\r\n\r\n" % long + b"x" * long],
        [b"HTTP/1.1 204 None\r\n\r\n"],
    )
    async with server.client() as client:
        answer, taken = await ask(client)
        assert (answer.status, answer.body, taken) == (302, b"no", b"")
        assert answer.headers["location"] == "http://elsewhere"
        assert (await ask(client))[0].body == b"x" * MAX_ERROR_BYTES
        assert (await ask(client))[0].status == 204


async def test_enough_is_enough_and_the_connection_is_used_again_once_its_answer_has_ended() -> (
    None
):
    server = Told([SIZED + b"abc", b"", b"def"], [SIZED + b"abcdef"])
    async with server.client() as client:
        _, taken = await ask(client, lambda body: True)
        assert taken == b"abc"
        (connection,) = client._connections
        server.goes_on.set()
        async with asyncio.timeout(WAIT_S):
            while connection not in client._idle:  # noqa: ASYNC110 -- nothing tells of it
                await asyncio.sleep(0.001)
        assert (await ask(client))[1] == b"abcdef"
    assert server.num_connections == 1


async def test_an_answer_that_does_not_end_costs_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_client, "DRAIN_TIMEOUT_S", 0.01)
    monkeypatch.setattr(http_client, "ERROR_TIMEOUT_S", 0.01)
    error = b"HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\n"
    server = Told([SIZED + b"abc", b""], [error + b"abc", b""])
    async with server.client() as client:
        await ask(client, lambda body: True)
        async with asyncio.timeout(WAIT_S):
            while client._connections:  # noqa: ASYNC110 -- nothing tells of it
                await asyncio.sleep(0.001)
        assert (await ask(client))[0].body == b"abc"
        server.goes_on.set()
    assert server.num_connections == 2


async def test_what_a_taker_raises_comes_out() -> None:
    def refuse(body: bytes) -> bool:
        raise ZeroDivisionError

    server = Told([SIZED + b"abc"])
    async with server.client() as client:
        with pytest.raises(ZeroDivisionError):
            await ask(client, refuse)
        await asyncio.wait_for(server.left.wait(), WAIT_S)


async def test_cancelling_closes_the_connection() -> None:
    server = Told([SIZED + b"abc", b""])
    async with server.client() as client:
        asking = asyncio.create_task(ask(client))
        await asyncio.wait_for(server.asked.wait(), WAIT_S)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        server.goes_on.set()
        await asyncio.wait_for(server.left.wait(), WAIT_S)


async def test_no_more_connections_are_kept_than_asked_for_nor_for_longer() -> None:
    answers = [[b"", SIZED + b"abcdef"] for _ in range(3)]
    server = Told(*answers)
    async with server.client(max_idle_s=0.0) as client:
        asking = [asyncio.create_task(ask(client)) for _ in range(3)]
        async with asyncio.timeout(WAIT_S):
            while len(server.requests) < 3:  # noqa: ASYNC110 -- nothing tells of it
                await asyncio.sleep(0.001)
        server.goes_on.set()
        await asyncio.gather(*asking)
        assert len(client._idle) <= 2
        await asyncio.sleep(0.001)
        client.close_idle()
        assert not client._idle


async def test_nobody_there() -> None:
    async with Told().client() as client:
        pass
    with pytest.raises(BrokenError, match="no connection"):
        await ask(client)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_over_tls_names_are_checked(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    http_client._tls.cache_clear()

    async def scenario(name: str) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        server = Told([SIZED + b"abcdef"], [CHUNKED + b"1\r\na\r\n0\r\n\r\n"])
        async with server.client(tls=context) as client:
            if name != "localhost":
                asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the server's
                with pytest.raises(BrokenError, match="no connection"):
                    await ask(client)
                return
            assert (await ask(client))[1] == b"abcdef"
            assert (await ask(client))[1] == b"a"
        assert server.num_connections == 1

    try:
        run(scenario("localhost"))
        run(scenario("elsewhere.test"))
    finally:
        http_client._tls.cache_clear()


async def test_a_header_is_one_line() -> None:
    client = HttpClient("http://h", connect_timeout_s=1, max_idle_s=1, max_idle=1)
    with pytest.raises(ValueError, match="one line"):
        client.head("GET", "/", {"x": "a\r\nb: c"})
