"""Predicts rows of published measurements of GPUs (columns of `gpu.csv`)."""

import math
import re
from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from backends.gpu_engine.calibration.benchmark_metrics import value_alone, value_of_run
from backends.gpu_engine.constants import ENGINES, EngineConstants
from backends.gpu_engine.cost import GpuCost
from backends.gpu_engine.spec import find_gpu
from wafer_engine.batching.cost_model import StepShape
from wafer_engine.calibration.replay import (
    ReplaySummary,
    Request,
    RequestTimes,
    replay,
    replay_closed,
)
from wafer_engine.calibration.rows import (
    NotModelledError,
    Prediction,
    Row,
    num_requests,
    predict_row,
    whole,
)
from wafer_engine.hardware.model_config import model_named

OFFLINE_BAR = 0.10
UNSEEN_RELEASE_BAR = 0.08

MAX_OFFLINE_BATCH = 4096  # published with the TensorRT-LLM rows: the largest runtime batch
OFFLINE_BATCHED_TOKENS = 8192  # tokens of one step in those runs; assumed
POISSON_REQUESTS = {"trtonline": 500, "accel": 150}  # published; assumed
REQUESTS_PER_USER = 4  # of a closed-loop row; assumed
MAX_REPLAYED = 5_000  # requests or users of one row
KV_BLOCK_TOKENS = 16  # the last block of a sequence may be almost empty
ARRIVAL_SEED = 20_260_101  # of the Poisson arrivals drawn for a row

# A pattern of a row's engine leads to its constants file.
_ENGINE_FILES = (
    (r"TensorRT-LLM 0\.17", "trtllm_0_17"),
    (r"TensorRT-LLM 0\.14", "trtllm_0_14"),
    (r"TensorRT-LLM 0\.8", "trtllm_0_8"),
    (r"NIM", "nim_1_8"),
    (r"TensorRT-LLM|trtllm", "trtllm_1_0"),
    (r"vLLM 2023", "vllm_2023"),
    (r"(?i)vllm 0\.([0-8]|1[01])(\.|$)", "vllm_0_7"),
    (r"vLLM 0\.19", "vllm_0_19"),
    (r"(?i)vllm", "vllm_0_20"),
    (r"(?i)sglang \d", "sglang_0_5"),
    (r"(?i)sglang", "sglang_2024"),
    (r"gpt-fast", "gpt_fast"),
    (r"llama\.cpp", "llama_cpp"),
)

# A run's result depends on these columns alone.
_RUN_COLUMNS = (
    *("hardware", "count", "model", "precision", "kv_precision", "tp", "pp", "engine"),
    *("input_len", "output_len", "load", "batch_or_concurrency", "note"),
)

_MOE_DP = "attention DP"  # in a row's note: attention replicated, experts spread


