"""Trains: `python -m router.training --data FILE... --calibrate FILE... --out FILE`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from router.classify.classify import classify, features_of_text
from router.classify.linear_model import LinearModel
from router.classify.weights_file import WEIGHTS_PATH, pack, unpack
from router.learn.drift import REFERENCE_PATH, make_reference, values_of
from router.learn.learning import traits
from router.record.labelled import Record, RecordError, read_records
from router.training.fit import DEFAULT_SEED, fit


def main(argv: Sequence[str] | None = None) -> int:
    """Fits the weights and writes them and the drift reference to files."""
    parser = argparse.ArgumentParser(prog="python -m router.training", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--calibrate", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, default=WEIGHTS_PATH)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    arguments = parser.parse_args(argv)
    try:
        records = read_records(arguments.data)
        calibration = read_records(arguments.calibrate)
        content = pack(fit(records, calibration, arguments.seed))
    except (OSError, RecordError) as error:
        print(f"training: {error}", file=sys.stderr)
        return 2
    arguments.out.write_bytes(content)
    model = unpack(content)
    arguments.out.with_name(REFERENCE_PATH.name).write_bytes(_reference_file(records, model))
    print(
        f"{arguments.out}: {len(content):,} bytes, hash {model.content_hash}, "
        f"{len(model.vocabulary):,} terms and {len(model.stems):,} stems "
        f"from {len(records):,} records (hash {model.provenance.records_hash})"
    )
    return 0


def _reference_file(records: Sequence[Record], model: LinearModel) -> bytes:
    """Computes the reference that `router.learn.drift` compares traffic with."""
    rows = []
    for record in records:
        seen = features_of_text(record.text)
        task_class = classify(seen, model=model)
        found = traits(seen.reading, task_class)
        rows.append(values_of(task_class.p_deep, seen.reading, found))
    reference = make_reference(rows, model.content_hash)
    return msgspec.json.format(msgspec.json.encode(reference), indent=1) + b"\n"


if __name__ == "__main__":
    sys.exit(main())
