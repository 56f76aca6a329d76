"""Fitted constants, as data: one file per wafer generation and one for the hosted service.

`python -m wafer_engine calibrate` writes the files; nothing else does. Each group of constants
names the reference rows it was fitted to.
"""

from importlib import resources

import msgspec


class DecodeConstants(msgspec.Struct, frozen=True):
    """One transformer layer, one token, on a P x P grid; all in cycles."""

    mac: float  # per multiply-accumulate of one core
    start: float  # per vector instruction started
    allreduce: float  # per two-level allreduce, whatever its length
    hop: float  # per allreduce and grid row
    rows: tuple[str, ...]


class PrefillConstants(msgspec.Struct, frozen=True):
    """One transformer layer, a whole prompt, on a P x P grid; all in cycles."""

    mac: float  # per multiply-accumulate of one core, vectors rounded up to `lanes`
    start: float  # per vector instruction started in a matrix product
    vector: float  # per compute-shift step and tile row or column: norms, rotations, copies
    step: float  # per compute-shift step of each of the nine products
    lanes: int  # vector lengths round up to a multiple of this
    rows: tuple[str, ...]


class GemvConstants(msgspec.Struct, frozen=True):
    """One mesh GEMV on a P x P grid; all in cycles."""

    mac: float  # per multiply-accumulate of one core
    start: float  # per input element of a core's tile
    allreduce: float
    hop: float  # per grid row
    rows: tuple[str, ...]


class GemmConstants(msgspec.Struct, frozen=True):
    """One mesh GEMM on a P x P grid; all in cycles."""

    mac: float  # per multiply-accumulate of one core, vectors rounded up to `lanes`
    start: float  # per vector instruction
    step: float  # per compute-shift step
    lanes: int
    rows: tuple[str, ...]


class PipelineGemvConstants(msgspec.Struct, frozen=True):
    """A GEMV with the vendor's pipelined allreduce, for comparison; all in cycles."""

    row: float  # per grid row
    element: float  # per element of a core's tile
    fixed: float
    rows: tuple[str, ...]


class SramConstants(msgspec.Struct, frozen=True):
    """What of a core's SRAM weights and KV cache may fill."""

    usable_fraction: float  # the rest is code, buffers and padding
    rows: tuple[str, ...]


class WaferConstants(msgspec.Struct, frozen=True, kw_only=True):
    """What was fitted for one wafer generation."""

    generation: str
    decode: DecodeConstants
    prefill: PrefillConstants
    gemv: GemvConstants | None = None
    gemm: GemmConstants | None = None
    summa: GemmConstants | None = None  # the vendor library's GEMM, for comparison
    pipeline_gemv: PipelineGemvConstants | None = None
    sram: SramConstants | None = None


class ServiceConstants(msgspec.Struct, frozen=True, kw_only=True):
    """What was fitted to the hosted service's published speeds; all of it rests on assumptions."""

    launch_factor: float  # speed of the August 2024 software over today's
    acceptance_dense: float  # drafted tokens accepted, each, where dense models run with a draft
    acceptance_moe: float
    draft_tokens: int  # assumed
    overhead_us: float  # from a request's arrival at the service to its first prefill
    network_us: float  # published with the rows: 30-50 ms one way between client and service
    launch_rows: tuple[str, ...]
    dense_rows: tuple[str, ...]
    moe_rows: tuple[str, ...]
    overhead_rows: tuple[str, ...]


def _read(name: str) -> bytes:
    return resources.files(__name__).joinpath(name).read_bytes()


WSE2_CONSTANTS = msgspec.json.decode(_read("wse2.json"), type=WaferConstants)
WSE3_CONSTANTS = msgspec.json.decode(_read("wse3.json"), type=WaferConstants)
SERVICE_CONSTANTS = msgspec.json.decode(_read("service.json"), type=ServiceConstants)


def constants_of(generation: str) -> WaferConstants:
    """The constants of a wafer generation (`WSE-2`, `WSE-3`).

    Raises:
        ValueError: Nothing was fitted for it.
    """
    for constants in (WSE2_CONSTANTS, WSE3_CONSTANTS):
        if constants.generation == generation:
            return constants
    raise ValueError(f"no fitted constants for {generation!r}: expected WSE-2 or WSE-3")
