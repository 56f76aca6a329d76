"""Tests rows of published GPU measurements: predicted, or refused with a reason."""

import pytest

from backends.gpu_engine.calibration.gpu_rows import (
    GpuRows,
    engine_file,
    group_of,
    poisson_arrivals_us,
)

OFFLINE = {  # TensorRT-LLM documentation, perf-overview v0.17
    "id": "trt017-005",
    "hardware": "H200-141GB-SXM",
    "count": "1",
    "model": "Llama-3.1-8B",
    "precision": "fp8",
    "kv_precision": "fp8",
    "tp": "1",
    "pp": "1",
    "engine": "TensorRT-LLM 0.17",
    "input_len": "1000",
    "output_len": "1000",
    "batch_or_concurrency": "max",
    "load": "offline",
    "metric": "output_throughput",
    "value": "17537.96",
    "note": "",
}


MAX = {"batch_or_concurrency": "max", "metric": "output_throughput"}


def changed(**cells: str) -> dict[str, str]:
    return {**OFFLINE, **cells}


ONLINE = changed(
    id="trtonline-1",
    model="Llama-3.1-70B",
    precision="bf16",
    kv_precision="bf16",
    tp="4",
    count="4",
    engine="TensorRT-LLM 0.14",
    input_len="467",
    output_len="16",
    batch_or_concurrency="qps=2",
    load="poisson",
)


@pytest.mark.parametrize(
    ("row", "published", "tolerance"),
    [
        (OFFLINE, 17537.96, 0.15),
        (changed(input_len="128", output_len="128"), 29526.04, 0.15),
        (
            changed(
                hardware="H100-80GB-SXM",
                model="Llama-2-70B",
                precision="fp16",
                kv_precision="fp16",
                tp="8",
                count="8",
                engine="vLLM 2023",
                load="static",
                batch_or_concurrency="16",
                input_len="512",
                output_len="128",
                metric="tpot_mean",
            ),
            34.166,
            0.15,
        ),
        (
            changed(
                hardware="A100-80GB-SXM",
                model="Llama-2-70B",
                precision="bf16",
                kv_precision="bf16",
                tp="8",
                count="8",
                engine="gpt-fast",
                load="closed",
                batch_or_concurrency="1",
                input_len="5",
                output_len="200",
                metric="decode_speed_per_user",
            ),
            62.5,
            0.15,
        ),
        ({**ONLINE, "metric": "itl_mean"}, 15.0, 0.2),
        ({**ONLINE, "metric": "output_throughput"}, 32.0, 0.15),
    ],
)
def test_known_rows(row: dict[str, str], published: float, tolerance: float) -> None:
    prediction = GpuRows().predict(row)
    assert prediction.reason == ""
    assert prediction.value == pytest.approx(published, rel=tolerance)


def test_gpus_without_a_stated_spread_hold_one_model_together() -> None:
    stated, unstated = (
        GpuRows().predict(changed(model="Llama-3.1-405B", count="8", tp=tp)) for tp in ("8", "")
    )
    assert stated.value == unstated.value is not None


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "no load is given"),
        ({"load": "offline"}, "no prompt and output lengths"),
        ({"load": "offline", "input_len": "1", "output_len": "1", **MAX}, "no column"),
        (changed(hardware="TPU"), "unknown GPU"),
        (changed(model="GPT-9"), "unknown model"),
        (changed(engine="Triton"), "no constants were fitted for Triton"),
        (changed(precision="fp3"), "unknown precision"),
        (changed(input_len=""), "no prompt and output lengths"),
        (changed(input_len="ShareGPT"), "per-request file"),
        (changed(model="Llama-3.1-405B"), "GB too little"),
        (changed(metric="gpu_seconds"), "no model for gpu_seconds"),
        (changed(load="kernel"), "no model for the load 'kernel'"),
        (changed(batch_or_concurrency="1e5"), "at most 5000"),
        (changed(batch_or_concurrency="1e9"), "expected a number from 1"),
        (changed(batch_or_concurrency="0"), "expected a number from 1"),
        (changed(load="closed", batch_or_concurrency="many"), "expected a number from 1"),
        (changed(tp="-2"), "tp is '-2'"),
        (changed(tp="nan"), "tp is 'nan'"),
        (changed(pp="0.5"), "pp is '0.5'"),
        (changed(count="0"), "count is '0'"),
        (changed(tp="2", count="8"), "8 GPUs are not tp x pp"),
        (changed(load="closed", engine="vLLM 0.19", input_len="-5"), "input_len is '-5'"),
        (changed(load="closed", output_len="0", metric="tpot_mean"), "output_len is '0'"),
        (changed(output_len="1e10"), "to 10,000,000"),
        (
            changed(
                load="static", engine="vLLM 0.19", batch_or_concurrency="4", output_len="2000000"
            ),
            "4 requests need 8,004,064 tokens of KV at once",
        ),
        ({**ONLINE, "batch_or_concurrency": "qps=0"}, "expected a rate above 0"),
        ({**ONLINE, "batch_or_concurrency": "qps=-3"}, "expected a rate above 0"),
        ({**ONLINE, "batch_or_concurrency": "qps=nan"}, "expected a rate above 0"),
        ({**ONLINE, "batch_or_concurrency": "sps=10"}, "replay command"),
        ({**ONLINE, "metric": "ttft_p999"}, "no model for ttft_p999"),
        ({**ONLINE, "metric": "tpot_p99", "output_len": "1"}, "no time per further token"),
        (changed(load="static", batch_or_concurrency="4", metric="x"), "no model for x"),
        ({**ONLINE, "hardware": "L4", "tp": "1", "count": "1"}, "too little"),
    ],
)
def test_rows_that_cannot_be_modelled_say_why(row: dict[str, str], reason: str) -> None:
    prediction = GpuRows().predict(row)
    assert prediction.value is None
    assert reason in prediction.reason


