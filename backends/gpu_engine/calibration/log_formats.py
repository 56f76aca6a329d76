"""Reads requests that a server really served, from whatever log there is of them.

    CSV, plain or gzipped     the columns of a per-request log: arrival_s, input_tokens...
    Lanewise's decision log   one JSON object per line: those that one backend answered
    vLLM's benchmark          the JSON of `vllm bench serve --save-result --save-detailed`

Prometheus' text is no per-request log: `histograms.py` reads it.
"""

import gzip
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from backends.gpu_engine.calibration.fit_requests import ServedRequest
from backends.gpu_engine.calibration.request_logs import MAX_LOG_S, measured_times, read_log
from wafer_engine.calibration.replay import Request, RequestTimes
from wafer_engine.calibration.rows import MAX_LENGTH_TOKENS

MAX_LOG_BYTES = 2_000_000_000
MAX_BAD_LINES = 100  # as a back-test takes a log


def is_histograms(path: Path) -> bool:
    """Returns whether a file is a snapshot of Prometheus metrics."""
    if path.suffix == ".gz":
        return False
    with path.open("rb") as file:
        start = file.read(4096).lstrip()
    return start.startswith((b"# HELP", b"# TYPE", b"vllm:"))


def read_served(
    path: Path, backend: str | None = None, first: int | None = None
) -> list[ServedRequest]:
    """Reads a log in order of arrival; with `first`, only so many requests keep their times.

    Of a decision log, the tasks that `backend` alone answered have times, from when it began: not
    what a task waited for before. Others that it worked on are load. Raises ValueError for a file
    in none of the formats, naming what it lacks, and OSError if it cannot be read.
    """
    if path.stat().st_size > MAX_LOG_BYTES:
        raise ValueError(f"{path}: over {MAX_LOG_BYTES / 1e9:.0f} GB; give a part of it")
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        starts_json = file.read(64).lstrip().startswith(b"{")
    if not starts_json:
        found = _of_csv(path)
    else:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        whole = _decoded(text)
        found = _of_benchmark(whole) if "ttfts" in whole else _of_decisions(text, backend)
    if not found:
        raise ValueError(f"{path} holds no requests")
    found.sort(key=lambda one: one.request.arrived_us)
    if first is None:
        return found
    return [
        one if at < first else msgspec.structs.replace(one, times=None)
        for at, one in enumerate(found)
    ]


def _of_csv(path: Path) -> list[ServedRequest]:
    rows = read_log(path)
    times = measured_times(rows)
    if times is None:
        raise ValueError(f"{path}: no columns first_token_s and last_token_s: nothing to fit to")
    return [ServedRequest(one.request, one) for one in times]


def _decoded(text: bytes) -> Mapping[str, Any]:
    """Decodes a file that is one JSON object; nothing if it is several lines of them."""
    try:
        whole = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return whole if isinstance(whole, dict) else {}


def _of_benchmark(result: Mapping[str, Any]) -> list[ServedRequest]:
    """Reads vLLM's benchmark; start times are in seconds, the gaps between tokens are summed."""
    columns = []
    for name in ("start_times", "input_lens", "output_lens", "ttfts", "itls"):
        values = result.get(name)
        if not isinstance(values, list):
            raise ValueError(
                f"no list {name!r}: expected the JSON of vllm bench serve with --save-result and "
                "--save-detailed"
            )
        columns.append(values)
    errors = result.get("errors") or [""] * len(columns[0])
    first_s = min((float(start) for start in columns[0]), default=0.0)
    found = []
    for start, prompt, output, ttft, gaps, error in zip(*columns, errors, strict=True):
        if error or not output:
            continue
        found.append(
            _served(float(start) - first_s, prompt, output, float(ttft), float(ttft) + sum(gaps))
        )
    return found


def _of_decisions(text: bytes, backend: str | None) -> list[ServedRequest]:
    records = _records(text)
    if not records or "usage" not in records[0] or "at" not in records[0]:
        raise ValueError("expected a decision log, vLLM's benchmark result, or CSV")
    backend = backend or _only_backend(records)
    found = []
    first_s = min(float(record["at"]) for record in records)
    for record in records:
        at_s = float(record["at"]) - first_s
        generations = record.get("generations") or _whole_task(record)
        is_alone = len(generations) == 1 and record["outcome"] == "ok"
        for each in generations:
            if each["backend"] != backend or not each["output_tokens"]:
                continue
            started_ms, first_ms, last_ms = (
                each[name] for name in ("started_ms", "first_ms", "last_ms")
            )
            is_known = is_alone and first_ms is not None and last_ms is not None
            one = _served(
                at_s + started_ms / 1e3,
                max(1, each["input_tokens"] - each.get("cached_tokens", 0)),
                each["output_tokens"],
                (first_ms - started_ms) / 1e3 if is_known else 0.0,
                (last_ms - started_ms) / 1e3 if is_known else 0.0,
            )
            found.append(one if is_known else msgspec.structs.replace(one, times=None))
    return found


def _whole_task(record: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Makes generations of a line that tells none (schema 1): they begin when its waits ended."""
    waited_ms = (record.get("queued_ms") or 0.0) + (record.get("waited_ms") or 0.0)
    times = {
        "started_ms": waited_ms,
        "first_ms": record.get("ttft_ms"),
        "last_ms": record["duration_ms"],
    }
    answered_by = record.get("answered_by")
    nothing_told = dict.fromkeys(("first_ms", "last_ms"))
    return [
        {**one, **times} if one["backend"] == answered_by else {**one, **times, **nothing_told}
        for one in record["usage"]
    ]


def _records(text: bytes) -> list[Mapping[str, Any]]:
    """Decodes lines; a few are passed over, since a log that was cut amid a line has such a one."""
    records: list[Mapping[str, Any]] = []
    num_bad = 0
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            records.append(msgspec.json.decode(line, type=dict[str, Any]))
        except msgspec.DecodeError as error:
            num_bad += 1
            if num_bad > MAX_BAD_LINES or not records:
                raise ValueError(
                    f"line {number}: expected one JSON object per line, as a decision log has: "
                    f"{error}"
                ) from error
    return records


def _only_backend(records: Sequence[Mapping[str, Any]]) -> str:
    names = sorted({one["backend"] for record in records for one in record["usage"]})
    if len(names) != 1:
        raise ValueError(
            f"the log is of the backends {', '.join(names) or 'none'}: say which with --backend"
        )
    return str(names[0])


def _served(
    arrived_s: float, prompt: int, output: int, ttft_s: float, latency_s: float
) -> ServedRequest:
    for name, number, most in (
        ("arrival", arrived_s, MAX_LOG_S),
        ("prompt tokens", prompt, MAX_LENGTH_TOKENS),
        ("output tokens", output, MAX_LENGTH_TOKENS),
        ("latency", latency_s, MAX_LOG_S),
    ):
        if not math.isfinite(number) or not 0 <= number <= most:
            raise ValueError(f"{name} is {number!r}: expected a number from 0 to {most:,.0f}")
    request = Request(round(arrived_s * 1e6), max(1, int(prompt)), max(1, int(output)))
    first_us = request.arrived_us + round(ttft_s * 1e6)
    last_us = max(first_us, request.arrived_us + round(latency_s * 1e6))
    return ServedRequest(request, RequestTimes(request, first_us, last_us))
