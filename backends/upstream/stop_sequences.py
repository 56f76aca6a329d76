"""Stop sequences for servers that know none: finds them in text that comes in pieces."""

from collections.abc import Sequence


class StopFinder:
    """One item's text; holds back whatever may be the beginning of a stop sequence."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.found = False

    def feed(self, text: str) -> str:
        """The text that may be shown now; what follows a stop sequence, and itself, never is."""
        if self.found:
            return ""
        text = self._held + text
        starts = [start for stop in self._stops if (start := text.find(stop)) >= 0]
        if starts:
            self.found = True
            self._held = ""
            return text[: min(starts)]
        num_held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def rest(self) -> str:
        """What was held back, once the item has ended."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of the text that is a beginning of the stop sequence."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
