"""What a strategy's machine may have done.

A generation of a run is a **branch**: a number, and the index of a backend in
`RankedRoute.backends` (fast first).
"""

from typing import Literal

import msgspec

from backends.contract import BackendError, Delta, Finish
from router.strategies.part_requests import TaskPart, WholeAnswer

Phase = Literal["commentary", "final_answer"]

FAST, DEEP = 0, 1  # indexes of the backends of a PARALLEL route


class StartBranch(msgspec.Struct, frozen=True):
    """Start a generation. A backend that refuses it is a finish with an error."""

    branch: int
    backend_index: int
    part: TaskPart = WholeAnswer()
    own_reservation: bool = False  # it starts once it has a reservation of its own


class Forward(msgspec.Struct, frozen=True, gc=False):
    """Send this delta on. `phase` belongs to messages, and only where two backends answer."""

    delta: Delta
    phase: Phase | None
    branch: int  # that said it


class CancelBranch(msgspec.Struct, frozen=True):
    """Cancel this generation; its usage comes from `Generation.cancel`."""

    branch: int
    is_silent: bool = False  # it was not heard for too long: that is a failure


class WakeAt(msgspec.Struct, frozen=True):
    """Call `on_time` then; it replaces an earlier wish."""

    at_us: int


class EndRun(msgspec.Struct, frozen=True):
    """The response is over.

    `finish.usage` is the sum of what branches reported at their own finish; what a cancelled one
    used is not in it. `errors` names every failure, also where another engine answered.
    """

    finish: Finish
    errors: tuple[BackendError, ...] = ()


Action = StartBranch | Forward | CancelBranch | WakeAt | EndRun
