"""What a strategy's machine may have done, and what calls it.

A generation of a run is a **branch**: a number, and the index of a backend in
`RankedRoute.backends` (fast first).
"""

from typing import Literal, Protocol

import msgspec

from backends.contract import BackendError, Delta, Finish
from router.strategies.part_requests import TaskPart, WholeAnswer

Phase = Literal["commentary", "final_answer"]

FAST, DEEP = 0, 1  # indexes of the backends of a PARALLEL route
NOBODY: frozenset[int] = frozenset()


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


class Machine(Protocol):
    """A strategy at work. Time is the gateway's clock; deltas carry their engines' own.

    All machines keep these rules: forwarded items have rising indexes; an item holds deltas of one
    branch only; there is exactly one `EndRun`, and nothing follows it; a cancelled branch is not
    heard again.
    """

    @property
    def transparent(self) -> bool:
        """Whether `on_delta` changes nothing, so that dispatch may pass deltas straight on."""
        ...

    def start(self, now_us: int) -> list[Action]: ...

    def on_delta(self, branch: int, delta: Delta) -> list[Action]: ...

    def on_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]: ...

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        """The moment of the latest `WakeAt` has come.

        `waiting`: branches whose reservations are not decided yet; their silence is no fault.
        """
        ...

    def may_start(self, backend_index: int) -> bool:
        """Whether a branch may yet start there in the task's own reservation.

        Dispatch asks between events; after the first no the answer stays no.
        """
        ...
