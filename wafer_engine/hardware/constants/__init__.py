"""Reads the fitted constants: one file per wafer generation and one for the hosted service.

Only `python -m wafer_engine calibrate` writes the files. Each group of constants names the
reference rows it was fitted to.
"""

from importlib import resources
from typing import TypeVar

import msgspec

Constants = TypeVar("Constants", bound=msgspec.Struct)


class DecodeConstants(msgspec.Struct, frozen=True):
    """Holds the cycles of one token's transformer layer, or of one mesh GEMV, on a P x P grid."""

    mac: float = 0.0  # per multiply-accumulate of one core
    start: float = 0.0  # per vector instruction started: in a GEMV, per input of a core's tile
    allreduce: float = 0.0  # per two-level allreduce, whatever its length
    hop: float = 0.0  # per allreduce and grid row
    rows: tuple[str, ...] = ()


class PrefillConstants(msgspec.Struct, frozen=True):
    """Holds the cycles of one transformer layer for a whole prompt, on a P x P grid."""

    mac: float = 0.0  # per multiply-accumulate of one core, vectors rounded up to `lanes`
    start: float = 0.0  # per vector instruction started in a matrix product
    vector: float = 0.0  # per compute-shift step and tile row or column: norms, rotations, copies
    step: float = 0.0  # per compute-shift step of each of the nine products
    lanes: int = 1  # vector lengths round up to a multiple of this
    rows: tuple[str, ...] = ()


class GemmConstants(msgspec.Struct, frozen=True):
    """Holds the cycles of one mesh GEMM on a P x P grid."""

    mac: float = 0.0  # per multiply-accumulate of one core, vectors rounded up to `lanes`
    start: float = 0.0  # per vector instruction
    step: float = 0.0  # per compute-shift step
    lanes: int = 1
    rows: tuple[str, ...] = ()


class PipelineGemvConstants(msgspec.Struct, frozen=True):
    """Holds the cycles of a GEMV with the vendor's pipelined allreduce, for comparison."""

    row: float = 0.0  # per grid row
    element: float = 0.0  # per element of a core's tile
    fixed: float = 0.0
    rows: tuple[str, ...] = ()


class SramConstants(msgspec.Struct, frozen=True):
    """Says how much of a core's SRAM weights and KV cache may fill."""

    usable_fraction: float  # the rest is code, buffers and padding
    rows: tuple[str, ...]


class WaferConstants(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the constants fitted for one wafer generation."""

    generation: str
    decode: DecodeConstants = DecodeConstants()
    prefill: PrefillConstants = PrefillConstants()
    gemv: DecodeConstants | None = None
    gemm: GemmConstants | None = None
    summa: GemmConstants | None = None  # the vendor library's GEMM, for comparison
    pipeline_gemv: PipelineGemvConstants | None = None
    sram: SramConstants | None = None


class ServiceConstants(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the constants fitted to the hosted service's published speeds, under assumptions."""

    launch_factor: float = 1.0  # speed of the August 2024 software over today's
    acceptance_dense: float = 0.0  # drafted tokens accepted, each, where dense models have a draft
    acceptance_moe: float = 0.0
    draft_tokens: int  # assumed
    overhead_us: float = 0.0  # from a request's arrival at the service to its first prefill
    network_us: float  # published with the rows: 30-50 ms one way between client and service
    launch_rows: tuple[str, ...] = ()
    dense_rows: tuple[str, ...] = ()
    moe_rows: tuple[str, ...] = ()
    overhead_rows: tuple[str, ...] = ()


def read_constants(package: str, name: str, kind: type[Constants]) -> Constants:
    """Reads one file of constants, by its name without `.json`."""
    content = resources.files(package).joinpath(f"{name}.json").read_bytes()
    return msgspec.json.decode(content, type=kind)


WSE2_CONSTANTS = read_constants(__name__, "wse2", WaferConstants)
WSE3_CONSTANTS = read_constants(__name__, "wse3", WaferConstants)
SERVICE_CONSTANTS = read_constants(__name__, "service", ServiceConstants)


def constants_of(generation: str) -> WaferConstants:
    """Finds a generation's constants (`WSE-2`, `WSE-3`); raises ValueError if there are none."""
    for constants in (WSE2_CONSTANTS, WSE3_CONSTANTS):
        if constants.generation == generation:
            return constants
    raise ValueError(f"no fitted constants for {generation!r}: expected WSE-2 or WSE-3")
