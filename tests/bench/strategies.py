"""Measures what each strategy costs and gives, beside either engine alone, in engines' time.

    python tests/bench/strategies.py                        # prints the table
    python tests/bench/strategies.py --data FOLDER --write  # into docs/strategies.md

Every task runs through the whole gateway over the simulated engines, on an event loop that never
waits, so a run is the same each time. The deep engine accepts 80 % of predicted tokens; where
engines stall, each generation begins 5 s late with a chance of one in ten. Quality is the mean of
the recorded outcomes of the engines that answered: small models stand for the fast engine, large
ones for the deep one. Where the words of an answer decide what goes out, a check of AUC 0.75 is
drawn: `verify` by the thresholds of production, one fast answer a question; `breadth` by the
highest check of five answers, each right as often as a panel of small models was, and so beside
the figures of the records that have a panel. Use records that the classifier was not trained on.
"""

import argparse
import asyncio
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from backends.contract import GenerateRequest, Generation, Sink, Usage  # noqa: E402
from backends.simulated.backend import SimulatedBackend  # noqa: E402
from router.policy.policy import DEFAULT_POLICY  # noqa: E402
from router.record import labelled  # noqa: E402
from router.record.batch import Desk  # noqa: E402
from router.record.economy import DEEP_PRICES, by_check, drawn_checks  # noqa: E402
from router.record.economy_report import (  # noqa: E402
    ALL,
    PRICE_RATIO,
    pairs_by_source,
    price_of,
)
from router.record.labelled import Record, read_records  # noqa: E402
from router.record.report import judge  # noqa: E402
from router.strategies.table import STRATEGIES  # noqa: E402
from tests.bench import rows as shape  # noqa: E402
from tests.bench.rows import Row  # noqa: E402
from tests.sim.timed import Answered, timed_task  # noqa: E402

DOCUMENT = ROOT / "docs" / "strategies.md"
BEGIN = "<!-- table: tests/bench/strategies.py --write -->"
END = "<!-- end of table -->"
ACCEPTANCE = 0.8
STALL_S = 5.0
STALL_CHANCE = 0.1
SEED = 20_261_122
PROGRAM = "Write a Python program of 300 lines that simulates a library."
ASKS = (
    "What is a bloom filter, in 60 words?",
    "Explain in 150 words why a cache stampede happens and how to prevent it.",
    "Write a function of 40 lines that merges overlapping intervals, with tests.",
    "Compare B-trees and LSM trees in 300 words.",
    PROGRAM,
)
CHECK_AUC = 0.75  # of the drawn check
NUM_VARIATIONS = 5  # of `breadth`, as by default
NUM_STALLED = 8  # of each ask
HEAD = (
    "how", "first word", "its p95 with 10 % stalls", "whole answer", "tokens", "answers", "quality"
)  # fmt: skip


class Late:
    """Is a generation that begins late, or was cancelled before."""

    def __init__(self) -> None:
        self.generation: Generation | None = None
        self.timer: asyncio.TimerHandle | None = None

    def cancel(self, *, is_silent: bool = False) -> Usage:
        if self.timer is not None:
            self.timer.cancel()
        return Usage() if self.generation is None else self.generation.cancel()

    def pause(self) -> bool:
        return False

    def resume(self) -> None:
        pass


class StallingBackend(SimulatedBackend):
    """Begins one generation in ten late."""

    chance = random.Random(SEED)

    def start(self, request: GenerateRequest, sink: Sink) -> Generation:
        if self.chance.random() >= STALL_CHANCE:
            return super().start(request, sink)
        late, begin = Late(), super().start

        def begun() -> None:
            late.generation = begin(request, sink)

        late.timer = asyncio.get_running_loop().call_later(STALL_S, begun)
        return late


class Outcomes(msgspec.Struct, frozen=True):
    """Counts how often a small and a large model were right, and holds what is chosen."""

    num_records: int
    fast: float
    deep: float
    chosen: dict[str, str] = {}  # by strategies whose answer is chosen by its words; as printed


def read_outcomes(folder: Path) -> Outcomes:
    """Returns the outcomes of all records of quality below a folder."""
    records = [
        record
        for record in read_records(sorted(folder.rglob("quality.jsonl.gz")))
        if labelled.outcomes(record) is not None
    ]
    if not records:
        raise SystemExit(
            f"--data {folder}: no quality.jsonl.gz with small_ok and large_ok below it"
        )
    measured = np.array([labelled.outcomes(record) for record in records], float)
    fast, deep = measured.mean(axis=0).tolist()
    chosen = {"breadth": _chosen_of_five(records), "verify": _verified(records, fast)}
    known = {how: quality for how, quality in chosen.items() if quality}
    return Outcomes(len(records), fast, deep, known)


def _verified(records: Sequence[Record], fast: float) -> str:
    """Returns the quality of `verify` at the default policy's price of a deep answer."""
    desk = Desk(policy=DEFAULT_POLICY)
    pairs = pairs_by_source([judge(record, desk) for record in records]).get(ALL)
    price = price_of(desk.own_policy)
    if pairs is None or price is None:
        return ""
    row = int(np.argmin(np.abs(np.array(DEEP_PRICES) - price)))
    gains = by_check(pairs, CHECK_AUC, PRICE_RATIO).gains[row]
    return f"{fast + float(gains.mean()):.3f}"


