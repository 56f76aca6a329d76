"""Looks up words and pairs of words in the table of weights.

Finding the rows is most of what a classification costs. A short text is looked up in plain
dictionaries; the pairs of a longer one all at once by their words' numbers, since each dictionary
entry of a rare pair is a miss of the processor's cache.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, count, filterfalse, pairwise, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from router.classify.spelling import Spelling
from router.classify.text_features import STEM_BYTES, Reading, Term, View

NUM_SPELLED = 12_000  # most frequent words, whose misspellings are recognised
MAX_SPELLED_WORDS = 80  # of a text in which one slip counts
_WINDOW_BITS = 24  # a key holds the window's number above so many bits of the row's
_ROW_MASK = (1 << _WINDOW_BITS) - 1
_BUCKET_BITS = 17
_BUCKET_SHIFT = 64 - _BUCKET_BITS
_ID_BITS = np.uint64(32)
_ODD = np.uint64(0x9E3779B97F4A7C15)  # any odd number

Rows = NDArray[np.intp]
Hashes = NDArray[np.uint64]
Slips = Mapping[bytes, bytes]  # a word as written -> as it is read
NO_SLIPS: Slips = {}


def _hashes_of_pairs(ids: Hashes) -> Hashes:
    """Returns the hashes of neighbours: different ones for different pairs of words."""
    return ((ids[:-1] << _ID_BITS) | ids[1:]) * _ODD


class _HashTable:
    """Finds rows by hashes: in order, with the place where each bucket of them begins."""

    def __init__(self, hashes: Hashes, rows: Rows, no_row: int) -> None:
        order = hashes.argsort()
        self._rows = np.append(rows[order], no_row)
        self._hashes = np.append(hashes[order], np.uint64(0xFFFF_FFFF_FFFF_FFFF))
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
        # Words have the number of their row. Those known from pairs alone follow all rows.
        of_pairs = [word for pair in self._pair_row for word in pair]
        strange = dict.fromkeys(word for word in of_pairs if word not in self._word_row)
        self._ids = self._word_row | dict(zip(strange, count(self._no_row + 1)))
        ids = np.array([self._ids[word] for word in of_pairs], np.uint64)
        rows_of_pairs = np.array([*self._pair_row.values()], np.intp)
        self._pairs = _HashTable(_hashes_of_pairs(ids)[::2], rows_of_pairs, self._no_row)

    def rows(self, view: View | Reading) -> tuple[list[int], Slips]:
        """Finds the distinct rows of a short text's terms, misspelt ones too, and its slips."""
        words, distinct = view.words, view.distinct
        slips: Slips = NO_SLIPS
        found: dict[Any, None] = dict.fromkeys(map(self._word_row.get, distinct))  # None: unknown
        if None in found:
            unknown = [*filterfalse(self._word_row.__contains__, distinct)]
            if len(words) <= MAX_SPELLED_WORDS:
                slips = self._spelling.slips(unknown)
            if slips:
                words = [*map(slips.get, words, words)]
                found.update(dict.fromkeys(map(self._word_row.get, slips.values())))
            stems = [word[:STEM_BYTES] for word in unknown if word not in slips]
            found.update(dict.fromkeys(map(self._stem_row.get, stems)))
        found.update(dict.fromkeys(map(self._pair_row.get, pairwise(words))))
        found.pop(None, None)
        return [*found], slips

    def rows_by_window(
        self, windows: Sequence[list[bytes]], words: list[bytes]
    ) -> tuple[Rows, Rows]:
        """Finds the distinct rows of each window's terms as written, and each row's window.

        `words` are those of all windows. A slip hardly counts in so long a text. Both are ordered
        by window.
        """
        num_words, no_row = len(words), self._no_row
        ids = np.fromiter(map(self._ids.get, words, repeat(no_row)), np.intp, num_words)
        pairs = self._pairs.rows(_hashes_of_pairs(ids.view(np.uint64)))
        unknown = np.flatnonzero(ids >= no_row)
        stems = [words[at][:STEM_BYTES] for at in unknown.tolist()]
        ids[unknown] = [*map(self._stem_row.get, stems, repeat(no_row))]
        lengths = [*map(len, windows)]
        across = [end - 1 for end in accumulate(lengths) if 0 < end < num_words]
        pairs[across] = no_row  # of two windows' words
        owners = np.repeat(np.arange(len(windows)) << _WINDOW_BITS, lengths)
        keys = np.concatenate([owners + ids, owners[: len(pairs)] + pairs])
        keys.sort()
        rows = keys & _ROW_MASK
        is_first = rows != no_row
        is_first[1:] &= keys[1:] != keys[:-1]
        return rows[is_first], keys[is_first] >> _WINDOW_BITS
