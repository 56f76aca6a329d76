"""Defines which constants are fitted to which rows: one plan per engine version.

A plan names its rows, its free constants and those with a stated value. Few are free: constants
that the rows cannot separate are stated, not fitted.
"""

import msgspec

from backends.gpu_engine.calibration.request_logs import LOG_ENGINE
from backends.gpu_engine.spec import LINKS

FIRST_GUESS = {
    "compute": 0.55,
    "memory": 0.75,
    "step_us": 300.0,
    "layer_us": 20.0,
    "seq_us": 10.0,
    "allreduce_us": 10.0,
    "all_to_all_us": 20.0,
    "link": 0.5,
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
    queues: bool = True  # also rows of a time to the first token behind others
    own: tuple[str, ...] = ()  # of the host's constants, those that its rows tell from other hosts'
    moe: bool | None = None  # only mixtures of experts, only others, or both


class EnginePlan(msgspec.Struct, frozen=True):
    """Plans one engine version: its stated limits and the sets to fit, which share constants."""

    name: str  # of the constants file
    family: str
    version: str
    plans: tuple[FitPlan, ...] = ()
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    # A GPU, and those that take its set for lack of data: named, or (empty) all others with a link.
    taken_over: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()
    taken_from: str = ""  # the constants file whose first set the other GPUs take over
    taken_band: float = 0.0  # the mean error there of the rows of this release


_THROUGHPUT = ("output_throughput", "output_throughput_per_gpu")
_MEDIANS = (*_THROUGHPUT, "tpot_p50", "ttft_p50")
_SPEEDS = ("decode_speed_per_user", "prefill_speed")

_A100S = ("A100-40GB-SXM", "A100-80GB-SXM", "A800-80GB-SXM")
_HOPPERS = ("H100-80GB-SXM", "H200-141GB-SXM")
_B200S = ("B200-180GB-SXM", "GB200-NVL72")
_NVLINKS = tuple(name for name, link in LINKS.items() if link.is_switched)
_PCIES = tuple(name for name, link in LINKS.items() if not link.is_switched)
_SATURATED = ("compute", "seq_us", "allreduce_us")  # the constants that full batches determine
_16_AND_4_BITS = ("bf16", "w4a16")
# Free on every card of AccelMark's; the times are the host's, so one for all of them.
_ACCELMARK = ("compute", "step_us", "seq_us", "eager_us", "dequantized")


def _accelmark(gpus: tuple[str, ...], *more: str) -> FitPlan:
    """Fits a card to its step times: rows whose times are mostly those of a queue are left out."""
    return FitPlan((*_ACCELMARK, *more), _MEDIANS, gpus, precisions=_16_AND_4_BITS, queues=False)


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
            FitPlan((*_SATURATED, "all_to_all_us"), _THROUGHPUT, _B200S, moe=True),
            FitPlan((*_SATURATED, "all_to_all_us"), _THROUGHPUT, _HOPPERS, moe=True),
        ),
        max_num_seqs=4096,
        taken_from="trtllm_0_17",
        taken_band=0.07,
    ),
    EnginePlan(
        "trtllm_0_14",
        "TensorRT-LLM",
        "0.14",
        (
            FitPlan(
                ("compute", "memory", "seq_us", "layer_us", "eager_us"),
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
                ("compute", "layer_us"),
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
            FitPlan(
                ("compute", "seq_us", "layer_us", "launch_us", "eager_us"),
                ("tpot_mean", "ttft"),
                gpus,
                own=("seq_us", "launch_us", "eager_us"),  # 42 rows each, of two generations' hosts
            )
            for gpus in (_A100S, _HOPPERS)
        ),
        taken_over=(("H100-80GB-SXM", (), ()),),
    ),
    EnginePlan(
        "vllm_0_7",
        "vLLM",
        "0.7",
        (
            _accelmark(_A100S),
            _accelmark(("H100-80GB-SXM",)),
            _accelmark(("H200-141GB-SXM",)),
            _accelmark(("RTX-3090",), "link"),
            _accelmark(("RTX-4090",), "link"),
            _accelmark(("L4",)),
        ),
        max_num_batched_tokens=2048,
        # A card takes over from the nearest one: of its own generation, else of the one before.
        taken_over=(
            ("A100-80GB-SXM", (), ("A100-80GB-PCIe",)),
            ("H100-80GB-SXM", (), ("H100-80GB-PCIe", "H800-80GB-SXM", "H20-96GB-SXM")),
            ("H200-141GB-SXM", (), _B200S),
            ("RTX-4090", (), ("RTX-PRO-6000", "L40S")),
            ("A100-80GB-SXM", _NVLINKS, ()),
            ("RTX-4090", _PCIES, ()),
        ),
    ),
    EnginePlan(
        LOG_ENGINE,
        "vLLM",
        "0.19",
        (
            FitPlan(("compute", "memory", "seq_us"), gpus=("RTX-4090",), stated={"kv": 0.95}),
            FitPlan(
                ("compute", "memory", "seq_us", "link", "allreduce_us"), gpus=("RTX-PRO-6000",)
            ),
        ),
        max_num_batched_tokens=2048,
        taken_over=(("RTX-PRO-6000", _NVLINKS, ()), ("RTX-PRO-6000", _PCIES, ())),
    ),
    EnginePlan(
        "vllm_0_20",
        "vLLM",
        "0.12 to 0.22",
        (
            _accelmark(_A100S),
            FitPlan(("compute", "step_us", "seq_us"), (*_THROUGHPUT, "tpot_mean"), _HOPPERS),
        ),
        max_num_batched_tokens=2048,
        taken_over=(
            (
                "H200-141GB-SXM",
                (),
                (*_B200S, "H100-80GB-PCIe", "H800-80GB-SXM", "H20-96GB-SXM"),
            ),
            ("A100-80GB-SXM", (), ()),
        ),
    ),
    EnginePlan(
        "sglang_0_5",
        "SGLang",
        "0.5",
        (
            FitPlan(
                ("compute", "seq_us", "layer_us", "eager_us", "dequantized"),
                (*_MEDIANS, "tpot_mean"),
                loads=("1", "16", "32", "64", "100", "200"),
                precisions=("fp8", *_16_AND_4_BITS),
            ),
        ),
    ),
    EnginePlan(
        "sglang_2024", "SGLang", "2024", (FitPlan(("compute", "memory", "layer_us"), _SPEEDS),)
    ),
    EnginePlan(
        "gpt_fast",
        "gpt-fast",
        "2024",
        (FitPlan(("memory", "layer_us", "quantized"), _SPEEDS[:1], stated={"compute": 0.5}),),
    ),
    EnginePlan(
        "llama_cpp",
        "llama.cpp",
        "2024-05",
        tuple(
            FitPlan(("compute", "memory", "quantized"), _SPEEDS, gpus)
            for gpus in (
                (*_A100S, "A100-80GB-PCIe"),
                ("H100-80GB-PCIe", *_HOPPERS),
                ("RTX-3090",),
                ("RTX-4090",),
            )
        ),
    ),
)