def _chosen_of_five(records: Sequence[Record]) -> str:
    """Returns the quality of the best-checked answer, beside one answer and the large model."""
    panels = [(record.number("small_rate"), record.number("large_ok")) for record in records]
    rates = np.array([(small, large) for small, large in panels if small is not None], float)
    if not len(rates):
        return ""
    rng = np.random.default_rng(SEED)
    small, large = rates.T
    right = rng.random((NUM_VARIATIONS, len(rates))) < small
    checks = drawn_checks(right, CHECK_AUC, rng)
    best = right[checks.argmax(axis=0), np.arange(len(rates))]
    return f"{best.mean():.3f} (fast {small.mean():.3f}, deep {large.mean():.3f})"


def asked_for(how: str) -> dict[str, str]:
    """Returns metadata that asks for a strategy, or for one engine alone."""
    return {"strategy": how} if how in STRATEGIES else {"route": how.split()[0]}


def measured(how: str, ask: str, engine: type[SimulatedBackend] = SimulatedBackend) -> Answered:
    """Runs one task."""
    return timed_task(
        ask, asked_for(how), fast=engine, deep=engine, prediction_acceptance=ACCEPTANCE
    )


def quality_of(runs: Sequence[Answered], how: str, outcomes: Outcomes | None) -> str:
    """Returns the recorded quality of the engines that answered; a dash where none was recorded.

    Without the data, an answer that one engine gave whole is that engine's.
    """
    parts = {"wafer": 0, "gpu": 0}
    for run in runs:
        routing = run.response["routing"]
        by = routing["answered_by"]
        rows: list[dict[str, Any]] = routing.get("generations") or []
        # A fast engine that is offered a tool, and does not call it, answers as it does alone.
        is_whole = {row["part"] for row in rows} == {"converse"}
        if is_whole or not rows or any((r["part"], r["backend"]) == ("answer", by) for r in rows):
            parts[by] += 1
    whole = sum(parts.values()) == len(runs)
    weighed = how in STRATEGIES and STRATEGIES[how].weighed is not None
    chosen_by_words = all(parts.values()) and weighed
    if outcomes is not None and how in outcomes.chosen:
        return outcomes.chosen[how]
    if outcomes is None or not whole or chosen_by_words:
        return "-"
    right = parts["wafer"] * outcomes.fast + parts["gpu"] * outcomes.deep
    return f"{right / len(runs):.3f}"


def row_of(how: str, outcomes: Outcomes | None) -> tuple[str, ...]:
    """Returns a row of the table; times and tokens are means over the asks."""
    runs = [measured(how, ask) for ask in ASKS]
    StallingBackend.chance = random.Random(SEED)  # the same for each row
    stalled = [measured(how, ask, StallingBackend) for ask in ASKS for _ in range(NUM_STALLED)]
    late_us = sorted(run.first_us for run in stalled)
    tokens = [
        sum(used["output_tokens"] for used in run.response["routing"]["usage"].values())
        for run in runs
    ]
    messages = [item for item in runs[0].response["output"] if item["type"] == "message"]
    finals = [item for item in messages if item.get("phase") != "commentary"]
    return (
        f"`{how}`" if how in STRATEGIES else how,
        f"{statistics.mean(run.first_us for run in runs) / 1e3:,.0f} ms",
        f"{late_us[int(0.95 * len(late_us))] / 1e3:,.0f} ms",
        f"{statistics.mean(run.end_us for run in runs) / 1e6:.1f} s",
        f"{statistics.mean(tokens):,.0f}",
        f"{len(finals)}",
        quality_of([*runs, *stalled], how, outcomes),
    )


def table(outcomes: Outcomes | None) -> str:
    """Returns the table as Markdown, with the engines alone first."""
    rows = [row_of(how, outcomes) for how in ("fast alone", "deep alone", *STRATEGIES)]
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def write(found: str) -> None:
    """Puts the table between its marks in the document."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise SystemExit(f"{DOCUMENT} has no marks {BEGIN} and {END}")
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{found}\n\n{END}{after}")


def draft_rows() -> list[Row]:
    """Drafts beside the deep engine alone, which writes the same answer."""
    alone = timed_task(PROGRAM, {"route": "deep"}).end_us / 1e3
    rows = []
    for acceptance, goal in ((0.8, shape.ahead(1 / 3)), (0.0, shape.ahead(1.1))):
        drafted = timed_task(PROGRAM, {"strategy": "draft"}, prediction_acceptance=acceptance)
        rows.append(
            Row(
                name=f"300 lines by draft, {acceptance:.0%} accepted, in the engines' time",
                unit="ms",
                values=[drafted.end_us / 1e3],
                baseline="deep alone",
                baseline_values=[alone],
                goal=goal,
            )
        )
    return rows


def main() -> None:
    """Prints the table, writes it, or gives the rows about drafts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with recorded outcomes, for the quality")
    parser.add_argument("--write", action="store_true", help=f"into {DOCUMENT.name}")
    shape.add_argument(parser)
    arguments = parser.parse_args()
    if arguments.rows is not None:
        shape.publish(draft_rows(), arguments)
        return
    found = table(None if arguments.data is None else read_outcomes(arguments.data))
    print(found)
    if arguments.write:
        write(found)


if __name__ == "__main__":
    main()
