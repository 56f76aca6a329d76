"""Measures how fast a trace replays: simulated requests per CPU-second, beside real time.

    python tests/bench/replay_trace.py [--trace FILE.csv[.gz]] [--engine wafer|gpu] [--replicas N]

Without a file it takes the Azure 2023 traces from ../shared/data/traces. Prints one JSON line per
trace and engine. `--profile` shows where the time goes.
"""

import argparse
import cProfile
import json
import platform
import pstats
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from backends.gpu_engine.calibration.request_logs import read_log, requests_of
from backends.gpu_engine.cost import GpuCost
from tests.bench import rows as shape
from wafer_engine.batching.cost_model import CostModel
from wafer_engine.calibration.replay import ReplaySummary, Request, replay
from wafer_engine.hardware.cost import WaferCost

FOLDER = Path("../shared/data/traces")
TRACES = ("azure2023_code", "azure2023_conv")


def cost_of(engine: str) -> CostModel:
    """Returns the documented default of each engine."""
    return WaferCost() if engine == "wafer" else GpuCost()


def fitting(requests: list[Request], cost: CostModel) -> list[Request]:
    """Returns the requests that the engine can hold at all."""
    most = cost.limits.kv_capacity_tokens - cost.limits.kv_block_tokens
    return [
        request
        for request in requests
        if request.num_prompt_tokens + request.num_output_tokens <= most
    ]


def measure(path: Path, engine: str, replicas: int, repeat: int) -> dict[str, object]:
    """Replay every `replicas`-th request on one engine, as one of so many replicas would see it."""
    cost = cost_of(engine)
    requests = fitting(requests_of(read_log(path))[::replicas], cost)
    best_s, times = float("inf"), []
    for _ in range(repeat):
        start_s = time.process_time()
        times = replay(cost, requests)
        best_s = min(best_s, time.process_time() - start_s)
    summary = ReplaySummary.of(times)
    span_s = (times[-1].last_token_us - requests[0].arrived_us) / 1e6
    return {
        "trace": path.name,
        "engine": engine,
        "replicas": replicas,
        "requests": len(requests),
        "cpu_s": round(best_s, 4),
        "requests_per_cpu_s": round(len(requests) / best_s),
        "times_real_time": round(span_s / best_s),
        "mean_ttft_ms": round(summary.mean_ttft_us / 1e3, 1),
        "mean_tpot_ms": round(summary.mean_tpot_us / 1e3, 3),
        "commit": commit(),
        "machine": f"{platform.machine()} python {platform.python_version()}",
    }


def row_of(result: dict[str, Any]) -> shape.Row:
    """Says how much faster it is than the trace itself."""
    per_request_us = 1e6 / result["requests_per_cpu_s"]
    return shape.Row(
        name=f"replay {result['trace'].partition('.')[0]} on the {result['engine']} engine",
        unit="CPU-us/request",
        values=[per_request_us],
        baseline="real time",
        baseline_values=[per_request_us * result["times_real_time"]],
        per="request",
        cpu_us=[per_request_us],
    )


def commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--trace", help="CSV with arrival_s, input_tokens, output_tokens")
    parser.add_argument("--engine", choices=("wafer", "gpu"), help="both where not given")
    parser.add_argument("--replicas", type=int, default=1, help="replay every n-th request")
    parser.add_argument("--repeat", type=int, default=3, help="runs; the fastest counts")
    parser.add_argument("--profile", action="store_true", help="profile one run")
    shape.add_argument(parser)
    options = parser.parse_args()
    published = []
    given = [Path(options.trace)] if options.trace else []
    paths = given or [FOLDER / f"{name}.csv.gz" for name in TRACES]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        print(f"no trace at {missing[0]}: give one with --trace", file=sys.stderr)
        return 2
    for path in paths:
        for engine in [options.engine] if options.engine else ["wafer", "gpu"]:
            if options.profile:
                profile = cProfile.Profile()
                profile.runcall(measure, path, engine, options.replicas, 1)
                pstats.Stats(profile).sort_stats("tottime").print_stats(15)
            else:
                result = measure(path, engine, options.replicas, options.repeat)
                published.append(row_of(result))
                if options.rows is None:
                    print(json.dumps(result), flush=True)
    if options.rows is not None:
        shape.publish(published, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
