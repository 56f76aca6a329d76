"""Extracts the data of server-sent events from bytes as they arrive.

Of the standard (WHATWG HTML, 9.2) only `data` matters here: both protocols repeat an event's type
inside. Lines end in LF, CRLF or a lone CR; a byte order mark in front of all is none of them.
"""

import re

_MARK = b"\xef\xbb\xbf"  # UTF-8's byte order mark, which servers on Windows may begin with
MAX_EVENT_BYTES = 16 << 20  # of any event; each request's bound is closer to its own size

# An event as nearly all are written. Splitting by it gives, in turns, what is between two events
# and the data of one. A dot is a quarter of what a class without CR and LF costs.
_PLAIN = re.compile(rb"(?:event:.*\n)?data: ?(.*)\n\n")


class EventTooLongError(Exception):
    """Says that an event is too long, or that too much came that is none."""


class EventParser:
    """Extracts events from chunks of any size, cut anywhere.

    One expression cuts out whole plain events. All else goes line by line, which is the plain
    twin: `tests/unit/backends/upstream/test_parts.py` compares the two.
    """

    _is_begun = _is_object = False
    _has_told = False  # `feed_lines` knows of an event
    _was_plain = False  # `feed` has cut out events since lines were read
    _is_behind_cr = False  # so that an LF that comes next belongs to it
    _num_idle_bytes = 0  # since the last whole event
    _num_rest_bytes = _num_data_bytes = 0

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Bounds each event, and what comes between two (comments, other fields)."""
        self._max_event_bytes = max_event_bytes
        self._rest: list[bytes] = []  # pieces of an unfinished line
        self._data: list[bytes] = []  # of an unfinished event

    @property
    def has_events(self) -> bool:
        """Says whether an event has come."""
        return self._was_plain or self._has_told

    def feed(self, chunk: bytes) -> list[bytes]:
        """Returns the data of the events that are now complete.

        Raises `EventTooLongError` if one is too long; the stream cannot be read on.
        """
        if not self._rest and not self._data and b"\r" not in chunk:
            pieces = _PLAIN.split(chunk)
            if not any(pieces[::2]):
                self._was_plain = True
                return pieces[1::2]
        return self.feed_lines(chunk)

    def feed_lines(self, chunk: bytes) -> list[bytes]:
        """Does what `feed` does, line by line."""
        events: list[bytes] = []
        if self._was_plain:
            self._has_told = self._is_begun = True
            self._was_plain, self._num_idle_bytes = False, 0
        if not self._is_begun:
            chunk = self._begin(chunk)
        if not self._is_object and chunk:
            chunk = self._with_lf(chunk)
        self._rest.append(chunk)
        self._num_rest_bytes += len(chunk)
        if b"\n" in chunk and not self._is_object:
            lines = b"".join(self._rest).split(b"\n")
            rest = lines.pop()
            self._rest = [rest] if rest else []
            self._num_rest_bytes = len(rest)
            for line in lines:
                self._take_line(line, events)
        self._has_told = self._has_told or bool(events)
        self._num_idle_bytes = 0 if events else self._num_idle_bytes + len(chunk)
        if self._num_idle_bytes + self._num_rest_bytes > 2 * self._max_event_bytes:
            raise EventTooLongError(f"more than {self._max_event_bytes} bytes without an event")
        if self._num_data_bytes + self._num_rest_bytes > self._max_event_bytes:
            raise EventTooLongError(f"an event has more than {self._max_event_bytes} bytes")
        return events

    def _begin(self, chunk: bytes) -> bytes:
        """Looks at the first bytes that are no space; returns the chunk without a mark in front."""
        is_early = self._num_rest_bytes <= len(_MARK)
        begun = b"".join(self._rest) + chunk if is_early else chunk
        if _MARK.startswith(begun):
            return chunk  # nothing yet, or a mark that is cut
        if begun.startswith(_MARK):
            self._rest.clear()
            self._num_rest_bytes = 0
            begun = chunk = begun.removeprefix(_MARK)
        if first := begun.lstrip()[:1]:
            self._is_begun, self._is_object = True, first == b"{"
        return chunk

    def _with_lf(self, chunk: bytes) -> bytes:
        """Returns a chunk whose lines end in LF alone; the two of a CRLF may come apart."""
        if self._is_behind_cr:
            chunk = chunk.removeprefix(b"\n")
            self._is_behind_cr = False
        if b"\r" in chunk:
            self._is_behind_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk

    @property
    def whole(self) -> bytes:
        """Returns all that came, if that is an object in place of events; b"" if it is not."""
        return b"".join(self._rest) if self._is_object else b""

    def _take_line(self, line: bytes, events: list[bytes]) -> None:
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value)
            self._num_data_bytes += len(value)
        elif not line and self._data:
            events.append(b"\n".join(self._data))
            self._data.clear()
            self._num_data_bytes = 0
