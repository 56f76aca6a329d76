"""Runs the scenarios of tests/chaos/table.py: loads and faults, by real processes.

    make chaos                              # all of them, within 20 minutes
    make chaos ARGS="--list"                # their names, and what each must keep
    make chaos ARGS="--only F1,L2 --seed 7" # some, as a seed has them
    make chaos ARGS=--full                  # each for as long as it should be: 105 minutes
    make chaos ARGS="--write"               # and write the verdicts into docs/reliability.md

Each scenario is a process of its own. One that fails prints its seed, and leaves its logs in a
folder that it names. Exits with 1 where one failed.
"""

import argparse
import asyncio
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.bench.ending import end
from tests.chaos.stage import Stage
from tests.chaos.table import SCENARIOS, Scenario
from tests.choice import chosen

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- chaos -->", "<!-- /chaos -->"
PATIENCE_S = 30.0  # for a scenario to end what it began
LIMIT_S = 600.0  # beyond its own seconds
AUTOBAHN = ",".join(f"{number}.*" for number in (1, 2, 3, 4, 5, 6, 7, 10))


class Verdict(NamedTuple):
    """Says what became of a scenario."""

    scenario: Scenario
    failures: tuple[str, ...]
    wall_s: float
    load: float  # the machine's load average at its end

    def __str__(self) -> str:
        told = "FAILED: " + "; ".join(self.failures) if self.failures else "held"
        return f"{self.scenario.name}: {told} ({self.wall_s:.0f} s, load {self.load:.1f})"


def commands_of(scenario: Scenario, is_full: bool) -> list[list[str]]:
    """Returns what it calls that is asked elsewhere, too."""
    called = []
    if scenario.tests:
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        called.append([*pytest, *scenario.tests])
    for name in scenario.accept + (scenario.full_accept if is_full else ()):
        if name == "autobahn":
            called.append([sys.executable, "-m", "tests.conformance.autobahn", "--cases", AUTOBAHN])
        else:
            called.append([sys.executable, "-m", "tests.accept", "--only", name])
    return called


def play(scenario: Scenario, folder: Path, seed: int, is_full: bool) -> list[str]:
    """Plays one scenario, here and in the processes that it starts; returns what did not hold."""
    failures = []
    if scenario.scene is not None:
        seconds = scenario.full_s if is_full else scenario.seconds
        failures += asyncio.run(scenario.scene(Stage(folder, seed, seconds)))
    for command in commands_of(scenario, is_full):
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failures.append(" ".join(command[2:]) + " failed")
    return failures


def run(scenario: Scenario, seed: int, is_full: bool) -> Verdict:
    """Runs one scenario in a process of its own, with its output shown and kept."""
    folder = Path(tempfile.mkdtemp(prefix=f"lw-chaos-{scenario.name}-"))
    command = [sys.executable, "-m", "tests.chaos", "--play", scenario.name, "--seed", str(seed)]
    command += ["--folder", str(folder), *(["--full"] if is_full else [])]
    began_s = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        limit_s = LIMIT_S + (scenario.full_s if is_full else scenario.seconds) * 2
        status = process.wait(limit_s)
        told = folder / "failures"
        lines = told.read_text().splitlines() if told.exists() else []
        failures = tuple(lines) or ((f"ended with {status}",) if status else ())
    except subprocess.TimeoutExpired:
        end(process, signal.SIGINT, PATIENCE_S)
        failures = (f"was not done after {limit_s:.0f} s",)
    except KeyboardInterrupt:
        end(process, signal.SIGINT, PATIENCE_S)
        raise
    verdict = Verdict(scenario, failures, time.monotonic() - began_s, os.getloadavg()[0])
    if failures:
        print(f"seed {seed}; its logs are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return verdict


def machine() -> str:
    """Returns what the figures are from."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{os.cpu_count()} cores ({cpu}), Linux {platform.release()}"


def written(page: str, verdicts: list[Verdict], seed: int, is_full: bool) -> str:
    """Returns the page with these verdicts in its table."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    date = datetime.now(UTC).date()
    num_held = sum(not verdict.failures for verdict in verdicts)
    wall_s = sum(verdict.wall_s for verdict in verdicts)
    lines = [
        f"{date}, {machine()}; {'full' if is_full else 'divided'} durations, seed {seed}: "
        f"{num_held} of {len(verdicts)} held, in {wall_s / 60:.0f} minutes. The load average of "
        "the last minute stands beside each, as other programs may have used the machine.",
        "",
        "| | what happens | passes if | verdict | s | load |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for scenario, failures, took_s, load in verdicts:
        told = "failed: " + "; ".join(failures) if failures else "held"
        cells = (scenario.name, scenario.title, scenario.passes_if, told.replace("|", "/"))
        lines.append(f"| {' | '.join(cells)} | {took_s:.0f} | {load:.1f} |")
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}"


def main() -> int:
    """Parses, runs, and prints every verdict."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="NAMES", help="scenarios, with commas between")
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    parser.add_argument("--full", action="store_true", help="for as long as each should be")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--write", action="store_true", help="write the table of the docs")
    parser.add_argument("--play", help=argparse.SUPPRESS)  # one scenario, in this process
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(f"{s.name:5}{s.title}: {s.passes_if}" for s in SCENARIOS))
        return 0
    if asked.play:
        (scenario,) = chosen(asked.play, SCENARIOS)
        failures = play(scenario, asked.folder, asked.seed, asked.full)
        (asked.folder / "failures").write_text("\n".join(failures))
        return int(bool(failures))
    verdicts = []
    for scenario in chosen(asked.only, SCENARIOS):
        print(f"\n== {scenario.name}: {scenario.title}", flush=True)
        verdicts.append(run(scenario, asked.seed, asked.full))
        print(verdicts[-1], flush=True)
    num_held = sum(not verdict.failures for verdict in verdicts)
    print("\n" + "\n".join(map(str, verdicts)))
    print(f"{num_held} of {len(verdicts)} held; seed {asked.seed}.")
    if asked.write:
        PAGE.write_text(written(PAGE.read_text(), verdicts, asked.seed, asked.full))
    return int(num_held < len(verdicts))


if __name__ == "__main__":
    sys.exit(main())
