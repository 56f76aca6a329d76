"""Bounds how many values a JSON document may hold, before anything decodes it.

Decoding holds the event loop: a document of 15 MiB that is one string takes 6 ms, but one of five
million empty arrays takes 1.3 s and 400 MiB. So the marks of values are counted first, a piece at a
time: the commas, opening brackets and strings. What stands inside strings does not count.
"""

from gateway.wire.errors import OR_CONTINUE, ProtocolError

MAX_MARKS = 200_000  # decoded in 30 ms (2026, one core); 10,000 items of some parts have 170,000
MAX_QUOTES = 1 << 21  # in all, escaped ones too: each is visited where a document has many marks

_PIECE_CHARS = 1 << 18  # counted at once
_PIECE_QUOTES = 2_000  # visited at once


class MarkCount:
    """Counts a document's marks piece by piece, up to the limit."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._num_marks = self._num_quotes = 0
        self._is_rough = True  # marks inside strings are counted, too
        self._in_string = False

    def read_piece(self) -> bool:
        """Counts on; returns whether there is more.

        Raises `ProtocolError` if there are too many.
        """
        if len(self._text) <= MAX_MARKS:
            return False
        return self._count_all() if self._is_rough else self._visit_quotes()

    def _count_all(self) -> bool:
        """Counts the marks inside strings, too: most documents are within the limit even so."""
        end = min(self._at + _PIECE_CHARS, len(self._text))
        self._num_marks += self._marks_until(end)
        self._num_quotes += self._text.count('"', self._at, end)
        self._at = end
        if self._num_quotes > MAX_QUOTES:
            raise _too_many(f"{MAX_QUOTES} quotation marks")
        if end == len(self._text):
            if self._num_marks + self._num_quotes // 2 <= MAX_MARKS:
                return False
            self._is_rough = False
            self._at = self._num_marks = 0
        return True

    def _visit_quotes(self) -> bool:
        """Counts what stands outside of strings."""
        for _ in range(_PIECE_QUOTES):
            found = self._text.find('"', self._at)
            end = len(self._text) if found < 0 else found
            if self._in_string:
                before = self._text[self._at : end]
                self._in_string = (len(before) - len(before.rstrip("\\"))) % 2 == 1
            else:
                piece_end = min(end, self._at + _PIECE_CHARS)
                self._num_marks += self._marks_until(piece_end) + 1
                if self._num_marks > MAX_MARKS:
                    raise _too_many(f"{MAX_MARKS} values, which commas, brackets and strings mark")
                if piece_end < end:
                    self._at = piece_end
                    return True
                self._in_string = True
            self._at = end + 1
            if self._at >= len(self._text):
                return False
        return True

    def _marks_until(self, end: int) -> int:
        return sum(self._text.count(mark, self._at, end) for mark in ",[{")


def _too_many(limit: str) -> ProtocolError:
    message = f"A message may hold {limit}. Send less{OR_CONTINUE}."
    return ProtocolError("message_too_large", message)
