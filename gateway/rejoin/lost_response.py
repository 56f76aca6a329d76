"""Keeps one response whose client lost its connection, and knows who follows it now.

This is an edge.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from backends.prompt import measure
from gateway.core.job import Ended, Job
from gateway.rejoin.matching import Returning, turn_of
from gateway.task.ending import open_calls
from gateway.transport.byte_budgets import Memory
from gateway.wire.errors import ProtocolError
from gateway.wire.response import Emit, ResponseStream, ResponseWriter


@dataclass(eq=False)
class LostResponse:
    """Goes on without its client, or has ended without it."""

    is_elsewhere: ClassVar[bool] = False  # another process keeps it

    job: Job
    writer: ResponseStream
    num_bytes: int  # of its request
    lost_us: int  # when its connection was lost, the last time
    pump: "asyncio.Task[Ended | None] | None" = None  # runs it; None: it had ended before
    ended: Ended | None = None
    follower: object | None = None  # the client that came back, until it is lost, too
    until_us: int = 0  # when nobody can come back any more
    timer: asyncio.TimerHandle | None = None
    memory: Memory | None = None  # once it has ended
    release_key: Callable[[], None] | None = None
    settings: bytes | None = None  # once they were compared
    anchor: int = 0  # once it is kept: `matching.anchor_of`

    @property
    def key(self) -> tuple[str, str]:
        """Returns the tenant and the key that it belongs to."""
        return self.job.tenant.id, self.job.tenant.key_id

    @property
    def turn(self) -> tuple[str | None, str | None]:
        """Returns the thread and turn that its request named."""
        return turn_of(self.job.parsed)

    @property
    def is_running(self) -> bool:
        """Says whether it still runs."""
        return self.pump is not None and not self.pump.done()

    def lose(self) -> None:
        """Gives the response back to the process that keeps it."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stops its generation, and settles what it used; harmless once it has ended."""
        if self.pump is not None:
            self.pump.cancel()

    def continue_from(self, asked: Returning, num_output: int) -> None:
        """Takes the create that came back as the context: it holds outputs, too."""
        pause = self.job.pause
        assert pause is not None
        pause.context, pause.num_held = asked.items, num_output
        if self.ended is not None:
            rest = self.job.writer.output[num_output:]
            self.ended = Ended(
                ending=self.ended.ending,
                items=asked.items + tuple(measure(item) for item in rest),
                backend=self.ended.backend,
                open_calls=open_calls(rest),
            )

    def join(
        self,
        emit: Emit,
        on_dirty: Callable[[ResponseWriter], None],
        stream_id: str | None = None,
    ) -> None:
        """Sends a client that came back what it does not hold, and what follows."""
        pause = self.job.pause
        assert pause is not None
        assert pause.rejoined is not None
        self.writer.join(emit, on_dirty, stream_id, pause.rejoined.held_items, pause.rejoined)

    async def follow(self) -> Ended | None:
        """Waits for its end; who stops following stops it, unless it is lost again."""
        mine = self.follower
        if self.pump is None:
            return self.ended
        try:
            await asyncio.wait((self.pump,))
        except asyncio.CancelledError:
            if self.follower is mine:
                self.pump.cancel()
                await asyncio.gather(self.pump, return_exceptions=True)
            raise
        return self.ended


def taken_over(response_id: str) -> ProtocolError:
    """Makes the error for a stream whose response its client has asked for elsewhere."""
    message = (
        f"The response '{response_id}' goes on where its client asked for it again, on another "
        "connection or stream. Nothing more of it comes here."
    )
    return ProtocolError("conflict", message, param="response_id")
