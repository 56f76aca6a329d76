"""Computes the cycles of kernels and of single requests on a square grid of PEs, in closed form.

These are the forms measured by WaferLLM (OSDI 2025) and its CS-3 rerun: a matrix is cut into P x P
tiles, products along a row or column end in a two-level allreduce (decode) or run as P
compute-shift steps (prefill). `mesh.py` counts the same work by doing it. docs/engines.md holds
the equations; the constants come from `wafer_engine.hardware.constants`.
"""

import math

import msgspec

from wafer_engine.hardware.constants import (
    DecodeConstants,
    GemmConstants,
    PipelineGemvConstants,
    WaferConstants,
)
from wafer_engine.hardware.cost import ALLREDUCES_DENSE
from wafer_engine.hardware.models import ModelShape
from wafer_engine.hardware.spec import WaferSpec

PRODUCTS_PER_LAYER = 9  # matrix products of a layer in prefill, in the measured code


class Tiling(msgspec.Struct, frozen=True):
    """Is a layer cut into P x P tiles, with sizes padded to a multiple of the grid side."""

    side: int  # P, PEs per side of the grid
    pad_hidden: int
    pad_tokens: int  # attended tokens (decode) or prompt tokens (prefill)
    pad_ffn: int

    @property
    def macs_per_row(self) -> float:
        """Counts one core's multiply-accumulates for one row of a token tile, over the whole layer.

        Four hidden x hidden projections (K and V as wide as Q: the measured code has no grouped
        heads), scores and values over the tokens, three FFN matrices.
        """
        d, s, f = self.tiles
        return 4 * d * d + 2 * d * s + 3 * d * f

    @property
    def vectors_per_row(self) -> float:
        """Counts the vector instructions a core starts for one row of a token tile."""
        d, s, f = self.tiles
        return 7 * d + s + f

    @property
    def tiles(self) -> tuple[float, float, float]:
        """Returns the per-core tile lengths of hidden, tokens and FFN."""
        return self.pad_hidden / self.side, self.pad_tokens / self.side, self.pad_ffn / self.side


def tile(model: ModelShape, tokens: float, side: int) -> Tiling:
    """Cuts a model's layer for a grid, padding each size up to a multiple of the side."""
    sizes = (math.ceil(size / side) * side for size in (model.hidden, tokens, model.ffn))
    return Tiling(side, *sizes)


def decode_layer_cycles(tiling: Tiling, fit: DecodeConstants) -> float:
    """Returns the cycles of one layer for one token: products, vector starts, ten allreduces."""
    allreduce = fit.allreduce + fit.hop * tiling.side
    return (
        fit.mac * tiling.macs_per_row
        + fit.start * tiling.vectors_per_row
        + ALLREDUCES_DENSE * allreduce
    )


def gemv_cycles(tile_length: float, side: int, fit: DecodeConstants) -> float:
    """Returns the cycles of a square mesh GEMV: a local product, then a two-level allreduce.

    A core has `tile_length` elements of the vector, and a matrix tile of its square.
    """
    local = fit.mac * tile_length * tile_length + fit.start * tile_length
    return local + fit.allreduce + fit.hop * side


def gemm_cycles(tile_length: float, side: int, fit: GemmConstants) -> float:
    """Returns the cycles of a square mesh GEMM: P compute-shift steps, alignment included."""
    padded = math.ceil(tile_length / fit.lanes) * fit.lanes
    area = tile_length * tile_length
    return side * (fit.mac * area * padded + fit.start * area + fit.step)


def pipeline_gemv_cycles(tile_length: float, side: int, fit: PipelineGemvConstants) -> float:
    """Returns the cycles of a square GEMV whose allreduce is a pipeline along the row."""
    return fit.row * side + fit.element * tile_length + fit.fixed


def decode_tokens_per_s(
    model: ModelShape, tiling: Tiling, wafer: WaferSpec, constants: WaferConstants
) -> float:
    """Returns the tokens/s of one sequence with every layer on one grid, as the measured code."""
    return wafer.clock_hz / (model.num_layers * decode_layer_cycles(tiling, constants.decode))


def prefill_us(
    model: ModelShape, tiling: Tiling, wafer: WaferSpec, constants: WaferConstants
) -> float:
    """Returns the microseconds to prefill one prompt: P compute-shift steps in each product."""
    fit = constants.prefill
    padded_rows = math.ceil(math.ceil(tiling.pad_tokens / tiling.side) / fit.lanes) * fit.lanes
    layer_cycles = tiling.side * (
        tiling.macs_per_row * (fit.mac * padded_rows + fit.start)
        + fit.vector * tiling.vectors_per_row
        + fit.step * PRODUCTS_PER_LAYER
    )
    return wafer.cycles_to_us(model.num_layers * layer_cycles)


def request_us(
    model: ModelShape,
    num_prompt_tokens: int,
    num_output_tokens: int,
    prefill_side: int,
    decode_side: int,
    wafer: WaferSpec,
    constants: WaferConstants,
) -> float:
    """Returns the time of a request: prefill on one grid, then decode on another.

    The re-layout between the grids is not counted, as there is no published figure.
    """
    prefill = prefill_us(model, tile(model, num_prompt_tokens, prefill_side), wafer, constants)
    # A layer's cycles are affine in the rows of context a core holds: their sum is all it takes.
    none = decode_layer_cycles(tile(model, 0, decode_side), constants.decode)
    one = decode_layer_cycles(tile(model, decode_side, decode_side), constants.decode)
    last = num_prompt_tokens + num_output_tokens
    rows = _padded_rows(last, decode_side) - _padded_rows(num_prompt_tokens, decode_side)
    cycles = none * num_output_tokens + (one - none) * rows
    return prefill + wafer.cycles_to_us(model.num_layers * cycles)


def _padded_rows(num_tokens: int, side: int) -> int:
    """Sums ceil(context / side) over contexts of 1 to `num_tokens` tokens."""
    full, rest = divmod(num_tokens, side)
    return side * full * (full + 1) // 2 + rest * (full + 1)


def kv_shift_capacity_tokens(
    model: ModelShape, wafer: WaferSpec, constants: WaferConstants
) -> float:
    """Returns the tokens of KV cache beside the weights of one wafer, with all rows filled alike.

    Without the shift only the row that owns the newest token fills: the P-th part of it. Raises
    ValueError if the weights alone fill the wafer, or nothing was measured on this generation.
    """
    if constants.sram is None:
        raise ValueError(f"no KV capacity was measured on {constants.generation}")
    sram_bytes = wafer.num_cores * wafer.sram_bytes_per_core * constants.sram.usable_fraction
    free_bytes = sram_bytes - model.weight_bytes()
    if free_bytes <= 0:
        raise ValueError(
            f"{model.name} needs {model.weight_bytes() / 1e9:.1f} GB for its weights, "
            f"{-free_bytes / 1e9:.1f} GB more than {wafer.name} has usable"
        )
    return free_bytes / model.kv_bytes_per_token()
