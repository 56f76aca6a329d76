"""Server-sent events from bytes as they arrive: the data of each event, whole.

Of the standard (WHATWG HTML, 9.2) only `data` matters here: both protocols repeat an event's type
inside. Lines end in LF or CRLF; a lone CR, which nobody sends, does not end one.
"""

MAX_EVENT_BYTES = 16 << 20  # the terminal event repeats the whole answer


class EventTooLongError(Exception):
    """An event exceeds `MAX_EVENT_BYTES`."""


class EventParser:
    """Feed it chunks of any size; cuts may fall anywhere."""

    def __init__(self) -> None:
        self._rest = b""  # an unfinished line
        self._data: list[bytes] = []
        self._num_bytes = 0  # of the unfinished event

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that are now complete.

        Raises:
            EventTooLongError: The stream cannot be read on.
        """
        events: list[bytes] = []
        lines = (self._rest + chunk).split(b"\n") if self._rest else chunk.split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]
            if line.startswith(b"data:"):
                value = line[6:] if line[5:6] == b" " else line[5:]
                self._data.append(value)
                self._num_bytes += len(value)
            elif not line and self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data.clear()
                self._num_bytes = 0
        if self._num_bytes + len(self._rest) > MAX_EVENT_BYTES:
            raise EventTooLongError(f"an event has more than {MAX_EVENT_BYTES} bytes")
        return events
