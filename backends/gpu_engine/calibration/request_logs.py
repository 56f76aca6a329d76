"""Reads per-request logs of real servers, which our engine replays for comparison.

A log has one line per request: id, arrival, prompt and output tokens and, if measured, when the
request was queued and when its first and last token came. Times are seconds since the first
arrival; TTFT and latency count from `queued_s`, as in their source. `hash_ids` name the blocks that
prompts share, so that the replayed engine finds them in its cache.
"""

import csv
import gzip
import io
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from backends.gpu_engine.constants import EngineConstants
from backends.gpu_engine.cost import GpuCost
from wafer_engine.calibration.fit import Vector
from wafer_engine.calibration.prefix_blocks import prefix_of
from wafer_engine.calibration.replay import ReplaySummary, Request, RequestTimes
from wafer_engine.calibration.rows import MAX_LENGTH_TOKENS, Row

MAX_LOG_S = 1e9  # seconds; more is a date, not a time since the first arrival
LOG_FOLDER = Path("requests")  # inside the reference folder
SHARED = "hash_ids"  # the column of a prompt's blocks, as in Mooncake's traces


class ServerLog(msgspec.Struct, frozen=True):
    """Describes how a logged server was run."""

    file: str
    gpu: str
    model: str
    tp: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_capacity_tokens: int | None  # as the server reported it; None: not recorded, no limit


# vLLM 0.19.0, bf16; LLMServingSim repository, bench/examples (2026-08).
SERVER_LOGS = (
    ServerLog("vllm019_rtx4090_llama31_8b", "RTX-4090", "Llama-3.1-8B", 1, 256, 2048, 41_408),
    ServerLog("vllm019_rtxpro6000_llama31_8b", "RTX-PRO-6000", "Llama-3.1-8B", 1, 128, 2048, None),
    ServerLog("vllm019_rtxpro6000_qwen3_32b", "RTX-PRO-6000", "Qwen3-32B", 2, 128, 2048, None),
)
LOG_ENGINE = "vllm_0_19"


def read_log(path: Path) -> list[dict[str, str]]:
    """Reads a log, gzipped or not, in order of queueing (of arrival if that is not logged).

    Raises ValueError if a needed column is missing, or a time is not a number.
    """
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    rows = list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"))))
    for column in ("arrival_s", "input_tokens", "output_tokens"):
        if rows and column not in rows[0]:
            raise ValueError(f"{path}: no column {column!r}")
    return sorted(rows, key=_queued_s)


def read_logs(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Reads the known logs in a folder, by their file names in `SERVER_LOGS`."""
    paths = {log.file: folder / f"{log.file}.csv.gz" for log in SERVER_LOGS}
    return {name: read_log(path) for name, path in paths.items() if path.is_file()}


def _queued_s(row: Row) -> float:
    return _number(row, "queued_s" if row.get("queued_s") else "arrival_s", MAX_LOG_S)


def _number(row: Row, column: str, most: float) -> float:
    cell = row.get(column) or ""
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= most:
        raise ValueError(f"{column} is {cell!r}: expected a number from 0 to {most:,.0f}")
    return value


def requests_of(rows: Sequence[Row]) -> list[Request]:
    """Reads a log's requests; a length of 0 counts as 1. Raises ValueError for an invalid cell."""
    return [_request_of(row) for row in rows]


def _request_of(row: Row) -> Request:
    prompt_tokens = max(1, int(_number(row, "input_tokens", MAX_LENGTH_TOKENS)))
    return Request(
        round(_queued_s(row) * 1e6),
        prompt_tokens,
        max(1, int(_number(row, "output_tokens", MAX_LENGTH_TOKENS))),
        prefix_of(row.get(SHARED) or "", prompt_tokens),
    )


def measured_times(rows: Sequence[Row]) -> list[RequestTimes] | None:
    """Reads the server's own times, or None if the log lacks them."""
    if any(not row.get("first_token_s") or not row.get("last_token_s") for row in rows):
        return None
    columns = ("first_token_s", "last_token_s")
    times_us = [[round(_number(row, name, MAX_LOG_S) * 1e6) for name in columns] for row in rows]
    return [RequestTimes(one, *both) for one, both in zip(requests_of(rows), times_us, strict=True)]


def replay_log(rows: Sequence[Row], times: Sequence[RequestTimes]) -> list[dict[str, str]]:
    """Adds `predicted_first_token_s` and `predicted_last_token_s` to every line of a log.

    And `predicted_cached_tokens` to one that says which blocks its prompts share.
    """
    shares = bool(rows) and SHARED in rows[0]
    return [
        {
            **row,
            "predicted_first_token_s": f"{time.first_token_us / 1e6:.6f}",
            "predicted_last_token_s": f"{time.last_token_us / 1e6:.6f}",
            **({"predicted_cached_tokens": str(time.num_cached_tokens)} if shares else {}),
        }
        for row, time in zip(rows, times, strict=True)
    ]


def cached_words(times: Sequence[RequestTimes]) -> str:
    """Says which share of the prompts was found in the cache; empty where none can be."""
    if not any(time.request.prefix for time in times):
        return ""
    found = sum(time.num_cached_tokens for time in times)
    asked = sum(time.request.num_prompt_tokens for time in times)
    return f"\n  {found / asked:.1%} of {asked:,} prompt tokens found in the cache"


def cost_of_log(log: ServerLog, engine: str | EngineConstants = LOG_ENGINE) -> GpuCost:
    """Makes the cost model of a logged server."""
    return GpuCost(
        log.gpu,
        log.model,
        tp=log.tp,
        precision="bf16",
        engine=engine,
        max_num_seqs=log.max_num_seqs,
        max_num_batched_tokens=log.max_num_batched_tokens,
        kv_capacity_tokens=log.kv_capacity_tokens,
        overhead_us=0,
    )


def log_errors(
    measured: Sequence[RequestTimes], predicted: Sequence[RequestTimes], groups: int = 6
) -> Vector:
    """Computes log errors of mean TTFT, TPOT and latency over consecutive groups of requests.

    Groups separate a server's start from its saturation, which one mean over all does not.
    """
    errors: list[float] = []
    for part in np.array_split(np.arange(len(measured)), groups):
        chosen: list[int] = part.tolist()
        real = ReplaySummary.of([measured[index] for index in chosen]).means_us
        ours = ReplaySummary.of([predicted[index] for index in chosen]).means_us
        errors += [float(np.log(ours[name] / real[name])) for name in real]
    return np.array(errors)


def comparison(measured: Sequence[RequestTimes], predicted: Sequence[RequestTimes]) -> str:
    """Shows mean TTFT, TPOT and latency beside the measured ones, in three short lines."""
    real, ours = ReplaySummary.of(measured).means_us, ReplaySummary.of(predicted).means_us
    return "\n".join(
        f"  {name:12}  predicted {ours[name] / 1e3:12,.1f} ms  "
        f"measured {real[name] / 1e3:12,.1f} ms  {ours[name] / real[name] - 1.0:+6.1%}"
        for name in real
    )
