"""Reads and writes the weights of the framing model, an .npz file."""

import io
import zipfile
from pathlib import Path

import numpy as np

from router.classify.framing_model import SHAPES, FramingModel

WEIGHTS_PATH = Path(__file__).parent / "weights" / "framing.npz"


class FramingError(ValueError):
    """Says why a file holds no weights that this version can use."""


def pack(model: FramingModel) -> bytes:
    """Packs a model as an .npz file."""
    file = io.BytesIO()
    np.savez(
        file,
        allow_pickle=False,
        words=np.frombuffer(b"\n".join(model.words), np.uint8),
        shapes=np.frombuffer("\n".join(SHAPES).encode(), np.uint8),
        word_weights=model.word_weights.astype(np.float16),
        shape_weights=model.shape_weights.astype(np.float32),
    )
    return file.getvalue()


def unpack(content: bytes) -> FramingModel:
    """Reads a model from an .npz file's bytes; `FramingError` if it is none of this version."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            if arrays["shapes"].tobytes().decode().split("\n") != list(SHAPES):
                raise FramingError("they are for other shapes; train anew with `make train`")
            return FramingModel(
                arrays["words"].tobytes().split(b"\n"),
                arrays["word_weights"].astype(np.float32),
                arrays["shape_weights"].astype(np.float32),
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise FramingError(f"no framing weights: {error}") from error


def load_framing() -> FramingModel:
    """Reads the model of this release."""
    return unpack(WEIGHTS_PATH.read_bytes())
