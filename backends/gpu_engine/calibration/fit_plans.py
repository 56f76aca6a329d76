"""Says what is fitted to what: one plan per engine version.

A plan says which rows decide, which constants are free and which keep a stated value. Few each:
what the rows cannot tell apart is stated, not fitted.
"""

import msgspec

from backends.gpu_engine.calibration.request_logs import LOG_ENGINE

FIRST_GUESS = {
    "compute": 0.55,
    "memory": 0.75,
    "step_us": 300.0,
    "layer_us": 20.0,
    "seq_us": 10.0,
    "allreduce_us": 10.0,
    "link": 0.7,
    "launch_us": 600.0,  # floors start high: one that is not reached has no slope
    "eager_us": 500.0,
    "grouped_kv": 0.5,
    "quantized": 0.7,
    "dequantized": 0.4,
}
LAYER_US = 3.0  # assumed where rows cannot tell launches from the scheduler: CUDA graphs
MEMORY_FRACTION = 0.9  # of every engine version
BUFFER_BYTES = 3e9  # of every engine version; assumed


class FitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One set of constants: what is free, what is stated, and the rows that decide.

    A set that is fitted to per-request logs of its GPUs names no metrics.
    """

    gpus: tuple[str, ...] = ()
    free: tuple[str, ...]
    stated: dict[str, float] = {}  # besides `LAYER_US`
    metrics: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()  # of batch_or_concurrency; empty: all
    precisions: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    moe: bool | None = None  # only mixtures of experts, only others, or both


class EnginePlan(msgspec.Struct, frozen=True):
    """One engine version: its stated limits and the sets to fit."""

    name: str  # of the constants file
    family: str
    version: str
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    plans: tuple[FitPlan, ...] = ()
    log_plans: tuple[FitPlan, ...] = ()  # fitted to per-request logs
    taken_over: tuple[tuple[str, tuple[str, ...]], ...] = ()  # a GPU, and those that take its set
    others_from: str = ""  # a GPU whose set all others take over, as nothing better is known
    taken_from: str = ""  # the constants file whose first set is taken over, for all the rest


_THROUGHPUT = ("output_throughput", "output_throughput_per_gpu")

_A100S = ("A100-40GB-SXM", "A100-80GB-SXM", "A800-80GB-SXM", "A100-80GB-PCIe")
_HOPPERS = ("H100-80GB-SXM", "H200-141GB-SXM")
_B200S = ("B200-180GB-SXM", "GB200-NVL72")
_OTHER_H100S = ("H100-80GB-PCIe", "H800-80GB-SXM", "H20-96GB-SXM")
_SATURATED = ("compute", "seq_us", "allreduce_us")  # what full batches can tell apart

PLANS = (
    EnginePlan(
        "trtllm_0_17",
        "TensorRT-LLM",
        "0.17",
        max_num_seqs=4096,
        plans=(FitPlan(free=_SATURATED, metrics=_THROUGHPUT),),
    ),
    EnginePlan(
        "trtllm_1_0",
        "TensorRT-LLM",
        "1.0",
        max_num_seqs=4096,
        taken_from="trtllm_0_17",
        plans=(
            FitPlan(gpus=_B200S, free=_SATURATED, metrics=_THROUGHPUT, moe=False),
            FitPlan(gpus=_B200S, free=_SATURATED, metrics=_THROUGHPUT, moe=True),
            FitPlan(gpus=_HOPPERS, free=_SATURATED, metrics=_THROUGHPUT, moe=True),
        ),
    ),
    EnginePlan(
        "trtllm_0_14",
        "TensorRT-LLM",
        "0.14",
        max_num_seqs=512,
        plans=(
            FitPlan(
                free=("compute", "memory", "seq_us", "allreduce_us", "eager_us"),
                metrics=("itl_mean", "ttft_mean"),
                loads=("qps=2", "qps=8", "qps=inf"),
            ),
        ),
    ),
    EnginePlan(
        "trtllm_0_8",
        "TensorRT-LLM",
        "0.8",
        max_num_seqs=2048,
        plans=(
            FitPlan(free=(*_SATURATED, "grouped_kv", "eager_us"), metrics=(*_THROUGHPUT, "ttft")),
        ),
    ),
    EnginePlan(
        "nim_1_8",
        "NIM",
        "1.8",
        plans=(
            FitPlan(
                free=("compute", "allreduce_us"),
                metrics=("itl_mean", "output_throughput", "ttft_mean"),
                models=("Llama-3.3-70B",),
            ),
        ),
    ),
    EnginePlan(
        "vllm_2023",
        "vLLM",
        "2023",
        others_from="H100-80GB-SXM",
        plans=tuple(
            FitPlan(
                gpus=gpus,
                free=(*_SATURATED, "launch_us", "eager_us"),
                metrics=("tpot_mean", "ttft"),
            )
            for gpus in (_A100S, _HOPPERS)
        ),
    ),
    EnginePlan(
        "vllm_0_7",
        "vLLM",
        "0.7",
        # The nearest card: its own generation's, else the one before.
        taken_over=(
            ("H100-80GB-SXM", _OTHER_H100S),
            ("H200-141GB-SXM", _B200S),
            ("RTX-4090", ("RTX-PRO-6000", "L40S")),
        ),
        others_from="A100-80GB-SXM",
        max_num_batched_tokens=2048,
        plans=tuple(
            FitPlan(
                gpus=gpus,
                free=("compute", "step_us", "eager_us", *more),
                metrics=(*_THROUGHPUT, "tpot_p50", "ttft_p50"),
                loads=("1", "100", "150", "200", "qps=5"),
                precisions=("bf16", "w4a16"),
            )
            for gpus, more in (
                (_A100S, ("seq_us", "allreduce_us", "dequantized")),
                (("H100-80GB-SXM",), ("seq_us",)),
                (("H200-141GB-SXM",), ("seq_us", "allreduce_us", "dequantized")),
                (("RTX-3090",), ("seq_us", "link")),
                (("RTX-4090",), ("seq_us", "link")),
                (("L4",), ()),
            )
        ),
    ),
    EnginePlan(
        LOG_ENGINE,
        "vLLM",
        "0.19",
        others_from="RTX-PRO-6000",
        max_num_batched_tokens=2048,
        log_plans=(
            FitPlan(gpus=("RTX-4090",), free=("compute",), stated={"memory": 0.92, "kv": 0.95}),
            FitPlan(
                gpus=("RTX-PRO-6000",), free=("compute", "memory", "seq_us", "link", "allreduce_us")
            ),
        ),
    ),
    EnginePlan(
        "vllm_0_20",
        "vLLM",
        "0.12 to 0.22",
        taken_over=(("H200-141GB-SXM", (*_B200S, *_OTHER_H100S)),),
        others_from="A100-80GB-SXM",
        max_num_batched_tokens=2048,
        plans=(
            FitPlan(
                gpus=_A100S,
                free=("compute", "step_us", "seq_us", "eager_us", "dequantized"),
                stated={"allreduce_us": 10.0},
                metrics=(*_THROUGHPUT, "tpot_p50", "ttft_p50"),
                precisions=("bf16", "w4a16"),
                loads=("1", "100", "200", "qps=5"),
            ),
            FitPlan(
                gpus=_HOPPERS, free=("compute", "allreduce_us"), metrics=(*_THROUGHPUT, "tpot_mean")
            ),
        ),
    ),
    EnginePlan(
        "sglang_0_5",
        "SGLang",
        "0.5",
        plans=(
            FitPlan(
                free=(*_SATURATED, "step_us", "eager_us", "dequantized"),
                metrics=(*_THROUGHPUT, "tpot_p50", "tpot_mean", "ttft_p50"),
                loads=("1", "16", "32", "64", "100", "200"),
                precisions=("bf16", "fp8", "w4a16"),
            ),
        ),
    ),
    EnginePlan(
        "sglang_2024",
        "SGLang",
        "2024",
        plans=(
            FitPlan(
                free=("compute", "memory", "allreduce_us"),
                metrics=("prefill_speed", "decode_speed_per_user"),
            ),
        ),
    ),
    EnginePlan(
        "gpt_fast",
        "gpt-fast",
        "2024",
        plans=(
            FitPlan(
                free=("memory", "allreduce_us", "quantized"),
                stated={"compute": 0.5},
                metrics=("decode_speed_per_user",),
            ),
        ),
    ),
    EnginePlan(
        "llama_cpp",
        "llama.cpp",
        "2024-05",
        plans=tuple(
            FitPlan(
                gpus=gpus,
                free=("compute", "memory", *more),
                stated={"quantized": 0.8},
                metrics=("decode_speed_per_user", "prefill_speed"),
            )
            for gpus, more in (
                (_A100S, ("quantized",)),
                (("H100-80GB-PCIe", *_HOPPERS), ("quantized",)),
                (("RTX-3090",), ("quantized",)),
                (("RTX-4090",), ()),
            )
        ),
    ),
)
