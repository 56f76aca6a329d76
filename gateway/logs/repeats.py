"""Lets the first of equal log lines pass and counts the rest: an outage says a thing once."""

from collections.abc import Hashable

WINDOW_US = 60_000_000  # after it the line passes again, and says how many were left out
MAX_KNOWN = 256  # lines; the oldest is forgotten


class Repeats:
    """Knows the lines that passed lately."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[int, int]] = {}  # line -> when it passed, how often since

    def passes(self, line: Hashable, now_us: int) -> int | None:
        """Returns how many equal lines were left out before this one; None: it is left out."""
        passed_us, num_left_out = self._known.get(line, (now_us - WINDOW_US, 0))
        if now_us - passed_us < WINDOW_US:
            self._known[line] = (passed_us, num_left_out + 1)
            return None
        self._known.pop(line, None)
        self._known[line] = (now_us, 0)
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return num_left_out
