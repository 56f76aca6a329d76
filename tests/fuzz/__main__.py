"""Fuzzes the decoders of what others send: `make fuzz`.

    make fuzz                                       # ten minutes for each
    make fuzz ARGS="--seconds 60 --only frames"
    make fuzz ARGS="--list"

Each target runs in a process of its own. Exits with 1 where one has a finding; the input that found
it is printed.
"""

import argparse
import subprocess
import sys

from tests.fuzz.targets import TARGETS

SECONDS = 600.0  # for each target


def main() -> int:
    """Runs the chosen targets one after the other; returns the exit status."""
    arguments = argparse.ArgumentParser(prog="make fuzz", description=__doc__.partition("\n")[0])
    arguments.add_argument("--seconds", type=float, default=SECONDS, help="for each target")
    arguments.add_argument("--only", metavar="NAMES", help="targets, with commas between")
    arguments.add_argument("--list", action="store_true", help="name the targets and end")
    arguments.add_argument(
        "--hypothesis", action="store_true", help="not atheris, though it is here"
    )
    asked = arguments.parse_args()
    if asked.list:
        print("\n".join(f"{name:12}{target.title}" for name, target in TARGETS.items()))
        return 0
    names = asked.only.split(",") if asked.only else list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        raise SystemExit(f"no target named {', '.join(sorted(unknown))}; --list names them")
    found: list[str] = []
    for name in names:
        print(f"\n== {name}: {TARGETS[name].title}, {asked.seconds:g} s", flush=True)
        command = [sys.executable, "-m", "tests.fuzz.one", name, str(asked.seconds)]
        command += ["--hypothesis"] if asked.hypothesis else []
        if subprocess.run(command, check=False).returncode:
            found.append(name)
    print(f"\n{len(names) - len(found)} of {len(names)} targets without a finding", *found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
