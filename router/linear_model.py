"""The trained classifier at serving time: loads the weights, scores an ask, says what counted.

Four linear heads share one vocabulary and one table of weights: deep work, security, the gain a
large model brings over a small one, and the length of the answer. A head's score is the sum of the
weights of the ask's terms (words and pairs) over the root of their number, plus the same sum of the
context's words at a small part, plus the ask's shape. `docs/classifier.md` has the formulas and the
measured quality.
"""

import hashlib
import io
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.text_features import DENSE_NAMES, STEM_BYTES, Reading, Term, dense, terms

HEADS = ("deep", "security", "gain", "output")
DEEP, SECURITY, GAIN, OUTPUT = range(4)
CONTEXT_SHARE = 0.1  # of a word's weight, when it stands in the context around the ask
FORMAT_VERSION = 1
WEIGHTS_PATH = Path(__file__).parent / "weights" / "classifier.npz"

Weights = NDArray[np.float64]


class WeightsError(ValueError):
    """The file holds no weights that this version can use; the message says why."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where weights come from: enough to make them again."""

    version: str
    num_records: int
    records_hash: str  # of the training records, see `training.records.fingerprint`
    calibration_hash: str  # of the records the probabilities were calibrated on
    seed: int


class Part(msgspec.Struct, frozen=True):
    """One signal's part of a score."""

    log_odds: float
    name: str


class Scores(msgspec.Struct, frozen=True):
    """What the heads say of one ask; log-odds are calibrated."""

    deep_log_odds: float
    security_log_odds: float
    gain_log_odds: float  # that a large model gets it right and a small one does not
    output_tokens: float
    parts: tuple[Part, ...]  # of `deep_log_odds`, largest first
    sum_of_parts: float  # all parts' sizes, named or not: what each is a share of


class LinearModel:
    """Weights ready for use; immutable.

    Args:
        vocabulary: Known words and pairs.
        stems: Beginnings of words, for words that are not known.
        term_weights: Shape (vocabulary + stems, heads), in that order.
        dense_means: Shape (dense,): the shape of the average ask, against which parts are told.
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
        # The unknown share one last row of zeros, so that looking up never branches.
        self._table = np.vstack([term_weights, np.zeros((1, len(HEADS)))])
        self._unknown = len(term_weights)
        self._row: dict[Term, int] = {term: row for row, term in enumerate(self.vocabulary)}
        first = len(self.vocabulary)
        self._stem_row = {stem: row for row, stem in enumerate(self.stems, start=first)}
        self._slopes, self._offsets = scales[:, 0].copy(), scales[:, 1].copy()

    def score(self, reading: Reading, num_parts: int = 4) -> Scores:
        """All heads' opinions, with the `num_parts` signals that counted most for `deep`."""
        found, weighed, shaped, context = self._terms_of_sum(reading)
        sums = np.add.reduce(weighed) + np.add.reduce(shaped) + context + self.biases
        deep, security, gain, output = (sums * self._slopes + self._offsets).tolist()
        parts, size = self._parts(DEEP, found, weighed, shaped, context, num_parts)
        return Scores(
            deep_log_odds=deep,
            security_log_odds=security,
            gain_log_odds=gain,
            output_tokens=2.0 ** max(0.0, min(output, 15.0)),
            parts=parts,
            sum_of_parts=size,
        )

    def raw_scores(self, reading: Reading) -> Weights:
        """All heads' scores before calibration, without reasons; shape (heads,)."""
        _, weighed, shaped, context = self._terms_of_sum(reading)
        sums: Weights = np.add.reduce(weighed) + np.add.reduce(shaped) + context + self.biases
        return sums

    def parts(self, reading: Reading, head: int, num_parts: int) -> tuple[Part, ...]:
        """The signals that counted most for a head, largest first."""
        return self._parts(head, *self._terms_of_sum(reading), num_parts)[0]

    def _terms_of_sum(self, reading: Reading) -> tuple[list[Term], Weights, Weights, Weights]:
        """The ask's terms; their parts of the heads' sums, the shape's, and the context's."""
        found = terms(reading.words)
        weighed = self._table.take(self._rows(found), axis=0)
        weighed *= term_share(len(found))
        shaped = (np.array(dense(reading)) - self.dense_means)[:, None] * self.dense_weights
        return found, weighed, shaped, self._context(reading)

    def _parts(
        self,
        head: int,
        found: list[Term],
        weighed: Weights,
        shaped: Weights,
        context: Weights,
        num_parts: int,
    ) -> tuple[tuple[Part, ...], float]:
        """The largest parts of a head's log-odds by name, and the size of all of them together."""
        parts = np.concatenate((weighed[:, head], shaped[:, head], context[head : head + 1]))
        parts *= self._slopes[head]
        sizes = np.abs(parts)
        named = []
        for at in np.argsort(-sizes, kind="stable")[:num_parts].tolist():
            if at < len(found):
                term = found[at]
                words = term if type(term) is bytes else b" ".join(term)
                name = f'"{words.decode("utf-8", "replace")}"'
            elif at < len(found) + len(DENSE_NAMES):
                name = DENSE_NAMES[at - len(found)]
            else:
                name = "words of the context"
            named.append(Part(float(parts[at]), name))
        return tuple(named), float(np.add.reduce(sizes))

    def _rows(self, found: Sequence[Term]) -> list[int]:
        row, stem_row, unknown = self._row.get, self._stem_row.get, self._unknown
        rows = [row(term, unknown) for term in found]
        if unknown in rows:
            for at, known in enumerate(rows):
                if known == unknown:
                    term = found[at]
                    if type(term) is not bytes:
                        break  # pairs follow the words, and have no stems
                    rows[at] = stem_row(term[:STEM_BYTES], unknown)
        return rows

    def _context(self, reading: Reading) -> Weights:
        if not reading.context_words:
            return _NOTHING
        words = [*dict.fromkeys(reading.context_words)]
        sums: Weights = np.add.reduce(self._table.take(self._rows(words), axis=0))
        return sums * (CONTEXT_SHARE * term_share(len(words)))


