"""Scores a prompt with the trained classifier, and explains the score.

Four linear heads share one vocabulary and one table of weights: deep work, security, the gain a
large model brings over a small one, and the length of the answer. A head's score is the sum of the
weights of the prompt's terms (words and pairs) over the root of their number, plus a small multiple
of the same sum for the context, plus the prompt's shape, scaled to log-odds. `docs/classifier.md`
has the formula and the measured quality.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.classify.spelling import Spelling
from router.classify.text_features import DENSE_NAMES, STEM_BYTES, Reading, Term, dense, once

HEADS = ("deep", "security", "gain", "output")
DEEP, SECURITY, GAIN, OUTPUT = range(4)
CONTEXT_SHARE = 0.1  # of a word's weight, in the context around the prompt
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
        rows = list(enumerate(self.vocabulary))
        self._word_row = {term: row for row, term in rows if isinstance(term, bytes)}
        self._pair_row = {term: row for row, term in rows if isinstance(term, tuple)}
        self._stem_row = {stem: row for row, stem in enumerate(self.stems, start=len(rows))}
        self._spelling = Spelling([*self._word_row][:NUM_SPELLED])
        self.score = once(self._score)

    def _score(self, reading: Reading) -> "Scores":
        words = reading.words
        distinct = dict.fromkeys(words)
        found = [*map(self._word_row.get, distinct)]
        if None in found:
            words, distinct, found = self._guess(words, distinct, found)
            if words is not reading.words:
                reading = msgspec.structs.replace(reading, words=words)
        pairs = dict.fromkeys(pairwise(words))
        found += map(self._pair_row.get, pairs)
        rows = [at for at in found if at is not None]
        share = term_share(len(distinct) + len(pairs))
        values = np.array([share] * len(rows) + dense(reading) + [1.0], np.float32)
        taken = self._table.take(rows + self._shape_rows, axis=0)
        sums = values @ taken
        context = None
        if reading.context_words:
            context = self._context(reading.context_words)
            sums = sums + context
        deep, security, gain, output = sums.tolist()
        output_tokens = 2.0 ** max(0.0, min(output, MAX_LOG2_OUTPUT_TOKENS))
        return Scores(deep, security, gain, output_tokens, (self, rows, values, taken, context))

    def _guess(
        self, words: list[bytes], distinct: dict[bytes, None], found: list[int | None]
    ) -> tuple[list[bytes], dict[bytes, None], list[int | None]]:
        """Corrects misspellings, and adds stems for the words that stay unknown."""
        unknown = [word for word, at in zip(distinct, found, strict=True) if at is None]
        slips = self._spelling.slips(unknown)
        if slips:
            words = [*map(slips.get, words, words)]
            distinct = dict.fromkeys(words)
            found = [*map(self._word_row.get, distinct)]
        stems = [word[:STEM_BYTES] for word in unknown if word not in slips]
        return words, distinct, [*found, *map(self._stem_row.get, stems)]

    def _context(self, words: list[bytes]) -> Weights:
        """Scores the words around the prompt."""
        distinct = dict.fromkeys(words)
        rows = [at for at in map(self._word_row.get, distinct) if at is not None]
        sums: Weights = np.add.reduce(self._table.take(rows, axis=0), dtype=np.float64)
        return sums * (CONTEXT_SHARE * term_share(len(distinct)))

    def name(self, row: int) -> str:
        """Returns the term or stem of a row of the table, quoted."""
        if row >= len(self.vocabulary):
            name = self.stems[row - len(self.vocabulary)] + b"..."
        else:
            term = self.vocabulary[row]
            name = term if isinstance(term, bytes) else b" ".join(term)
        return f'"{name.decode("utf-8", "replace")}"'


class Scores(msgspec.Struct, eq=False):
    """Holds the heads' scores of one prompt, and what explains them."""

    deep_log_odds: float
    security_log_odds: float
    gain_log_odds: float  # a large model gets it right, and a small one does not
    output_tokens: float
    summed: tuple[LinearModel, list[int], Singles, Singles, Weights | None]  # for `parts`
    known_parts: dict[tuple[int, int], tuple[list[Part], float]] = {}  # cached by arguments

    def parts(self, head: int, num_parts: int) -> tuple[list[Part], float]:
        """Returns a head's strongest signals, largest first, and the sum of all sizes."""
        known = self.known_parts.get((head, num_parts))
        if known is not None:
            return known
        model, rows, values, taken, context = self.summed
        parts = values * taken[:, head]
        parts[len(rows) :] -= model.usual_shape[:, head]
        if context is not None:
            parts[-1] = context[head]
        sizes = np.abs(parts)
        named = []
        for at in (-sizes).argsort(kind="stable")[:num_parts].tolist():
            name = model.name(rows[at]) if at < len(rows) else _SHAPE[at - len(rows)]
            named.append(Part(float(parts[at]), name))
        found = self.known_parts[head, num_parts] = named, float(np.add.reduce(sizes))
        return found


_SHAPE = (*DENSE_NAMES, "words of the context")


def term_share(num_terms: int) -> float:
    """Returns the share of its weight that each of `num_terms` terms counts."""
    return 1 / math.sqrt(num_terms) if num_terms else 0.0
