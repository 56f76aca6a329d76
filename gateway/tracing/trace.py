"""Defines what a traced task carries with it: its ids, and when its steps began and ended.

The ids are those of W3C Trace Context (https://www.w3.org/TR/trace-context/, version 00, 2021-11).
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.A)
_SAMPLED = 1


class Caller(NamedTuple):
    """Names the span that a client's request is part of."""

    trace_id: int
    span_id: int
    is_sampled: bool


class TaskStep(NamedTuple):
    """Times a part of a task's life, in the gateway's monotonic microseconds."""

    name: str
    began_us: int
    ended_us: int


@dataclass(slots=True)
class Trace:
    """Holds a task's own span, and its steps so far."""

    trace_id: int
    span_id: int
    parent_id: int | None  # the caller's span
    steps: list[TaskStep] = field(default_factory=list)

    @property
    def traceparent(self) -> str:
        """Returns the header for those whom the task calls."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"

    def step(self, name: str, began_us: int, ended_us: int) -> None:
        """Notes a step."""
        self.steps.append(TaskStep(name, began_us, ended_us))


def caller_of(traceparent: str | None) -> Caller | None:
    """Reads a `traceparent`; None if there is none, or it is not valid."""
    found = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if (
        version == "ff"
        or (version == "00" and more)
        or not int(trace_id, 16)
        or not int(span_id, 16)
    ):
        return None
    return Caller(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))
