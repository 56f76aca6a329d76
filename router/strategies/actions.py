"""What a strategy may have done, and what it asks an engine for.

A generation of a run is a **branch**: a number, and a place in `RankedRoute.backends` (fast first).
"""

from typing import Literal, Protocol

import msgspec

from backends.contract import BackendError, Delta, Finish, Item

Phase = Literal["commentary", "final_answer"]

FAST, DEEP = 0, 1  # places in the backends of a PARALLEL route
NOBODY: frozenset[int] = frozenset()


class Answer(msgspec.Struct, frozen=True):
    """The task, as it came."""


class Comment(msgspec.Struct, frozen=True):
    """A short paragraph, to be read while another engine answers."""


class Draft(msgspec.Struct, frozen=True):
    """A whole answer in words alone, for another engine to improve."""


class Revise(msgspec.Struct, frozen=True):
    """The task, with a draft to check and improve."""

    draft: str


class Vary(msgspec.Struct, frozen=True):
    """One of several independent answers, in words alone; `number` counts them from 0."""

    number: int


class Judge(msgspec.Struct, frozen=True):
    """The task, with independent answers to pick from or to merge."""

    answers: tuple[str, ...]


class Converse(msgspec.Struct, frozen=True):
    """The task, with a tool that hands sub-tasks on; `said` is what came after the task's items."""

    part: Literal["opening", "meanwhile", "closing"]
    said: tuple[Item, ...] = ()


class Subtask(msgspec.Struct, frozen=True):
    """A part of the task, handed on; `said` is what it has said, and what was said to it."""

    task: str
    said: tuple[Item, ...] = ()


Ask = Answer | Comment | Draft | Revise | Vary | Judge | Converse | Subtask


class Begin(msgspec.Struct, frozen=True):
    """Start a generation. A backend that refuses it is a finish with an error."""

    branch: int
    backend: int  # place in the route's backends
    ask: Ask = Answer()
    apart: bool = False  # with a reservation of its own, to be had before it starts


class Forward(msgspec.Struct, frozen=True, gc=False):
    """Send this delta on. `phase` belongs to messages, and only where two backends answer."""

    delta: Delta
    phase: Phase | None
    branch: int  # whose it is


class Cancel(msgspec.Struct, frozen=True):
    """Cancel this generation; its usage comes from `Generation.cancel`."""

    branch: int
    is_silent: bool = False  # given up, since nothing was heard of it: that is a failure


class WakeAt(msgspec.Struct, frozen=True):
    """Call `on_time` then; it takes the place of an earlier wish."""

    at_us: int


class End(msgspec.Struct, frozen=True):
    """The response is over.

    `finish.usage` is the sum of what branches reported at their own finish; what a cancelled one
    used is not in it. `errors` names every failure, also where another engine answered.
    """

    finish: Finish
    errors: tuple[BackendError, ...] = ()


Action = Begin | Forward | Cancel | WakeAt | End


class Merge(Protocol):
    """A strategy at work. Time is the gateway's clock; deltas carry their engines' own.

    What all of them keep: forwarded items have rising indexes; an item holds deltas of one branch
    only; there is exactly one `End`, and nothing follows it; a cancelled branch is not heard again.
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

    def may_begin(self, place: int) -> bool:
        """Whether a branch may yet begin there that is not `apart`: its reservation is kept for it.

        Asked between events; once it is not so, it never is again.
        """
        ...