def term_share(num_terms: int) -> float:
    """How much of its weight each of so many terms counts."""
    return 1 / math.sqrt(num_terms) if num_terms else 0.0


_NOTHING: Weights = np.zeros(len(HEADS))


def pack(model: LinearModel) -> bytes:
    """The model as an .npz file; the same model gives the same bytes.

    Weights are kept in half precision: the file is smaller, and 3 digits are more than they mean.
    """
    lines = [t if isinstance(t, bytes) else b" ".join(t) for t in model.vocabulary]
    arrays = {
        "format": np.array(FORMAT_VERSION),
        "provenance": np.frombuffer(msgspec.json.encode(model.provenance), np.uint8),
        "vocabulary": np.frombuffer(b"\n".join(lines), np.uint8),
        "stems": np.frombuffer(b"\n".join(model.stems), np.uint8),
        "dense_names": np.frombuffer("\n".join(DENSE_NAMES).encode(), np.uint8),
        "term_weights": model.term_weights.astype(np.float16),
        "dense_means": model.dense_means.astype(np.float32),
        "dense_weights": model.dense_weights.astype(np.float32),
        "biases": model.biases.astype(np.float32),
        "scales": model.scales.astype(np.float32),
    }
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpack(content: bytes) -> LinearModel:
    """The model in an .npz file's bytes.

    Raises:
        WeightsError: Not such a file, of another format, or for other features.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return _unpack(dict(arrays), hashlib.sha256(content).hexdigest()[:16])
    except (OSError, ValueError, KeyError, EOFError, msgspec.MsgspecError) as error:
        raise WeightsError(f"no classifier weights: {error}") from error


def _unpack(arrays: dict[str, NDArray[np.generic]], content_hash: str) -> LinearModel:
    if int(arrays["format"].item()) != FORMAT_VERSION:
        raise WeightsError(f"format {arrays['format']}; this version reads {FORMAT_VERSION}")
    if arrays["dense_names"].tobytes().decode().split("\n") != list(DENSE_NAMES):
        raise WeightsError("they are for other features; train anew with `make train`")
    vocabulary: list[Term] = []
    for line in arrays["vocabulary"].tobytes().split(b"\n"):
        first, _, second = line.partition(b" ")
        vocabulary.append((first, second) if second else first)
    numbers = {
        name: arrays[name].astype(np.float64)
        for name in ("term_weights", "dense_means", "dense_weights", "biases", "scales")
    }
    provenance = msgspec.json.decode(arrays["provenance"].tobytes(), type=Provenance)
    stems = arrays["stems"].tobytes().split(b"\n")
    return LinearModel(
        vocabulary, stems, **numbers, provenance=provenance, content_hash=content_hash
    )


def load_model(path: Path = WEIGHTS_PATH) -> LinearModel:
    """The model of a file; without a path, the one that ships with the package.

    Raises:
        WeightsError: As `unpack`, or the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"no classifier weights at {path}: {error.strerror}") from error
    return unpack(content)
