"""Hands a lost response of this process to another one, where its client came back.

This is an edge.
"""

import asyncio
from collections.abc import Callable

from gateway.rejoin.lost_response import LostResponse
from gateway.rejoin.notes import Beat, Claim, Finished, Left, Note, Told
from gateway.rejoin.remote_response import BEAT_S, SILENT_S
from gateway.transport.outbox import Outbox
from gateway.wire.errors import ProtocolError
from gateway.wire.item_events import type_of


class Handover:
    """Sends a response's events to the process of its client."""

    def __init__(
        self,
        lost: LostResponse,
        claim: Claim,
        send: Callable[[str, Note], None],
        flusher: Outbox,
        keep_again: Callable[[LostResponse], bool],
        confirm_s: float,
    ) -> None:
        """Holds the response for who claimed it, until it says that it listens.

        Once it has ended, its client may still lose the end: it can be given back for `confirm_s`.
        """
        self.lost = lost
        self.stream_id: str | None = None  # of the client, once it listens
        self._claim = claim
        self._send = send
        self._flusher = flusher
        self._keep_again = keep_again
        self._confirm_s = confirm_s
        self._is_over = False
        self._heard_s = asyncio.get_running_loop().time()
        self._has_started = asyncio.Event()
        self.following = asyncio.create_task(self._follow())
        self._beating = asyncio.create_task(self._beat())

    def start(self, stream_id: str | None) -> None:
        """Sends what the client does not hold, and what follows."""

        def refuse(error: ProtocolError) -> None:
            self._emit("error", error.event(stream_id))

        self.stream_id = stream_id
        self.lost.job.refuse = refuse
        self.lost.join(self._emit, self._flusher.mark, stream_id)
        self._has_started.set()

    def take(self, note: Left | Beat) -> None:
        """Takes a note of the client's process."""
        self._heard_s = asyncio.get_running_loop().time()
        if isinstance(note, Beat):
            return
        if note.how == "lost":
            self.lose()
        elif note.how == "gone":
            self._is_over = True
            self.lost.stop()
            self.following.cancel()
        else:
            self.lost.job.stop(note.how)

    def lose(self) -> None:
        """Waits for the client again: it was lost, or its process was."""
        if self._is_over:
            return
        self._is_over = True
        if not self._keep_again(self.lost):
            self.lost.stop()
        self.following.cancel()

    def _emit(self, _kind: str, /, *events: bytes) -> None:
        for event in events:
            told = Told(self._claim.number, type_of(event), event)
            self._send(self._claim.inbox, told)

    async def _follow(self) -> None:
        try:
            await self._has_started.wait()
            ended = await self.lost.follow()
            self._send(self._claim.inbox, Finished(self._claim.number, ended))
            self._beating.cancel()
            await asyncio.sleep(self._confirm_s)
        finally:
            self._is_over = True
            self._beating.cancel()

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_over:  # it may be over before `_follow` has begun
            await asyncio.sleep(BEAT_S)
            self._send(self._claim.inbox, Beat("", self._claim.number))
            if loop.time() - self._heard_s > SILENT_S:
                self.lose()
