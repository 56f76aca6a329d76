"""Follows a lost response that another process keeps, in the client's process.

This is an edge.
"""

import asyncio
from collections.abc import Callable

import msgspec

from gateway.core.job import Ended, Job, Pause
from gateway.rejoin.lost_response import LostResponse
from gateway.rejoin.notes import Beat, Finished, Left, Listens, Note, Told
from gateway.wire.errors import ProtocolError
from gateway.wire.item_events import TERMINAL, suffix_of
from gateway.wire.response import Emit, ResponseWriter, unheard
from gateway.wire.response_json import ResponseError, failed_json

BEAT_S = 1.0
SILENT_S = 3.0  # without a note, after which the other process is taken to be gone
_GONE = ResponseError("server_error", "The gateway that ran it stopped. Send the request again.")


class _About(msgspec.Struct):
    response: msgspec.Raw = msgspec.Raw(b"")
    sequence_number: int = 0


_about = msgspec.json.Decoder(_About).decode


class RemoteResponse(LostResponse):
    """Tells the client what its process sends, and that process what the client does."""

    is_elsewhere = True

    def __init__(
        self,
        job: Job,
        response_id: str,
        address: tuple[str, str, int],
        send: Callable[[str, Note], None],
    ) -> None:
        """Takes as `address` the owner's channel, the own one, and the claim's number there."""
        parsed = msgspec.structs.replace(job.parsed, id=response_id)
        stand_in = Job(
            parsed,
            unheard(parsed),
            job.tenant,
            arrived_us=job.arrived_us,
            refuse=_nothing,
            stream_id=job.stream_id,
        )
        stand_in.pause = Pause(give_back=self._give_back)
        super().__init__(stand_in, unheard(parsed), 0, 0)
        self.owner, self._inbox, self.number = address
        self._send = send
        self._notes: asyncio.Queue[Note | None] = asyncio.Queue()
        self._emit: Emit = _nothing
        self._suffix = b"}"
        self._last = _About()  # the latest object that was sent, and its number
        self._parting: Left | None = Left(self._inbox, self.number, "gone")
        self.follower = object()

    def begin(self) -> None:
        """Begins to follow: its process has granted the claim."""
        self.pump = asyncio.create_task(self._run())
        self.job.wait(self._stop)

    def take(self, note: Note) -> None:
        """Takes a note of its process."""
        self._notes.put_nowait(note)

    def note_dead(self) -> None:
        """Notes that its process is gone."""
        self._notes.put_nowait(None)

    def join(
        self,
        emit: Emit,
        on_dirty: Callable[[ResponseWriter], None],
        stream_id: str | None = None,
    ) -> None:
        del on_dirty  # text is gathered where it is generated
        self._emit, self._suffix = emit, suffix_of(stream_id)
        self._send(self.owner, Listens(self._inbox, self.number, stream_id))

    def lose(self) -> None:
        """Gives the response back to its process: the connection was lost again."""
        self.follower = None
        if self.is_running:
            self._parting = Left(self._inbox, self.number, "lost")
            self.stop()
        else:  # its end came, and the client has not been told
            self._give_back()

    def _give_back(self) -> None:
        self._send(self.owner, Left(self._inbox, self.number, "lost"))

    def _stop(self) -> None:
        assert self.job.stopped is not None
        self._send(self.owner, Left(self._inbox, self.number, self.job.stopped))

    async def _run(self) -> Ended | None:
        beating = asyncio.create_task(self._beat())
        try:
            while True:
                async with asyncio.timeout(SILENT_S):
                    note = await self._notes.get()
                if note is None:
                    raise TimeoutError
                if isinstance(note, Told):
                    self._tell(note)
                elif isinstance(note, Finished):
                    self._parting = None
                    self.ended = note.ended
                    return self.ended
        except TimeoutError:
            self._fail()
            return None
        finally:
            beating.cancel()
            self.job.over()
            if self._parting is not None:
                self._send(self.owner, self._parting)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self._send(self.owner, Beat(self._inbox, self.number))

    def _tell(self, told: Told) -> None:
        about = _about(told.event)
        if about.response:
            self._last = about
        else:
            self._last.sequence_number = about.sequence_number
        if told.kind in TERMINAL:
            self.writer.body = bytes(about.response)
        self._emit(told.kind, told.event)

    def _fail(self) -> None:
        """Ends the response, whose process is gone, for the client: its retry begins anew."""
        if not self._last.response:
            self.job.refuse(ProtocolError(_GONE.code, _GONE.message))
            return
        body = failed_json(bytes(self._last.response), _GONE)
        self.writer.body = body
        event = b'{"type":"response.failed","sequence_number":%d,"response":%b%b'
        number = self._last.sequence_number + 1
        self._emit("response.failed", event % (number, body, self._suffix))


def _nothing(*_: object) -> None:
    """Does nothing: nobody listens yet."""
