"""Holds the streams of a connection: what runs and waits on each, and what is remembered of it."""

from collections import deque

import msgspec

from backends.contract import (
    Compaction,
    ContextItem,
    CustomToolCallOutput,
    FunctionCallOutput,
    Message,
    Part,
    Reasoning,
)
from backends.prompt import is_tool_output
from gateway.core.job import Ended, Job
from gateway.rejoin.recent_responses import Remembered
from gateway.rejoin.unconfirmed import Unconfirmed
from gateway.wire.errors import ProtocolError
from gateway.wire.items import BYTES_PER_TOKEN, ParsedInput
from gateway.wire.requests import ParsedCreate
from gateway.wire.response import ResponseStream
from gateway.wire.steering import Steer

MAX_NAMED_STREAMS = 32
MAX_WAITING = 256  # ours: the protocol names no bound on waiting creates
MAX_WAITING_BYTES = 32 << 20  # ours
MAX_PENDING_STEERS = 16  # ours
ITEM_BYTES = 512  # of the objects around an item's texts
MAX_REDIRECTS = 16  # ours: steers of a response's sub-tasks, each a generation more


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

    @property
    def unended(self) -> Job | None:
        """Returns what runs here, unless its client has its last event."""
        if self.active is None or self.active.writer.ended:
            return None
        return self.active.job


def check_idle(stream: Stream) -> None:
    """Raises `ProtocolError` where something runs or waits, for a response that runs elsewhere."""
    if stream.active is not None or stream.waiting:
        message = "Expected 'stream_id' to name a stream on which nothing runs or waits."
        raise ProtocolError("invalid_value", message, param="stream_id")


def too_many_streams() -> ProtocolError:
    """Makes the error for one more stream than a connection may name."""
    return ProtocolError(
        "websocket_stream_limit_reached",
        f"This connection has used its {MAX_NAMED_STREAMS} named streams. Send on one of them, on "
        "the default stream, or open another connection.",
        param="stream_id",
    )


def too_much_waiting() -> ProtocolError:
    """Makes the error for one more request than may wait, or for its bytes."""
    return ProtocolError(
        "rate_limit_exceeded",
        f"Too much is waiting on this connection: at most {MAX_WAITING} requests and "
        f"{MAX_WAITING_BYTES >> 20} MiB. Wait for a response to end, then send it again.",
        retry_after_us=1_000_000,
    )


def check_steers(active: Active) -> None:
    """Raises `ProtocolError` where no more steers may wait for a response."""
    if len(active.steers) >= MAX_PENDING_STEERS:
        message = f"At most {MAX_PENDING_STEERS} steers may wait for one response."
        raise ProtocolError("too_many_pending_steers", message)


def redirectable(active: Active) -> Active:
    """Returns a response whose sub-tasks may be steered again, or raises `ProtocolError`."""
    if active.num_redirects >= MAX_REDIRECTS:
        message = f"At most {MAX_REDIRECTS} steers may go to the sub-tasks of one response."
        raise ProtocolError("too_many_pending_steers", message)
    return active


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


def item_bytes(entry: ContextItem) -> int:
    """Returns about how much memory an item takes: its texts, whatever they weigh in tokens."""
    item, num_bytes = entry.item, ITEM_BYTES
    parts: tuple[Part, ...] = ()
    if isinstance(item, Message):
        parts = item.content
    elif isinstance(item, FunctionCallOutput | CustomToolCallOutput):
        parts = item.output
    elif isinstance(item, Reasoning | Compaction):
        num_bytes += len(item.encrypted_content or "")
    if not parts:
        return num_bytes + entry.num_tokens * BYTES_PER_TOKEN
    for part in parts:
        values = msgspec.structs.astuple(part)
        num_bytes += sum(len(value) for value in values if isinstance(value, str))
    return num_bytes


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
