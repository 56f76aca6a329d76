"""Tests sweeps: one process, two, and Dask give the same bytes; a stop loses nothing."""

import os
from functools import partial
from pathlib import Path

import msgspec
import pytest

from gateway.planning import sweeps
from gateway.planning.files import PlanError
from gateway.planning.sweeps import Journal, Workers
from router.planning.cells import CellResult, run_cell
from router.planning.terms import Cell, Material
from tests.unit.router.planning.scenes import material, server, traffic

CELLS = [
    Cell("default", scale, (wafers, gpus), seed)
    for scale in (1.0, 2.0)
    for wafers in (0, 1)
    for gpus in (1, 2)
    for seed in (0, 1)
]
KINDS = (server("wafer", "fast", 1.0, 8.0, most=1), server("gpu", "deep", 1.5, 4.0, most=2))


@pytest.fixture
def terms() -> Material:
    return material(kinds=KINDS, arrivals=traffic(3, 25))


def dying(terms: Material, mark: Path, cell: Cell) -> CellResult:
    """Runs a cell, but kills its process at the first of one kind; a new process imports it."""
    if cell == CELLS[5] and not mark.exists():
        mark.touch()
        os._exit(9)  # as a kill does: no clean-up
    return run_cell(terms, cell)


def as_bytes(results: list[CellResult]) -> bytes:
    return msgspec.json.encode(results)


def test_one_process_two_and_dask_give_the_same_bytes(terms: Material) -> None:
    distributed = pytest.importorskip("distributed")
    alone = as_bytes(Workers(terms).run(CELLS))
    assert as_bytes(Workers(terms, 2).run(CELLS)) == alone
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as cluster:
        found = Workers(terms, scheduler=cluster.scheduler_address).run(CELLS)
    assert as_bytes(found) == alone


def test_a_sweep_that_was_stopped_goes_on(terms: Material, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole = Workers(terms).run(CELLS, Journal(path, terms))
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join(lines[:6]) + b"\n" + lines[6][:20])  # five cells, one torn
    journal = Journal(path, terms)
    assert len(journal.results) == 5
    seen: list[tuple[int, int]] = []
    again = Workers(terms, 2).run(CELLS, journal, lambda done, of: seen.append((done, of)))
    assert as_bytes(again) == as_bytes(whole)
    assert len(seen) == len(CELLS) - 5
    assert seen[-1] == (len(CELLS), len(CELLS))
    assert len(Journal(path, terms).results) == len(CELLS)


def test_a_journal_of_another_sweep_is_refused(terms: Material, tmp_path: Path) -> None:
    Journal(tmp_path / "journal.jsonl", terms)
    other = material(kinds=KINDS, arrivals=traffic(4, 25))
    with pytest.raises(PlanError, match="is of another trace"):
        Journal(tmp_path / "journal.jsonl", other)


def test_a_killed_worker_loses_nothing(
    terms: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = as_bytes(Workers(terms).run(CELLS))
    mark = tmp_path / "died"

    monkeypatch.setattr(sweeps, "_run_held", partial(dying, terms, mark))
    found = Workers(terms, 2).run(CELLS)
    assert mark.exists()
    assert as_bytes(found) == whole
