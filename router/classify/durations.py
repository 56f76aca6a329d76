"""Durations as errors say them."""

LEAST_WAIT_US = 1_000_000  # said where nobody knows how long it will be


def in_words(duration_us: int) -> str:
    """As clients of OpenAI read it: `120ms`, `1.5s`; rounded up, for it is a promise."""
    duration_ms = -(-duration_us // 1_000)
    if duration_ms < 1_000:
        return f"{duration_ms}ms"
    return f"{-(-duration_ms // 10) / 100:g}s"
