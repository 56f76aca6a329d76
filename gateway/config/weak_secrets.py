"""Says why a secret must not guard a public address: it is published, or it is soon guessed.

It says, too, whether a client can send a secret at all.
"""

import itertools
import math
import re

from gateway.config.development import DEVELOPMENT_ADMIN_KEY, DEVELOPMENT_KEY

MIN_CHARS = 16
MIN_BITS = 36.0  # 16 random hex digits have more, even when several come up twice

# The secrets in this repository's configurations, pages and examples; a test looks for others.
PUBLISHED = frozenset(
    {
        DEVELOPMENT_KEY,
        DEVELOPMENT_ADMIN_KEY,
        "lanewise-development-pepper-not-for-production",
        "sk-engine-change-me",
        "sk-nightly-change-me",
        "sk-studio-change-me",
    }
)

# Words of placeholders and of the passwords that every list of leaked ones begins with. What is
# left of a secret without them is what has to be guessed.
_WORDS = (
    *("password", "passwort", "passwd", "changeme", "change", "replace", "example", "placeholder"),
    *("lanewise", "development", "production", "default", "secret", "insecure", "openai", "token"),
    *("letmein", "welcome", "iloveyou", "monkey", "dragon", "football", "baseball", "sunshine"),
    *("princess", "master", "shadow", "superman", "trustno", "whatever", "qwertyuiop", "qwerty"),
    *("asdfghjkl", "asdfgh", "zxcvbnm", "zxcvbn", "qazwsx", "admin", "tenant", "pepper", "demo"),
    *("login", "hello", "user", "root", "test", "pass", "your", "here", "this", "key", "dev"),
)
_KNOWN = re.compile("|".join(sorted(_WORDS, key=len, reverse=True)))
_REPEATED = re.compile(r"(.+?)\1+")  # aaa, abcabc
_SEPARATORS = re.compile(r"[\s._:/-]+")


def is_sendable(key: str) -> bool:
    """Says whether a key arrives as it is in a header, where spaces at its ends are lost."""
    return key.isascii() and key.isprintable() and key == key.strip()


def weakness(secret: str) -> str | None:
    """Returns what is wrong with a secret, to follow its owner's name; None if it may be used."""
    if secret in PUBLISHED:
        return "is published with Lanewise"
    if len(secret) < MIN_CHARS:
        return f"is shorter than {MIN_CHARS} characters"
    if _guessed_bits(secret) < MIN_BITS:
        return "is easily guessed"
    return None


def _guessed_bits(secret: str) -> float:
    """Estimates how many bits have to be guessed, words, repetitions and sequences aside."""
    left = _SEPARATORS.sub("", secret.lower())
    left = _REPEATED.sub(r"\1", _KNOWN.sub("", left))
    # 1234 and dcba: each character follows from the two before it.
    steps = [ord(after) - ord(before) for before, after in itertools.pairwise(left)]
    followed = sum(a == b in (-1, 0, 1) for a, b in itertools.pairwise(steps))
    return (len(left) - followed) * math.log2(max(1, len(set(left))))
