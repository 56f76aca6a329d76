"""Decides what the log says of a task that ended: never a word of its prompt or its answer."""

from collections.abc import Callable

import msgspec

_ARROW = "\N{RIGHTWARDS ARROW}"


class TaskLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes a task; a field is left out where the task did not get so far."""

    at: float  # Unix time of its end
    id: str  # the response's
    tenant: str
    key: str = ""  # its id, not the key
    model: str = ""  # as the client named it
    route: str | None = None
    strategy: str | None = None
    rule: str | None = None
    reason: str | None = None
    policy: str | None = None
    answered_by: str | None = None
    outcome: str  # as in `lanewise_requests_total`
    error: str | None = None
    queued_ms: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    duration_ms: float
    input_tokens: int = 0
    cached_tokens: int = 0  # of the input
    output_tokens: int = 0
    cost_units: int = 0  # weighted tokens, as the pools were charged
    cost_usd: float | None = None  # None: a model has no price
    service_tier: str | None = None  # that an upstream says it served
    energy_joules: float | None = None  # None: an engine's power is not known
    rejoined: int = 0  # how often its client came back to it after a lost connection
    grace_units: int = 0  # of `cost_units`, spent while nobody listened


TaskLog = Callable[[TaskLine], None]


class _Tagged(msgspec.Struct, frozen=True):
    """Holds the fields that every line has."""

    level: str
    event: str


_HEAD = msgspec.json.encode(_Tagged("info", "task"))[:-1]


def as_json(line: TaskLine) -> bytes:
    """Returns the line as JSON, marked as a task's."""
    return b"%b,%b" % (_HEAD, msgspec.json.encode(line)[1:])


def as_text(line: TaskLine) -> str:
    """Returns the line for a person; the time is not in it."""
    route = line.route or "-"
    if line.strategy is not None:
        route += f" ({line.strategy})"
    said = f"{line.input_tokens} {_ARROW} {line.output_tokens} tokens"
    first = "" if line.ttft_ms is None else f", first after {line.ttft_ms:,.0f} ms"
    why = f", rule {line.rule}" if line.rule else ""
    error = f" {line.error}" if line.error else ""
    took = f"{line.duration_ms:,.0f} ms"
    if line.rejoined:
        took += f", rejoined {line.rejoined} times"
    words = f"task {line.id} {line.outcome}{error}: {route}, {said}, {took}{first}{why}"
    return f"{words}, tenant {line.tenant}"
