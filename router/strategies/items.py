"""What strategies share: numbering of items, joined deltas, and the one end of many branches."""

from collections.abc import Iterable

from backends.contract import Delta, DeltaKind, Finish, FinishReason, Usage
from router.strategies.actions import EndRun, Forward, Phase, WakeAt

# Ours: how long a helping engine may be silent before the answer goes on without it. Far above any
# wait between two tokens of an engine that works, far below an upstream's own time limits.
PATIENCE_US = 5_000_000


class Items:
    """Numbers the response's items: each (branch, own index) gets the next, and one phase."""

    __slots__ = ("_index", "_own", "_phase")

    def __init__(self) -> None:
        self._index = -1
        self._own: tuple[int, int] | None = None
        self._phase: Phase | None = None

    @property
    def speaker(self) -> int | None:
        """The branch of the latest item; None before the first."""
        return None if self._own is None else self._own[0]

    def forward(self, branch: int, delta: Delta, phase: Phase | None) -> Forward:
        """The delta under its number in the response; an item keeps the phase it began with."""
        own = (branch, delta.index)
        if own != self._own:
            self._own = own
            self._index += 1
            self._phase = phase if delta.kind is DeltaKind.TEXT else None
        if delta.index != self._index:
            rest = (delta.kind, delta.text, delta.num_tokens, delta.at_us, delta.call_id)
            delta = Delta(self._index, *rest, delta.name, delta.sealed, delta.phase)
        return Forward(delta, self._phase, branch)


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
                sealed=next((delta.sealed for delta in reversed(item) if delta.sealed), ""),
                phase=last.phase,
            )
        )
        start = end
    return whole


def text_of(deltas: Iterable[Delta]) -> str:
    """The words among them; a new item is a new paragraph."""
    parts: dict[int, list[str]] = {}
    for delta in deltas:
        if delta.kind is DeltaKind.TEXT:
            parts.setdefault(delta.index, []).append(delta.text)
    return "\n\n".join("".join(part) for part in parts.values())


def end(finishes: Iterable[Finish | None], answer: Finish, *, replaceable: bool) -> EndRun:
    """One end for all: as `answer` finished, or as another that may stand in for its failure."""
    heard = [finish for finish in finishes if finish is not None]
    errors = tuple(finish.error for finish in heard if finish.error is not None)
    if answer.reason is FinishReason.ERROR and replaceable:
        answer = next((f for f in heard if f.reason is not FinishReason.ERROR), answer)
    usage = sum((finish.usage for finish in heard), Usage())
    at_us = max(finish.at_us for finish in heard)
    return EndRun(Finish(answer.reason, usage, at_us, answer.error), errors)


class Patience:
    """Watches for silence: `look` says whether anything was heard since the last look."""

    __slots__ = ("_num_heard", "_num_seen")

    def __init__(self) -> None:
        self._num_heard = 0
        self._num_seen = 0

    def hear(self) -> None:
        self._num_heard += 1

    def look(self) -> bool:
        """Whether nothing was heard since the last look."""
        silent = self._num_heard == self._num_seen
        self._num_seen = self._num_heard
        return silent

    @staticmethod
    def next_look(now_us: int) -> WakeAt:
        return WakeAt(now_us + PATIENCE_US)
