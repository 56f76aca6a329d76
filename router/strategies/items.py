"""Numbers and merges the items of a response that several engines write."""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

import msgspec

from backends.contract import Delta, DeltaKind
from router.strategies.actions import Forward, Phase


class Items:
    """Numbers the response's items: each (branch, own index, phase) gets the next."""

    __slots__ = ("_index", "_own", "_worded")

    def __init__(self) -> None:
        self._index = -1
        self._own: tuple[int, int, Phase | None] | None = None
        self._worded: set[int] = set()  # branches that have an item with words, or a call

    def has_words_of(self, branch: int) -> bool:
        """Returns whether a branch has said more than what it reasons."""
        return branch in self._worded

    def forward(self, branch: int, delta: Delta, phase: Phase | None) -> Forward:
        """Renumbers a delta for the response."""
        own = (branch, delta.index, phase)
        if own != self._own:
            self._own = own
            self._index += 1
            if delta.kind is not DeltaKind.REASONING:
                self._worded.add(branch)
        if delta.index != self._index:
            rest = (delta.kind, delta.text, delta.num_tokens, delta.at_us, delta.call_id)
            delta = Delta(self._index, *rest, delta.name, delta.sealed, delta.phase, delta.refuses)
        return Forward(delta, phase, branch)


def joined(deltas: list[Delta]) -> list[Delta]:
    """Merges deltas into one per item, timed by its last token."""
    items = [list(item) for _, item in groupby(deltas, key=attrgetter("index"))]
    return [
        msgspec.structs.replace(
            item[-1],
            text="".join(delta.text for delta in item),
            num_tokens=sum(delta.num_tokens for delta in item),
            sealed=next((delta.sealed for delta in reversed(item) if delta.sealed), ""),
        )
        for item in items
    ]


def text_of(deltas: Iterable[Delta]) -> str:
    """Returns the text among deltas, with a paragraph for each item."""
    parts: dict[int, list[str]] = {}
    for delta in deltas:
        if delta.kind is DeltaKind.TEXT:
            parts.setdefault(delta.index, []).append(delta.text)
    return "\n\n".join("".join(part) for part in parts.values())
