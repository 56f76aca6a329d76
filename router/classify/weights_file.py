"""Reads and writes the classifier's weights as an .npz file, reproducible to the byte."""

import hashlib
import io
import zipfile
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.classify.linear_model import LinearModel, Provenance
from router.classify.text_features import DENSE_NAMES, Term

FORMAT_VERSION = 1
_SINGLE = ("dense_means", "dense_weights", "biases", "scales")  # arrays in single precision
WEIGHTS_PATH = Path(__file__).parent / "weights" / "classifier.npz"


class WeightsError(ValueError):
    """Says why a file holds no weights that this version can use."""


def pack(model: LinearModel) -> bytes:
    """Packs a model as an .npz file, term weights in half precision, which is enough."""
    lines = [term if isinstance(term, bytes) else b" ".join(term) for term in model.vocabulary]
    arrays = {
        "format": np.array(FORMAT_VERSION),
        "provenance": np.frombuffer(msgspec.json.encode(model.provenance), np.uint8),
        "vocabulary": np.frombuffer(b"\n".join(lines), np.uint8),
        "stems": np.frombuffer(b"\n".join(model.stems), np.uint8),
        "dense_names": np.frombuffer("\n".join(DENSE_NAMES).encode(), np.uint8),
        "term_weights": model.term_weights.astype(np.float16),
        **{name: getattr(model, name).astype(np.float32) for name in _SINGLE},
    }
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpack(content: bytes) -> LinearModel:
    """Reads a model from an .npz file's bytes; `WeightsError` if format or features differ."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return _unpack(dict(arrays), hashlib.sha256(content).hexdigest()[:16])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
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
    return LinearModel(
        vocabulary,
        arrays["stems"].tobytes().split(b"\n"),
        **{name: arrays[name].astype(np.float64) for name in ("term_weights", *_SINGLE)},
        provenance=msgspec.json.decode(arrays["provenance"].tobytes(), type=Provenance),
        content_hash=content_hash,
    )


def load_model(path: Path = WEIGHTS_PATH) -> LinearModel:
    """Loads a model, by default the one of the package; `WeightsError` also if it is unreadable."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"no classifier weights at {path}: {error.strerror}") from error
    return unpack(content)
