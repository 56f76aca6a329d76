"""Is the GPU engine's command line: `python -m backends.gpu_engine validate|calibrate`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from backends.gpu_engine.calibration.calibrate import calibrate
from backends.gpu_engine.calibration.request_logs import LOG_FOLDER, SERVER_LOGS, read_logs
from backends.gpu_engine.calibration.validate import validation_report
from wafer_engine.calibration.commands import add_commands, run_command
from wafer_engine.calibration.fit import write_constants
from wafer_engine.calibration.rows import read_reference

CONSTANTS_FOLDER = Path(__file__).parent / "constants"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m backends.gpu_engine", description=__doc__)
    commands = parser.add_subparsers(required=True)
    validate, fit = add_commands(commands, "gpu.csv", CONSTANTS_FOLDER)
    validate.set_defaults(run=_validate)
    fit.set_defaults(run=_calibrate)
    fit.add_argument("--engine", action="append", default=[], help="only this constants file")
    return run_command(parser, arguments)


def _validate(options: argparse.Namespace) -> None:
    path, rows = read_reference("gpu.csv", options.rows)
    print(validation_report(rows, read_logs(path.parent / LOG_FOLDER)))


def _calibrate(options: argparse.Namespace) -> None:
    path, rows = read_reference("gpu.csv", options.rows)
    logs = read_logs(path.parent / LOG_FOLDER)
    missing = [log.file for log in SERVER_LOGS if log.file not in logs]
    if missing:
        raise ValueError(f"no log {missing[0]} in {path.parent / LOG_FOLDER}")
    for written in write_constants(Path(options.out), calibrate(rows, logs, options.engine)):
        print(f"wrote {written}")


if __name__ == "__main__":
    sys.exit(main())
