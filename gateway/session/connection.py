"""Drives a socket with one reader, one writer and an asyncio task per running response.

This is an edge.
"""

import asyncio
import itertools
import logging
from functools import partial

from gateway.access.auth import Keys
from gateway.config.sections import ServerConfig
from gateway.core.gateway import Gateway
from gateway.core.job import Ended, Job
from gateway.rejoin.lost_response import LostResponse, taken_over
from gateway.rejoin.recent_responses import Remembered
from gateway.rejoin.rejoins import Rejoins
from gateway.rejoin.unconfirmed import Unconfirmed
from gateway.session.actions import Action, Join, RejoinJob, StartJob, StopJob
from gateway.session.session import Session
from gateway.session.stream_state import Losable
from gateway.task.own_input import check_values, read_input
from gateway.task.pipeline import handle_task
from gateway.transport.asgi_socket import AsgiSocket
from gateway.transport.byte_budgets import text_sizes
from gateway.transport.ids import new_id
from gateway.transport.outbox import Outbox
from gateway.transport.socket_protocol import MAX_TAKEN
from gateway.wire.errors import ProtocolError, too_large
from gateway.wire.events import (
    BadFrameError,
    ClientEvent,
    ResponseCancel,
    ResponseCreate,
    decode_event,
)
from gateway.wire.items import InputReader
from gateway.wire.response import ResponseStream
from router.classify.task import Tenant

logger = logging.getLogger("lanewise")

# RFC 6455 7.4.1, and the IANA registry for 1012 and 1013.
NORMAL, UNSUPPORTED_DATA, POLICY, TOO_BIG, FAULT, RESTART = 1000, 1003, 1008, 1009, 1011, 1012
VANISHED = 1006
# Codes by which a client did not mean to go, sent or in place of its close frame. Clients send 1011
# where a ping had no answer, and proxies 1012 where they are restarted.
_LOST = (VANISHED, FAULT, RESTART)

_OURS = {  # close codes that we send, with their reasons
    UNSUPPORTED_DATA: "send JSON in text messages; binary ones are not part of the protocol",
    POLICY: "the API key no longer holds",
    TOO_BIG: "the message is larger than allowed",
    FAULT: "the gateway failed; connect again",
    RESTART: "connect again",
}

# How long responses may go on after a connection reached its age limit.
AGE_GRACE_S = 30.0
# A client whose key was revoked has so long to receive that error; nothing else runs by then.
REVOKED_GRACE_S = 5.0
# A close frame has so long to be read, once nothing can be written any more.
LAST_WORD_S = 1.0
MAX_BYTES_PER_CHAR = 4  # UTF-8
LONG_CHARS = 65_536  # of a frame: a longer one is read in pieces


