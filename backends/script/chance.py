"""Draws seeded random numbers: small, fast, and the same on every machine and Python."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# Knuth's MMIX multiplier and increment; the high bits are the random ones.
_MULTIPLIER, _INCREMENT = 6364136223846793005, 1442695040888963407
_MASK = (1 << 64) - 1


class Chance:
    """Draws a sequence of choices that its seed determines."""

    __slots__ = ("_state",)

    def __init__(self, *seed: int | str) -> None:
        encoded = "\x1f".join(map(str, seed)).encode("utf-8", "surrogatepass")
        self._state = int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "big")

    def below(self, limit: int) -> int:
        """Chooses a whole number from 0 up to, not including, the limit."""
        self._state = state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return (state >> 33) % limit

    def between(self, low: int, high: int) -> int:
        """Chooses a whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        # This repeats `below`, as picking words is half of the cost of an answer.
        self._state = state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return options[(state >> 33) % len(options)]
