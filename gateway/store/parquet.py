"""Writes a Parquet file with pyarrow, an optional package.

It imports by name, when a file is opened, since that takes a tenth of a second. This is an edge.
"""

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class ParquetUnavailable(Exception):  # noqa: N818 - says what is the case, as TimeoutError does
    """Pyarrow is not installed."""


class ParquetFile:
    """Writes rows in row groups; the file is valid only after the context has ended."""

    def __init__(self, path: Path, columns: Mapping[str, type]) -> None:
        """Opens the file; `columns` maps names to str, int or bool.

        Raises `ParquetUnavailable` if Pyarrow is not installed.
        """
        pyarrow = self._pyarrow = _load("pyarrow")
        kinds = {str: pyarrow.string(), int: pyarrow.int64(), bool: pyarrow.bool_()}
        self._schema: Any = pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
        self._writer: Any = _load("pyarrow.parquet").ParquetWriter(
            path, self._schema, compression="zstd"
        )

    def __enter__(self) -> "ParquetFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Appends a row group."""
        if rows:
            self._writer.write_table(self._pyarrow.Table.from_pylist(rows, schema=self._schema))

    @staticmethod
    def column(path: Path, name: str) -> list[Any] | None:
        """Reads a column of a finished file; returns None if there is no file.

        Raises `ParquetUnavailable` if Pyarrow is not installed.
        """
        if not path.exists():
            return None
        values: list[Any] = _load("pyarrow.parquet").read_table(path, columns=[name])[0].to_pylist()
        return values


def _load(name: str) -> Any:
    if importlib.util.find_spec("pyarrow") is None:
        raise ParquetUnavailable(
            "Parquet needs pyarrow: `pip install pyarrow`, or export to a .csv"
        )
    return importlib.import_module(name)
