"""Writes what is left in a tenant's pools as Anthropic's headers."""

import datetime
import math
import re
from collections.abc import Mapping

_SECONDS = {"h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
_STEP = re.compile(r"([\d.]+)(ms|h|m|s)")
_KINDS = {"requests": ("requests",), "tokens": ("tokens", "input-tokens", "output-tokens")}
ANTHROPIC_LIMITS = tuple(
    f"anthropic-ratelimit-{kind}-{figure}"
    for kinds in _KINDS.values()
    for kind in kinds
    for figure in ("limit", "remaining", "reset")
)


def anthropic_limits(headers: Mapping[str, str], unix_s: float) -> dict[str, str]:
    """Makes Anthropic's headers of OpenAI's, as `rate_limit_headers` wrote them.

    The pools count input and output tokens together, so all three kinds of tokens have one limit.
    """
    written: dict[str, str] = {}
    for unit, kinds in _KINDS.items():
        limit = headers.get(f"x-ratelimit-limit-{unit}")
        if limit is None:
            continue
        reset = rfc3339(unix_s + _seconds(headers[f"x-ratelimit-reset-{unit}"]))
        for kind in kinds:
            name = f"anthropic-ratelimit-{kind}"
            written[f"{name}-limit"] = limit
            written[f"{name}-remaining"] = headers[f"x-ratelimit-remaining-{unit}"]
            written[f"{name}-reset"] = reset
    return written


def _seconds(duration: str) -> float:
    return sum(float(amount) * _SECONDS[unit] for amount, unit in _STEP.findall(duration))


def rfc3339(unix_s: float) -> str:
    """Writes an instant in whole seconds, rounded up."""
    moment = datetime.datetime.fromtimestamp(math.ceil(unix_s), datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
