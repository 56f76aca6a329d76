"""Slips of the pen put right: a typo should not change where a task goes."""

from collections.abc import Iterable

MIN_BYTES, MAX_BYTES = 4, 14  # of a word that is looked at: shorter ones mean too many things
MAX_TRIES = 3  # words looked at in one text, so that the cost is bounded


class Spelling:
    """Frequent words, found by what is left of them with one letter lost.

    A letter added is found by losing it, a letter swapped or changed by losing one on both sides.
    So are some pairs of words two letters apart; the more frequent word is meant.
    """

    def __init__(self, frequent: Iterable[bytes]) -> None:
        """`frequent`: most frequent first."""
        words = [word for word in frequent if len(word) >= MIN_BYTES]
        self._meant = {word: word for word in words}
        for word in words:
            for at in range(len(word)):
                self._meant.setdefault(word[:at] + word[at + 1 :], word)

    def slips(self, unknown: Iterable[bytes]) -> dict[bytes, bytes]:
        """Unknown word -> the frequent word that is surely meant; the first few of them only."""
        slips: dict[bytes, bytes] = {}
        tries = 0
        for word in unknown:
            if MIN_BYTES <= len(word) <= MAX_BYTES and word.isalpha():
                meant = self._find(word)
                if meant is not None:
                    slips[word] = meant
                tries += 1
                if tries == MAX_TRIES:
                    break
        return slips

    def _find(self, word: bytes) -> bytes | None:
        meant = self._meant
        if word in meant:
            return meant[word]
        for at in range(len(word)):
            shorter = word[:at] + word[at + 1 :]
            if shorter in meant:
                return meant[shorter]
        return None
