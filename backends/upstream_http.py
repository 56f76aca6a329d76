"""Exchanges with an upstream over HTTP: one POST, its events as they come.

Connections are kept and used again once an answer was read to its end. An exchange that ends
otherwise closes its connection at once, which is how an upstream learns to stop.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

from backends.upstream_errors import broken, http_failure
from backends.upstream_options import UpstreamOptions, http_url
from backends.upstream_sse import EventParser, EventTooLongError

Receive = Callable[[bytes], bool]  # takes an event's JSON; true once it was the last

MAX_ERROR_BYTES = 64 << 10
ERROR_TIMEOUT_S = 5.0  # to read an error's body
DRAIN_TIMEOUT_S = 1.0  # for the stream to end behind its last event

_encode = msgspec.json.encode


class HttpTransport:
    """Satisfies `upstream.Transport`. Must be made inside the event loop."""

    def __init__(self, backend: str, options: UpstreamOptions, headers: dict[str, str]) -> None:
        self._backend = backend
        path = "/chat/completions" if options.protocol == "chat" else "/responses"
        self._url = http_url(options, path)
        self._session = aiohttp.ClientSession(
            headers={**headers, "accept-encoding": "identity"},
            # As many connections as the backend lets generations in.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=options.socket_max_idle_s),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=options.connect_timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    async def exchange(self, body: dict[str, Any], receive: Receive) -> None:
        """Send a request and hand its events on, until the last one or the stream's end.

        Cancelling closes the connection within one turn of the event loop.

        Raises:
            Failure: No answer, an answer other than 200, a cut stream; or raised by `receive`.
        """
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
        """The probe has opened a connection already."""


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
