"""Makes uvicorn's WebSocket protocol lean, and opens its transport to the gateway.

ASGI sends one message per system call: half of the gateway's CPU when a thousand streams flush
fifty times a second. Here all that a connection sends at once goes out in one `write`;
`docs/performance.md` has the figures, of memory too. This is an edge.
"""

import asyncio
import random
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast
from urllib.parse import unquote

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import PayloadTooBig
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request
from websockets.protocol import State

from gateway.transport.connection_limits import Visit, uncounted
from gateway.transport.keepalive import AcceptQueue, KeepAlive, Pinged
from gateway.transport.light_event import LightEvent, LightQueue
from gateway.transport.socket_frames import BINARY, TEXT, framed, whole_text
from gateway.transport.socket_handshake import answer
from gateway.wire.errors import ProtocolError, too_large, too_many_bytes

ABNORMAL = 1006
LINGER_S = 5.0  # to drain the client's data after its message was refused
ANSWER_S = 1.0  # for a pong, after which the client is taken to be gone
SILENCE_S = 1.0  # without data, after which the client is taken to be done

# Keys of `scope["state"]`.
ABORT, WRITE, WRITE_NOW, TAKE_BY, VISIT = "abort", "write", "write_now", "take_by", "visit"
ANSWERS, WATCH = "answers", "watch"

# One message may come in so many fragments: conformance suites send 4 MiB in 64 bytes each. A
# fragment takes 40 bytes besides its own, so some are joined as they come.
MAX_FRAGMENTS = 1 << 17
MAX_LOOSE_PARTS = 1_024

# Messages taken directly per turn of the loop; more of them wait in the queue, so that a client
# that sends a thousand at once does not block the others.
MAX_TAKEN = 16

# Read at once: small messages of so many bytes may be 700, and take 7 ms. Of a large message such
# a piece takes some microseconds, and the queue lets many of them through in a turn.
PIECE_BYTES = 4_096

Taker = Callable[[str], bool]


def _is_utf8(pieces: Iterable[bytes]) -> bool:
    try:
        b"".join(pieces).decode()
    except UnicodeDecodeError:
        return False
    return True


def _strip(fault: Exception | None) -> None:
    """Takes from a fault that is kept what holds the frames that held it, which is a cycle."""
    if fault is not None:
        fault.__traceback__ = fault.__context__ = fault.__cause__ = None


