"""Cross-validates the classifier by source: `python -m router.training.leave_out`.

Sources are assigned to folds by the hash of their name; each fold's records are judged by a model
that was fitted on `--data` and calibrated on `--calibrate` without that fold's sources.
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from router.policy.policy import DEFAULT_POLICY
from router.record.batch import Desk
from router.record.labelled import Record, RecordError, read_records
from router.record.report import Judged, judge, report
from router.training.fit import DEFAULT_SEED, fit

NUM_FOLDS = 5


def fold_of(record: Record, num_folds: int) -> int:
    """Returns the fold that a record's source belongs to."""
    return hashlib.sha256(record.group.encode()).digest()[0] % num_folds


def main(argv: Sequence[str] | None = None) -> int:
    """Fits once for each fold, and prints one report over all folds."""
    parser = argparse.ArgumentParser(prog="python -m router.training.leave_out")
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--calibrate", type=Path, nargs="+", required=True)
    parser.add_argument("--folds", type=int, default=NUM_FOLDS)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    arguments = parser.parse_args(argv)
    try:
        records, calibration = read_records(arguments.data), read_records(arguments.calibrate)
        judged: list[Judged] = []
        for fold in range(arguments.folds):
            inside = [r for r in (*records, *calibration) if fold_of(r, arguments.folds) == fold]
            model = fit(
                [r for r in records if fold_of(r, arguments.folds) != fold],
                [r for r in calibration if fold_of(r, arguments.folds) != fold],
                arguments.seed,
            )
            desk = Desk(policy=DEFAULT_POLICY, model=model)
            judged += [judge(record, desk) for record in inside]
    except (OSError, RecordError) as error:
        print(f"training: {error}", file=sys.stderr)
        return 2
    print("\n".join(report(judged)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
