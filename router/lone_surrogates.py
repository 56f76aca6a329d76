r"""Finds why JSON is refused that looks right: an escape as \ud800, which is half of a character.

Clients write one where they cut a text amid a character. msgspec says that the text was truncated,
which sends their authors looking for another fault.
"""

import re

# An escape of JSON: two surrogates that are a character, one alone, or any other.
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


def lone_surrogate(content: bytes) -> str | None:
    """Says in words which escape of a JSON text is a lone surrogate, and where; None: none is."""
    for escape in _ESCAPE.finditer(content):
        if escape["lone"]:
            lone = escape["lone"].decode()
            return (
                f"{lone} is a lone surrogate, half of a character, at byte {escape.start()}; "
                "send both halves"
            )
    return None
