"""Compiles the regular expressions that clients send: in linear time and bounded memory (RE2)."""

import re2

MAX_PATTERN_BYTES = 1 << 20  # of a compiled pattern; one that needs more is not taken

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # they come from clients
_OPTIONS.max_mem = MAX_PATTERN_BYTES


def compiled(pattern: str) -> "re2._Regexp | None":
    """Compiles a client's pattern; None if RE2 does not know it."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except (re2.error, UnicodeEncodeError):
        return None
