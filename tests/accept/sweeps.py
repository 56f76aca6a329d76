"""Sweeps: the same bytes by one process, two, and Dask; two cost at most 1.15 times the CPU."""

import resource
from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from gateway.planning.sweeps import Workers
from router.planning.terms import Cell
from tests.unit.router.planning.scenes import material, server, traffic

LIMIT_S = 600
NUM_TASKS = 1_000
MOST_RATIO = 1.15
CELLS = [
    Cell("default", scale, (wafers, gpus), seed)
    for scale in (1.0, 1.5, 2.0)
    for wafers in (0, 1)
    for gpus in (1, 2, 3)
    for seed in range(6)
]
KINDS = (server("wafer", "fast", 1.0, 8.0, most=1), server("gpu", "deep", 1.5, 4.0, most=3))


def cpu_s() -> float:
    """Returns what this process and those that it began have used, once they ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def timed(run: Callable[[], Any]) -> tuple[bytes, float]:
    """Runs; returns the results' bytes and the CPU-seconds."""
    before_s = cpu_s()
    results = msgspec.json.encode(run())
    return results, cpu_s() - before_s


def main() -> bool:
    """Sweeps in all three ways."""
    terms = material(kinds=KINDS, arrivals=traffic(3, NUM_TASKS))
    alone, alone_s = timed(lambda: Workers(terms).run(CELLS))
    two, two_s = timed(lambda: Workers(terms, 2).run(CELLS))
    ratio = two_s / alone_s
    rows = [
        ("two processes", "same bytes" if two == alone else "other bytes", two == alone),
        ("their CPU", f"{two_s:.1f} s of {alone_s:.1f}: {ratio:.2f}", ratio <= MOST_RATIO),
    ]
    with import_module("distributed").LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        dask, _ = timed(lambda: Workers(terms, scheduler=cluster.scheduler_address).run(CELLS))
    rows.append(("Dask", "same bytes" if dask == alone else "other bytes", dask == alone))
    print(f"{len(CELLS)} cells of {NUM_TASKS} tasks; two processes' CPU at most {MOST_RATIO} times")
    for name, came, held in rows:
        print(f"  {name:16}{came}: {'held' if held else 'MISSED'}")
    return all(held for *_, held in rows)
