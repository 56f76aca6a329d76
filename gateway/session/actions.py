"""Defines what a session tells the edge to do."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from backends.contract import ContextItem
from gateway.core.job import Job, StopReason
from gateway.wire.response import Emit, ResponseWriter


class StartJob(msgspec.Struct, frozen=True):
    """Tells the edge to run a job."""

    job: Job


class StopJob(msgspec.Struct, frozen=True):
    """Tells the edge to stop a job at its next token."""

    job: Job
    reason: StopReason


class RedirectJob(msgspec.Struct, frozen=True):
    """Tells the edge to steer one sub-task of a job, or to cancel it (None)."""

    job: Job
    number: int
    items: tuple[ContextItem, ...] | None


class RejoinJob(msgspec.Struct, frozen=True):
    """Tells the edge to go on with a response that another connection lost."""

    stream_id: str | None
    response_id: str
    starting_after: int
    after: Job | None = None  # of which only the settlement is left on the stream


class Join(NamedTuple):
    """Says where a response's events go from now on."""

    emit: Emit
    on_dirty: Callable[[ResponseWriter], None]
    stream_id: str | None


Action = StartJob | StopJob | RedirectJob | RejoinJob
