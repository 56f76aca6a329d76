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

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.classify.text_features import (
    DENSE_NAMES,
    WHOLE_CHARS,
    Reading,
    Term,
    dense,
    num_terms,
    once,
)
from router.classify.vocabulary import NO_SLIPS, Rows, Slips, Vocabulary

HEADS = ("deep", "security", "gain", "output")
DEEP, SECURITY, GAIN, OUTPUT = range(4)
REQUEST_SHARE = 0.8  # of the score of a long text that begins or ends with a request
MAX_LOG2_OUTPUT_TOKENS = 15.0

_WORD_LENGTH = DENSE_NAMES.index("length of the words")
_ONES = np.ones(2 * WHOLE_CHARS, np.float32)

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
        self.table = (term_weights * slopes).astype(np.float32)
        self.shape_table = np.vstack([dense_weights * slopes, constant])
        self._terms = Vocabulary(self.vocabulary, self.stems)
        self.score = once(self._score)

    def _score(self, reading: Reading) -> "Scores":
        if len(reading.windows) > 1 or reading.request is not None:
            return self._score_long(reading)
        shape = dense(reading, reading.num_chars)
        rows, slips = self._terms.rows(reading)
        if slips:
            num_more = len(b"".join(slips)) - len(b"".join(slips.values()))
            shape[_WORD_LENGTH] -= num_more / len(reading.words)
        share = term_share(num_terms(reading.words))
        of_shape = np.array([*shape, 1.0]) @ self.shape_table
        of_terms = _ONES[: len(rows)] @ self.table.take(rows, axis=0)
        deep, security, gain, output = (of_terms * share + of_shape).tolist()
        written = _written(slips, reading) if slips else NO_SLIPS
        summed = Sum(rows, share, shape)
        return Scores(self, deep, security, gain, output, summed, rows, written)

    def _score_long(self, reading: Reading) -> "Scores":
        shape = dense(reading, reading.num_chars)
        if reading.request is not None:
            own = dense(reading.request, len(reading.request.prompt))
            rest = 1 - REQUEST_SHARE
            shape = [rest * x + REQUEST_SHARE * y for x, y in zip(shape, own, strict=True)]
        rows, owners, shares, slips = self._of_windows(reading)
        taken = self.table.take(rows, axis=0)
        total = shares @ taken + np.array([*shape, 1.0]) @ self.shape_table
        deep, security, gain, output = total.tolist()
        # For security the words of the highest window count in place of all windows'.
        column = taken[:, SECURITY]
        highest, at = _highest_window(reading.windows, owners, column)
        security += highest - float(shares @ column)
        written = _written(slips, reading) if slips else NO_SLIPS
        summed = Sum(rows, shares, shape)
        highest_rows = rows[owners == at]
        return Scores(self, deep, security, gain, output, summed, highest_rows, written)

    def _of_windows(self, reading: Reading) -> tuple[Rows, Rows, Singles, Slips]:
        """Finds the rows, each one's window and share; behind them those of the request."""
        windows, request = reading.windows, reading.request
        rows, owners = self._terms.rows_by_window(windows, reading.words)
        part = window_share(len(windows))
        if request is not None:
            part *= 1 - REQUEST_SHARE
        of_windows = [part * term_share(num_terms(words)) for words in windows]
        shares = np.array(of_windows, np.float32)[owners]
        if request is None:
            return rows, owners, shares, NO_SLIPS
        found, slips = self._terms.rows(request)
        asked = np.array(found, np.intp)
        share = REQUEST_SHARE * term_share(num_terms(request.words))
        return (
            np.concatenate([rows, asked]),
            np.concatenate([owners, np.full(len(asked), len(windows))]),
            np.concatenate([shares, np.full(len(asked), share, np.float32)]),
            slips,
        )

    def strongest(
        self, rows: Sequence[int] | Rows, num_rows: int, written: Slips = NO_SLIPS
    ) -> list[str]:
        """Names the rows with the largest weights for security, strongest first."""
        found = np.unique(np.asarray(rows, np.intp))
        weights = self.table[found, SECURITY]
        ordered = (-weights).argsort(kind="stable")[:num_rows].tolist()
        return [self.name(int(found[at]), written) for at in ordered if weights[at] > 0]

    def name(self, row: int, written: Slips = NO_SLIPS) -> str:
        """Returns the term or stem of a row of the table, quoted, and how it was written.

        `written` has the words of a text whose slips were corrected, by what they are read as.
        """
        if row >= len(self.vocabulary):
            name = self.stems[row - len(self.vocabulary)] + b"..."
        else:
            term = self.vocabulary[row]
            name = term if isinstance(term, bytes) else b" ".join(term)
            if written:
                words = name.split()
                slip = b" ".join([written.get(word, word) for word in words])
                if slip != name:
                    return f'"{slip.decode("utf-8", "replace")}" (read as "{name.decode()}")'
        return f'"{name.decode("utf-8", "replace")}"'


