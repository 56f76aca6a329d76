"""Exchanges with an upstream over HTTP: one POST, its events as they come.

Connections are kept and used again once an answer was read to its end. An exchange that ends
otherwise closes its connection at once, which is how an upstream learns to stop.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

from backends.upstream_chain import PARENT_LOST, StoredChains, Turn
from backends.upstream_errors import Failure, broken, http_failure
from backends.upstream_options import UpstreamOptions, http_url
from backends.upstream_sse import EventParser, EventTooLongError

Receive = Callable[[bytes], bool]  # takes an event's JSON; true once it was the last

MAX_ERROR_BYTES = 64 << 10
ERROR_TIMEOUT_S = 5.0  # to read an error's body
DRAIN_TIMEOUT_S = 1.0  # for the stream to end behind its last event

MAX_CHAINS = 4_096  # responses that the server has stored for conversations to go on

_encode = msgspec.json.encode


class _Response(msgspec.Struct, frozen=True):
    id: str | None = None


class _Named(msgspec.Struct, frozen=True):
    """Which response an event tells of."""

    response: _Response | None = None


_named = msgspec.json.Decoder(_Named)


class HttpTransport:
    """Satisfies `upstream.Transport`. Must be made inside the event loop."""

    def __init__(self, backend: str, options: UpstreamOptions, headers: dict[str, str]) -> None:
        self._backend = backend
        path = "/chat/completions" if options.protocol == "chat" else "/responses"
        self._url = http_url(options, path)
        self._ahead_url = http_url(options, options.probe_path or "/models")
        self._ahead_timeout = aiohttp.ClientTimeout(total=options.connect_timeout_s)
        self._chains = StoredChains(MAX_CHAINS) if options.stores else None
        self.num_continued = self.num_chains_lost = 0
        self._session = aiohttp.ClientSession(
            headers={**headers, "accept-encoding": "identity"},
            # As many connections as the backend lets generations in.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=options.socket_max_idle_s),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=options.connect_timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    async def exchange(self, turn: Turn, receive: Receive) -> None:
        """Send a request and hand its events on, until the last one or the stream's end.

        It goes on from what the server remembers where it can, and is sent whole, once, where the
        server has forgotten. Cancelling closes the connection within one turn of the event loop.

        Raises:
            Failure: No answer, an answer other than 200, a cut stream; or raised by `receive`.
        """
        chains = self._chains
        if chains is None:
            await self._exchange(turn.whole(), receive)
            return
        names = _Names(receive)
        chain = chains.find(turn)
        try:
            if chain is None:
                await self._exchange(turn.whole(), names.receive)
            else:
                await self._exchange(turn.after(chain), names.receive)
                self.num_continued += 1
        except Failure as failure:
            if chain is None or failure.code != PARENT_LOST:
                raise
            self.num_chains_lost += 1
            chains.forget(chain)
            await self._exchange(turn.whole(), names.receive)
        made = turn.chain(names.response_id)
        if made is not None:
            chains.add(made)

    async def _exchange(self, body: dict[str, Any], receive: Receive) -> None:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        try:
            response = await self._session.post(
                self._url, data=_encode(body), headers=headers, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise broken(self._backend, f"no answer from the upstream: {error}", unused=True) from (
                error
            )
        try:
            if response.status != 200:
                raise http_failure(
                    self._backend, response.status, await _error_body(response), response.headers
                )
            await self._read(response, receive)
        finally:
            response.close()  # harmless where the end was reached: the connection is back already

    async def _read(self, response: aiohttp.ClientResponse, receive: Receive) -> None:
        parser = EventParser()
        try:
            async for chunk in response.content.iter_any():
                for event in parser.feed(chunk):
                    if receive(event):
                        await _drain(response)
                        return
        except (aiohttp.ClientError, OSError) as error:
            raise broken(self._backend, f"the upstream's stream broke: {error}") from error
        except EventTooLongError as error:
            raise broken(self._backend, f"the upstream sent too much: {error}") from error

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    def sweep(self) -> None:
        """Connections that idle are the session's matter."""

    async def warm(self) -> None:
        """Nothing: connections are opened as they are needed, or for a warm-up."""

    async def warm_up(self, turn: Turn, receive: Receive) -> None:
        """Have a connection open, for the request that follows; what it answers is no matter.

        Raises:
            Failure: It could not be opened.
        """
        try:
            async with self._session.get(
                self._ahead_url, allow_redirects=False, timeout=self._ahead_timeout
            ) as response:
                with contextlib.suppress(asyncio.IncompleteReadError):
                    await response.content.readexactly(MAX_ERROR_BYTES)  # to its end, most often
        except (aiohttp.ClientError, OSError, ValueError) as error:
            message = f"no connection to the upstream: {error or type(error).__name__}"
            raise broken(self._backend, message, unused=True) from error


class _Names:
    """Notes on the way which response the events are of."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.response_id: str | None = None

    def receive(self, event: bytes) -> bool:
        """See `Receive`."""
        if self.response_id is None:
            with contextlib.suppress(msgspec.DecodeError):
                response = _named.decode(event).response
                self.response_id = response.id if response is not None else None
        return self._receive(event)


class Probe:
    """Asks an upstream for signs of life."""

    def __init__(self, options: UpstreamOptions, headers: dict[str, str]) -> None:
        assert options.probe_path is not None
        self._url = http_url(options, options.probe_path)
        timeout = aiohttp.ClientTimeout(total=options.connect_timeout_s)
        self._session = aiohttp.ClientSession(
            headers=headers, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        )

    async def ask(self) -> str | None:
        """None where it lives; otherwise what is wrong.

        A server that has no such path lives; one that refuses our key is of no use.
        """
        try:
            async with self._session.get(self._url, allow_redirects=False) as response:
                status = response.status
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        if status in (401, 403):
            return f"it refuses this gateway's key ({status})"
        return f"it answers {status}" if status >= 500 else None

    async def close(self) -> None:
        """Close its connection."""
        await self._session.close()


async def _error_body(response: aiohttp.ClientResponse) -> bytes:
    """The beginning of an error's body, as far as it comes in time."""
    try:
        async with asyncio.timeout(ERROR_TIMEOUT_S):
            return await response.content.read(MAX_ERROR_BYTES)
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        return b""


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read on to the end, so that the connection can be used again."""
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            async for _ in response.content.iter_any():
                pass
    except (aiohttp.ClientError, OSError):
        pass
