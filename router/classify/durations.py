"""Formats durations for error messages."""

LEAST_WAIT_US = 1_000_000  # where the wait is unknown


def in_words(duration_us: int) -> str:
    """Formats a duration as OpenAI does (`120ms`, `1.5s`), rounded up since clients wait for it."""
    duration_ms = -(-duration_us // 1_000)
    if duration_ms < 1_000:
        return f"{duration_ms}ms"
    return f"{-(-duration_ms // 10) / 100:g}s"