class Connection:
    """Drives a `Session` on an accepted WebSocket until either side closes."""

    def __init__(
        self,
        gw: Gateway,
        config: ServerConfig,
        keys: Keys,
        tenant: Tenant,
        socket: AsgiSocket,
        *,
        is_codex: bool = False,
        rejoins: Rejoins | None = None,
    ) -> None:
        """Takes `rejoins` for what outlives the connection, if anything may."""
        self._gw = gw
        self._rejoins = rejoins
        self._config = config
        self._keys = keys
        self._tenant = tenant
        self._socket = socket
        self._outbox = Outbox(gw.flush_timer, gw.max_unread_bytes)
        self._session = Session(
            tenant,
            self._outbox.send,
            self._outbox.mark,
            new_id,
            gw.max_context_tokens,
            self._outbox.emit,
            in_flight=gw.budgets.in_flight,
            memory=gw.budgets.memory,
            is_codex=is_codex,
            note_ended=rejoins.note_ended if rejoins is not None else None,
            remembered=self._remembered_elsewhere,
        )
        # A longer frame, which may be too large, is left to the reader, who takes its time.
        self._short_chars = min(LONG_CHARS, config.max_message_bytes // MAX_BYTES_PER_CHAR)
        self._loop = asyncio.get_running_loop()
        self._pumps: dict[asyncio.Task[Ended | None], Job | None] = {}
        # The client has come back to these; each has what follows it.
        self._followed: dict[Job, tuple[LostResponse, asyncio.Task[Ended | None] | None]] = {}
        self._rejoining: dict[str, bool] = {}  # responses looked for -> whether to be cancelled
        self._close_code = NORMAL
        self._is_lost = False  # the connection ended, and the client did not end it
        self._is_holding = False  # the reader waits for room with a frame
        self._is_cut = False  # by us: the client read nothing
        self._fault: Exception | None = None  # of a frame taken directly
        self._age_error: ProtocolError | None = None  # set once the connection is too old
        self._key_error: ProtocolError | None = None  # set once its key no longer holds

    async def serve(self) -> int:
        """Runs until the connection is over, and returns the close code.

        At the end generation stops at once, and every reservation is settled.
        """
        reader = asyncio.ensure_future(self._read())
        sizes = self._gw.metrics.message_bytes_out
        writer = asyncio.ensure_future(
            self._outbox.run(self._write, self._socket.write_now, self._cut, sizes.observe_all)
        )
        expiry = self._loop.call_later(self._config.connection_max_age_s, self._expire, reader)
        release_key = self._gw.key_sessions.add(self._tenant, partial(self._lose_key, reader))
        self._socket.take_by(partial(self._take_now, reader))
        leave = None if self._rejoins is None else self._rejoins.watch(self._tenant, self.give)
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if not reader.done():  # only an error ends the writer first; the reader may know why
                self._close_code, self._is_lost = VANISHED, True
                await asyncio.wait((reader,), timeout=LAST_WORD_S)
            if reader.done() and (fault := self._fault or _fault_of(reader)) is not None:
                self._close_code = FAULT
                logger.error("a connection's reader failed", exc_info=fault)
        finally:
            self._socket.take_by(None)
            expiry.cancel()
            reader.cancel()
            if leave is not None:
                leave()
            if self._is_lost and not self._is_cut:
                self._let_go()
            await self._end_jobs()
            self._session.end()
            await self._end_writer(writer)
            release_key()
        return self._close_code

    async def _read(self) -> None:
        """Reads frames until the client closes, disconnects, or breaks the protocol."""
        for number in itertools.count(1):
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                self._close_code = message.get("code") or VANISHED
                self._is_lost = self._close_code in _LOST
                return
            self._is_holding = True
            await self._outbox.room()  # no new requests from a client that does not read
            text = message.get("text")
            if text is None:
                self._close_code = UNSUPPORTED_DATA
                return
            if not await self._receive_slowly(text):
                self._close_code = TOO_BIG
                return
            self._is_holding = False
            if number % MAX_TAKEN == 0:
                await asyncio.sleep(0)  # what is queued does not wait, so nobody would have a turn

    def _take_now(self, reader: "asyncio.Future[None]", text: str) -> bool:
        """Handles a frame without waking the reader; returns false if it has to wait."""
        if self._is_holding or not self._outbox.has_room or reader.done():
            return False
        if len(text) > self._short_chars:
            return False
        started_us, (num_bytes, held_bytes) = self._gw.clock_us(), text_sizes(text)
        try:
            event = self._decoded(text, num_bytes)
            if event is not None:
                self._handle(event, held_bytes, started_us, None)
        except Exception as error:
            self._fault = error
            self._stop_reading(reader)
        return True

    def _stop_reading(self, reader: "asyncio.Future[None]") -> None:
        self._socket.take_by(None)
        reader.cancel()

    async def _receive_slowly(self, text: str) -> bool:
        """Handles one frame, a long one in pieces; returns false if it is too large."""
        started_us, (num_bytes, held_bytes) = self._gw.clock_us(), text_sizes(text)
        if num_bytes > self._config.max_message_bytes:
            error = too_large(self._config.max_message_bytes, num_bytes)
            self._outbox.send(error.event(None))
            return False
        try:
            await check_values(text)
        except ProtocolError as error:
            self._outbox.send(error.event(None))
            return True
        event = self._decoded(text, num_bytes)
        if event is not None:
            own_input = None
            if isinstance(event, ResponseCreate):
                max_tokens = self._gw.max_context_tokens
                own_input = await read_input(event, max_tokens, num_bytes=num_bytes)
            self._handle(event, held_bytes, started_us, own_input)
        return True

    def _decoded(self, text: str, num_bytes: int) -> ClientEvent | None:
        """Decodes a frame; one that is not valid is answered, and None."""
        self._gw.metrics.message_bytes_in.observe(num_bytes)
        try:
            return decode_event(text)
        except BadFrameError as bad:
            self._session.reject(bad)
            return None

    def _handle(
        self,
        event: ClientEvent,
        num_bytes: int,
        started_us: int,
        own_input: InputReader | None,
    ) -> None:
        rejoining = self._rejoining
        if rejoining and isinstance(event, ResponseCancel) and event.response_id in rejoining:
            self._rejoining[event.response_id] = True  # it is found first
            return
        self._session.tenant = self._keys.latest(self._tenant)
        actions = self._session.receive(event, num_bytes, started_us, own_input)
        self._gw.metrics.stage("parse", self._gw.clock_us() - started_us)
        if actions:
            self._act(actions)

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, StartJob):
                pump = self._loop.create_task(self._run(action.job))
                self._pumps[pump] = action.job
                pump.add_done_callback(self._pump_ended)
            elif isinstance(action, RejoinJob):
                self._rejoining.setdefault(action.response_id, False)
                pump = asyncio.create_task(self._rejoin(action))
                self._pumps[pump] = None
                pump.add_done_callback(self._pump_ended)
            elif isinstance(action, StopJob):
                action.job.stop(action.reason)
            elif action.job.redirect is not None:
                action.job.redirect(action.number, action.items)

    def _pump_of(self, job: Job) -> "asyncio.Task[Ended | None] | None":
        """Returns what runs a job, or follows one that its client came back to."""
        if job in self._followed:
            return self._followed[job][1]
        return next((pump for pump, own in self._pumps.items() if own is job), None)

    def _pump_ended(self, pump: "asyncio.Task[Ended | None]") -> None:
        self._pumps.pop(pump, None)

    async def _run(self, job: Job) -> Ended | None:
        """Runs one response, and then starts the next on its stream; returns its end."""
        if not self._outbox.has_room:
            await self._outbox.room()  # none for a client that does not read those before
        rejoins, lost = self._rejoins, None
        names_turn = job.parsed.hints.agent.turn_id is not None  # so does whatever it comes back to
        turns = rejoins.turns if rejoins is not None and names_turn else None
        if rejoins is not None:
            if not rejoins.is_empty or (turns is not None and turns.get(job) is not None):
                lost = await rejoins.find(job)
            if turns is not None:
                turns.hold(job if lost is None else lost.job, self)
        try:
            if lost is not None:
                job, ended = lost.job, await self._follow(job, lost)
            else:
                ended = await handle_task(self._gw, job)
                if job.pause is not None:
                    return ended  # its connection was lost meanwhile
        finally:
            if turns is not None:
                turns.release(job)
        self._session.tenant = self._keys.latest(self._tenant)
        actions = self._session.ended(job, ended)
        if actions:
            self._act(actions)
        return ended

    async def _follow(self, job: Job, lost: LostResponse) -> Ended | None:
        """Goes on with a response that the client came back to, until it ends."""
        num_bytes, lost.num_bytes = lost.num_bytes if lost.is_running else 0, 0
        to = self._session.join(job, lost.job, lost.writer, num_bytes)
        return await self._join(lost, to)

    async def _join(self, lost: LostResponse, to: Join) -> Ended | None:
        lost.join(to.emit, to.on_dirty, to.stream_id)
        self._followed[lost.job] = lost, asyncio.current_task()
        try:
            return await lost.follow()
        finally:
            self._followed.pop(lost.job, None)

    async def _rejoin(self, action: RejoinJob) -> Ended | None:
        """Goes on with a response of a lost connection, by its name."""
        lost = None
        try:
            if action.after is not None and (ending := self._pump_of(action.after)) is not None:
                await asyncio.wait((ending,))
            if self._rejoins is not None:
                lost = await self._rejoins.find_named(
                    self._tenant, action.response_id, action.starting_after
                )
        finally:
            is_cancelled = self._rejoining.pop(action.response_id, False)
        if lost is None:
            message = f"No response '{action.response_id[:80]}' waits for its client: ask again."
            error = ProtocolError("response_not_found", message, param="response_id")
            self._outbox.send(error.event(action.stream_id))
            if is_cancelled:
                self._act(self._session.receive(ResponseCancel(action.response_id), 0, 0))
            return None
        try:
            to = self._session.adopt(lost.job, lost.writer, action.stream_id)
        except ProtocolError as error:
            lost.stop()
            self._outbox.send(error.event(action.stream_id))
            return None
        if is_cancelled:
            lost.job.stop("cancelled")
        ended = await self._join(lost, to)
        self._act(self._session.ended(lost.job, ended))
        return ended

    def _let_go(self) -> None:
        """Lets responses go on without the connection, for a client that may come back."""
        rejoins = self._rejoins
        if rejoins is None:
            return
        for each in self._session.losable():
            self._lose(rejoins, each)
        for last in self._session.unconfirmed():
            self._lose_ended(rejoins, last)
        rejoins.keep_memory(self._tenant, self._session.give_memory())

    def _lose_ended(self, rejoins: Rejoins, last: Unconfirmed) -> None:
        """Keeps a response whose end the client may not have received."""
        if last.job is not None and last.writer is not None:
            rejoins.keep(last.job, last.writer, last.num_bytes, None, last.ended)
            last.clear()

    def _lose(self, rejoins: Rejoins, each: Losable) -> bool:
        """Lets one response go on without the connection; false if it is to stop with it."""
        if each.job in self._followed:
            lost, following = self._followed[each.job]
            is_kept = rejoins.keep_again(lost, each.num_bytes)
            if is_kept and following is not None:
                following.cancel()  # its end is not the connection's any more
        else:
            pump = next(pump for pump, job in self._pumps.items() if job is each.job)
            is_kept = rejoins.keep(each.job, each.writer, each.num_bytes, pump)
            if is_kept:
                del self._pumps[pump]
        if is_kept:
            self._session.let_go(each.job)
        return is_kept

    def writer_of(self, job: Job) -> ResponseStream | None:
        """Returns the writer of a response that runs here and may go on elsewhere."""
        return next((each.writer for each in self._session.losable() if each.job is job), None)

    async def is_silent(self) -> bool:
        """Says whether the client answers no ping."""
        return not await self._socket.answers()

    def give(self, response_id: str) -> None:
        """Lets go of a response that its client asks for on another connection: this one is dead.

        Nobody may have noticed yet: the network is gone, and the next ping is still to be missed.
        If it is not dead after all, its client is told, and what waits on the stream goes on.
        """
        if (rejoins := self._rejoins) is None:
            return
        for each in self._session.losable():
            stream_id = each.job.stream_id
            if each.job.parsed.id == response_id and self._lose(rejoins, each):
                self._outbox.send(taken_over(response_id).event(stream_id))
                self._act(self._session.go_on(stream_id))
        for last in self._session.unconfirmed():
            if last.job is not None and last.job.parsed.id == response_id:
                self._lose_ended(rejoins, last)

    def _remembered_elsewhere(self, response_id: str) -> Remembered | None:
        """Returns a response that a lost connection of the same key remembered."""
        if self._rejoins is None:
            return None
        return self._rejoins.remembered((self._tenant.id, self._tenant.key_id), response_id)

    async def _write(self, frames: list[bytes]) -> None:
        # Only during a write, so that the check for stalls skips idle connections.
        self._gw.outboxes[self._outbox] = self._cut
        try:
            await self._socket.write(frames)
        finally:
            del self._gw.outboxes[self._outbox]

    def _expire(self, reader: "asyncio.Future[None]") -> None:
        """Stops reading, since the connection is too old."""
        minutes = self._config.connection_max_age_s / 60
        error = ProtocolError(
            "websocket_connection_limit_reached",
            f"This connection has reached its limit of {minutes:g} minutes. Open another one.",
        )
        self._age_error = error
        self._close_code = RESTART
        self._session.close(error)
        self._stop_reading(reader)

    def _lose_key(self, reader: "asyncio.Future[None]", error: ProtocolError) -> None:
        """Cancels all responses and closes, since the key has ended."""
        self._key_error = error
        self._close_code = POLICY
        self._session.close(error)
        for pump in self._pumps:
            pump.cancel()
        self._stop_reading(reader)

    async def _end_jobs(self) -> None:
        """Cancels all responses; after the age limit, gives them time to end first."""
        if self._pumps and self._age_error is not None and self._key_error is None:
            await asyncio.wait(self._pumps, timeout=AGE_GRACE_S)
        while pumps := list(self._pumps):  # one that ends just now may have begun the next
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        self._outbox.flush()  # no text may follow the error event
        for error in (self._age_error, self._key_error):
            if error is not None:
                self._outbox.send(error.event(None))

    async def _end_writer(self, writer: "asyncio.Future[None]") -> None:
        """Writes what is queued, unless the client is gone, then closes."""
        self._outbox.close()
        if self._close_code in _OURS:
            revoked = self._key_error is not None
            timeout_s = REVOKED_GRACE_S if revoked else self._config.send_timeout_s
            await asyncio.wait((writer,), timeout=timeout_s)
            if not writer.done():
                self._socket.abort()
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        if self._close_code in _OURS:
            try:
                await self._socket.close(self._close_code, _OURS[self._close_code])
            except (OSError, RuntimeError):
                return  # already gone

    def _cut(self) -> None:
        """Aborts a stalled connection; its pings wait in the same full buffer."""
        self._gw.metrics.counts["lanewise_ws_send_stalls_total"][()].inc()
        self._close_code = POLICY
        self._is_cut = True
        self._socket.abort()  # the reader then sees a disconnect


def _fault_of(reader: "asyncio.Future[None]") -> BaseException | None:
    return None if reader.cancelled() else reader.exception()
