"""Finds stop sequences in text that comes in pieces, for servers that do not know them."""

from collections.abc import Sequence


class StopFinder:
    """Searches one item's text; holds back its end while that may begin a stop sequence."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self.held = ""  # the end of the text, as long as it may begin a stop sequence
        self.found: str | None = None  # the stop sequence, once the text has one

    def feed(self, text: str) -> str:
        """Returns the text that may be sent now: never a stop sequence or what follows it."""
        if self.found is not None:
            return ""
        text = self.held + text
        starts = [(start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if starts:
            start, self.found = min(starts)
            self.held = ""
            return text[:start]
        num_held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self.held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def rest(self) -> str:
        """Returns the text held back, once the item has ended."""
        held, self.held = self.held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Returns the length of the longest end of the text that begins the stop sequence."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
