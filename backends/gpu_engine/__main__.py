"""The GPU engine's command line: `python -m backends.gpu_engine validate|calibrate`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from backends.gpu_engine.calibration.calibrate import calibrate, write_constants
from backends.gpu_engine.calibration.logs import LOG_FOLDER, SERVER_LOGS, read_log
from backends.gpu_engine.calibration.validate import validation_report
from wafer_engine.calibration.report import REFERENCE_FOLDER, Row, find_reference, read_rows

CONSTANTS_FOLDER = Path(__file__).parent / "constants"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    path = find_reference("gpu.csv", options.rows)
    if path is None:
        looked = options.rows or REFERENCE_FOLDER / "gpu.csv"
        print(f"no reference rows at {looked}: give a file with --rows", file=sys.stderr)
        return 2
    rows, logs = read_rows(path), read_logs(path.parent / LOG_FOLDER)
    if options.command == "validate":
        print(validation_report(rows, logs))
        return 0
    missing = [log.file for log in SERVER_LOGS if log.file not in logs]
    if missing:
        print(f"no log {missing[0]} in {path.parent / LOG_FOLDER}", file=sys.stderr)
        return 2
    for written in write_constants(Path(options.out), calibrate(rows, logs, options.engine)):
        print(f"wrote {written}")
    return 0


def read_logs(folder: Path) -> dict[str, list[Row]]:
    """The known per-request logs that a folder holds."""
    logs: dict[str, list[Row]] = {}
    for log in SERVER_LOGS:
        path = folder / f"{log.file}.csv.gz"
        if path.is_file():
            logs[log.file] = [*read_log(path)]
    return logs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m backends.gpu_engine", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    validate = commands.add_parser(
        "validate", help="compare every published row with its prediction"
    )
    fit = commands.add_parser("calibrate", help="fit the constants again and write them")
    for command in (validate, fit):
        command.add_argument("--rows", help="CSV file with the columns of gpu.csv")
    fit.add_argument("--out", default=str(CONSTANTS_FOLDER), help="folder for the JSON files")
    fit.add_argument("--engine", action="append", default=[], help="only this constants file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
