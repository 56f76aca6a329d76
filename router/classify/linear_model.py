"""Scores a text with the trained classifier, and explains the score.

Four linear heads share one vocabulary and one table of weights: deep work, security, the gain a
large model brings over a small one, and the length of the answer. A head's score is the sum of the
weights of a window's terms (words and pairs) over the root of their number, over all windows
(`window_share`), plus the text's shape, scaled to log-odds. Of a long text with a request in front
or behind, `REQUEST_SHARE` of the score is the request's own. For security the words of the highest
window count alone. `docs/classifier.md` has the formula and the measured quality.
"""

import math
from collections.abc import Sequence
from itertools import chain, pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.classify.spelling import Spelling
from router.classify.text_features import (
    DENSE_NAMES,
    STEM_BYTES,
    Reading,
    Term,
    dense,
    num_terms,
    once,
)

HEADS = ("deep", "security", "gain", "output")
DEEP, SECURITY, GAIN, OUTPUT = range(4)
REQUEST_SHARE = 0.8  # of the score of a long text that begins or ends with a request
NUM_SPELLED = 12_000  # most frequent words, whose misspellings are recognised
MAX_LOG2_OUTPUT_TOKENS = 15.0

Weights = NDArray[np.float64]
Singles = NDArray[np.float32]


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Records where weights come from, so that they can be made again."""

    version: str
    num_records: int
    records_hash: str  # of the training records, by `labelled.fingerprint`
    calibration_hash: str
    sources: tuple[str, ...]  # of the training records
    seed: int


class Part(msgspec.Struct, frozen=True, gc=False):
    """Holds one signal's part of a score."""

    log_odds: float
    name: str


class LinearModel:
    """Holds the weights, immutable and prepared for scoring.

    Args:
        vocabulary: Known words, the most frequent first, and pairs.
        stems: Beginnings of words, for unknown words.
        term_weights: Shape (vocabulary + stems, heads), in that order.
        dense_means: Shape (dense,): the average prompt's shape, against which parts are measured.
        dense_weights: Shape (dense, heads).
        biases: Shape (heads,).
        scales: Shape (heads, 2): score -> slope * score + offset, the calibrated log-odds; of
            `output`, log2 of the tokens.
    """

    def __init__(
        self,
        vocabulary: Sequence[Term],
        stems: Sequence[bytes],
        term_weights: Weights,
        dense_means: Weights,
        dense_weights: Weights,
        biases: Weights,
        scales: Weights,
        provenance: Provenance,
        content_hash: str = "",
    ) -> None:
        self.vocabulary, self.stems = tuple(vocabulary), tuple(stems)
        self.term_weights, self.dense_weights = term_weights, dense_weights
        self.dense_means, self.biases, self.scales = dense_means, biases, scales
        self.provenance, self.content_hash = provenance, content_hash
        # The table for serving includes the scales and has single precision, to stay in cache.
        # After the terms' rows come those of the shape and of the constant.
        slopes, offsets = scales[:, 0], scales[:, 1]
        constant = (biases - dense_means @ dense_weights) * slopes + offsets
        table = np.vstack([term_weights * slopes, dense_weights * slopes, constant])
        self._table = table.astype(np.float32)
        self._shape_rows = list(range(len(term_weights), len(table)))
        # The average prompt's shape and the constant are no signals for `Scores.parts`.
        usual = np.append(dense_means, 1.0)[:, None] * table[len(term_weights) :]
        self.usual_shape = usual.astype(np.float32)
        # A window's score is a sum over few rows, for which plain Python is faster.
        self._security_column = table[: len(term_weights), SECURITY].tolist()
        rows = list(enumerate(self.vocabulary))
        self._word_row = {term: row for row, term in rows if isinstance(term, bytes)}
        self._pair_row = {term: row for row, term in rows if isinstance(term, tuple)}
        self._stem_row = {stem: row for row, stem in enumerate(self.stems, start=len(rows))}
        self._spelling = Spelling([*self._word_row][:NUM_SPELLED])
        self.score = once(self._score)

    def _score(self, reading: Reading) -> "Scores":
        if len(reading.windows) == 1:
            windows = [self._rows(reading.words)]
        else:
            windows = [self._rows_as_written(words) for words in reading.windows]
        rows = [*chain.from_iterable([found for found, _ in windows])]
        part = window_share(len(windows))
        shape = dense(reading, reading.num_chars)
        asked: tuple[list[int], float] = [], 0.0
        if reading.request is not None:
            rest = 1 - REQUEST_SHARE
            own = dense(reading.request, len(reading.request.prompt))
            shape = [rest * x + REQUEST_SHARE * y for x, y in zip(shape, own, strict=True)]
            asked = self._rows(reading.request.words)
            rows += asked[0]
            part *= rest
        shares = [*[part * share for _, share in windows], REQUEST_SHARE * asked[1]]
        counted = np.empty(len(rows) + len(shape) + 1, np.float32)
        if len(windows) == 1:
            counted[: len(rows)] = shares[0]
        else:
            counted[: len(rows)] = np.repeat(shares, [len(found) for found, _ in (*windows, asked)])
        counted[len(rows) : -1] = shape
        counted[-1] = 1.0
        taken = self._table.take(rows + self._shape_rows, axis=0)
        deep, security, gain, output = (counted @ taken).tolist()
        sensitive = rows
        if len(windows) > 1:
            # The words of the highest window count in place of those of all windows.
            of_all = float(counted[: len(rows)] @ taken[: len(rows), SECURITY])
            highest, at = max([(self._security(*found), at) for at, found in enumerate(windows)])
            security, sensitive = security - of_all + highest, windows[at][0]
        output_tokens = 2.0 ** max(0.0, min(output, MAX_LOG2_OUTPUT_TOKENS))
        summed = Sum(rows, counted, taken)
        return Scores(self, deep, security, gain, output_tokens, summed, sensitive)

    def _security(self, rows: list[int], share: float) -> float:
        """Sums up the words of one window."""
        column = self._security_column
        total: float = sum([column[row] for row in rows])
        return share * total

    def _rows(self, words: list[bytes]) -> tuple[list[int], float]:
        """Finds the rows of the terms of a short text, misspelt ones too, and the terms' share."""
        found = dict.fromkeys(map(self._word_row.get, words))
        if None in found:
            unknown = [word for word in dict.fromkeys(words) if word not in self._word_row]
            slips = self._spelling.slips(unknown)
            if slips:
                words = [*map(slips.get, words, words)]
                found = dict.fromkeys(map(self._word_row.get, words))
            stems = [word[:STEM_BYTES] for word in unknown if word not in slips]
            found.update(dict.fromkeys(map(self._stem_row.get, stems)))
        return self._with_pairs(found, words)

    def _rows_as_written(self, words: list[bytes]) -> tuple[list[int], float]:
        """Finds the rows of a window's terms and the terms' share; a slip hardly counts there."""
        found = dict.fromkeys(map(self._word_row.get, words))
        if None in found:
            known = self._word_row
            stems = [word[:STEM_BYTES] for word in words if word not in known]
            found.update(dict.fromkeys(map(self._stem_row.get, stems)))
        return self._with_pairs(found, words)

    def _with_pairs(
        self, found: dict[int | None, None], words: list[bytes]
    ) -> tuple[list[int], float]:
        found.update(dict.fromkeys(map(self._pair_row.get, pairwise(words))))
        return [row for row in found if row is not None], term_share(num_terms(words))

    def strongest(self, rows: list[int], num_rows: int) -> list[str]:
        """Names the rows with the largest weights for security, strongest first."""
        ordered = sorted(dict.fromkeys(rows), key=lambda row: -self._security_column[row])
        return [self.name(row) for row in ordered[:num_rows] if self._security_column[row] > 0]

    def name(self, row: int) -> str:
        """Returns the term or stem of a row of the table, quoted."""
        if row >= len(self.vocabulary):
            name = self.stems[row - len(self.vocabulary)] + b"..."
        else:
            term = self.vocabulary[row]
            name = term if isinstance(term, bytes) else b" ".join(term)
        return f'"{name.decode("utf-8", "replace")}"'


