"""Defines the actions that a strategy's machine requests.

A generation of a run is a **branch**: a number, and the index of a backend in
`RankedRoute.backends` (fast first).
"""

from typing import Literal

import msgspec

from backends.contract import BackendError, Delta, Finish
from router.strategies.part_requests import TaskPart, WholeAnswer

Phase = Literal["commentary", "final_answer"]

FAST, DEEP = 0, 1  # indexes of the backends of a PARALLEL route


class StartBranch(msgspec.Struct, frozen=True, gc=False):
    """Starts a generation; a refusal by the backend becomes a finish with an error."""

    branch: int
    backend_index: int
    part: TaskPart = WholeAnswer()
    own_reservation: bool = False  # it starts once it has a reservation of its own


class Forward(msgspec.Struct, frozen=True, gc=False):
    """Sends a delta to the client; what is commentary is shown apart, and leaves the context."""

    delta: Delta
    phase: Phase | None  # None: one backend answers by itself
    branch: int  # that said it


class CancelBranch(msgspec.Struct, frozen=True):
    """Cancels a generation; its usage comes from `Generation.cancel`."""

    branch: int
    is_silent: bool = False  # it sent nothing for too long, which is a failure


class WakeAt(msgspec.Struct, frozen=True):
    """Requests a call of `on_time` then, in place of earlier requests."""

    at_us: int


class EndRun(msgspec.Struct, frozen=True, gc=False):
    """Ends the response.

    `finish.usage` sums the usage of branches that finished, without that of cancelled ones.
    `errors` has every failure, even if another engine answered.
    """

    finish: Finish
    errors: tuple[BackendError, ...] = ()


Action = StartBranch | Forward | CancelBranch | WakeAt | EndRun
