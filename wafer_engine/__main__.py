"""The wafer engine's command line: `python -m wafer_engine validate|calibrate|...`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from wafer_engine.calibrate import calibrate, write_constants
from wafer_engine.report import find_reference, read_rows
from wafer_engine.validate import validation_report

CONSTANTS_FOLDER = Path(__file__).parent / "constants"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    run = {"validate": _validate, "calibrate": _calibrate}[options.command]
    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m wafer_engine", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    validate = commands.add_parser(
        "validate", help="compare every published row with its prediction"
    )
    validate.add_argument("--rows", help="CSV file with the columns of wse.csv")
    fit = commands.add_parser("calibrate", help="fit the constants again and write them")
    fit.add_argument("--rows", help="CSV file with the columns of wse.csv")
    fit.add_argument("--out", default=str(CONSTANTS_FOLDER), help="folder for the JSON files")
    return parser


def _reference(given: str | None) -> Path | None:
    path = find_reference("wse.csv", given)
    if path is None:
        looked = given or "../shared/data/reference/wse.csv"
        print(f"no reference rows at {looked}: give a file with --rows", file=sys.stderr)
    return path


def _validate(options: argparse.Namespace) -> int:
    path = _reference(options.rows)
    if path is None:
        return 2
    print(validation_report(read_rows(path)))
    return 0


def _calibrate(options: argparse.Namespace) -> int:
    path = _reference(options.rows)
    if path is None:
        return 2
    for written in write_constants(Path(options.out), calibrate(read_rows(path))):
        print(f"wrote {written}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