class SocketProtocol(WebSocketsSansIOProtocol):
    """Adds direct writes to the connection's state, and holds little memory while idle."""

    queue: LightQueue[ASGIReceiveEvent]  # type: ignore[assignment]
    _pong: asyncio.Future[None] | None = None  # that `answers` waits for
    _is_silent = False  # no data since the last check, after a message that was too large
    _until_s = 0.0  # until when that data is drained
    _unread: bytearray | None = None  # what came and is still to be read
    _num_parts = 0  # after the first, of the message that is being read
    _num_joined = 0  # pieces that were made of them

    def __init__(
        self,
        keep_alive: KeepAlive,
        line: AcceptQueue,
        max_message_bytes: int,
        *,
        visit: Visit | None = None,
        **options: Any,
    ) -> None:
        """Names `max_message_bytes` in errors; uvicorn enforces it."""
        super().__init__(**options)
        self._max_message_bytes = max_message_bytes
        self.queue = LightQueue()
        self.writable: LightEvent = LightEvent(is_set=True)  # type: ignore[assignment]
        self._line = line
        self._visit = visit or uncounted()
        self._keep_alive = keep_alive
        self._slot: set[Pinged] | None = None
        self._taker: Taker | None = None
        self._taken_s = 0.0  # the loop's time of the latest turn in which messages were taken
        self._num_taken = 0  # in that turn
        self._is_gone = self._is_over = False  # the transport is closed; the ASGI task has ended
        self._key: bytes | None = None  # of a plain upgrade that is not accepted yet

    def begin(self, http: HttpToolsProtocol, key: bytes) -> None:
        """Serves a plain upgrade, as `connection_made` and `handle_connect` would."""
        self.transport, self.server, self.client = http.transport, http.server, http.client
        self.scheme = "wss" if http.scheme == "https" else "ws"
        self.connections.add(self)
        self.conn.state = State.OPEN
        self.conn.parser = self.conn.parse()  # begins with frames: the head was read elsewhere
        next(self.conn.parser)
        self.conn.state = State.CONNECTING  # until it is accepted
        self.handshake_initiated = True
        self._key = key
        path, _, query = http.url.partition(b"?")
        self.scope = {
            "type": "websocket",
            "asgi": {"version": self.asgi_version, "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": self.scheme,
            "server": self.server,
            "client": self.client,
            "root_path": self.root_path,
            "path": self.root_path + unquote(path.decode("ascii")),
            "raw_path": self.root_path.encode("ascii") + path,
            "query_string": query,
            "headers": http.headers,
            "subprotocols": [],
            "state": self.app_state.copy(),
            "extensions": {"websocket.http.response": {}},
        }
        self._show_ways()
        self.queue.put_nowait({"type": "websocket.connect"})
        serving = self.loop.create_task(self.run_asgi())
        serving.add_done_callback(self.on_task_complete)
        self.tasks.add(serving)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.handshake_complete:  # it was refused, and nobody serves it
            self.scope: Any = {}
            self._is_over = True
            _strip(self.conn.handshake_exc)
        elif self.handshake_initiated:
            self._show_ways()

    def _show_ways(self) -> None:
        self.scope["state"][ABORT] = self.transport.abort  # even if a stalled reader fills it
        self.scope["state"][WRITE] = self.write_messages
        self.scope["state"][WRITE_NOW] = self.write_now
        self.scope["state"][TAKE_BY] = self.take_by
        self.scope["state"][ANSWERS] = self.answers
        self.scope["state"][VISIT] = self._visit

    def data_received(self, data: bytes) -> None:
        """Reads what came: little at once, else in pieces, in turn with other connections."""
        if self._unread is None and len(data) <= PIECE_BYTES:
            if self._taker is None or not self._take(self._taker, data):
                self._read(data)
            return
        if self._unread is None:
            self._unread = bytearray()
            self._line.join(self._read_on)
        self._unread += data
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def _read_on(self) -> None:
        """Reads one more piece of what came."""
        if self._unread is None or self.transport.is_closing():
            self._unread = None
            return
        piece = bytes(self._unread[:PIECE_BYTES])
        del self._unread[:PIECE_BYTES]
        if self._unread:
            self._line.join(self._read_on)
        else:
            self._unread = None
        self._read(piece)
        self._resume()

    def _resume(self) -> None:
        """Reads from the transport again, unless there still is what came before."""
        if self.read_paused and self._unread is None and self.queue.empty():
            self.read_paused = False
            self.transport.resume_reading()

    async def receive(self) -> ASGIReceiveEvent:
        """Returns the next ASGI event."""
        message = await self.queue.get()
        self._resume()
        return message

    def _read(self, data: bytes) -> None:
        """Reads more of a message, whose deadline begins with its first byte."""
        super().data_received(data)
        if self.close_sent:
            self._is_silent = False
        elif self.frames or len(self.conn.reader.buffer):
            self._visit.read(len(data), in_head=False, is_held=self._is_held)
            if not self._visit.holds():
                self.conn.fail(CloseCode.TRY_AGAIN_LATER, "too much is in flight")
                self._end_with(
                    too_many_bytes(self._visit.max_held_bytes), CloseCode.TRY_AGAIN_LATER
                )
        elif self._visit.reading is not None:
            self._visit.read_whole()

    def _take(self, taker: Taker, data: bytes) -> bool:
        """Hands on a whole message that is all that came; returns false if it is not."""
        conn = self.conn
        if conn.state is not State.OPEN or self.frames or len(conn.reader.buffer):
            return False
        message = whole_text(data)
        if message is None or not self._may_take():
            return False
        try:
            text = message.decode()
        except UnicodeDecodeError:
            return False
        return taker(text)

    def _is_held(self) -> bool:
        return self.read_paused

    def handle_cont(self, event: Frame) -> None:
        """Takes a further part of a message, of which there may be so many."""
        if len(self.frames) <= 1:
            self._num_parts = self._num_joined = 0
        self._num_parts += 1
        if self._num_parts < MAX_FRAGMENTS:
            super().handle_cont(event)
            first = 1 + self._num_joined  # the message's first part stays as it is
            if len(self.frames) - first >= MAX_LOOSE_PARTS:
                self.frames[first:] = [b"".join(self.frames[first:])]
                self._num_joined += 1
            return
        self.frames = []
        self.conn.fail(CloseCode.POLICY_VIOLATION, f"a message has over {MAX_FRAGMENTS} parts")
        super().handle_parser_exception()

    def handle_ping(self) -> None:
        """Answers a ping, unless the client does not read what it was sent."""
        answer = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._visit.leave()
        self.writable.set()  # a waiting writer finds out now
        self.stop_keepalive()
        self.disconnected = True
        self._line.join(partial(self._gone, exc))

    def on_task_complete(self, task: "asyncio.Task[None]") -> None:
        super().on_task_complete(task)
        self._is_over = True
        self._part()

    def _gone(self, exc: Exception | None) -> None:
        if self.conn.close_rcvd is None and self.handshake_complete:
            # RFC 6455 7.1.5: without a close frame; uvicorn says 1005, as of one without a code.
            self.queue.put_nowait({"type": "websocket.disconnect", "code": ABNORMAL})
        super().connection_lost(exc)
        self._is_gone = True
        self._part()

    def _part(self) -> None:
        """Breaks reference cycles when all is over, since the collector may skip them."""
        if self._is_gone and (self._is_over or not self.handshake_initiated):
            self.conn.parser.close()
            _strip(self.conn.parser_exc)
            if self.handshake_initiated:
                cast("dict[str, Any]", self.scope).clear()

    def handle_parser_exception(self) -> None:
        """Closes the connection; if a message is too large, sends an error first.

        Closing a connection with unread bytes resets it, and the client may lose the error. So the
        client's further data is read and dropped until it is silent.
        """
        fault = self.conn.parser_exc
        if not (isinstance(fault, PayloadTooBig) and self.handshake_complete):
            super().handle_parser_exception()
            return
        if self.close_sent:
            self._is_silent = False
            return
        before = vars(fault).get("current_size") or vars(fault).get("cur_size")  # 16's name, 15's
        error = too_large(self._max_message_bytes, (before or 0) + (fault.size or 0))
        self._end_with(error, CloseCode.MESSAGE_TOO_BIG)

    def _end_with(self, error: ProtocolError, code: CloseCode) -> None:
        """Sends an error and what the protocol has to send, and drains what still comes."""
        self._visit.read_whole()
        self.frames = []
        self.transport.write(framed(TEXT, [error.event(None)]))
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code})
        self._until_s = self.loop.time() + LINGER_S
        self._linger()

    def _linger(self) -> None:
        """Closes once no data came since the last check; the timer keeps ASGI from closing."""
        if self.loop.time() >= self._until_s:
            self.transport.abort()  # the client still sends
        elif self._is_silent:
            self.transport.close()
        self._is_silent = True
        self.close_timer = self.loop.call_later(SILENCE_S, self._linger)

    async def send(self, message: ASGISendEvent) -> None:
        """Sends an ASGI message; once accepted, drops 5 KiB of handshake headers."""
        if message["type"] != "websocket.accept":
            await super().send(message)
        elif self._key is not None:
            self._open(self._key, message.get("headers", ()))
            self._key = None
            self.scope["headers"] = ()
        else:
            await super().send(message)
            self.request.headers.clear()  # in place: the parser's frame holds it
            self.response.headers.clear()
            self.scope["headers"] = ()

    def _open(self, key: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self.disconnected:
            raise ClientDisconnected
        if not self.transport.is_closing():
            self.handshake_complete = True
            self.conn.state = State.OPEN
            self.transport.write(answer(key, [*self.default_headers, *headers]))
            self.start_keepalive()

    def take_by(self, taker: Taker | None) -> None:
        """Hands text messages to `taker` as they arrive; those that it refuses are queued."""
        self._taker = taker

    def send_receive_event_to_app(self) -> None:
        """Hands on a whole message."""
        if self.conn.state is not State.OPEN and not _is_utf8(self.frames):
            self.frames = []  # it came with a close, so it cannot be refused by another
            return
        is_plain = self.curr_msg_data_type == "text" and len(self.frames) == 1
        if is_plain and self._taker is not None and self._may_take():
            try:
                text = self.frames[0].decode()
            except UnicodeDecodeError:
                text = None
            if text is not None and self._taker(text):
                self.frames = []
                return
        super().send_receive_event_to_app()

    def _may_take(self) -> bool:
        """Says whether no message is queued, and not too many came in this turn."""
        if self.close_sent or self.queue.messages is not None:
            return False
        now_s = self.loop.time()
        if now_s != self._taken_s:
            self._taken_s, self._num_taken = now_s, 0
        self._num_taken += 1
        return self._num_taken <= MAX_TAKEN

    async def write_messages(self, messages: Sequence[bytes], *, binary: bool = False) -> None:
        """Sends whole messages in one write, once the transport has room.

        Raises `ConnectionResetError` if the peer is gone or the connection is closing.
        """
        written = False
        while not written:
            await self.writable.wait()
            written = self.write_now(messages, binary=binary)

    def write_now(self, messages: Sequence[bytes], *, binary: bool = False) -> bool:
        """Sends messages as `write_messages` if the transport has room; otherwise returns false."""
        if not self.writable.flag:
            return False
        if self.close_sent or self.transport.is_closing():
            raise ConnectionResetError("the peer is gone, or the connection is closing")
        self.transport.write(framed(BINARY if binary else TEXT, messages))
        return True

    def start_keepalive(self) -> None:
        """Starts the pings, once accepted."""
        self._slot = self._keep_alive.add(self)

    def stop_keepalive(self) -> None:
        """Stops the pings, if they have begun."""
        if self._slot is not None:
            self._slot.discard(self)
            self._slot = None

    def keep_alive(self) -> None:
        """Sends a ping, or times out if the last ping has no pong."""
        if self.close_sent or self.transport.is_closing():
            return
        if self.pending_ping_payload is not None:
            # Otherwise the pong may lie unread, or has `ANSWER_S` to come.
            if not self.read_paused and self._pong is None:
                self.keepalive_timeout()
            return
        self._ping()

    async def answers(self) -> bool:
        """Pings at once, and says whether the pong comes in time, or may lie unread."""
        if self.close_sent or self.transport.is_closing():
            return False
        if self.read_paused:
            return True
        if self._pong is None:
            self._pong = asyncio.get_running_loop().create_future()
            self._ping()
        pong = self._pong
        try:
            done, _ = await asyncio.wait((pong,), timeout=ANSWER_S)
        finally:
            if self._pong is pong:
                self._pong = None
        return bool(done)

    def _ping(self) -> None:
        self.pending_ping_payload = struct.pack("!I", random.getrandbits(32))
        self.conn.send_ping(self.pending_ping_payload)
        self.transport.write(b"".join(self.conn.data_to_send()))

    def handle_pong(self, event: Frame) -> None:
        """Takes the pong of the pending ping; ignores others."""
        if event.data == self.pending_ping_payload:
            self.pending_ping_payload = None
            pong, self._pong = self._pong, None
            if pong is not None:
                pong.set_result(None)
