"""Joins the halves of a character that a server writes as escapes in the texts of two messages.

JSON has characters beyond the first 65,536 as pairs of escapes (RFC 8259, 7). Servers that cut a
text between the two send what no decoder takes.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

_LOW = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(
    rb"(?P<high>\\u[dD][89abAB][0-9a-fA-F]{2})(?P<pair>" + _LOW + rb")?"
    rb"|(?P<low>" + _LOW + rb")|\\.",
    re.DOTALL,
)
_REPLACEMENT = rb"\ufffd"


class PairJoiner:
    """Decodes the messages of one stream."""

    def __init__(self, decode: Callable[[bytes], Any]) -> None:
        self._decode = decode
        self._half = b""  # at the end of a text of the message before

    def decode(self, message: bytes) -> Any:
        """Decodes as it was told, but for halves: those of no pair are U+FFFD, or dropped last."""
        half, self._half = self._half, b""
        try:
            return self._decode(message)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            mended = _ESCAPE.sub(lambda found: self._mend(found, half), message)
            if mended == message:
                raise
            return self._decode(mended)

    def _mend(self, found: re.Match[bytes], half: bytes) -> bytes:
        if found["low"]:
            return half + found["low"] if half else _REPLACEMENT
        if not found["high"] or found["pair"]:
            return found[0]
        if found.string[found.end() : found.end() + 1] != b'"':
            return _REPLACEMENT
        self._half = found["high"]
        return b""
