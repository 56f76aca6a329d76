"""`python -m router.training --data FILE... --calibrate FILE... --out FILE`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from router.classify.weights_file import WEIGHTS_PATH, pack, unpack
from router.learn.drift import REFERENCE_PATH
from router.record.labelled import RecordError, read_records
from router.training.fit import DEFAULT_SEED, fit
from router.training.reference import reference_file


def main(argv: Sequence[str] | None = None) -> int:
    """Fit, write, and say what was written."""
    parser = argparse.ArgumentParser(prog="python -m router.training", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--calibrate", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, default=WEIGHTS_PATH)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    arguments = parser.parse_args(argv)
    try:
        records = read_records(arguments.data)
        calibration = read_records(arguments.calibrate)
    except (OSError, RecordError) as error:
        print(f"training: {error}", file=sys.stderr)
        return 2
    content = pack(fit(records, calibration, arguments.seed))
    arguments.out.write_bytes(content)
    model = unpack(content)
    arguments.out.with_name(REFERENCE_PATH.name).write_bytes(reference_file(records, model))
    print(
        f"{arguments.out}: {len(content):,} bytes, hash {model.content_hash}, "
        f"{len(model.vocabulary):,} terms and {len(model.stems):,} stems "
        f"from {len(records):,} records (hash {model.provenance.records_hash})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
