"""Measures how soon a stuck run goes to the deep engine, and how often a clean one does.

    python tests/bench/agent_runs.py [--seed 1] [--runs 100] [--json]
    python tests/bench/agent_runs.py --recorded FILE...     # chat messages, as SWE-agent's .traj

Runs are drawn from the seed, and replayed request by request through what decides them, without a
gateway. A delay is the number of requests from the first at which the run is stuck (a call repeated
to the same end, an equal failure, a complaint) to the first that goes deep. "Early" runs went deep
before that; of a clean run, at all. With `--deep` the asks are deep ones and begin there.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.unit.router.agent_runs.planted_runs import planted_runs  # noqa: E402
from tests.unit.router.agent_runs.recorded_runs import recorded_run  # noqa: E402
from tests.unit.router.agent_runs.replaying import Replayed, replayed  # noqa: E402
from tests.unit.router.tasks import of_class  # noqa: E402


def _row(kind: str, found: list[Replayed]) -> dict[str, object]:
    delays = Counter(each.delay for each in found) if found[0].run.stuck_at is not None else {}
    return {
        "kind": kind,
        "runs": len(found),
        "requests": sum(len(each.labels) for each in found),
        "delays": {str(delay): number for delay, number in sorted(delays.items(), key=str)},
        "early": sum(each.num_early > 0 for each in found),
        "on_deep": sum(each.labels.count("deep") for each in found),
        "moves_max": max(each.num_moves for each in found),
    }


def main() -> None:
    """Replays, and prints a row for each kind of run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=100, help="of each kind")
    parser.add_argument("--deep", action="store_true", help="the asks are deep, and begin there")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--recorded", type=Path, nargs="+", help="runs of yours, as messages")
    arguments = parser.parse_args()
    asked = of_class("deep") if arguments.deep else None
    by_kind: dict[str, list[Replayed]] = {}
    runs = planted_runs(arguments.seed, arguments.runs)
    if arguments.recorded is not None:  # nobody says where they are stuck: "early" is any
        runs = iter([recorded_run(path) for path in arguments.recorded])
    for run in runs:
        holder = "deep" if arguments.deep else "fast"
        found = replayed(run, arguments.seed, asked=asked, holder=holder)  # type: ignore[arg-type]
        by_kind.setdefault(run.kind, []).append(found)
    rows = [_row(kind, found) for kind, found in by_kind.items()]
    if arguments.json:
        json.dump({"seed": arguments.seed, "rows": rows}, sys.stdout)
        return
    print(f"seed {arguments.seed}")
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
