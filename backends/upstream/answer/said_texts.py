"""Compares what a server says of its items with what it said of them before.

A server may tell a text in pieces, then the whole part of an item, the whole item, and all items
again. Only what is missing is added, and only where the whole begins with what was said.
"""

from collections.abc import Hashable, Sequence

import msgspec

from backends.contract import DeltaKind
from backends.stop_sequences import StopFinder
from backends.upstream.answer.item_order import ItemOrder

MAX_PARTS = 64  # of an item, that are told apart


class SaidTexts(msgspec.Struct, eq=False):
    """Holds what is known of the texts of one response's items."""

    _items: ItemOrder  # keeps what was said
    _stop: Sequence[str]  # the sequences that end the answer's text
    stops: dict[Hashable, StopFinder] = {}  # read only, as the next
    # Item -> the index of its latest part, and where in its text that begins.
    parts: dict[Hashable, tuple[int, int]] = {}

    def add(self, key: Hashable, kind: DeltaKind, text: str) -> None:
        """Adds a piece to an open item, up to a stop sequence."""
        if not text:
            return
        if kind is DeltaKind.TEXT and self._stop:
            finder = self.stops.get(key)
            if finder is None:
                finder = self.stops[key] = StopFinder(self._stop)
            text = finder.feed(text)
        self._items.add(key, text)

    def end(self, key: Hashable) -> None:
        """Adds what was held back since it might begin a stop sequence."""
        finder = self.stops.get(key)
        if finder is not None and finder.found is None:
            self._items.add(key, finder.rest())

    def found_stop(self) -> str | None:
        """Returns the stop sequence that a text has."""
        return next(filter(None, (finder.found for finder in self.stops.values())), None)

    def begin_part(self, key: Hashable, kind: DeltaKind, index: int) -> None:
        """Begins another part than an item's first one."""
        if kind is DeltaKind.REASONING:
            self._items.add(key, "\n\n")  # between two summaries of one item
        self.parts[key] = index, self._items.num_given(key) + len(self._held(key))

    def complete_part(self, key: Hashable, kind: DeltaKind, index: int, whole: str) -> bool:
        """Adds what is missing of an item's part; returns whether the item has just that text."""
        if key not in self.parts:
            self.parts[key] = index, 0
        latest, start = self.parts[key]
        if not self.stops and self._items.given(key, start, len(whole)) == whole:
            self.parts[key] = index, start  # as most often
            return not start
        rest = self.rest(key, [whole], start)
        if rest is not None:
            self.parts[key] = index, start
            if rest:
                self.add(key, kind, rest)
            return not start
        if latest < index < MAX_PARTS and not self.has(key, whole):
            self.begin_part(key, kind, index)
            self.add(key, kind, whole)
        return False

    def has(self, key: Hashable, text: str) -> bool:
        """Returns whether a text was said amid an item's."""
        return text in (self._items.given(key) or "")

    def may_be(self, key: Hashable, texts: Sequence[str]) -> bool:
        """Returns whether one of these texts begins with what was said of an item."""
        return self.rest(key, texts) is not None

    def rest(self, key: Hashable, texts: Sequence[str], start: int = 0) -> str | None:
        """Returns what is missing of a text that was said from there on; None if another was said.

        It may be any of these texts.
        """
        held = self._held(key) if self.stops else ""
        if held and start:
            held = held[max(0, start - self._items.num_given(key)) :]
        for text in texts:
            given = self._items.given(key, start, len(text))
            if given is None:
                continue
            given += held
            if text == given:  # as most often
                return ""
            if text.startswith(given):
                return text[len(given) :]
        return None

    def _held(self, key: Hashable) -> str:
        return self.stops[key].held if key in self.stops else ""
