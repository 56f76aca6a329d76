"""Predicts published measurements, and replays per-request logs through our engines."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from backends.gpu_engine.calibration.gpu_rows import GpuRows
from backends.gpu_engine.calibration.request_logs import (
    cached_words,
    comparison,
    measured_times,
    read_log,
    replay_log,
    requests_of,
)
from backends.gpu_engine.cost import GpuCost
from wafer_engine.calibration.replay import ReplaySummary, replay
from wafer_engine.calibration.rows import read_rows, write_rows
from wafer_engine.calibration.wafer_rows import WaferRows

_NEEDED = ("hardware", "metric")


def predict_rows(rows: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Adds `predicted`, in the row's own unit, `not_modelled` and `constants` columns.

    Rows have the columns of either reference file; others are kept as they are. Exactly one of the
    first two cells is filled: a row that cannot be modelled says why. The third names the GPU
    engine's constants, and the card they were taken from if none of their own were fitted.
    """
    wafer, gpu = WaferRows(), GpuRows()
    predicted = []
    for row in rows:
        cells = {name: cell or "" for name, cell in row.items() if name is not None}
        hardware = cells.get("hardware", "").upper()
        is_wafer = hardware.startswith(("WSE", "CS-")) or (not hardware and "core_grid" in cells)
        found = wafer.predict(cells) if is_wafer else gpu.predict(cells)
        cells["predicted"] = "" if found.value is None else f"{found.value:.6g}"
        cells["not_modelled"], cells["constants"] = found.reason, found.constants
        predicted.append(cells)
    return predicted


def predict_file(path: Path) -> str:
    """Returns a file's rows with their predictions as CSV text.

    Raises ValueError if the file holds no rows, or lacks columns that every row needs.
    """
    rows = read_rows(path)
    if not rows:
        raise ValueError("expected CSV with a header line and rows, found none")
    missing = [column for column in _NEEDED if column not in rows[0]]
    if missing:
        raise ValueError(
            f"no column {' or '.join(map(repr, missing))}: expected the columns of wse.csv or "
            f"gpu.csv, separated by commas; found {', '.join(map(repr, list(rows[0])[:8]))}"
        )
    return write_rows(predict_rows(rows))


def replay_file(path: Path, cost: GpuCost) -> tuple[str, str]:
    """Replays a per-request log (plain or gzipped CSV) through an engine.

    Returns the log as CSV text with predicted first and last token times, and a short summary,
    beside the measured means if the log has them; it says so if the constants were taken over from
    another card or release, and how far off they may be. Raises ValueError if a column is missing,
    or a request exceeds the KV cache.
    """
    rows = read_log(path)
    if not rows:
        raise ValueError(f"{path} holds no requests")
    requests = requests_of(rows)
    times = replay(cost, requests)
    measured = measured_times(rows)
    origin = cached_words(times)
    origin += f"\n  constants {cost.fit.label}" if cost.fit.label else ""
    if measured is not None:
        return write_rows(replay_log(rows, times)), comparison(measured, times) + origin
    summary = ReplaySummary.of(times)
    means = [f"{name} {mean_us / 1e3:,.1f} ms" for name, mean_us in summary.means_us.items()]
    speed = f"{summary.output_tokens_per_s:,.0f} tokens/s"
    text = "  ".join([f"  {summary.num_requests} requests", *means, speed])
    return write_rows(replay_log(rows, times)), text + origin
