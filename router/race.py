"""Merges what one or two backends generate into one response: what to forward, whom to cancel.

A `Merge` is driven by dispatch: every `Delta` and `Finish` of backend number b (its place in
`RankedRoute.backends`, fast first) goes in through `on_delta` or `on_finish`, and the actions that
come back are carried out in order. A backend that would not start is an `on_finish` with its error.

What all three keep: forwarded items have rising indexes; an item holds deltas of one backend
only; there is exactly one `End`, and nothing follows it; a cancelled backend is not heard again.

- `Single`: one backend, passed through.
- `Brief`: the fast answer streams at once as commentary, the deep one follows as the final answer.
  What the deep backend says before the fast one has ended is held (never more than its response)
  and forwarded the moment it ends. A fast backend that has said nothing by the time the deep
  answer is complete is cancelled. Commentary calls no tools: dispatch starts the fast backend
  without any, and a call that comes all the same is dropped.
- `Race`: the first complete answer wins and the other backend is cancelled. Nothing is forwarded
  while both still run: words once sent cannot be taken back, so a part of an answer must not go
  out before it is known to be the one that counts.

The failure of one backend leaves the other: from then on it is the answer. The response fails only
if both fail, or if the answer itself broke off in the middle. Whichever failed is in `End.errors`.
"""

from typing import Literal

import msgspec

from backends.contract import BackendError, Delta, DeltaKind, Finish, FinishReason, Usage
from router.task import Strategy

Phase = Literal["commentary", "final_answer"]

FAST, DEEP = 0, 1  # backend numbers of a PARALLEL route


class Forward(msgspec.Struct, frozen=True, gc=False):
    """Send this delta on. `phase` belongs to messages, and only where two backends answer."""

    delta: Delta
    phase: Phase | None
    backend: int  # whose it is


class Cancel(msgspec.Struct, frozen=True):
    """Cancel this backend's generation; its usage comes from `Generation.cancel`."""

    backend: int


class End(msgspec.Struct, frozen=True):
    """The response is over.

    `finish.usage` is the sum of what backends reported at their own finish; what a cancelled one
    used is not in it. `errors` names every backend that failed, also where the other one answered.
    """

    finish: Finish
    errors: tuple[BackendError, ...] = ()


Action = Forward | Cancel | End


class Single:
    """One backend, passed through."""

    # Dispatch may connect the backend straight to the response: `on_delta` changes nothing.
    transparent = True

    __slots__ = ()

    def on_delta(self, backend: int, delta: Delta) -> list[Action]:
        return [Forward(delta, None, backend)]

    def on_finish(self, backend: int, finish: Finish) -> list[Action]:
        return [End(finish, () if finish.error is None else (finish.error,))]


class Brief:
    """The fast answer as commentary, then the deep one as the final answer."""

    transparent = False

    __slots__ = ("_ended", "_finishes", "_held", "_items")

    def __init__(self) -> None:
        self._items = _Items()
        self._held: list[Delta] = []  # the deep backend's, while the fast one speaks
        self._finishes: list[Finish | None] = [None, None]
        self._ended = False

    def on_delta(self, backend: int, delta: Delta) -> list[Action]:
        if self._ended or self._finishes[backend] is not None:
            return []
        if backend == DEEP:
            if self._finishes[FAST] is None:
                self._held.append(delta)
                return []
            return [self._items.forward(DEEP, delta, "final_answer")]
        if delta.kind >= DeltaKind.FUNCTION_CALL:
            return []
        deep = self._finishes[DEEP]
        alone = deep is not None and deep.reason is FinishReason.ERROR
        return [self._items.forward(FAST, delta, "final_answer" if alone else "commentary")]

    def on_finish(self, backend: int, finish: Finish) -> list[Action]:
        if self._ended or self._finishes[backend] is not None:
            return []
        self._finishes[backend] = finish
        if backend == FAST:
            return self._release()
        if finish.reason is FinishReason.ERROR:
            # A deep answer cut off while it was held was never seen: it gives way to the fast one.
            self._held.clear()
            return [] if self._finishes[FAST] is None else self._end()
        if self._finishes[FAST] is not None:
            return self._end()
        if self._items.speaker is None:
            return [Cancel(FAST), *self._release()]
        return []

    def _release(self) -> list[Action]:
        """Forward what was held, and end if the deep backend has finished already."""
        actions: list[Action] = [
            self._items.forward(DEEP, delta, "final_answer") for delta in joined(self._held)
        ]
        self._held.clear()
        return actions if self._finishes[DEEP] is None else actions + self._end()

    def _end(self) -> list[Action]:
        self._ended = True
        # Half a final answer may have gone out: no commentary makes that a whole one.
        broken = self._items.speaker == DEEP
        return [_end(self._finishes, preferred=DEEP, replaceable=not broken)]


