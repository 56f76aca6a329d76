"""Fit the GPU constants to reference rows.

One plan per engine version: which rows, on which GPUs, and which constants are free. The others
keep their stated values. Few constants each: what a set cannot tell apart is not fitted.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from backends.gpu_engine.constants import EngineConstants, GpuConstants
from backends.gpu_engine.rows import GpuRows, engine_file
from wafer_engine.fit import Vector, fit_positive
from wafer_engine.report import Row

_FIRST_GUESS = {
    "compute": 0.55,
    "memory": 0.75,
    "step_us": 300.0,
    "layer_us": 20.0,
    "seq_us": 10.0,
    "allreduce_us": 10.0,
    "dequant": 0.4,
}
_LAYER_US = 3.0  # assumed where rows cannot tell launches from the scheduler: CUDA graphs


class FitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One set of constants: what is free, what is stated, and the rows that decide."""

    gpus: tuple[str, ...] = ()
    free: tuple[str, ...]
    stated: dict[str, float] = {}
    metrics: tuple[str, ...]
    loads: tuple[str, ...] = ()  # of batch_or_concurrency; empty: all
    precisions: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    basis: str = ""


class EnginePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One engine version: its stated limits and the sets to fit."""

    name: str  # of the constants file
    family: str
    version: str
    memory_fraction: float = 0.9
    buffer_bytes: float = 3e9  # assumed
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    plans: tuple[FitPlan, ...] = ()
    taken: tuple[GpuConstants, ...] = ()  # not fitted: taken over from another set
    taken_from: str = ""  # the constants file that `taken` copies its first set of


_THROUGHPUT = ("output_throughput", "output_throughput_per_gpu")
_LOW_LOADS = ("qps=2", "qps=4", "qps=8", "1")

PLANS = (
    EnginePlan(
        name="trtllm_0_17",
        family="TensorRT-LLM",
        version="0.17",
        max_num_seqs=4096,
        plans=(
            FitPlan(
                free=("compute", "seq_us", "allreduce_us"),
                stated={"layer_us": _LAYER_US},
                metrics=_THROUGHPUT,
            ),
        ),
    ),
    EnginePlan(
        name="trtllm_1_0",
        family="TensorRT-LLM",
        version="1.0",
        max_num_seqs=4096,
        taken_from="trtllm_0_17",
        plans=(
            FitPlan(
                gpus=("B200-180GB-SXM", "GB200-NVL72"),
                free=("compute", "seq_us", "allreduce_us"),
                stated={"layer_us": _LAYER_US},
                metrics=_THROUGHPUT,
                precisions=("fp4",),
            ),
        ),
    ),
    EnginePlan(
        name="trtllm_0_14",
        family="TensorRT-LLM",
        version="0.14",
        max_num_seqs=512,
        plans=(
            FitPlan(
                free=("compute", "memory", "seq_us", "allreduce_us"),
                stated={"layer_us": _LAYER_US},
                metrics=("itl_mean", "ttft_mean"),
                loads=("qps=2", "qps=4", "qps=8"),
            ),
        ),
    ),
    EnginePlan(
        name="trtllm_0_8",
        family="TensorRT-LLM",
        version="0.8",
        max_num_seqs=2048,
        plans=(
            FitPlan(
                free=("compute", "seq_us", "allreduce_us"),
                stated={"layer_us": _LAYER_US},
                metrics=(*_THROUGHPUT, "ttft"),
            ),
        ),
    ),
    EnginePlan(
        name="nim_1_8",
        family="NIM",
        version="1.8",
        plans=(
            FitPlan(
                free=("compute", "seq_us", "allreduce_us"),
                stated={"layer_us": _LAYER_US},
                metrics=("itl_mean", "output_throughput", "ttft_mean"),
                models=("Llama-3.3-70B",),
            ),
        ),
    ),
    EnginePlan(
        name="vllm_2023",
        family="vLLM",
        version="2023",
        plans=(
            FitPlan(
                free=("compute", "layer_us", "seq_us"),
                stated={"allreduce_us": 20.0},
                metrics=("tpot_mean", "ttft"),
            ),
        ),
    ),
    EnginePlan(
        name="vllm_0_7",
        family="vLLM",
        version="0.7",
        max_num_batched_tokens=2048,
        plans=tuple(
            FitPlan(
                gpus=gpus,
                free=("compute", "layer_us", "seq_us", *more),
                metrics=(*_THROUGHPUT, "tpot_p50"),
                loads=("1", "100", "150", "200"),
                precisions=("bf16",),
            )
            for gpus, more in (
                (("A100-40GB-SXM", "A100-80GB-SXM", "A800-80GB-SXM"), ("allreduce_us",)),
                (("H100-80GB-SXM", "H200-141GB-SXM"), ("allreduce_us",)),
                (("RTX-3090",), ("allreduce_us",)),
                (("RTX-4090",), ("allreduce_us",)),
                (("L4",), ()),
            )
        ),
    ),
    EnginePlan(
        name="vllm_0_20",
        family="vLLM",
        version="0.19-0.22",
        max_num_batched_tokens=2048,
        plans=(
            FitPlan(
                gpus=("A100-40GB-SXM", "A100-80GB-SXM", "A800-80GB-SXM"),
                free=("compute", "seq_us"),
                stated={"layer_us": _LAYER_US, "allreduce_us": 10.0},
                metrics=(*_THROUGHPUT, "tpot_p50"),
                precisions=("bf16",),
                loads=("1", "100", "200", "qps=5", "qps=25"),
            ),
            FitPlan(
                gpus=("H100-80GB-SXM", "H200-141GB-SXM"),
                free=("compute", "seq_us", "allreduce_us"),
                stated={"layer_us": _LAYER_US},
                metrics=(*_THROUGHPUT, "tpot_mean"),
            ),
        ),
    ),
    EnginePlan(
        name="sglang_0_5",
        family="SGLang",
        version="0.5",
        plans=(
            FitPlan(
                free=("compute", "seq_us", "allreduce_us"),
                stated={"layer_us": _LAYER_US},
                metrics=(*_THROUGHPUT, "tpot_p50", "tpot_mean"),
                precisions=("bf16", "fp8"),
            ),
        ),
    ),
    EnginePlan(
        name="sglang_2024",
        family="SGLang",
        version="2024",
        plans=(
            FitPlan(
                free=("compute", "layer_us", "allreduce_us"),
                metrics=("prefill_speed", "decode_speed_per_user"),
            ),
        ),
    ),
    EnginePlan(
        name="gpt_fast",
        family="gpt-fast",
        version="2024",
        plans=(
            FitPlan(
                free=("memory", "allreduce_us"),
                stated={"compute": 0.5, "layer_us": _LAYER_US},
                metrics=("decode_speed_per_user",),
            ),
        ),
    ),
    EnginePlan(
        name="llama_cpp",
        family="llama.cpp",
        version="2024-05",
        plans=(
            FitPlan(
                free=("compute", "memory", "layer_us"),
                metrics=("decode_speed_per_user", "prefill_speed"),
            ),
        ),
    ),
)


def calibrate(rows: Sequence[Row], names: Sequence[str] = ()) -> dict[str, EngineConstants]:
    """Fit every engine version that the rows have, in the order of `PLANS`.

    Args:
        rows: Reference rows.
        names: Only these constants files; all where empty.

    Raises:
        ValueError: A plan has no rows.
    """
    fitted: dict[str, EngineConstants] = {}
    for plan in PLANS:
        if not names or plan.name in names or plan.name in _needed_by(names):
            fitted[plan.name] = _fit_engine(plan, rows, fitted)
    return fitted


def write_constants(folder: Path, fitted: dict[str, EngineConstants]) -> list[Path]:
    """Write one JSON file per engine version into a folder."""
    paths = []
    for name, engine in fitted.items():
        path = folder / f"{name}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(engine), indent=2) + b"\n")
        paths.append(path)
    return paths


def _needed_by(names: Sequence[str]) -> list[str]:
    return [plan.taken_from for plan in PLANS if plan.name in names and plan.taken_from]


def _fit_engine(
    plan: EnginePlan, rows: Sequence[Row], fitted: dict[str, EngineConstants]
) -> EngineConstants:
    engine = EngineConstants(
        family=plan.family,
        version=plan.version,
        memory_fraction=plan.memory_fraction,
        buffer_bytes=plan.buffer_bytes,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        sets=(),
    )
    sets = [_fit_set(plan.name, engine, fit, rows) for fit in plan.plans]
    if plan.taken_from:
        source = fitted[plan.taken_from]
        basis = f"taken over unchanged from {source.family} {source.version}"
        sets.append(msgspec.structs.replace(source.sets[0], rows=(), basis=basis))
    return msgspec.structs.replace(engine, sets=tuple(sets))


def chosen_rows(name: str, fit: FitPlan, rows: Sequence[Row]) -> list[Row]:
    """The rows that decide a set of constants."""
    return [
        row
        for row in rows
        if engine_file(row) == name
        and row["metric"] in fit.metrics
        and (not fit.gpus or row["hardware"] in fit.gpus)
        and (not fit.loads or row["batch_or_concurrency"] in fit.loads)
        and (not fit.precisions or row["precision"] in fit.precisions)
        and (not fit.models or row["model"] in fit.models)
    ]


def _fit_set(name: str, engine: EngineConstants, fit: FitPlan, rows: Sequence[Row]) -> GpuConstants:
    blank = GpuConstants(gpus=fit.gpus, compute=0.55, basis=fit.basis)
    blank = msgspec.structs.replace(blank, **fit.stated)

    def predictor(constants: GpuConstants) -> GpuRows:
        return GpuRows({name: msgspec.structs.replace(engine, sets=(constants,))})

    first = msgspec.structs.replace(blank, **{free: _FIRST_GUESS[free] for free in fit.free})
    probe = predictor(first)
    chosen = [row for row in chosen_rows(name, fit, rows) if probe.predict(row).value is not None]
    if not chosen:
        raise ValueError(f"no rows to fit {name} {fit.gpus} to")
    published = np.array([float(row["value"]) for row in chosen])

    def log_errors(values: Vector) -> Vector:
        exact = msgspec.structs.replace(blank, **dict(zip(fit.free, values.tolist(), strict=True)))
        trial = predictor(exact)
        predicted = [trial.predict(row).value or float("nan") for row in chosen]
        return np.asarray(np.log(np.array(predicted) / published))

    start = np.array([_FIRST_GUESS[free] for free in fit.free])
    values = [float(f"{value:.4g}") for value in fit_positive(log_errors, start).tolist()]
    return msgspec.structs.replace(
        blank,
        rows=tuple(row["id"] for row in chosen),
        **dict(zip(fit.free, values, strict=True)),
    )
