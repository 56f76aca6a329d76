"""Reads labelled texts (`docs/classifier.md`) and makes targets for the classifier's heads.

A record without a head's labels does not train that head. Each target is a value and its weight.
"""

import codecs
import gzip
import hashlib
import math
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

LANES = ("interactive", "deep", "parallel")
MID_FILES, MID_LINES = 4, 95  # a change of this size is as much small as large
SMALL_LINES = 30  # as is a change of this size, with half of `MID_FILES`, surely small


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one labelled text."""

    id: str = ""
    source: str = "unknown"
    text: str
    labels: dict[str, Any] = {}

    @property
    def group(self) -> str:
        """Returns the source; the languages of one exercise collection are one group."""
        return "exercism" if self.source.startswith("exercism_") else self.source

    @property
    def lane(self) -> str | None:
        """Returns the lane, if the labels have a valid one."""
        lane = self.labels.get("lane")
        return lane if lane in LANES else None

    def number(self, label: str) -> float | None:
        """Returns a label's value (true and false are 1 and 0); None if it is not a number."""
        value = self.labels.get(label)
        return float(value) if isinstance(value, int | float) else None


class RecordError(ValueError):
    """Reports a line that is no record, with its file and number."""


def read_records(paths: Iterable[Path]) -> list[Record]:
    """Reads JSONL files, plain or gzipped, and folders of them; else raises `RecordError`."""
    decoder = msgspec.json.Decoder(Record)
    files = (sorted(path.glob("*.jsonl*")) if path.is_dir() else [path] for path in paths)
    records = []
    for file in chain.from_iterable(files):
        content = file.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        content = content.removeprefix(codecs.BOM_UTF8)  # as some editors begin a file
        for number, line in enumerate(content.splitlines(), 1):
            try:
                if line.strip():
                    records.append(decoder.decode(line))
            except msgspec.MsgspecError as error:
                raise RecordError(f"{file}:{number}: {error}") from error
    return records


def fingerprint(records: Iterable[Record]) -> str:
    """Hashes everything that training reads of the records, for the weights' provenance."""
    digest = hashlib.sha256()
    encoder = msgspec.json.Encoder(order="deterministic")
    for record in records:
        digest.update(encoder.encode(record))
    return digest.hexdigest()[:16]


def log2(value: float) -> float:
    """Approximates log2 linearly between powers of two, for the same bits on every machine."""
    half, exponent = math.frexp(value)  # from 0.5 up to 1
    return (exponent - 1) + 2 * half - 1


def deep_target(record: Record) -> tuple[float, float] | None:
    """Returns the probability of deep work; for changes of code a ramp over log2 of their size."""
    known = is_deep(record)
    if known is not None:
        return float(known), 1.0
    num_files = record.number("files_changed")
    added, deleted = record.number("lines_added"), record.number("lines_deleted")
    if record.lane is not None or num_files is None or added is None or deleted is None:
        return None
    of_files = log2(max(1.0, num_files) / MID_FILES)
    of_lines = log2(max(1.0, 1 + added + deleted) / MID_LINES) / log2(MID_LINES / SMALL_LINES)
    return min(0.95, max(0.05, 0.5 + 0.22 * (of_files + of_lines))), 1.0


def security_target(record: Record) -> tuple[float, float] | None:
    """Returns 1 for work that touches security, and 0 for other work."""
    if record.number("security_path"):
        return 1.0, 0.5  # at least half of the changed files; the text may not mention it
    known = is_security(record)
    return None if known is None else (float(known), 1.0)


def gain_target(record: Record) -> tuple[float, float] | None:
    """Returns how much more often large models are right; panels' rates go before single pairs."""
    for small, large in (("small_rate", "large_rate"), ("small_ok", "large_ok")):
        of_small, of_large = record.number(small), record.number(large)
        if of_small is not None and of_large is not None:
            return of_large - of_small, 1.0
    return None


def output_target(record: Record) -> tuple[float, float] | None:
    """Returns log2 of a measured answer's tokens."""
    tokens = record.number("out_tokens")
    return (log2(min(tokens, 32_768.0)), 1.0) if tokens is not None and tokens > 0 else None


def is_deep(record: Record) -> bool | None:
    """Returns whether the record's lane is deep; None without a lane, and for parallel."""
    return None if record.lane not in ("deep", "interactive") else record.lane == "deep"


def is_security(record: Record) -> bool | None:
    """Returns whether the record's work touches security; None without the label."""
    label = record.number("security")
    return None if label is None else label == 1


def outcomes(record: Record) -> tuple[float, float] | None:
    """Returns how right the small and the large model were, 0 to 1; None if not measured."""
    small, large = record.number("small_ok"), record.number("large_ok")
    return None if small is None or large is None else (small, large)


def is_gain(record: Record) -> bool | None:
    """Returns whether the large model alone got it right; None if not measured."""
    pair = outcomes(record)
    return None if pair is None else pair[1] > pair[0]
