"""Turns text into token ids and back by a model's own `tokenizer.json`.

The `tokenizers` package is an extra, so this imports by name what may not be there.
"""

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

# An optional extra: only real weights need it.
_TOKENIZERS = (
    importlib.import_module("tokenizers") if importlib.util.find_spec("tokenizers") else None
)


class FileTokenizer:
    """Tokenizes as the model's file describes."""

    def __init__(self, path: Path) -> None:
        """Reads the file.

        Raises FileNotFoundError if there is none, and ValueError if the `tokenizers` package is not
        installed, or cannot read it.
        """
        if not path.is_file():
            raise FileNotFoundError(f"no tokenizer at {path}")
        if _TOKENIZERS is None:
            raise ValueError(f"{path} needs the tokenizers package: pip install 'lanewise[mesh]'")
        try:
            self._tokenizer = _TOKENIZERS.Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises bare exceptions
            raise ValueError(f"{path}: {error}") from error

    def encode(self, text: str) -> list[int]:
        return [int(token) for token in self._tokenizer.encode(text).ids]

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens)))
