"""One engine, or two that compete.

- `Single`: one engine, passed through.
- `Race`: the first complete answer wins and the other engine is cancelled. Nothing is forwarded
  while both still run: words once sent cannot be taken back, so a part of an answer must not go
  out before it is known to be the one that counts.
- `Hedge`: the deep engine answers; if it has not begun in time, or fails before, the fast one
  joins. Whoever says the first token then is the answer, and the other is cancelled. Most answers
  never need the fast engine, so it is reserved for when it joins, and given back when it has lost.

The failure of one engine leaves the other: from then on it is the answer. The response fails only
if both fail, or if the answer itself broke off in the middle.
"""

from backends.contract import Delta, Finish, FinishReason
from router.strategies.actions import (
    DEEP,
    FAST,
    NOBODY,
    Action,
    Answer,
    Begin,
    Cancel,
    End,
    Forward,
    WakeAt,
)
from router.strategies.items import Items, end, joined


class Single:
    """One engine, passed through."""

    # Dispatch may connect the engine straight to the response: `on_delta` changes nothing.
    transparent = True

    __slots__ = ()

    def start(self, now_us: int) -> list[Action]:
        return [Begin(0, 0)]

    def on_delta(self, branch: int, delta: Delta) -> list[Action]:
        return [Forward(delta, None, branch)]

    def on_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        return [End(finish, () if finish.error is None else (finish.error,))]

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        return []

    def may_begin(self, place: int) -> bool:
        return False


class Race:
    """The first complete answer, whole."""

    transparent = False

    __slots__ = ("_ended", "_finishes", "_held", "_items")

    def __init__(self) -> None:
        self._items = Items()
        self._held: tuple[list[Delta], list[Delta]] = ([], [])
        self._finishes: list[Finish | None] = [None, None]
        self._ended = False

    def start(self, now_us: int) -> list[Action]:
        return [Begin(FAST, FAST, Answer()), Begin(DEEP, DEEP, Answer())]

    def on_delta(self, branch: int, delta: Delta) -> list[Action]:
        if self._ended or self._finishes[branch] is not None:
            return []
        if self._finishes[1 - branch] is None:
            self._held[branch].append(delta)
            return []
        return [self._items.forward(branch, delta, "final_answer")]

    def on_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        if self._ended or self._finishes[branch] is not None:
            return []
        self._finishes[branch] = finish
        other = 1 - branch
        if finish.reason is not FinishReason.ERROR:
            rival: list[Action] = [Cancel(other)] if self._finishes[other] is None else []
            return [*rival, *self._release(branch), self._end(finish)]
        self._held[branch].clear()
        if self._finishes[other] is None:
            return self._release(other)  # alone from now on: its answer is the one that counts
        return [self._end(finish)]

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        return []

    def may_begin(self, place: int) -> bool:
        return False

    def _release(self, branch: int) -> list[Action]:
        held = self._held[branch]
        actions: list[Action] = [
            self._items.forward(branch, delta, "final_answer") for delta in joined(held)
        ]
        self._held[0].clear()
        self._held[1].clear()
        return actions

    def _end(self, finish: Finish) -> End:
        self._ended = True
        return end(self._finishes, finish, replaceable=True)


class Hedge:
    """The deep answer, unless it keeps one waiting."""

    transparent = False

    __slots__ = ("_after_us", "_apart", "_begun", "_ended", "_finishes", "_items", "_winner")

    def __init__(self, after_us: int | None, *, apart: bool = True) -> None:
        """`after_us`: how long to wait for the deep engine; None: until it fails.

        `apart`: the fast engine is not among what the task has reserved.
        """
        self._after_us = after_us
        self._apart = apart
        self._items = Items()
        self._begun = {DEEP}
        self._finishes: dict[int, Finish] = {}
        self._winner: int | None = None  # the branch whose token came first
        self._ended = False

    def start(self, now_us: int) -> list[Action]:
        deep = Begin(DEEP, DEEP, Answer())
        return [deep] if self._after_us is None else [deep, WakeAt(now_us + self._after_us)]

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        return [] if self._ended or self._winner is not None else self._join()

    def on_delta(self, branch: int, delta: Delta) -> list[Action]:
        if self._ended or branch in self._finishes or self._winner not in (None, branch):
            return []
        rival = self._win(branch) if self._winner is None else []
        return [*rival, self._items.forward(branch, delta, "final_answer")]

    def on_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        if self._ended or branch in self._finishes or self._winner not in (None, branch):
            return []
        self._finishes[branch] = finish
        other = 1 - branch
        if finish.reason is FinishReason.ERROR and self._winner is None:
            if other not in self._begun:
                return self._join()
            if other not in self._finishes:
                return []  # alone from now on
        rival = self._win(branch) if self._winner is None else []
        self._ended = True
        return [*rival, end(self._finishes.values(), finish, replaceable=self._winner != branch)]

    def may_begin(self, place: int) -> bool:
        return place == FAST and not self._apart and FAST not in self._begun

    def _join(self) -> list[Action]:
        if FAST in self._begun:
            return []
        self._begun.add(FAST)
        return [Begin(FAST, FAST, Answer(), apart=self._apart)]

    def _win(self, branch: int) -> list[Action]:
        self._winner = branch
        other = 1 - branch
        runs = other in self._begun and other not in self._finishes
        return [Cancel(other)] if runs else []
