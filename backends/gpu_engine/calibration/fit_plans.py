"""Defines which constants are fitted to which rows: one plan per engine version.

A plan names its rows, its free constants and those with a stated value. Few are free: constants
that the rows cannot separate are stated, not fitted.
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
    "launch_us": 600.0,  # floors start high, as one that is not reached has no slope
    "eager_us": 500.0,
    "grouped_kv": 0.5,
    "quantized": 0.7,
    "dequantized": 0.4,
}
LAYER_US = 3.0  # assumed if rows cannot separate launches from the scheduler: CUDA graphs
MEMORY_FRACTION = 0.9  # of every engine version
BUFFER_BYTES = 3e9  # of every engine version; assumed


class FitPlan(msgspec.Struct, frozen=True):
    """Plans one set of constants: the free ones, the stated ones, and the rows that determine them.

    A set that is fitted to per-request logs of its GPUs names no metrics.
    """

    free: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    stated: dict[str, float] = {}  # besides `LAYER_US`
    loads: tuple[str, ...] = ()  # of batch_or_concurrency; empty: all
    precisions: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    moe: bool | None = None  # only mixtures of experts, only others, or both


class EnginePlan(msgspec.Struct, frozen=True):
    """Plans one engine version: its stated limits and the sets to fit."""

    name: str  # of the constants file
    family: str
    version: str
    plans: tuple[FitPlan, ...] = ()
    log_plans: tuple[FitPlan, ...] = ()  # fitted to per-request logs
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    taken_over: tuple[tuple[str, tuple[str, ...]], ...] = ()  # a GPU, and those that take its set
    others_from: str = ""  # a GPU whose set all others take over, for lack of data
    taken_from: str = ""  # the constants file whose first set the other GPUs take over


_THROUGHPUT = ("output_throughput", "output_throughput_per_gpu")
_MEDIANS = (*_THROUGHPUT, "tpot_p50", "ttft_p50")
_SPEEDS = ("decode_speed_per_user", "prefill_speed")

_A100S = ("A100-40GB-SXM", "A100-80GB-SXM", "A800-80GB-SXM", "A100-80GB-PCIe")
_HOPPERS = ("H100-80GB-SXM", "H200-141GB-SXM")
_B200S = ("B200-180GB-SXM", "GB200-NVL72")
_OTHER_H100S = ("H100-80GB-PCIe", "H800-80GB-SXM", "H20-96GB-SXM")
_SATURATED = ("compute", "seq_us", "allreduce_us")  # the constants that full batches determine
_16_AND_4_BITS = ("bf16", "w4a16")

# Free on a GPU, besides those free on all GPUs of the plan.
_VLLM_0_7 = (
    (_A100S, ("seq_us", "allreduce_us", "dequantized")),
    (("H100-80GB-SXM",), ("seq_us",)),
    (("H200-141GB-SXM",), ("seq_us", "allreduce_us", "dequantized")),
    (("RTX-3090",), ("seq_us", "link")),
    (("RTX-4090",), ("seq_us", "link")),
    (("L4",), ()),
)
_LLAMA_CPP = (
    (_A100S, ("quantized",)),
    (("H100-80GB-PCIe", *_HOPPERS), ("quantized",)),
    (("RTX-3090",), ("quantized",)),
    (("RTX-4090",), ()),
)

PLANS = (
    EnginePlan(
        "trtllm_0_17",
        "TensorRT-LLM",
        "0.17",
        (FitPlan(_SATURATED, _THROUGHPUT),),
        max_num_seqs=4096,
    ),
    EnginePlan(
        "trtllm_1_0",
        "TensorRT-LLM",
        "1.0",
        (
            FitPlan(_SATURATED, _THROUGHPUT, _B200S, moe=False),
            FitPlan(_SATURATED, _THROUGHPUT, _B200S, moe=True),
            FitPlan(_SATURATED, _THROUGHPUT, _HOPPERS, moe=True),
        ),
        max_num_seqs=4096,
        taken_from="trtllm_0_17",
    ),
    EnginePlan(
        "trtllm_0_14",
        "TensorRT-LLM",
        "0.14",
        (
            FitPlan(
                ("compute", "memory", "seq_us", "allreduce_us", "eager_us"),
                ("itl_mean", "ttft_mean"),
                loads=("qps=2", "qps=8", "qps=inf"),
            ),
        ),
        max_num_seqs=512,
    ),
    EnginePlan(
        "trtllm_0_8",
        "TensorRT-LLM",
        "0.8",
        (FitPlan((*_SATURATED, "grouped_kv", "eager_us"), (*_THROUGHPUT, "ttft")),),
        max_num_seqs=2048,
    ),
    EnginePlan(
        "nim_1_8",
        "NIM",
        "1.8",
        (
            FitPlan(
                ("compute", "allreduce_us"),
                ("itl_mean", "output_throughput", "ttft_mean"),
                models=("Llama-3.3-70B",),
            ),
        ),
    ),
    EnginePlan(
        "vllm_2023",
        "vLLM",
        "2023",
        tuple(
            FitPlan((*_SATURATED, "launch_us", "eager_us"), ("tpot_mean", "ttft"), gpus)
            for gpus in (_A100S, _HOPPERS)
        ),
        others_from="H100-80GB-SXM",
    ),
    EnginePlan(
        "vllm_0_7",
        "vLLM",
        "0.7",
        tuple(
            FitPlan(
                ("compute", "step_us", "eager_us", *more),
                _MEDIANS,
                gpus,
                loads=("1", "100", "150", "200", "qps=5"),
                precisions=_16_AND_4_BITS,
            )
            for gpus, more in _VLLM_0_7
        ),
        max_num_batched_tokens=2048,
        # The nearest card: of its own generation, else of the one before.
        taken_over=(
            ("H100-80GB-SXM", _OTHER_H100S),
            ("H200-141GB-SXM", _B200S),
            ("RTX-4090", ("RTX-PRO-6000", "L40S")),
        ),
        others_from="A100-80GB-SXM",
    ),
    EnginePlan(
        LOG_ENGINE,
        "vLLM",
        "0.19",
        log_plans=(
            FitPlan(("compute",), gpus=("RTX-4090",), stated={"memory": 0.92, "kv": 0.95}),
            FitPlan(
                ("compute", "memory", "seq_us", "link", "allreduce_us"), gpus=("RTX-PRO-6000",)
            ),
        ),
        max_num_batched_tokens=2048,
        others_from="RTX-PRO-6000",
    ),
    EnginePlan(
        "vllm_0_20",
        "vLLM",
        "0.12 to 0.22",
        (
            FitPlan(
                ("compute", "step_us", "seq_us", "eager_us", "dequantized"),
                _MEDIANS,
                _A100S,
                {"allreduce_us": 10.0},
                loads=("1", "100", "200", "qps=5"),
                precisions=_16_AND_4_BITS,
            ),
            FitPlan(("compute", "allreduce_us"), (*_THROUGHPUT, "tpot_mean"), _HOPPERS),
        ),
        max_num_batched_tokens=2048,
        taken_over=(("H200-141GB-SXM", (*_B200S, *_OTHER_H100S)),),
        others_from="A100-80GB-SXM",
    ),
    EnginePlan(
        "sglang_0_5",
        "SGLang",
        "0.5",
        (
            FitPlan(
                (*_SATURATED, "step_us", "eager_us", "dequantized"),
                (*_MEDIANS, "tpot_mean"),
                loads=("1", "16", "32", "64", "100", "200"),
                precisions=("fp8", *_16_AND_4_BITS),
            ),
        ),
    ),
    EnginePlan(
        "sglang_2024", "SGLang", "2024", (FitPlan(("compute", "memory", "allreduce_us"), _SPEEDS),)
    ),
    EnginePlan(
        "gpt_fast",
        "gpt-fast",
        "2024",
        (FitPlan(("memory", "allreduce_us", "quantized"), _SPEEDS[:1], stated={"compute": 0.5}),),
    ),
    EnginePlan(
        "llama_cpp",
        "llama.cpp",
        "2024-05",
        tuple(
            FitPlan(("compute", "memory", *more), _SPEEDS, gpus, {"quantized": 0.8})
            for gpus, more in _LLAMA_CPP
        ),
    ),
)
