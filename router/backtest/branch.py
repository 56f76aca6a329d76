"""Plays one generation of a back-tested task: a sequence on an engine, and the deltas of it.

What is said is not known, only how long it is; strategies that compare words get words that agree,
or differ, as often as the scenario's `WordOdds` say.
"""

from typing import Protocol

from backends.contract import NO_USAGE, Delta, DeltaKind, Usage
from router.backtest.engines import EngineClock
from router.pools.pools import Reservation
from router.strategies.part_requests import TaskPart
from wafer_engine.batching.sequence import Sequence

NO_WORDS = ""
A_WORD = " said"  # one token, so that what a later part reads of it has its length


class BranchListener(Protocol):
    """Hears of a branch's tokens and its end."""

    def on_tokens(self, branch: "PlayedBranch", num_tokens: int, at_us: int) -> None: ...

    def on_end(self, branch: "PlayedBranch", at_us: int) -> None: ...

    def on_break(self, branch: "PlayedBranch", now_us: int) -> None: ...


class PlayedBranch:
    """Counts a generation's tokens. It is over once it has a `usage`."""

    __slots__ = (
        "call",
        "cancelled",
        "first_us",
        "index",
        "is_over",
        "last_us",
        "limited",
        "num_before",
        "num_continuations",
        "num_tokens",
        "number",
        "own_reservation",
        "part",
        "prompt_tokens",
        "reasoning_tokens",
        "reservation",
        "run",
        "sequence",
        "started_us",
        "usage",
        "where",
        "word",
    )

    def __init__(
        self, run: BranchListener, number: int, index: int, where: EngineClock, now_us: int
    ) -> None:
        self.run = run
        self.number = number
        self.index = index  # of its backend in the route
        self.where = where
        self.started_us = now_us
        self.part: TaskPart | None = None
        self.own_reservation = False
        self.reservation: Reservation | None = None  # its own, once it has that
        self.sequence: Sequence | None = None  # None: not started
        self.prompt_tokens = 0
        self.reasoning_tokens = 0  # that come before its words
        self.word = A_WORD  # that it says, token by token
        self.call: Delta | None = None  # that it ends with
        self.num_tokens = 0
        self.num_before = 0  # said by a generation that broke off, and that it goes on with
        self.num_continuations = 0
        self.first_us = -1
        self.last_us = -1
        self.usage: Usage | None = None
        self.is_over = False
        self.cancelled = False
        self.limited = False  # by its limit of tokens

    def advance(self, num_tokens: int, at_us: int) -> None:
        """Takes tokens from its engine."""
        if self.first_us < 0:
            self.first_us = at_us
        self.last_us = at_us
        self.num_tokens += num_tokens
        self.run.on_tokens(self, num_tokens, at_us)

    def finish(self, at_us: int) -> None:
        """Takes the end from its engine."""
        self._over()
        self.run.on_end(self, at_us)

    def fail(self, now_us: int) -> None:
        """Takes the failure of its engine."""
        self._over()
        self.run.on_break(self, now_us)

    def cancel(self, now_us: int) -> None:
        """Ends it early; harmless once it is over."""
        if self.is_over:
            return
        self.cancelled = True
        if self.sequence is not None:
            self.where.cancel(self.sequence, now_us)
            self.num_tokens = max(self.num_tokens, self.sequence.num_generated)
        self._over()

    def _over(self) -> None:
        self.is_over = True
        sequence = self.sequence
        if sequence is None:
            self.usage = NO_USAGE
            return
        cached = sequence.num_cached_tokens
        reasoning = min(self.reasoning_tokens, self.num_tokens)
        self.usage = Usage(self.prompt_tokens, cached, self.num_tokens, reasoning)

    def usage_so_far(self) -> Usage:
        """Returns what it has used until now."""
        return self.usage or Usage(self.prompt_tokens if self.sequence else 0, 0, self.num_tokens)

    @property
    def tpot_us(self) -> float | None:
        """Returns the mean time between its tokens; None with fewer than two."""
        if self.num_tokens < 2 or self.first_us < 0:
            return None
        return (self.last_us - self.first_us) / (self.num_tokens - 1)

    def deltas(self, num_tokens: int, at_us: int) -> list[Delta]:
        """Returns the deltas of its newest tokens: first its reasoning, then words."""
        before = self.num_tokens - num_tokens
        reasoning = max(0, min(num_tokens, self.reasoning_tokens - before))
        found = []
        if reasoning:
            found.append(Delta(0, DeltaKind.REASONING, NO_WORDS, reasoning, at_us))
        if num_tokens > reasoning:
            index, number = int(self.reasoning_tokens > 0), num_tokens - reasoning
            found.append(Delta(index, DeltaKind.TEXT, self.word * number, number, at_us))
        return found
