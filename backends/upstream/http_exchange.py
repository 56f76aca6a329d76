"""Exchanges requests and events with an upstream over HTTP, one POST each.

A connection is reused once a response was read to its end. An exchange that ends otherwise closes
its connection at once, which is how an upstream learns to stop. This is an edge.
"""

from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import msgspec

from backends.drive.driver import monotonic_us
from backends.net.http_client import OK, BrokenError, HttpClient
from backends.net.read_hold import ReadHold
from backends.net.server_keys import REFUSED, ServerKeys
from backends.net.socket_messages import LONE_BYTES
from backends.net.sse import EventParser, EventTooLongError
from backends.upstream.answer.chat_chunks import decode_chunk, decode_chunks
from backends.upstream.answer.errors import Failure, broken, http_failure, too_much
from backends.upstream.answer.reader import NO_EVENT, decoded
from backends.upstream.answer.responses_events import (
    decode_response,
    decode_sse_event,
    decode_sse_events,
)
from backends.upstream.answer.split_pairs import PairJoiner
from backends.upstream.chain import PARENT_LOST, StoredChains, Turn
from backends.upstream.options import UpstreamOptions, http_url

# Receives events that came together, as the protocol has them; True once the last has come.
Receive = Callable[[list[Any]], bool]

_HEADERS = {"accept": "text/event-stream", "content-type": "application/json"}
MAX_CHAINS = 4_096  # responses stored by the server that can be continued


