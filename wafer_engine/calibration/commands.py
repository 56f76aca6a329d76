"""Gives both engines' command lines `validate`, `calibrate` and one way to report errors."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def add_commands(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    reference: str,
    constants_folder: Path,
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Adds `validate` and `calibrate`, for rows with the columns of a reference file."""
    validate = commands.add_parser("validate", help="every published row beside its prediction")
    calibrate = commands.add_parser("calibrate", help="fit the constants again and write them")
    for command in (validate, calibrate):
        command.add_argument("--rows", help=f"CSV file with the columns of {reference}")
    calibrate.add_argument("--out", default=str(constants_folder), help="folder for the JSON files")
    return validate, calibrate


def run_command(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, prefix: str = ""
) -> int:
    """Runs the chosen command and returns the exit status; an error is one line."""
    options = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], None] = options.run
    try:
        run(options)
    except (ValueError, OSError) as error:
        print(f"{prefix}{error}", file=sys.stderr)
        return 2
    return 0
