"""A back-test of 100,000 logged tasks stays within 150 MB; and how many it runs per CPU-second.

The log is that of a live gateway of a wafer and three GPU servers, whose tasks come again and
again, each time as others'. The command runs in a process of its own, as an admin's does.
"""

import gc
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gateway.backtest.inquiry import GC_THRESHOLDS, Inquiry, question_of
from router.backtest.simulation import Scenario, simulate
from router.classify.task import Tenant
from router.policy.policy import DEFAULT_POLICY
from router.record.recording import DecisionRecord, encode_line
from tests.sim.recorded import WIDE, asks, recorded

LIMIT_S = 900
NUM_TASKS, NUM_RECORDED, NUM_TIMED = 100_000, 1_000, 20_000
PER_S = 6.0
MOST_BYTES = 150_000_000
LEAST_PER_CPU_S = 6_000.0
OTHER = "[band]\nlow = 0.5\nhigh = 0.98\n"


class Ran(NamedTuple):
    """Says what a command printed, the most memory that it took, and its CPU-seconds."""

    report: dict[str, Any]
    most_bytes: int
    cpu_s: float


def log_lines(number: int) -> Iterator[bytes]:
    """Yields lines of so many tasks, in order of time."""
    tenant = Tenant(id="studio", tier="standard", limits={"fast": WIDE, "deep": WIDE})
    given = asks(5, NUM_RECORDED, PER_S)
    given = [ask._replace(fields={"max_output_tokens": 600}) for ask in given]
    kept = recorded(given, DEFAULT_POLICY, [tenant], num_gpus=3)
    kept.sort(key=lambda record: record.at)
    span_s = kept[-1].at - kept[0].at + 1.0
    for index in range(number):
        times, place = divmod(index, len(kept))
        yield encode_line(_again(kept[place], times, times * span_s))


def write_logs(whole: Path, part: Path) -> None:
    """Writes all lines, and the first of them."""
    with whole.open("wb") as all_lines, part.open("wb") as some:
        for index, line in enumerate(log_lines(NUM_TASKS)):
            all_lines.write(line)
            if index < NUM_TIMED:
                some.write(line)


def _again(record: DecisionRecord, number: int, later_s: float) -> DecisionRecord:
    """Returns the same task, later and of another user, who shares no prompt."""
    context = record.context
    if context is not None:
        prefix = tuple((hashed ^ (number << 20), tokens) for hashed, tokens in context.prefix)
        context = msgspec.structs.replace(context, prefix=prefix)
    return msgspec.structs.replace(
        record,
        id=f"resp_{os.urandom(24).hex()}",
        at=record.at + later_s,
        conversation=os.urandom(8).hex(),
        context=context,
        engine_settings=record.engine_settings if number == 0 else (),
    )


def command(log: Path, policy: Path) -> Ran:
    """Back-tests a policy as an admin does."""
    words = ["backtest", "--log", str(log), "--policy", str(policy), "--json"]
    process = subprocess.Popen([sys.executable, "-m", "gateway", *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    told = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Ran(json.loads(told), used.ru_maxrss * 1_024, used.ru_utime + used.ru_stime)


def per_cpu_s(log: Path) -> float:
    """Simulates a log's tasks under its own policy, as the command does: tasks per CPU-second."""
    gc.set_threshold(*GC_THRESHOLDS)
    asked = question_of(Inquiry(paths=(log,), bases={DEFAULT_POLICY.version: DEFAULT_POLICY}))
    scenario = Scenario(policy=asked.base, fleet=asked.fleet, tenants=asked.logged.tenants)
    began_s = time.process_time()
    totals = simulate(asked.logged.arrivals, scenario, lambda _: None)
    return totals.num_tasks / (time.process_time() - began_s)


def main() -> bool:
    """Makes a log, and runs the command on it."""
    with tempfile.TemporaryDirectory() as folder:
        log, part, policy = (Path(folder, name) for name in ("all.jsonl", "part.jsonl", "new.toml"))
        policy.write_text(OTHER)
        # In a process of its own: what this one takes would be counted as its children's.
        context = multiprocessing.get_context("spawn")
        writer = context.Process(target=write_logs, args=(log, part))
        writer.start()
        writer.join()
        ran = command(log, policy)
        rate = per_cpu_s(part)
    print(f"{ran.report['num_tasks']:,} tasks under two policies: {ran.cpu_s:.1f} CPU-seconds")
    rows = (
        ("most memory", f"{ran.most_bytes / 1e6:.1f} MB", "150 MB", ran.most_bytes <= MOST_BYTES),
        ("simulated tasks per CPU-second", f"{rate:,.0f}", "6,000", rate >= LEAST_PER_CPU_S),
    )
    for name, came, bar, held in rows:
        print(f"  {name:32}{came:>12}, bar {bar}: {'held' if held else 'MISSED'}")
    return all(held for *_, held in rows)
