"""Looks up words and pairs of words in the table of weights.

Finding the rows is most of what a classification costs. A short text is looked up in plain
dictionaries; the terms of a longer one all at once by their hashes, since each dictionary entry
of a rare word is a miss of the processor's cache.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, filterfalse, pairwise

import numpy as np
from numpy.typing import NDArray

from router.classify.spelling import Spelling
from router.classify.text_features import STEM_BYTES, Term

NUM_SPELLED = 12_000  # most frequent words, whose misspellings are recognised
MAX_SPELLED_WORDS = 80  # of a text in which one slip counts
_WINDOW_BITS = 24  # a key holds the window's number above so many bits of the row's
_ROW_MASK = (1 << _WINDOW_BITS) - 1
_BUCKET_BITS = 17
_BUCKET_SHIFT = 64 - _BUCKET_BITS
_FIRST, _STEM = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)  # any odd ones

Rows = NDArray[np.intp]
Hashes = NDArray[np.uint64]


def _hashes(words: Iterable[bytes], num_words: int) -> Hashes:
    """Returns the words' hashes, which each process draws anew, so that nobody finds equal ones."""
    return np.fromiter(map(hash, words), np.int64, num_words).view(np.uint64)


def _pairs(hashes: Hashes) -> Hashes:
    """Returns the hashes of neighbours."""
    return (hashes[:-1] * _FIRST) ^ hashes[1:]


class _HashTable:
    """Finds rows by hashes: in order, with the place where each bucket of them begins."""

    def __init__(self, hashes: Hashes, no_row: int) -> None:
        self._rows = np.append(hashes.argsort(), no_row)
        self._hashes = np.append(hashes[self._rows[:-1]], np.uint64(0xFFFF_FFFF_FFFF_FFFF))
        starts = np.arange(1 << _BUCKET_BITS, dtype=np.uint64) << np.uint64(_BUCKET_SHIFT)
        self._starts = self._hashes[:-1].searchsorted(starts)
        self._depth = int(np.diff(self._starts, append=len(hashes)).max(initial=0))
        self._no_row = no_row

    def rows(self, hashes: Hashes) -> Rows:
        at = self._starts.take(hashes >> np.uint64(_BUCKET_SHIFT))
        for _ in range(self._depth):
            at += self._hashes.take(at) < hashes
        rows = self._rows.take(at)
        rows[self._hashes.take(at) != hashes] = self._no_row
        return rows


class Vocabulary:
    """Maps terms and the stems of unknown words to rows; see `LinearModel` for their order."""

    def __init__(self, terms: Sequence[Term], stems: Sequence[bytes]) -> None:
        rows = list(enumerate(terms))
        self._word_row = {term: row for row, term in rows if isinstance(term, bytes)}
        self._pair_row = {term: row for row, term in rows if isinstance(term, tuple)}
        self._stem_row = {stem: row for row, stem in enumerate(stems, start=len(rows))}
        self._no_row = len(rows) + len(stems)
        self._spelling = Spelling([*self._word_row][:NUM_SPELLED])
        of_terms = [
            _hashes([term], 1) if isinstance(term, bytes) else _pairs(_hashes(term, 2))
            for term in terms
        ]
        of_stems = _hashes(stems, len(stems)) * _STEM
        self._table = _HashTable(np.concatenate([*of_terms, of_stems]), self._no_row)

    def rows(self, words: list[bytes]) -> list[int]:
        """Finds the distinct rows of a short text's terms, misspelt ones too."""
        found = dict.fromkeys(map(self._word_row.get, words))
        if None in found:
            unknown = [*filterfalse(self._word_row.__contains__, words)]
            slips = self._spelling.slips(unknown) if len(words) <= MAX_SPELLED_WORDS else {}
            if slips:
                words = [*map(slips.get, words, words)]
                found.update(dict.fromkeys(map(self._word_row.get, slips.values())))
            stems = [word[:STEM_BYTES] for word in unknown if word not in slips]
            found.update(dict.fromkeys(map(self._stem_row.get, stems)))
        found.update(dict.fromkeys(map(self._pair_row.get, pairwise(words))))
        return [row for row in found if row is not None]

    def rows_by_window(self, windows: Sequence[list[bytes]]) -> tuple[Rows, Rows]:
        """Finds the distinct rows of each window's terms as written, and each row's window.

        A slip hardly counts in so long a text. Both are ordered by window.
        """
        words = [word for window in windows for word in window]
        num_words, no_row = len(words), self._no_row
        hashes = _hashes(words, num_words)
        single = self._table.rows(hashes)
        unknown = np.flatnonzero(single == no_row)
        stems = [words[at][:STEM_BYTES] for at in unknown.tolist()]
        more = np.concatenate([_hashes(stems, len(stems)) * _STEM, _pairs(hashes)])
        others = self._table.rows(more)
        single[unknown], pairs = others[: len(stems)], others[len(stems) :]
        lengths = [len(window) for window in windows]
        across = [end - 1 for end in accumulate(lengths) if 0 < end < num_words]
        pairs[across] = no_row  # of two windows' words
        owners = np.repeat(np.arange(len(windows)) << _WINDOW_BITS, lengths)
        keys = np.concatenate([owners + single, owners[: len(pairs)] + pairs])
        keys.sort()
        rows = keys & _ROW_MASK
        is_first = rows != no_row
        is_first[1:] &= keys[1:] != keys[:-1]
        return rows[is_first], keys[is_first] >> _WINDOW_BITS
