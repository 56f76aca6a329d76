"""Says what may name an image in a prompt: a web address, or a data URL that holds the image.

Anything else would come to an upstream that refuses it in words of its own, or to a simulated
engine that answers as if it had seen something.
"""

import re

MAX_SHOWN_CHARS = 64

_BEGINNING = re.compile(
    r"https?://[^\s/?#]|data:image/[\w.+*-]+(?:;[^\s,;]+)*;base64,\s*[\w+/-]",
    re.ASCII | re.IGNORECASE,
)
_MAX_BEGINNING_CHARS = 256  # of what says it: behind that there may be megabytes


def objection(address: str) -> str | None:
    """Says what was expected in place of an address that names no image; None if it may be one."""
    if _BEGINNING.match(address, 0, _MAX_BEGINNING_CHARS) is not None:
        return None
    got = repr(address[:MAX_SHOWN_CHARS])
    return f"expected an http or https URL, or 'data:image/...;base64,...', got {got}"
