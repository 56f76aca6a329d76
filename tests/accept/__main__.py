"""Runs the scripts beside this one, which ask what takes minutes or a machine of its own.

    make accept                                  # all of them
    make accept ARGS="--list"                    # their names, and what each asks
    make accept ARGS="--only descriptors,silence"

A script is a module of this folder with a function `main() -> bool`, which prints its figures and
says whether all held; `main` takes no arguments, and `LIMIT_S` is the time that it may take.
Modules without a `main` support the others. `make test` asks the same with small limits instead of
seconds, so that a busy machine decides nothing there; here each verdict stands beside how busy it
was.
Exits with 1 where one failed.
"""

import argparse
import ast
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.bench.ending import end
from tests.choice import chosen

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
LIMIT_S = 600  # for a script that names none; then it is ended, and has failed
PATIENCE_S = 20.0  # for a script to end what it began
RUN = "import sys; from tests.accept import {0}; sys.exit({0}.main() is not True)"


class Script(NamedTuple):
    """Is a module with a `main`."""

    name: str
    title: str  # its docstring's first line
    limit_s: int


class CpuTimes(NamedTuple):
    """Counts the seconds of all cores since the machine began; proc(5), stat."""

    busy_s: float
    stolen_s: float  # what the hypervisor gave to others


class Outcome(NamedTuple):
    """Says what became of a script, and of the machine meanwhile."""

    script: Script
    failure: str  # empty: it held
    wall_s: float
    load: float  # the load average of the last minute, at the end
    other_cores: float  # that other programs kept busy
    stolen: float  # of the machine's time, between 0 and 1

    def __str__(self) -> str:
        verdict = f"FAILED: {self.failure}" if self.failure else "held"
        return (
            f"{self.script.name}: {verdict}. {self.wall_s:.0f} s; load average {self.load:.1f}, "
            f"others kept {self.other_cores:.1f} of {os.cpu_count()} cores busy, "
            f"{self.stolen:.1%} of the time was stolen"
        )


def scripts() -> Iterator[Script]:
    """Yields all of the folder, by name; none is imported."""
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(), str(path))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            if path == Path(__file__):
                continue
            title = (ast.get_docstring(tree) or "").partition("\n")[0]
            yield Script(path.stem, title, _limit_s(tree))


def _limit_s(tree: ast.Module) -> int:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LIMIT_S":
            return int(ast.literal_eval(node.value))
    return LIMIT_S


def cpu_times() -> CpuTimes:
    """Reads the times now."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    _, _, _, idle, waiting, _, _, stolen = ticks
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return CpuTimes((sum(ticks) - idle - waiting - stolen) * tick_s, stolen * tick_s)


def children_cpu_s() -> float:
    """Returns what the processes that this one began, and theirs, have used, once they ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(script: Script) -> Outcome:
    """Runs one script, in a process of its own, which ends with all that it began."""
    began_s, before, ours_s = time.monotonic(), cpu_times(), children_cpu_s()
    process = subprocess.Popen(
        [sys.executable, "-c", RUN.format(script.name)], cwd=ROOT, start_new_session=True
    )
    try:
        status = process.wait(script.limit_s)
        failure = f"ended with {status}" if status else ""
    except KeyboardInterrupt:
        end(process, signal.SIGINT, PATIENCE_S)
        raise
    except subprocess.TimeoutExpired:
        end(process, signal.SIGINT, PATIENCE_S)
        failure = f"was not done after {script.limit_s} s"
    wall_s, after = time.monotonic() - began_s, cpu_times()
    others_s = (after.busy_s - before.busy_s) - (children_cpu_s() - ours_s)
    return Outcome(
        script,
        failure,
        wall_s,
        load=os.getloadavg()[0],
        other_cores=max(0.0, others_s / wall_s),
        stolen=(after.stolen_s - before.stolen_s) / (wall_s * (os.cpu_count() or 1)),
    )


def main() -> int:
    """Parse, run, and print every verdict."""
    parser = argparse.ArgumentParser(prog="make accept", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="NAMES", help="scripts, with commas between")
    parser.add_argument("--list", action="store_true", help="name the scripts and end")
    asked = parser.parse_args()
    known = list(scripts())
    if asked.list:
        print("\n".join(f"{script.name:24}{script.title}" for script in known))
        return 0
    outcomes = []
    for script in chosen(asked.only, known):
        print(f"\n== {script.name}: {script.title}", flush=True)
        outcomes.append(run(script))
        print(outcomes[-1], flush=True)
    num_held = sum(not outcome.failure for outcome in outcomes)
    print("\n" + "\n".join(map(str, outcomes)) + f"\n{num_held} of {len(outcomes)} held.")
    return int(num_held < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
