"""Tests W3C Trace Context, as its specification has it."""

import pytest

from gateway.tracing.trace import Caller, Trace, caller_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"  # the specification's own


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-holds", True),
    ],
)
def test_a_caller_is_read(text: str, is_sampled: bool) -> None:
    assert caller_of(text) == Caller(int(TRACE, 16), int(SPAN, 16), is_sampled)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_what_is_not_valid_is_no_caller(text: str | None) -> None:
    assert caller_of(text) is None


def test_a_task_is_its_callees_caller() -> None:
    trace = Trace(int(TRACE, 16), int(SPAN, 16), None)
    assert trace.traceparent == f"00-{TRACE}-{SPAN}-01"
    assert caller_of(trace.traceparent) == Caller(trace.trace_id, trace.span_id, True)
