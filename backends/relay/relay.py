"""Passes requests on to a server as they are, at a path that the gateway has no engine for.

No retry is made but on a connection that the server had closed: what a request costs there is not
known. This is an edge.
"""

import asyncio

from backends.net.http_client import OK, BrokenError, Take
from backends.net.server_keys import ServerKeys
from backends.relay.options import RelayOptions
from backends.upstream.answer.errors import broken, http_failure, overloaded, too_much
from backends.upstream.http_exchange import http_client


class Relay:
    """Posts to one path of one server. Must be made inside the event loop."""

    def __init__(self, options: RelayOptions) -> None:
        """Raises ValueError if an option is invalid, or the environment lacks the key."""
        upstream = options.upstream()
        self.options = options
        self.name = f"{options.path}:{options.model}"
        self.info = upstream.info(self.name, options.group)  # as far as prices go
        self.upstream_model = upstream.upstream_model
        keys = ServerKeys(upstream)
        self.hidden = keys.hidden  # takes our key out of the server's words
        self._client = http_client(upstream)
        sent = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        self._head = self._client.head("POST", f"/{options.path}", keys.headers[0] | sent)
        self._num_running = 0

    async def post(self, body: bytes, take: Take) -> None:
        """Sends a body, and gives `take` the answer's as it comes.

        Raises `Failure` if there is no answer, one other than 200, too much of it, or not in time.
        Cancelling closes the connection within one turn of the event loop.
        """
        options = self.options
        if self._num_running >= options.max_at_once:
            raise overloaded(self.name, f"it has {self._num_running} requests already")
        num_left = options.max_answer_bytes

        def take_bounded(arrived: bytes) -> bool:
            nonlocal num_left
            num_left -= len(arrived)
            if num_left < 0:
                raise too_much(self.name, "the upstream sent too much for one answer")
            return take(arrived)

        self._num_running += 1
        try:
            async with asyncio.timeout(options.total_timeout_s):
                try:
                    answer = await self._client.request(self._head, body, take_bounded)
                except BrokenError as error:
                    if not error.stale:
                        raise
                    answer = await self._client.request(self._head, body, take_bounded)
        except BrokenError as error:
            what = (
                "the upstream's answer broke off" if error.begun else "no answer from the upstream"
            )
            raise broken(self.name, f"{what}: {error}", unused=not error.begun) from error
        except TimeoutError:
            message = f"no answer from the upstream within {options.total_timeout_s:g} s"
            raise broken(self.name, message) from None
        finally:
            self._num_running -= 1
        if answer.status != OK:
            raise http_failure(self.name, answer.status, answer.body, answer.headers)

    async def close(self) -> None:
        """Closes its connections; requests under way fail."""
        await self._client.close()