class Race:
    """The first complete answer, whole."""

    transparent = False

    __slots__ = ("_ended", "_finishes", "_held", "_items")

    def __init__(self) -> None:
        self._items = _Items()
        self._held: tuple[list[Delta], list[Delta]] = ([], [])
        self._finishes: list[Finish | None] = [None, None]
        self._ended = False

    def on_delta(self, backend: int, delta: Delta) -> list[Action]:
        if self._ended or self._finishes[backend] is not None:
            return []
        if self._finishes[1 - backend] is None:
            self._held[backend].append(delta)
            return []
        return [self._items.forward(backend, delta, "final_answer")]

    def on_finish(self, backend: int, finish: Finish) -> list[Action]:
        if self._ended or self._finishes[backend] is not None:
            return []
        self._finishes[backend] = finish
        other = 1 - backend
        if finish.reason is not FinishReason.ERROR:
            rival: list[Action] = [Cancel(other)] if self._finishes[other] is None else []
            return [*rival, *self._release(backend), self._end(backend)]
        self._held[backend].clear()
        if self._finishes[other] is None:
            return self._release(other)  # alone from now on: its answer is the one that counts
        return [self._end(backend)]

    def _release(self, backend: int) -> list[Action]:
        held = self._held[backend]
        actions: list[Action] = [
            self._items.forward(backend, delta, "final_answer") for delta in joined(held)
        ]
        self._held[0].clear()
        self._held[1].clear()
        return actions

    def _end(self, backend: int) -> End:
        self._ended = True
        return _end(self._finishes, preferred=backend, replaceable=True)


Merge = Single | Brief | Race


def merge(strategy: Strategy | None) -> Merge:
    """The merge a route needs: `strategy` is None for one backend."""
    if strategy is None:
        return Single()
    return Brief() if strategy == "brief" else Race()


def joined(deltas: list[Delta]) -> list[Delta]:
    """The same output in as few deltas as can be: one per item, timed by its last token."""
    whole: list[Delta] = []
    start = 0
    for end in range(1, len(deltas) + 1):
        if end < len(deltas) and deltas[end].index == deltas[start].index:
            continue
        item = deltas[start:end]
        last = item[-1]
        whole.append(
            Delta(
                index=last.index,
                kind=last.kind,
                text="".join(delta.text for delta in item),
                num_tokens=sum(delta.num_tokens for delta in item),
                at_us=last.at_us,
                call_id=last.call_id,
                name=last.name,
            )
        )
        start = end
    return whole


class _Items:
    """Numbers the response's items: each (backend, own index) gets the next, and one phase."""

    __slots__ = ("_index", "_own", "_phase")

    def __init__(self) -> None:
        self._index = -1
        self._own: tuple[int, int] | None = None
        self._phase: Phase | None = None

    @property
    def speaker(self) -> int | None:
        """The backend of the latest item; None before the first."""
        return None if self._own is None else self._own[0]

    def forward(self, backend: int, delta: Delta, phase: Phase) -> Forward:
        """The delta under its number in the response; an item keeps the phase it began with."""
        own = (backend, delta.index)
        if own != self._own:
            self._own = own
            self._index += 1
            self._phase = phase if delta.kind is DeltaKind.TEXT else None
        if delta.index != self._index:
            delta = Delta(
                self._index,
                delta.kind,
                delta.text,
                delta.num_tokens,
                delta.at_us,
                delta.call_id,
                delta.name,
            )
        return Forward(delta, self._phase, backend)


def _end(finishes: list[Finish | None], preferred: int, *, replaceable: bool) -> End:
    """One end for both: as the preferred backend finished, or as the other if that may stand in."""
    heard = [finish for finish in finishes if finish is not None]
    errors = tuple(finish.error for finish in heard if finish.error is not None)
    answer = finishes[preferred] or heard[0]
    if answer.reason is FinishReason.ERROR and replaceable:
        answer = next((f for f in heard if f.reason is not FinishReason.ERROR), answer)
    usage = sum((finish.usage for finish in heard), Usage())
    at_us = max(finish.at_us for finish in heard)
    return End(Finish(answer.reason, usage, at_us, answer.error), errors)
