"""Tests that constants fitted to a server's logs are found again, bounded, and honest."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from backends.gpu_engine.calibration.fitted import fit_logs, fit_report, write_fitted
from backends.gpu_engine.calibration.log_formats import read_served
from backends.gpu_engine.calibration.request_logs import (
    LOG_FOLDER,
    SERVER_LOGS,
    cost_of_log,
    measured_times,
    read_logs,
    requests_of,
)
from backends.gpu_engine.constants import GpuConstants
from backends.gpu_engine.cost import GpuCost
from wafer_engine.calibration.replay import ReplaySummary, Request, RequestTimes, replay
from wafer_engine.calibration.rows import find_reference, write_rows

REAL = GpuConstants(gpus=("L40S",), compute=0.62, memory=0.7, seq_us=30.0)
START = msgspec.structs.replace(REAL, compute=0.5, memory=0.85, seq_us=15.0, basis="another's")
PATH = find_reference("gpu.csv", None)
BARS = {"mean TTFT": 0.05, "mean TPOT": 0.02, "mean latency": 0.05}


def cost(constants: GpuConstants) -> GpuCost:
    return GpuCost(
        "L40S", "Llama-3.1-8B", tp=1, precision="bf16", constants=constants, overhead_us=0
    )


def served(number: int = 150, seed: int = 5) -> list[RequestTimes]:
    """Returns what a server with the real constants would have logged."""
    chance, at_us = random.Random(seed), 0.0
    requests = []
    for _ in range(number):
        at_us += chance.expovariate(6.0) * 1e6
        requests.append(Request(round(at_us), chance.randint(50, 1500), chance.randint(20, 400)))
    return replay(cost(REAL), requests)


def csv_of(times: Sequence[RequestTimes]) -> str:
    return write_rows(
        [
            {
                "arrival_s": f"{one.request.arrived_us / 1e6:.6f}",
                "input_tokens": str(one.request.num_prompt_tokens),
                "output_tokens": str(one.request.num_output_tokens),
                "first_token_s": f"{one.first_token_us / 1e6:.6f}",
                "last_token_s": f"{one.last_token_us / 1e6:.6f}",
            }
            for one in times
        ]
    )


def decisions_of(times: Sequence[RequestTimes]) -> str:
    lines = [
        {
            "at": 1.7e9 + one.request.arrived_us / 1e6,
            "outcome": "ok",
            "answered_by": "gpu",
            "queued_ms": 0.0,
            "ttft_ms": one.ttft_us / 1e3,
            "duration_ms": one.latency_us / 1e3,
            "usage": [
                {
                    "backend": "gpu",
                    "input_tokens": one.request.num_prompt_tokens + 10,
                    "cached_tokens": 10,
                    "output_tokens": one.request.num_output_tokens,
                }
            ],
        }
        for one in times
    ]
    return "\n".join(map(json.dumps, lines))


def waited_decisions_of(times: Sequence[RequestTimes]) -> str:
    """Returns a log whose tasks waited for seconds before their engine began."""
    lines = []
    for number, one in enumerate(times):
        waited_ms = 1_000.0 + 700.0 * (number % 7)
        first_ms = waited_ms + one.ttft_us / 1e3
        own_ms = 5.0 if number % 2 else 0.0  # of the gateway; a line of schema 1 cannot tell it
        generation = {
            "backend": "gpu",
            "state": "finished",
            "started_ms": waited_ms,
            "first_ms": first_ms,
            "last_ms": waited_ms + one.latency_us / 1e3,
            "input_tokens": one.request.num_prompt_tokens,
            "cached_tokens": 0,
            "output_tokens": one.request.num_output_tokens,
        }
        line = {
            "at": 1.7e9 + (one.request.arrived_us / 1e3 - waited_ms) / 1e3,
            "outcome": "ok",
            "answered_by": "gpu",
            "queued_ms": waited_ms - 500.0,
            "waited_ms": 500.0,
            "ttft_ms": first_ms + own_ms,
            "duration_ms": waited_ms + one.latency_us / 1e3 + own_ms,
            "usage": [
                {
                    "backend": "gpu",
                    "input_tokens": one.request.num_prompt_tokens,
                    "output_tokens": one.request.num_output_tokens,
                }
            ],
        }
        lines.append(line | ({"generations": [generation]} if number % 2 else {}))
    return "\n".join(map(json.dumps, lines))


def benchmark_of(times: Sequence[RequestTimes]) -> str:
    return json.dumps(
        {
            "start_times": [5e3 + one.request.arrived_us / 1e6 for one in times],
            "input_lens": [one.request.num_prompt_tokens for one in times],
            "output_lens": [one.request.num_output_tokens for one in times],
            "ttfts": [one.ttft_us / 1e6 for one in times],
            "itls": [[one.tpot_us / 1e6] * (one.request.num_output_tokens - 1) for one in times],
            "errors": [""] * len(times),
        }
    )


@pytest.mark.parametrize("written", [csv_of, decisions_of, waited_decisions_of, benchmark_of])
def test_the_constants_that_made_a_log_are_found(tmp_path: Path, written) -> None:
    times = served()
    path = tmp_path / "log"
    path.write_text(written(times))
    fitted = fit_logs([path], cost(START), cost)
    ours = ReplaySummary.of(replay(cost(fitted.constants), [one.request for one in times]))
    real = ReplaySummary.of(times)
    for name, value in real.means_us.items():
        assert ours.means_us[name] == pytest.approx(value, rel=0.02), name
    assert [one.name for one in fitted.fitted][:3] == ["compute", "memory", "seq_us"]
    assert all(one.low <= one.value <= one.high for one in fitted.fitted)
    out = tmp_path / "mine.json"
    write_fitted(out, cost(START), fitted)
    again = GpuCost("L40S", "Llama-3.1-8B", tp=1, precision="bf16", engine=str(out))
    assert again.fit.compute == fitted.constants.compute
    assert "150 requests" in fit_report(fitted, cost(START))


def test_a_share_is_never_more_than_one(tmp_path: Path) -> None:
    # A server of twice the card's speed: the file says the wrong card.
    faster = msgspec.structs.replace(cost(REAL).gpu, memory_bytes_per_s=4e12, fp16_flops=1.5e15)
    real = GpuCost(faster, "Llama-3.1-8B", tp=1, precision="bf16", constants=REAL, overhead_us=0)
    path = tmp_path / "log.csv"
    path.write_text(csv_of(replay(real, [one.request for one in served()])))
    fitted = fit_logs([path], cost(START), cost)
    assert fitted.constants.memory <= 1.0
    assert fitted.constants.compute <= 1.0
    assert all(one.high <= 1.0 for one in fitted.fitted if one.name in ("compute", "memory"))


def test_metrics_are_fitted_to(tmp_path: Path) -> None:
    """Snapshots of three loads, whose mean step is known."""
    paths, totals = (
        [],
        dict.fromkeys(("steps", "prompt", "output", "itl", "requests", "prompts", "outputs"), 0.0),
    )
    for number, seqs in enumerate((4.0, 32.0, 128.0)):
        prompt, output, steps = 600.0, 200.0, 10_000
        requests = seqs * steps / output
        rate = requests * prompt / steps
        step_us = cost(REAL).step_us_of(seqs, seqs * 700, rate, rate * 301)
        for name, gone in (
            ("steps", steps), ("prompt", requests * prompt), ("output", seqs * steps),
            ("itl", seqs * steps * step_us / 1e6), ("requests", requests),
            ("prompts", requests * prompt), ("outputs", requests * output),
        ):  # fmt: skip
            totals[name] += gone
        paths.append(tmp_path / f"{number}.txt")
        paths[-1].write_text(
            "# HELP vllm:iteration_tokens_total tokens per step\n"
            f'vllm:iteration_tokens_total_count{{engine="0"}} {totals["steps"]}\n'
            f'vllm:prompt_tokens_total{{engine="0"}} {totals["prompt"]}\n'
            f'vllm:generation_tokens_total{{engine="0"}} {totals["output"]}\n'
            f'vllm:inter_token_latency_seconds_sum{{engine="0"}} {totals["itl"]}\n'
            f'vllm:inter_token_latency_seconds_count{{engine="0"}} {totals["output"]}\n'
            f'vllm:request_prompt_tokens_count{{engine="0"}} {totals["requests"]}\n'
            f'vllm:request_prompt_tokens_sum{{engine="0"}} {totals["prompts"]}\n'
            f'vllm:request_generation_tokens_sum{{engine="0"}} {totals["outputs"]}\n'
        )
    fitted = fit_logs(paths, cost(START), cost)
    assert fitted.mean_error < 0.02
    assert fitted.num_requests == 3
    with pytest.raises(ValueError, match="counters fell"):
        fit_logs(paths[::-1], cost(START), cost)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"ttfts": [1.0]}', "no list 'start_times'"),
        ('{"hello": 1}', "expected a decision log"),
        ("{broken", "expected one JSON object per line"),
        ("arrival_s,input_tokens,output_tokens\n0,5,5\n", "nothing to fit to"),
        ("a,b\n1,2\n", "no column 'arrival_s'"),
    ],
)
def test_a_log_that_cannot_be_read_says_why(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(ValueError, match=reason):
        read_served(path)


def test_a_decision_log_that_was_cut_amid_a_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    used = [{"backend": "gpu", "input_tokens": 9, "output_tokens": 5}]
    line = {"at": 1.0, "usage": used, "outcome": "ok", "duration_ms": 50.0}
    whole = json.dumps(line | {"ttft_ms": 5.0, "answered_by": "gpu"})
    path.write_text(f"{whole}\n{whole[:40]}\n{whole}\n{whole[:60]}")
    assert len(read_served(path)) == 2


def test_too_few_requests_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(csv_of(served(5)))
    with pytest.raises(ValueError, match=r"5 requests with the times .* at least 12"):
        fit_logs([path], cost(START), cost)


@pytest.mark.skipif(PATH is None, reason="no reference logs at ../shared/data/reference")
@pytest.mark.parametrize("knows_the_load", [False, True], ids=["alone", "load-known"])
@pytest.mark.parametrize("log", SERVER_LOGS, ids=lambda log: log.file)
def test_the_first_hundred_requests_foretell_the_rest(
    tmp_path: Path, log, knows_the_load: bool
) -> None:
    assert PATH is not None
    rows = read_logs(PATH.parent / LOG_FOLDER)[log.file]
    path = tmp_path / "log.csv"
    path.write_text(write_rows(rows if knows_the_load else rows[:100]))
    base = cost_of_log(log)

    def with_constants(constants: GpuConstants) -> GpuCost:
        return cost_of_log(log, msgspec.structs.replace(base.engine, sets=(constants,)))

    fitted = fit_logs([path], base, with_constants, first=100)
    measured = measured_times(rows)
    assert measured is not None
    times = replay(with_constants(fitted.constants), requests_of(rows))
    real, ours = ReplaySummary.of(measured[100:]), ReplaySummary.of(times[100:])
    for name, bar in BARS.items():
        assert ours.means_us[name] == pytest.approx(real.means_us[name], rel=bar), name