def test_closed_loops_obey_littles_law() -> None:
    row = changed(
        engine="NIM/TensorRT-LLM",
        load="closed",
        batch_or_concurrency="8",
        input_len="500",
        output_len="100",
    )
    rows = GpuRows()
    values = {
        metric: rows.predict({**row, "metric": metric}).value or 0.0
        for metric in ("output_throughput", "ttft_mean", "itl_mean")
    }
    latency_s = (values["ttft_mean"] + 99 * values["itl_mean"]) / 1e3
    assert values["output_throughput"] == pytest.approx(8 * 100 / latency_s, rel=0.01)


@pytest.mark.parametrize("quantity", ["ttft", "tpot", "itl", "latency"])
def test_a_run_gives_every_percentile(quantity: str) -> None:
    row = {**ONLINE, "batch_or_concurrency": "qps=8", "output_len": "100"}
    rows = GpuRows()
    values = [
        rows.predict({**row, "metric": f"{quantity}_{statistic}"}).value or 0.0
        for statistic in ("p1", "p50", "p90", "p95", "p99")
    ]
    assert values == sorted(values)
    assert 0 < values[0] < values[-1]
    mean = rows.predict({**row, "metric": f"{quantity}_mean"}).value
    assert values[0] < (mean or 0.0) < values[-1]
    assert rows.predict({**row, "metric": quantity}).value == mean


@pytest.mark.parametrize(
    "load",
    [
        {"load": "closed", "batch_or_concurrency": "8"},
        {"load": "poisson", "batch_or_concurrency": "qps=2"},
        {"load": "static", "batch_or_concurrency": "8"},
        {"load": "offline", "batch_or_concurrency": "8"},
        {"load": "offline", "batch_or_concurrency": "max"},
    ],
    ids=str,
)
def test_tokens_are_requests_times_their_length(load: dict[str, str]) -> None:
    row = changed(engine="vLLM 0.19", input_len="500", output_len="100", **load)
    rows = GpuRows()
    requests = rows.predict({**row, "metric": "request_throughput"}).value
    tokens = rows.predict({**row, "metric": "output_throughput"}).value
    assert requests is not None
    assert tokens == pytest.approx(100 * requests, rel=1e-6)
    if load["batch_or_concurrency"] != "max":
        speed = rows.predict({**row, "metric": "output_speed_per_user"}).value
        tpot = rows.predict({**row, "metric": "tpot_mean"}).value
        assert (speed or 0.0) * (tpot or 0.0) == pytest.approx(1e3, rel=1e-9)


@pytest.mark.parametrize(
    ("engine", "load", "name"),
    [
        ("TensorRT-LLM 0.17", "offline", "trtllm_0_17"),
        ("TensorRT-LLM 1.0", "offline", "trtllm_1_0"),
        ("trtllm 1.1.0rc2", "closed", "trtllm_0_14"),
        ("vLLM 0.7.3", "closed", "vllm_0_7"),
        ("vLLM 0.19", "poisson", "vllm_0_19"),
        ("vLLM 0.21/0.22", "closed", "vllm_0_20"),
        ("sglang 0.5.9", "closed", "sglang_0_5"),
        ("SGLang", "closed", "sglang_2024"),
        ("something", "closed", ""),
    ],
)
def test_rows_find_their_engine(engine: str, load: str, name: str) -> None:
    assert engine_file({"engine": engine, "load": load}) == name


def test_groups_carry_their_bars() -> None:
    assert group_of(OFFLINE) == ("trtllm 0.17 offline", 0.10)
    assert group_of({**OFFLINE, "id": "trt10-1"})[1] == 0.08
    assert group_of({**OFFLINE, "id": "trt10-1", "model": "gpt-oss-120b"})[1] is None
    assert group_of({**OFFLINE, "id": "trt10-1", "model": "?"}) == (
        "trtllm 1.0 unknown model",
        None,
    )


def test_arrivals_have_the_stated_rate_exactly() -> None:
    arrivals = poisson_arrivals_us(4.0, 200)
    assert arrivals == sorted(arrivals) == poisson_arrivals_us(4.0, 200)
    assert arrivals[-1] == pytest.approx(50e6, abs=2)
    assert poisson_arrivals_us(float("inf"), 3) == [0, 0, 0]