class Sum(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Holds what a text's scores are summed up from."""

    rows: list[int]  # of the terms
    counted: Singles  # how much each row counts; shape and constant come last
    taken: Singles  # the rows of the table, shape (rows, heads)


class Scores(msgspec.Struct, eq=False):
    """Holds the heads' scores of one text, and what explains them."""

    model: LinearModel
    deep_log_odds: float
    security_log_odds: float  # with the words of the window where it is highest
    gain_log_odds: float  # a large model gets it right, and a small one does not
    output_tokens: float
    summed: Sum
    sensitive_rows: list[int]  # of that window
    known_parts: tuple[list[Part], float] | None = None  # cached

    def parts(self, num_parts: int) -> tuple[list[Part], float]:
        """Returns the strongest signals of deep work, largest first, and the sum of all sizes."""
        if self.known_parts is None:
            rows, model = self.summed.rows, self.model
            parts = self.summed.counted * self.summed.taken[:, DEEP]
            parts[len(rows) :] -= model.usual_shape[:, DEEP]
            sizes = np.abs(parts)
            named = []
            for at in (-sizes).argsort(kind="stable")[:num_parts].tolist():
                name = model.name(rows[at]) if at < len(rows) else DENSE_NAMES[at - len(rows)]
                named.append(Part(float(parts[at]), name))
            self.known_parts = named, float(np.add.reduce(sizes))
        return self.known_parts

    def security_terms(self, num_terms: int) -> list[str]:
        """Names the terms that speak most for security, strongest first."""
        return self.model.strongest(self.sensitive_rows, num_terms)


def window_share(num_windows: int) -> float:
    """Returns the share that each of a long text's windows counts, between their mean and sum."""
    return 1 / (math.sqrt(num_windows) * math.sqrt(math.sqrt(num_windows)))


def term_share(num: int) -> float:
    """Returns the share of its weight that each of so many terms counts."""
    return 1 / math.sqrt(num) if num else 0.0
