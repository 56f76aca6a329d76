"""Runs the cells of a sweep on any `concurrent.futures.Executor`, and keeps what is done.

Processes of this machine by default, a Dask cluster where its scheduler is named. The material is
sent to each worker once: processes get it as they start, Dask's workers by `scatter`. Each finished
cell is a line of a journal, so that a sweep that was stopped goes on where it was; the results are
in the order of the cells, whatever finished first. A worker that dies loses nothing but the time:
its cells run again. It imports by name what only clusters need. This is an edge.
"""

import gc
import hashlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from gateway.backtest.inquiry import GC_THRESHOLDS
from gateway.planning.files import PlanError
from router.planning.cells import CellResult, run_cell
from router.planning.terms import Cell, Material

MAX_RESTARTS = 3  # of a pool whose workers die; a cell that kills each of them ends the sweep
AHEAD = 2  # cells given out per worker, so that none waits for the next

Progress = Callable[[int, int], None]  # finished cells, of all

_held: Material | None = None  # in a worker: what it was sent as it started


def _hold(sent: bytes) -> None:
    global _held
    gc.set_threshold(*GC_THRESHOLDS)
    _held = pickle.loads(sent)
    gc.freeze()  # what was there before is not looked through again


def _run_held(cell: Cell) -> CellResult:
    assert _held is not None
    return run_cell(_held, cell)


class Journal:
    """Holds the finished cells of a sweep in a file, a line each."""

    def __init__(self, path: Path, material: Material) -> None:
        """Reads what is there. Raises `PlanError` if it is of another sweep's material."""
        self._path = path
        self._digest = digest_of(material)
        self.results: dict[Cell, CellResult] = {}
        try:
            lines = path.read_bytes().split(b"\n") if path.exists() else []
            if lines and msgspec.json.decode(lines[0]) != {"material": self._digest}:
                raise PlanError(
                    f"{path} is of another trace, objectives, prices or policies: "
                    "give another --out"
                )
            for line in lines[1:-1]:  # the last was being written when the sweep was stopped
                result = msgspec.json.decode(line, type=CellResult)
                self.results[result.cell] = result
            head = [msgspec.json.encode({"material": self._digest})]
            kept = lines[:1] + lines[1:-1] or head
            path.write_bytes(b"\n".join(kept) + b"\n")
        except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
            raise PlanError(f"{path}: {error}") from error

    def keep(self, result: CellResult) -> None:
        """Appends a result."""
        self.results[result.cell] = result
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")


def digest_of(material: Material) -> str:
    """Returns a hash of all that results depend on, the same for the same files."""
    parts = [
        msgspec.json.encode(list(material.arrivals), order="sorted"),
        msgspec.json.encode(material.slo, order="sorted"),
        repr(sorted((name, repr(one)) for name, one in material.policies.items())).encode(),
        repr(
            [
                (kind.name, kind.machine.info, kind.machine.power_w, kind.machine.cost.limits,
                 kind.per_hour, kind.idle_power_w, kind.busy_share, kind.capacity)
                for kind in material.kinds
            ]
        ).encode(),
        repr((material.energy_per_kwh, sorted(material.tenant_tiers.items()))).encode(),
    ]  # fmt: skip
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


class Workers:
    """Runs cells, on this process or on an executor."""

    def __init__(
        self, material: Material, num_workers: int = 1, scheduler: str | None = None
    ) -> None:
        self._material = material
        self._num_workers = num_workers
        self._scheduler = scheduler

    def run(
        self,
        cells: Sequence[Cell],
        journal: Journal | None = None,
        on_progress: Progress | None = None,
    ) -> list[CellResult]:
        """Returns the results in the order of the cells.

        Raises `PlanError` if workers keep dying.
        """
        done = dict(journal.results) if journal is not None else {}
        total = len(set(cells))

        def finished(result: CellResult) -> None:
            if result.cell not in done:
                done[result.cell] = result
                if journal is not None:
                    journal.keep(result)
            if on_progress is not None:
                on_progress(sum(cell in done for cell in set(cells)), total)

        for attempt in range(MAX_RESTARTS + 1):
            left = [cell for cell in dict.fromkeys(cells) if cell not in done]
            if not left:
                break
            try:
                self._run_left(left, finished)
            except BrokenProcessPool as error:
                if attempt == MAX_RESTARTS:
                    raise PlanError(f"workers died {attempt + 1} times: {error}") from error
        return [done[cell] for cell in cells]

    def _run_left(self, left: Sequence[Cell], finished: Callable[[CellResult], None]) -> None:
        if self._scheduler is None and self._num_workers == 1:
            usual = gc.get_threshold()
            gc.set_threshold(*GC_THRESHOLDS)
            try:
                for cell in left:
                    finished(run_cell(self._material, cell))
            finally:
                gc.set_threshold(*usual)
            return
        with self._executor() as (executor, submit, num_workers):
            waiting = list(reversed(left))
            running: set[Future[CellResult]] = set()
            while waiting or running:
                while waiting and len(running) < AHEAD * num_workers:
                    running.add(submit(executor, waiting.pop()))
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    finished(future.result())

    @contextmanager
    def _executor(
        self,
    ) -> Iterator[tuple[Executor, Callable[[Executor, Cell], "Future[CellResult]"], int]]:
        if self._scheduler is not None:
            with _dask(self._scheduler, self._material) as found:
                yield found
            return
        sent = pickle.dumps(self._material, protocol=pickle.HIGHEST_PROTOCOL)
        with ProcessPoolExecutor(
            self._num_workers, initializer=_hold, initargs=(sent,)
        ) as executor:
            yield executor, lambda on, cell: on.submit(_run_held, cell), self._num_workers


@contextmanager
def _dask(scheduler: str, material: Material) -> Iterator[tuple[Executor, Any, int]]:
    try:
        connect = import_module("distributed").Client
    except ImportError as error:
        raise PlanError(
            "--scheduler needs Dask: pip install 'lanewise[cluster]', here and on the workers"
        ) from error
    try:
        client = connect(scheduler, timeout=10)
    except (OSError, TimeoutError, ValueError) as error:
        raise PlanError(f"--scheduler {scheduler}: {error}") from error
    with client:
        sent = client.scatter(material, broadcast=True, hash=False)
        executor = client.get_executor(pure=False, retries=MAX_RESTARTS)
        num_workers = max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
        yield executor, lambda on, cell: on.submit(run_cell, sent, cell), num_workers
