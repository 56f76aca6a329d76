"""Exchanges requests and events with an upstream over a small pool of Responses WebSockets.

A socket carries one response at a time, or several on streams of their own if the server can cancel
one alone (`upstream_socket`).

A server remembers the latest response of each stream. So a conversation continues on its stream
with its new items alone; a new one gets a stream without a chain, else the one idle for longest.
This is an edge.
"""

import asyncio

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, InvalidURI, WebSocketException

from backends.drive.driver import monotonic_us
from backends.net.quick_connection import QuickConnection
from backends.net.read_hold import ReadHold
from backends.net.server_keys import ServerKeys
from backends.upstream.answer.errors import broken, http_failure, overloaded
from backends.upstream.chain import FIRST_EVENT_BYTES, Turn
from backends.upstream.free_streams import FreeStreams
from backends.upstream.http_exchange import Receive
from backends.upstream.options import UpstreamOptions, socket_url
from backends.upstream.upstream_socket import (
    ParentLostError,
    RequestLimit,
    SocketStream,
    UpstreamSocket,
)

CLOSE_TIMEOUT_S = 1.0  # for a closing handshake


class _Connect(connect):
    """Follows no redirect: the operator checked this address only."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class SocketTransport:
    """Does over sockets what `HttpTransport` does. Must be made inside the event loop."""

    def __init__(self, backend: str, options: UpstreamOptions, keys: ServerKeys) -> None:
        self._backend = backend
        self._options = options
        self._keys = keys
        self._sockets: list[UpstreamSocket] = []
        self._free: FreeStreams[SocketStream] = FreeStreams()
        self._limit = RequestLimit()
        self.num_continued = self.num_chains_lost = 0
        # Where streams share sockets, only one is opened at a time.
        shared = options.max_streams_per_socket > 1
        self._opening = asyncio.Semaphore(1 if shared else options.max_num_seqs)

    async def exchange(self, turn: Turn, receive: Receive, reading: ReadHold) -> None:
        stream = self._free.best(turn) or await self._opened(turn)
        self._free.remove(stream)  # its socket gives it back once its response has ended
        chain = stream.chain
        if chain is not None and turn.follows(chain):
            try:
                await stream.run(turn, turn.after(chain), receive, reading)
                self.num_continued += 1
                return
            except ParentLostError:
                self.num_chains_lost += 1
                stream = self._free.best(turn) or await self._opened(turn)
                self._free.remove(stream)
        await stream.run(turn, turn.whole(), receive, reading)

    async def warm_up(self, turn: Turn, receive: Receive, reading: ReadHold) -> None:
        """Has the server prepare for the request that follows.

        Raises `Failure` as `exchange`, or if there is no stream to spare.
        """
        best = self._free.best(turn)
        is_needed = best is None or (best.chain is not None and not turn.follows(best.chain))
        if is_needed and len(self._sockets) >= self._options.max_idle_sockets:
            raise overloaded(self._backend, "the upstream has no socket to spare for a warm-up")
        await self.exchange(turn, receive, reading)

    async def close(self) -> None:
        sockets, self._sockets = self._sockets, []
        await asyncio.gather(*(socket.close() for socket in sockets))

    def close_idle(self) -> None:
        """Closes sockets that are old or idle for long; the newest stays open."""
        for socket in list(self._sockets):
            if socket.is_done(is_spare=socket is not self._sockets[-1]):
                self._sockets.remove(socket)
                socket.retire()

    async def warm(self) -> None:
        """Opens a stream without a chain for the next request, if there is none."""
        if self._free.fresh() is not None:
            return
        num_usable = sum(socket.usable for socket in self._sockets)
        if num_usable < self._options.max_idle_sockets:
            async with self._opening:
                await self._open()

    async def _opened(self, turn: Turn) -> SocketStream:
        """Returns a stream for a turn, on a new socket if none has become free meanwhile."""
        async with self._opening:
            # A socket that was opened for this turn takes it, however short sockets live.
            return self._free.best(turn) or (await self._open()).first_stream

    async def _open(self) -> UpstreamSocket:
        for _ in self._keys.headers:  # another each time
            number = self._keys.take(monotonic_us())
            try:
                connection = await _Connect(
                    socket_url(self._options),
                    additional_headers=self._keys.headers[number],
                    compression=None,
                    max_size=FIRST_EVENT_BYTES,
                    open_timeout=self._options.connect_timeout_s,
                    close_timeout=CLOSE_TIMEOUT_S,
                    proxy=None,
                    create_connection=QuickConnection,
                )
            except InvalidStatus as error:
                answer, status = error.response, error.response.status_code
                headers = {name.lower(): value for name, value in answer.headers.raw_items()}
                failure = http_failure(self._backend, status, answer.body or b"", headers)
                if self._keys.rest(number, status, failure.error.retry_after_us, monotonic_us()):
                    continue
                raise failure from error
            except (OSError, WebSocketException, InvalidURI) as error:
                message = f"no socket to the upstream: {error or type(error).__name__}"
                raise broken(self._backend, message, unused=True) from error
            assert isinstance(connection, QuickConnection)
            socket = UpstreamSocket(
                self._backend, self._options, connection, self._free, self._limit
            )
            self._sockets.append(socket)
            return socket
        raise failure