class GpuRows:
    """Predicts rows with one set of engine constants."""

    def __init__(self, engines: Mapping[str, EngineConstants] = ENGINES) -> None:
        self._engines = engines
        self._runs: dict[tuple[str, ...], list[RequestTimes]] = {}
        self._by_load: dict[str, Callable[[Row], float]] = {
            "offline": self._offline,
            "static": self._static,
            "closed": self._closed,
            "poisson": self._poisson,
        }

    def predict(self, row: Row) -> Prediction:
        """Predicts one row; never raises for invalid cells."""
        formula = self._by_load.get(row.get("load", "")) or _unknown_load(row)
        prediction = predict_row(row, *group_of(row), formula)
        if prediction.value is None:
            return prediction
        name, fit = engine_file(row), self.cost(row).fit
        # A set that was taken over names its source, and how far off it may be; one that is far off
        # its own rows says so.
        constants = f"{name}: {fit.label}" if fit.label else name
        return msgspec.structs.replace(prediction, constants=constants)

    def cost(self, row: Row, max_num_seqs: int | None = None) -> GpuCost:
        """Makes the cost model that predicts a row.

        Raises ValueError for an unknown GPU, model, precision or engine, or weights that do not
        fit, and `NotModelledError` for an engine without constants, or GPUs of several replicas.
        """
        gpu = find_gpu(row["hardware"])
        model = model_named(row["model"])
        pp = whole(row, "pp", 1)
        layer_split = row["engine"].startswith("llama.cpp")
        # A row that names GPUs but not how a model is spread means one model over all of them.
        tp = whole(row, "tp", 1 if layer_split else max(1, whole(row, "count", pp) // pp))
        count = whole(row, "count", tp * pp)
        if count != tp * pp and not layer_split:
            raise NotModelledError(
                f"{count} GPUs are not tp x pp = {tp} x {pp}: give the row of one replica"
            )
        expert_parallel = model.moe is not None and _MOE_DP in row.get("note", "") and tp > 1
        tp, dp = (1, tp) if expert_parallel else (tp, 1)
        if layer_split and count > 1:
            pp = count
        engine = self._engines.get(engine_file(row))
        if engine is None:
            raise NotModelledError(f"no constants were fitted for {row['engine']}")
        return GpuCost(
            gpu,
            model,
            tp=tp,
            pp=pp,
            dp=dp,
            expert_parallel=expert_parallel,
            precision=row["precision"].split("/")[0],
            kv_precision=row.get("kv_precision") or None,
            engine=engine,
            overhead_us=0,
            max_num_seqs=max_num_seqs,
        )

    def _offline(self, row: Row) -> float:
        """Predicts a steady batch, as large as KV memory allows, with prefills mixed in."""
        prompt, output = _lengths(row)
        if row.get("batch_or_concurrency", "") != "max":
            count = _num_replayed(row, "requests")
            cost = self._bounded_cost(row, prompt + output)
            request = Request(0, round(prompt), round(output))
            return _metric_of(row, replay(cost, [request] * count))
        if not row["metric"].startswith(("output_throughput", "request_throughput")):
            raise NotModelledError(f"no model for {row['metric']} of an offline run")
        cost = self.cost(row)
        held = cost.limits.kv_capacity_tokens / (prompt + output)
        limit = MAX_OFFLINE_BATCH * cost.parallel.dp
        num_seqs = min(held, limit, OFFLINE_BATCHED_TOKENS / (1 + prompt / output))
        if num_seqs < 1:
            raise NotModelledError(f"the KV cache holds {held:.1f} requests of this length")
        prefill = num_seqs * prompt / output
        context = num_seqs * (prompt + output / 2)
        step_us = cost.step_us_of(num_seqs, context, prefill, prefill * (prompt + 1) / 2)
        tokens_per_s = num_seqs / step_us * 1e6
        if row["metric"] == "request_throughput":
            return tokens_per_s / output
        return _per_gpu(row, tokens_per_s)

    def _bounded_cost(self, row: Row, tokens: float) -> GpuCost:
        cost = self.cost(row)
        _check_kv(1, tokens, cost.limits.kv_capacity_tokens)
        return cost

    def _static(self, row: Row) -> float:
        """Predicts one batch from prompt to end."""
        prompt, output = _lengths(row)
        num_seqs = num_requests(row)
        cost = self.cost(row, max_num_seqs=num_seqs)
        # A batch of known size needs no reserve: it gets all memory that weights and buffers leave.
        capacity_tokens = int(cost.limits.kv_capacity_tokens / cost.engine.memory_fraction)
        _check_kv(num_seqs, prompt + output, capacity_tokens)
        tokens = num_seqs * prompt
        prefill_us = cost.step_us_of(0, 0, tokens, tokens * (prompt + 1) / 2)
        decode_us = cost.step_us_of(num_seqs, num_seqs * (prompt + output / 2), 0, 0)
        total_us = prefill_us + (output - 1) * decode_us
        metric = row["metric"]
        if metric.startswith("output_throughput"):
            return _per_gpu(row, num_seqs * output / total_us * 1e6)
        if metric == "request_throughput":
            return num_seqs / total_us * 1e6
        value = value_alone(metric, prompt, output, prefill_us, decode_us)
        if value is None:
            raise NotModelledError(f"no model for {metric} of one request or one batch")
        return value

    def _closed(self, row: Row) -> float:
        """Predicts a fixed number of users with one request under way each."""
        prompt, output = _lengths(row)
        num_users = _num_replayed(row, "users")
        metric = row["metric"]
        cost = self._bounded_cost(row, prompt + output)
        if num_users == 1 and metric != "latency_mean":
            prefill_us = cost.step_us_of(0, 0, prompt, prompt * (prompt + 1) / 2)
            decode_us = cost.step_us(StepShape(1, round(prompt + output / 2)))
            value = value_alone(metric, prompt, output, prefill_us, decode_us)
            if value is not None:
                return value
        request = Request(0, round(prompt), max(1, round(output)))

        def run() -> list[RequestTimes]:
            # Real lengths vary, so users get out of step; equal ones must start out of step.
            stagger_us = cost.step_us_of(0, 0, prompt, prompt * prompt / 2) * num_users
            stagger_us += output * cost.step_us_of(num_users, num_users * prompt, 0, 0)
            count = REQUESTS_PER_USER * num_users
            return replay_closed(cost, request, num_users, count, round(stagger_us))[num_users:]

        times = self._run_once(row, run)
        if metric.startswith("output_throughput"):
            # Little's law: a request's mean time is the users over the throughput.
            latency_us = ReplaySummary.of(times).mean_latency_us
            return _per_gpu(row, num_users * request.num_output_tokens / latency_us * 1e6)
        if metric == "request_throughput":
            return num_users / ReplaySummary.of(times).mean_latency_us * 1e6
        return _metric_of(row, times)

    def _poisson(self, row: Row) -> float:
        prompt, output = _lengths(row)
        rate = re.fullmatch(r"qps=(inf|[\d.]+)", row["batch_or_concurrency"])
        if rate is None:
            raise NotModelledError("needs the per-request file: see the replay command")

        def run() -> list[RequestTimes]:
            count = POISSON_REQUESTS.get(row["id"].split("-")[0], 150)
            arrivals = poisson_arrivals_us(float(rate[1]), count)
            requests = [Request(at_us, round(prompt), round(output)) for at_us in arrivals]
            return replay(self._bounded_cost(row, prompt + output), requests)

        return _metric_of(row, self._run_once(row, run))

    def _run_once(self, row: Row, run: Callable[[], list[RequestTimes]]) -> list[RequestTimes]:
        """Returns the times of a run, which rows that differ only in the metric share."""
        key = tuple(row.get(column, "") for column in _RUN_COLUMNS)
        if key not in self._runs:
            self._runs[key] = run()
        return self._runs[key]


def _num_replayed(row: Row, what: str) -> int:
    count = num_requests(row)
    if count > MAX_REPLAYED:
        raise NotModelledError(f"{count} {what}: at most {MAX_REPLAYED} are replayed")
    return count


def _unknown_load(row: Row) -> str:
    load = row.get("load", "")
    known = "offline, static, closed or poisson"
    return f"no model for the load {load!r}: {known}" if load else f"no load is given: {known}"


def _check_kv(num_seqs: int, tokens: float, capacity_tokens: int) -> None:
    needed = num_seqs * (math.ceil(tokens) + KV_BLOCK_TOKENS)
    if capacity_tokens < needed:
        raise NotModelledError(
            f"{num_seqs:,} requests need {needed:,} tokens of KV at once, memory leaves "
            f"{capacity_tokens:,}"
        )


def poisson_arrivals_us(rate: float, number: int) -> list[int]:
    """Draws arrival times at a rate per second, the same on every call; infinite: all at 0.

    The gaps are exponential, scaled so that the drawn rate is exactly the stated one.
    """
    if math.isinf(rate):
        return [0] * number
    arrivals = np.cumsum(np.random.default_rng(ARRIVAL_SEED).exponential(1.0, number))
    return [int(at_us) for at_us in arrivals / arrivals[-1] * number / rate * 1e6]


def engine_file(row: Row) -> str:
    """Finds the constants file for a row's engine; "" for an unknown engine."""
    for pattern, name in _ENGINE_FILES:
        if re.search(pattern, row.get("engine", "")):
            few_users = name == "trtllm_1_0" and row.get("load") == "closed"
            return "trtllm_0_14" if few_users else name  # fitted to light loads
    return ""


def group_of(row: Row) -> tuple[str, float | None]:
    """Returns the group in which a row is judged, and that group's bar on the mean error."""
    source = row.get("id", "").split("-")[0]
    metric = row.get("metric", "")
    if source == "trt017":
        return "trtllm 0.17 offline", OFFLINE_BAR
    if source != "trt10":
        return f"{source} {metric}", None
    if not row.get("hardware", "").startswith("H"):
        return "trtllm 1.0 B200 fp4", None
    try:
        dense = model_named(row.get("model", "")).moe is None
    except ValueError:
        return "trtllm 1.0 unknown model", None
    if dense:
        return "trtllm 1.0 Hopper dense, constants from 0.17", UNSEEN_RELEASE_BAR
    return "trtllm 1.0 Hopper mixture of experts", None


def _metric_of(row: Row, times: list[RequestTimes]) -> float:
    if row["metric"].startswith("output_throughput"):
        return _per_gpu(row, ReplaySummary.of(times).output_tokens_per_s)
    return value_of_run(row["metric"], times)


def _per_gpu(row: Row, tokens_per_s: float) -> float:
    return tokens_per_s / (whole(row, "count", 1) if row["metric"].endswith("_per_gpu") else 1)


def _lengths(row: Row) -> tuple[float, float]:
    prompt, output = row.get("input_len", ""), row.get("output_len", "")
    if not prompt or not output:
        raise NotModelledError("no prompt and output lengths are given")
    try:
        return float(prompt), float(output)
    except ValueError:
        raise NotModelledError("needs the per-request file: see the replay command") from None
