"""Holds the streams of a connection: what runs and waits on each, and what is remembered of it."""

from collections import deque

import msgspec

from backends.contract import ContextItem
from backends.prompt import is_tool_output
from gateway.core.job import Ended, Job
from gateway.rejoin.recent_responses import Remembered
from gateway.rejoin.unconfirmed import Unconfirmed
from gateway.wire.errors import ProtocolError
from gateway.wire.items import BYTES_PER_TOKEN, ParsedInput, item_bytes
from gateway.wire.requests import ParsedCreate
from gateway.wire.response import ResponseStream
from gateway.wire.steering import Steer


class Waiting(msgspec.Struct, frozen=True):
    """Is a request that waits for its turn on its stream."""

    parsed: ParsedCreate
    num_bytes: int
    arrived_us: int


class Active(msgspec.Struct):
    """Holds a running response, and the steers that wait for its end."""

    job: Job
    writer: ResponseStream
    steers: list[Steer] = []  # accepted, waiting for its end
    follows: "Active | None" = None  # the steered response that it goes on from
    parent: Remembered | None = None
    carried: list[Steer] = []  # the parent's, in its own input
    num_bytes: int = 0  # of the frame that it came in
    num_redirects: int = 0  # steers of its sub-tasks


class Losable(msgspec.Struct, frozen=True):
    """Is a running response that may go on without the connection."""

    job: Job
    writer: ResponseStream
    num_bytes: int  # of its request, counted as in flight


class Stream(msgspec.Struct, eq=False):
    """Holds what runs and waits on one `stream_id`: strictly first in, first out."""

    id: str | None
    waiting: deque[Waiting]
    active: Active | None = None
    last: Unconfirmed | None = None  # the response that ended last

    @property
    def ending(self) -> Job | None:
        """Returns what runs here though its client has its last event: it is being settled."""
        is_last = self.active is not None and self.active.writer.ended and not self.waiting
        return self.active.job if self.active is not None and is_last else None


def check_idle(stream: Stream) -> None:
    """Raises `ProtocolError` where something runs or waits, for a response that runs elsewhere."""
    if stream.active is not None or stream.waiting:
        message = "Expected 'stream_id' to name a stream on which nothing runs or waits."
        raise ProtocolError("invalid_value", message, param="stream_id")


def remembered_of(active: Active, ended: Ended) -> Remembered:
    """Returns what is remembered of a response that ended, to be continued."""
    num_bytes = active.num_bytes + ended.ending.usage.num_output_tokens * BYTES_PER_TOKEN
    parent_id = active.job.parsed.body.previous_response_id
    if parent_id is not None and active.parent is None:  # its context was read from the store
        num_bytes += sum(map(item_bytes, ended.items))
    return Remembered(
        active.job.stream_id,
        ended.items,
        ended.backend,
        ended.lineage,
        num_bytes,
        parent_id,
        num_events=active.writer.num_events,
    )


def with_steers(given: ParsedInput, steers: list[Steer]) -> ParsedInput:
    """Returns a request's input with the steers that waited for it.

    They come right behind the last output, since engines refuse a message between calls and their
    outputs, and so in front of what the client says besides. Without outputs they come first.
    """
    steered = tuple(item for steer in steers for item in steer.items)
    items, start = given.items, 0
    for number, entry in enumerate(items, start=1):
        if isinstance(entry, ContextItem) and is_tool_output(entry):
            start = number
    return msgspec.structs.replace(given, items=(*items[:start], *steered, *items[start:]))
