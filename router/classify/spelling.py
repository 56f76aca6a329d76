"""Corrects misspelt words, so that a typo does not change where a task goes."""

from collections.abc import Iterable
from functools import lru_cache

MIN_BYTES, MAX_BYTES = 4, 14  # of a correct word: shorter ones resemble too many others
MAX_TRIES = 4  # words looked up per text, so that the cost is bounded
MAX_REMEMBERED = 8_192  # unknown words, corrected or not
# How many times rarer than a swap or a doubled letter such misspellings are assumed to be.
OTHER_LETTERS, FAR_KEY, OTHER_FIRST = 4, 32, 16
_KEY_ROWS = (b"qwertyuiop", b"asdfghjkl", b"zxcvbnm")


def _near_keys() -> frozenset[bytes]:
    """Returns the pairs of letters whose keys touch, in a row or between rows."""
    keys = {
        key: (at + depth / 2, depth)
        for depth, row in enumerate(_KEY_ROWS)
        for at, key in enumerate(row)
    }
    return frozenset(
        bytes((one, other))
        for one, (x, y) in keys.items()
        for other, (u, v) in keys.items()
        if abs(x - u) <= 1 and abs(y - v) <= 1
    )


_NEAR_KEYS = _near_keys()


class Spelling:
    """Indexes frequent words (most frequent first) by what remains with one letter removed.

    So an added letter is found by removing it, a changed one by removing it on both sides, and
    swapped letters by their sorted order.
    """

    def __init__(self, frequent: Iterable[bytes]) -> None:
        words = [word for word in frequent if MIN_BYTES <= len(word) <= MAX_BYTES]
        self._rank = {word: rank for rank, word in enumerate(words, start=1)}
        self._near: dict[bytes, tuple[bytes, ...]] = {}  # a word, whole or less a letter
        self._anagrams: dict[bytes, tuple[bytes, ...]] = {}  # letters in order -> words
        # Some 100,000 entries are made at every start, so this is written to be quick.
        near, anagrams = self._near, self._anagrams
        for word in words:
            keys = {word[:at] + word[at + 1 :] for at in range(len(word))}
            keys.add(word)
            for key in keys:
                near[key] = (*near[key], word) if key in near else (word,)
            letters = bytes(sorted(word))
            anagrams[letters] = (*anagrams.get(letters, ()), word)
        # The same names and terms come again and again.
        self._likeliest = lru_cache(MAX_REMEMBERED)(self._find)

    def slips(self, unknown: Iterable[bytes]) -> dict[bytes, bytes]:
        """Maps the first few unknown words to the frequent words that they misspell."""
        slips: dict[bytes, bytes] = {}
        tries = 0
        for word in unknown:
            if MIN_BYTES - 1 <= len(word) <= MAX_BYTES + 1 and word.isalpha():
                right = self._likeliest(word)
                if right is not None:
                    slips[word] = right
                tries += 1
                if tries == MAX_TRIES:
                    break
        return slips

    def _find(self, word: bytes) -> bytes | None:
        """Finds the likeliest word one edit away, assuming frequency to be one over the rank."""
        near = self._near
        found = [*near.get(word, ())]
        for at in range(len(word)):
            shorter = word[:at] + word[at + 1 :]
            if shorter in near:
                found += [
                    right
                    for right in near[shorter]
                    if right == shorter or right[:at] + right[at + 1 :] == shorter
                ]
        swapped = self._anagrams.get(bytes(sorted(word)), ())
        found += [right for right in swapped if _is_swap(word, right)]
        if len(found) < 2:
            return found[0] if found else None
        return min(found, key=lambda right: self._rank[right] * _rarity(word, right))


def _rarity(written: bytes, right: bytes) -> int:
    """Returns how many times rarer a misspelling is than the commonest kinds."""
    of_first = 1 if written[0] == right[0] else OTHER_FIRST
    if set(written) == set(right):
        return of_first
    if len(written) != len(right):
        return OTHER_LETTERS * of_first
    changed = next(bytes(pair) for pair in zip(written, right, strict=True) if pair[0] != pair[1])
    return (OTHER_LETTERS if changed in _NEAR_KEYS else FAR_KEY) * of_first


def _is_swap(written: bytes, right: bytes) -> bool:
    """Returns whether two words of the same letters differ by two swapped neighbours."""
    differ = [at for at in range(len(written)) if written[at] != right[at]]
    return len(differ) == 2 and differ[1] == differ[0] + 1
