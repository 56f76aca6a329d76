"""Many asks in, one decision each out: JSON lines, for evaluation by others and for planning.

In, a line: `{"id": str, "text": str}`. Out, in the same order, a line: `id`, `lane` (interactive,
deep or parallel), `p_deep`, `security`, `p_security`, `p_need_large`, `out_tokens`, `route_us`, and
`signals`. A line that cannot be read gives `{"id": null, "error": ...}` in its place.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from router.classify import DEFAULT_BAND, MODEL, Band, features_of_text, form_opinion
from router.linear_model import LinearModel
from router.task import TaskClass

Lane = Literal["interactive", "deep", "parallel"]


class Ask(msgspec.Struct, frozen=True):
    """One line in."""

    id: str
    text: str


class BatchDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One line out."""

    id: str
    lane: Lane
    p_deep: float
    security: bool
    p_security: float
    p_need_large: float  # that a large model gets it right and a small one does not
    out_tokens: float
    route_us: float  # reading and classifying the text; without JSON and putting it into words
    signals: tuple[str, ...]


class BatchError(msgspec.Struct, frozen=True, kw_only=True):
    """One line out for a line that was no ask."""

    id: None = None
    error: str


def lane_of(task_class: TaskClass) -> Lane:
    """Where the default policy sends such a task, if every engine is up and no rule applies."""
    if task_class.security_sensitive:
        return "deep"
    return "parallel" if task_class.label == "uncertain" else task_class.label


def decide_batch(
    lines: Iterable[bytes],
    clock_ns: Callable[[], int],
    band: Band = DEFAULT_BAND,
    model: LinearModel = MODEL,
) -> Iterator[bytes]:
    """One decision for each line that is not blank, as JSON without a line break; lazily.

    Args:
        clock_ns: A monotonic clock, for `route_us` alone.
    """
    decoder = msgspec.json.Decoder(Ask)
    encoder = msgspec.json.Encoder()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            ask = decoder.decode(line)
        except msgspec.MsgspecError as error:
            yield encoder.encode(BatchError(error=f"line {number}: {error}"))
            continue
        started_ns = clock_ns()
        opinion = form_opinion(features_of_text(ask.text), band, model)
        route_us = (clock_ns() - started_ns) / 1_000
        task_class = opinion.task_class
        yield encoder.encode(
            BatchDecision(
                id=ask.id,
                lane=lane_of(task_class),
                p_deep=task_class.p_deep,
                security=task_class.security_sensitive,
                p_security=task_class.p_security,
                p_need_large=task_class.p_gain,
                out_tokens=float(task_class.expected_output_tokens),
                route_us=route_us,
                signals=opinion.signals(),
            )
        )