class Sum(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Holds what a text's scores are summed up from."""

    rows: Sequence[int] | Rows  # of the terms
    shares: float | Singles  # how much each row counts
    shape: Sequence[float]


class Scores(msgspec.Struct, eq=False):
    """Holds the heads' scores of one text, and what explains them."""

    model: LinearModel
    deep_log_odds: float
    security_log_odds: float  # with the words of the window where it is highest
    gain_log_odds: float  # a large model gets it right, and a small one does not
    log2_output_tokens: float
    summed: Sum
    sensitive_rows: Sequence[int] | Rows  # of that window
    written: Slips = NO_SLIPS  # what a word is read as -> how it was written, if misspelt
    known_parts: tuple[list[Part], float] | None = None  # cached

    @property
    def output_tokens(self) -> float:
        """Returns the expected length of the answer."""
        tokens: float = 2.0 ** max(0.0, min(self.log2_output_tokens, MAX_LOG2_OUTPUT_TOKENS))
        return tokens

    def parts(self, num_parts: int) -> tuple[list[Part], float]:
        """Returns the strongest signals of deep work, largest first, and the sum of all sizes."""
        if self.known_parts is None:
            summed, model = self.summed, self.model
            rows = np.asarray(summed.rows, np.intp)
            # The average prompt's shape is no signal.
            by_shape = (summed.shape - model.dense_means) * model.shape_table[:-1, DEEP]
            parts = np.concatenate([summed.shares * model.table[rows, DEEP], by_shape])
            sizes = np.abs(parts)
            num_rows = len(rows)
            named = []
            for at in (-sizes).argsort(kind="stable")[:num_parts].tolist():
                shape_at = at - num_rows
                if shape_at >= 0:
                    name = DENSE_NAMES[shape_at]
                else:
                    name = model.name(int(rows[at]), self.written)
                named.append(Part(float(parts[at]), name))
            self.known_parts = named, float(np.add.reduce(sizes))
        return self.known_parts

    def security_in_words(self) -> float:
        """Returns how much the terms that speak for security say, in the scale of log-odds."""
        rows = np.asarray(self.sensitive_rows, np.intp)
        weights = self.model.table[rows, SECURITY]
        return float(weights[weights > 0].sum()) * term_share(len(rows))

    def security_terms(self, num_terms: int) -> list[str]:
        """Names the terms that speak most for security, strongest first."""
        return self.model.strongest(self.sensitive_rows, num_terms, self.written)


def _written(slips: Slips, reading: Reading) -> Slips:
    """Returns how each word was written that is only there by a correction."""
    return {right: slip for slip, right in slips.items() if right not in reading.distinct}


def _highest_window(
    windows: Sequence[list[bytes]], owners: Rows, column: Singles
) -> tuple[float, int]:
    """Returns the highest sum of a window's own words, and which window that is."""
    sums = np.bincount(owners, column, len(windows))
    found = [term_share(num_terms(words)) * sums[at] for at, words in enumerate(windows)]
    highest = max(found)
    return float(highest), found.index(highest)


def window_share(num_windows: int) -> float:
    """Returns the share that each of a long text's windows counts, between their mean and sum."""
    return 1 / (math.sqrt(num_windows) * math.sqrt(math.sqrt(num_windows)))


def term_share(num: int) -> float:
    """Returns the share of its weight that each of so many terms counts."""
    return 1 / math.sqrt(num) if num else 0.0