class HttpTransport:
    """Makes one POST for each exchange. Must be made inside the event loop."""

    def __init__(self, backend: str, options: UpstreamOptions, keys: ServerKeys) -> None:
        self._backend = backend
        self._keys = keys
        self._client = http_client(options)
        self.close, self.close_idle = self._client.close, self._client.close_idle
        is_chat = options.protocol == "chat"
        self._decode: Callable[[bytes], Any] = decode_chunk if is_chat else decode_sse_event
        self._decode_all: Callable[[list[bytes]], list[Any]] = (
            decode_chunks if is_chat else decode_sse_events
        )
        self._decode_whole = decode_chunk if is_chat else decode_response
        self._path = "/chat/completions" if is_chat else "/responses"
        head, path = self._client.head, self._path
        self._heads = [head("POST", path, _HEADERS | key) for key in keys.headers]
        self._ahead_path = options.probe_path or "/models"
        self._ahead_timeout_s = options.connect_timeout_s
        self._chains = StoredChains(MAX_CHAINS)  # empty unless the server stores responses
        self.num_continued = self.num_chains_lost = 0

    async def exchange(self, turn: Turn, receive: Receive, reading: ReadHold) -> None:
        """Sends a request and passes its events on, until the last one or the stream's end.

        It continues a stored response if it can, and sends the request whole, once, if the server
        has lost that. Cancelling closes the connection within one turn of the event loop. Raises
        `Failure` for no response, one other than 200 or a cut stream, or if `receive` does.
        """
        chain = self._chains.find(turn)
        try:
            body = turn.whole() if chain is None else turn.after(chain)
            await self._post(turn, body, receive, reading)
            self.num_continued += chain is not None
        except Failure as failure:
            if chain is None or failure.code != PARENT_LOST:
                raise
            self.num_chains_lost += 1
            self._chains.forget(chain)
            await self._post(turn, turn.whole(), receive, reading)
        made = turn.chain()
        if made is not None:
            self._chains.add(made)

    async def _post(
        self, turn: Turn, body: dict[str, Any], receive: Receive, reading: ReadHold
    ) -> None:
        encoded = msgspec.json.encode(body)
        turn.sent(len(encoded))
        parser = EventParser(turn.max_event_bytes)
        joiner: PairJoiner | None = None  # once a message is none

        def take(arrived: bytes) -> bool:
            nonlocal joiner
            turn.num_bytes_left = num_bytes_left = turn.num_bytes_left - len(arrived)
            if num_bytes_left < 0:
                raise too_much(self._backend, "the upstream sent too much for one answer")
            try:
                messages = parser.feed(arrived)
            except EventTooLongError as error:
                raise too_much(self._backend, f"the upstream sent too much: {error}") from error
            take_one = reading.take_one
            if take_one is not None and len(messages) == 1:
                message = messages[0]
                if len(message) <= LONE_BYTES and take_one(message):
                    return False
            fault: Failure | None = None
            try:
                events = self._decode_all(messages)
            except NO_EVENT:
                joiner = joiner or PairJoiner(self._decode)
                events, fault = decoded(joiner.decode, messages, self._backend)
            if events:
                if fault is None and turn.go_on is not None and turn.go_on(events):
                    return False
                if receive(events):
                    return True
            if fault is not None:
                raise fault
            return False

        for _ in self._keys.headers:  # another each time
            number = self._keys.take(monotonic_us())
            try:
                answer = await self._client.request(
                    self._head(number, turn), encoded, take, reading
                )
            except BrokenError as error:
                what = (
                    "the upstream's stream broke" if error.begun else "no answer from the upstream"
                )
                raise broken(
                    self._backend, f"{what}: {error}", unused=not error.begun, stale=error.stale
                ) from error
            if answer.status == OK:
                if parser.whole:  # some servers write an error, or the answer, as JSON
                    events, fault = decoded(self._decode_whole, [parser.whole], self._backend)
                    if fault is not None:
                        raise fault
                    receive(events)
                elif not parser.has_events:
                    message = "the upstream answered 200 without any event: is its address right?"
                    raise broken(self._backend, message)
                return
            answer.headers.setdefault("date", formatdate(usegmt=True))  # for a wait until then
            failure = http_failure(self._backend, answer.status, answer.body, answer.headers)
            rest_us = failure.error.retry_after_us
            if not self._keys.rest(number, answer.status, rest_us, monotonic_us()):
                break
        raise failure

    def _head(self, number: int, turn: Turn) -> bytes:
        if turn.traceparent is None:
            return self._heads[number]
        headers = {**_HEADERS, **self._keys.headers[number], "traceparent": turn.traceparent}
        return self._client.head("POST", self._path, headers)

    async def warm(self) -> None:
        """Does nothing: connections are opened when needed, or for a warm-up."""

    async def warm_up(self, turn: Turn, receive: Receive, reading: ReadHold) -> None:
        """Opens a connection for the request that follows; raises `Failure` if it cannot."""
        try:
            headers = self._keys.headers[self._keys.take(monotonic_us())]
            await self._client.get(self._ahead_path, self._ahead_timeout_s, headers)
        except BrokenError as error:
            message = f"no connection to the upstream: {error}"
            raise broken(self._backend, message, unused=True) from error


class Probe:
    """Probes an upstream for signs of life."""

    def __init__(self, options: UpstreamOptions, keys: ServerKeys) -> None:
        assert options.probe_path is not None
        self._keys = keys
        self._client = http_client(options)
        self._path = options.probe_path
        self._timeout_s = options.connect_timeout_s
        self.close = self._client.close

    async def trouble(self) -> str | None:
        """Returns what is wrong, or None if the upstream is alive.

        A server without that path is alive; one that refuses all of our keys is of no use.
        """
        for _ in self._keys.headers:
            number = self._keys.take(monotonic_us())
            try:
                headers = self._keys.headers[number]
                status = (await self._client.get(self._path, self._timeout_s, headers)).status
            except BrokenError as error:
                return self._keys.hidden(str(error))
            if not self._keys.rest(number, status, None, monotonic_us()):
                break
        if status in REFUSED:
            return f"it refuses this gateway's key ({status})"
        return f"it answers {status}" if status >= 500 else None


def http_client(options: UpstreamOptions) -> HttpClient:
    """Makes the client of an upstream."""
    return HttpClient(
        http_url(options, ""),
        connect_timeout_s=options.connect_timeout_s,
        max_idle_s=options.socket_max_idle_s,
        max_idle=options.max_num_seqs,
    )
