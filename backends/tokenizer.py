"""Counts tokens by one fixed rule, which needs no vocabulary and no network.

A token is the longest match, from left to right, of the first of these that matches:

1. up to 8 ASCII letters, with the space before them;
2. up to 3 ASCII digits, with the space before them;
3. up to 4 ASCII punctuation marks, with the space before them;
4. one or two line breaks and up to 14 spaces or tabs of indentation after them;
5. up to 16 spaces or tabs, but not the one before a word;
6. up to 3 letters between U+0080 and U+2FFF (Cyrillic, Greek, Arabic, accents, ...);
7. any other single character (CJK, emoji, control characters).

That is about 4.4 characters a token on English prose, 4.1 on Python and 3.7 on Markdown tables,
near the byte-pair vocabularies in use. No token is longer than `MAX_TOKEN_CHARS`, so a text of n
characters has at least n / 16 tokens. Every upstream counts by its own vocabulary; where it
reports, it is right.

It imports by name: counting by runs needs numpy, and a command that only reads a configuration,
which knows all backends, does not count.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from itertools import accumulate

MAX_TOKEN_CHARS = 16

LONG_CHARS = 3_000  # from here on counting by runs is two to five times faster

_TOKEN = re.compile(
    r" ?[A-Za-z]{1,8}"
    r"| ?[0-9]{1,3}"
    r"| ?[!-/:-@\[-`{-~]{1,4}"
    r"|\n{1,2}[ \t]{0,14}"
    r"|[ \t]{1,15}(?= [^ \t])|[ \t]{1,16}"
    r"|[\u0080-\u2fff]{1,3}"
    r"|[\s\S]"
)


# Splits a text into its tokens, in order; joined they are the text again.
split: Callable[[str], list[str]] = _TOKEN.findall


def count(text: str, max_tokens: int | None = None) -> int:
    """Counts a text's tokens; with a maximum, counting stops soon after it is passed."""
    if len(text) < LONG_CHARS:
        return len(_TOKEN.findall(text))
    return _count_by_runs()(text, max_tokens)


@lru_cache(1)
def _count_by_runs() -> Callable[[str, int | None], int]:
    counting: Callable[[str, int | None], int] = import_module("backends.token_runs").count_by_runs
    return counting


def token_ends(text: str) -> list[int]:
    """Returns each token's end index in the text; the last is the text's length."""
    return list(accumulate(map(len, _TOKEN.findall(text))))


def min_tokens(num_chars: int) -> int:
    """Returns the fewest tokens that a text of so many characters can have."""
    return -(-num_chars // MAX_TOKEN_CHARS)
