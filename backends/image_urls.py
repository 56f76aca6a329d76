"""Says what may name an image or a file in a prompt: a web address, or a data URL that holds it.

Anything else would come to an upstream that refuses it in words of its own, or to a simulated
engine that answers as if it had seen something.
"""

import re

MAX_SHOWN_CHARS = 64

_WEB = r"https?://[^\s/?#]"
_BASE64 = r"(?:;[^\s,;]+)*;base64,\s*[\w+/-]"
_IMAGE = re.compile(rf"{_WEB}|data:image/[\w.+*-]+{_BASE64}", re.ASCII | re.IGNORECASE)
_FILE = re.compile(rf"{_WEB}|data:(?:[\w.+-]+/[\w.+*-]+)?{_BASE64}", re.ASCII | re.IGNORECASE)
_MAX_BEGINNING_CHARS = 256  # of what says it: behind that there may be megabytes


def objection(address: str) -> str | None:
    """Says what was expected in place of an address that names no image; None if it may be one."""
    return _expected(_IMAGE, "data:image/...;base64,...", address)


def file_objection(address: str) -> str | None:
    """Says what was expected in place of an address that names no file; None if it may be one."""
    return _expected(_FILE, "data:...;base64,...", address)


def _expected(beginning: re.Pattern[str], data: str, address: str) -> str | None:
    if beginning.match(address, 0, _MAX_BEGINNING_CHARS) is not None:
        return None
    got = repr(address[:MAX_SHOWN_CHARS])
    return f"expected an http or https URL, or '{data}', got {got}"
