"""Describes GPUs as published, and the precisions in which they compute.

The GPUs are in `gpu_specs.csv`, in base units; empty cells are what `GpuSpec` has by default. Rates
are dense, in operations per second (a multiply-accumulate is two). Memory is what the driver
reports as usable, not the number on the box. Cards without NVLink have PCIe as their link. Sources:
NVIDIA data sheets and architecture white papers of each card (A100 2020/2021, H100 2022, H200 2023,
B200 2024, GB200 NVL72 2024, L4 2023, L40S 2023, RTX 3090 2020, RTX 4090 2022, RTX PRO 6000
Blackwell 2025); memory from `nvidia-smi` listings. The H20 and H800 have no public data sheet:
vendors' listings, 2023-11, second-hand.
"""

import re
import tomllib
from pathlib import Path

import msgspec

from wafer_engine.hardware.models import read_table


class Link(msgspec.Struct, frozen=True):
    """Describes a kind of link between GPUs, whatever card it joins and whatever engine uses it."""

    allreduce_us: float  # latency of a small allreduce over two GPUs
    all_to_all_us: float  # the same for an all-to-all
    share: float  # of its bandwidth that large transfers reach

    @property
    def is_switched(self) -> bool:
        """Returns whether GPUs reach each other without the host: NVLink, not PCIe."""
        return self.share > PCIE_SHARE


# Latencies are assumed: no row separates them from the other times of a layer. They are such that
# one user of a 7B model at 8 bits (4 bits on NVLink 5) gains by every doubling of the GPUs, as
# published small-message allreduces do (5-10 us on 8 GPUs, TensorRT-LLM and vLLM, 2024-2025). PCIe
# has what the log of two RTX PRO 6000 under vLLM 0.19 gives.
PCIE_SHARE = 0.28
LINKS = {
    "nvlink3": Link(8.0, 30.0, 0.7),
    "nvlink4": Link(5.0, 20.0, 0.7),
    "nvlink5": Link(3.0, 15.0, 0.7),
    "pcie4": Link(60.0, 120.0, PCIE_SHARE),
    "pcie5": Link(60.0, 120.0, PCIE_SHARE),
}


class GpuSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describes one GPU and its links to the others."""

    name: str
    fp16_flops: float  # fp16 or bf16, fp32 accumulation
    fp8_flops: float = 0.0  # 0: no such units, fp8 weights are widened before use
    fp4_flops: float = 0.0
    int8_ops: float = 0.0
    memory_bytes: float
    memory_bytes_per_s: float
    link: str = "pcie4"  # its kind, from `LINKS`
    link_bytes_per_s: float  # to the other GPUs of its domain, one direction
    domain_gpus: int  # GPUs that the link joins
    network_bytes_per_s: float = 50e9  # per GPU out of its domain: one 400 Gb/s port
    power_w: float  # rated
    note: str = ""

    @property
    def has_switched_link(self) -> bool:
        return LINKS[self.link].is_switched

    def flops(self, precision: "Precision") -> float:
        """Returns the peak rate of products at a precision; 16-bit if the card lacks the units."""
        if precision.activation_bits > 8:
            return self.fp16_flops
        if precision.integer:
            return self.int8_ops or self.fp16_flops
        if precision.activation_bits < 8 and self.fp4_flops:
            return self.fp4_flops
        return self.fp8_flops or self.fp16_flops


GPUS = {
    row["name"]: msgspec.convert(
        {column: cell for column, cell in row.items() if cell}, GpuSpec, strict=False
    )
    for row in read_table(__package__, "gpu_specs.csv")
}
_ALIASES = {
    "A100": "A100-80GB-SXM", "A100-80GB": "A100-80GB-SXM", "A100-40GB": "A100-40GB-SXM",
    "A800": "A800-80GB-SXM", "H100-80GB": "H100-80GB-SXM", "H100-PCIe": "H100-80GB-PCIe",
    "H200-141GB": "H200-141GB-SXM", "B200-180GB": "B200-180GB-SXM", "A100-SXM": "A100-80GB-SXM",
    "H100": "H100-80GB-SXM", "H100-SXM": "H100-80GB-SXM", "H200": "H200-141GB-SXM",
    "H200-SXM": "H200-141GB-SXM", "H800": "H800-80GB-SXM", "H20": "H20-96GB-SXM",
    "B200": "B200-180GB-SXM", "B200-SXM": "B200-180GB-SXM", "B200-NVL72": "GB200-NVL72",
    "GB200": "GB200-NVL72", "RTX3090": "RTX-3090", "RTX4090": "RTX-4090",
}  # fmt: skip
_MAKERS = frozenset({"NVIDIA", "TESLA", "GEFORCE"})


def _words(name: str) -> frozenset[str]:
    """Splits a card's name into words without order: `SXM5` is `SXM`, the memory's kind goes."""
    words = re.split(r"[\s_-]+", name.strip().upper())
    kept = (re.sub(r"^SXM\d$", "SXM", word) for word in words if word not in _MAKERS)
    return frozenset(word for word in kept if not word.startswith("HBM"))


_SPELLINGS = {_words(name): gpu for name, gpu in GPUS.items()}
_SPELLINGS |= {_words(alias): GPUS[name] for alias, name in _ALIASES.items()}


def find_gpu(name: str) -> GpuSpec:
    """Finds a GPU by its full or short name (`H100-80GB-SXM`, `H100`), in common spellings.

    Case, the order of the words, a leading `NVIDIA`, and blanks or underscores for hyphens do not
    matter: `NVIDIA H100 80GB HBM3` and `h100-sxm5-80gb` are the same card. A name that ends in
    `.toml` is a file that describes a card. Raises ValueError for an unknown name, or a file that
    is missing or wrong.
    """
    if name.endswith(".toml"):
        return read_gpu(Path(name))
    gpu = _SPELLINGS.get(_words(name))
    if gpu is None:
        known = ", ".join([*GPUS, *_ALIASES])
        raise ValueError(f"unknown GPU {name!r}: expected one of {known}")
    return gpu


def read_gpu(path: Path) -> GpuSpec:
    """Reads a card from a file with `GpuSpec`'s fields; raises ValueError, naming the field."""
    try:
        spec = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), GpuSpec)
    except OSError as error:
        raise ValueError(f"GPU file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"GPU file {path}: {error}") from error
    if spec.link not in LINKS:
        raise ValueError(f"GPU file {path}: link {spec.link!r}: expected one of {', '.join(LINKS)}")
    needed = (
        "fp16_flops", "memory_bytes", "memory_bytes_per_s", "link_bytes_per_s", "domain_gpus",
        "network_bytes_per_s", "power_w",
    )  # fmt: skip
    for field in needed:
        number = getattr(spec, field)
        if not 0 < number < 1e18:
            raise ValueError(f"GPU file {path}: {field} is {number}: expected a number above 0")
    return spec


class Precision(msgspec.Struct, frozen=True):
    """Holds the widths of weights and activations, in bits."""

    weight_bits: float
    activation_bits: float
    integer: bool = False  # products of integers, not of floats


# Weight widths include the scales stored beside the values: NVFP4 has an 8-bit scale per 16 values,
# MXFP4 one per 32, the 4-bit integer formats a 16-bit one per 128 (GPTQ, AWQ) or 32 (gpt-fast), and
# Q4_K_M averages 4.85 bits (llama.cpp).
PRECISIONS = {
    "bf16": Precision(16, 16),
    "fp16": Precision(16, 16),
    "fp8": Precision(8, 8),
    "w8a8": Precision(8, 8, integer=True),
    "int8": Precision(8, 16),
    "w8a16": Precision(8, 16),
    "fp4": Precision(4.5, 4.5),
    "mxfp4": Precision(4.25, 16),
    "int4": Precision(4.5, 16),
    "w4a16": Precision(4.15, 16),
    "q4_k_m": Precision(4.85, 16),
}


# Names that engines and model cards use for the same widths.
_PRECISION_ALIASES = {
    "bfloat16": "bf16", "float16": "fp16", "float8": "fp8", "nvfp4": "fp4", "awq": "w4a16",
    "gptq": "w4a16",
}  # fmt: skip


def find_precision(name: str, gpu: GpuSpec | None = None) -> Precision:
    """Finds a precision by name, in any case (`fp8`, `NVFP4`, `awq`), as a GPU runs it.

    A card without 4-bit units reads 4-bit floats and multiplies them widened to 16 bits. Raises
    ValueError for an unknown name.
    """
    known = _PRECISION_ALIASES.get(name.lower(), name.lower())
    if known not in PRECISIONS:
        expected = ", ".join([*PRECISIONS, *_PRECISION_ALIASES])
        raise ValueError(f"unknown precision {name!r}: expected one of {expected}")
    if known == "fp4" and gpu is not None and not gpu.fp4_flops:
        known = "mxfp4"
    return PRECISIONS[known]
