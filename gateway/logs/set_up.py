"""Sends the records of Python's `logging`, and tasks' lines, to standard error. This is an edge."""

import logging
import sys
import time
from datetime import UTC, datetime
from functools import partial

import msgspec

from gateway.config.sections import LogsConfig
from gateway.logs.repeats import Repeats
from gateway.logs.task_line import TaskLine, TaskLog, as_json, as_text
from gateway.logs.writer import LogWriter


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """Is a record of `logging`."""

    level: str
    event: str
    at: float  # Unix time
    message: str
    exception: str | None = None


def set_up_logging(config: LogsConfig) -> TaskLog | None:
    """Sends logs to standard error; returns what takes tasks' lines, or None if they are off.

    A second call, with the configuration, replaces the first.
    """
    is_json = config.format == "json" or (config.format == "auto" and not sys.stderr.isatty())
    handler = _StandardError(is_json=is_json)
    root = logging.getLogger()
    for earlier in [each for each in root.handlers if isinstance(each, _StandardError)]:
        root.removeHandler(earlier)
        earlier.close()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    uvicorn = logging.getLogger("uvicorn.error")
    if escaped not in uvicorn.filters:
        uvicorn.addFilter(escaped)
    return handler.take if config.tasks else None


class _StandardError(logging.Handler):
    """Formats records in the thread that writes them."""

    def __init__(self, *, is_json: bool) -> None:
        super().__init__()
        self._of_record = _json_of if is_json else _text_of
        self._of_task = as_json if is_json else _task_text_of
        self._repeats = Repeats()
        self._writer = LogWriter(sys.stderr.fileno(), self._told)

    def take(self, line: TaskLine) -> None:
        self._writer.write(partial(self._of_task, line), at_once=False)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage().encode(errors="replace").decode()  # now: it may change
        except Exception:
            self.handleError(record)
            return
        # A line that names a task is like others and not equal: its `extra={"once": ...}` says so.
        alike = getattr(record, "once", message if record.levelno == logging.WARNING else None)
        if alike is not None:
            num_left_out = self._repeats.passes(alike, time.monotonic_ns() // 1_000)
            if num_left_out is None:
                return
            if num_left_out:
                message = f"{message} ({num_left_out:,} such lines were left out)"
        if record.exc_info is not None:
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        self._writer.write(partial(self._of_record, record, message))

    def close(self) -> None:
        self._writer.close()
        super().close()

    def _told(self, num_dropped: int) -> bytes:
        message = f"{num_dropped:,} lines are missing: the log was not read fast enough"
        record = logging.LogRecord("lanewise", logging.WARNING, "", 0, message, None, None)
        return self._of_record(record, message)


_FORMATTER = logging.Formatter()


def _json_of(record: logging.LogRecord, message: str) -> bytes:
    level = record.levelname.lower()
    line = _Line(level, "log", round(record.created, 6), message, record.exc_text)
    return msgspec.json.encode(line)


def _text_of(record: logging.LogRecord, message: str) -> bytes:
    text = f"{_time_of(record.created)} {record.levelname} {_shown(message)}"
    if record.exc_text:
        lines = record.exc_text.split("\n")
        text = "\n".join([text, *(f"  {_shown(line)}" for line in lines)])
    return text.encode(errors="replace")


def _shown(text: str) -> str:
    """Returns a text as one line that moves no cursor.

    An upstream's words are in some, which must neither look like lines of ours nor command a
    terminal.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _task_text_of(line: TaskLine) -> bytes:
    return f"{_time_of(line.at)} INFO {as_text(line)}".encode(errors="replace")


def _time_of(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def escaped(record: logging.LogRecord) -> bool:
    """Lets pass what escaped; malformed frames and clients that left are counted, not logged."""
    error = record.exc_info[1] if record.exc_info else None
    is_fault = isinstance(error, Exception) and not isinstance(error, OSError)
    return is_fault and record.getMessage().startswith("Exception in ASGI")
