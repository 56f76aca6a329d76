"""Predicts rows of published measurements of wafers (columns of `wse.csv`)."""

import math
import re
from collections.abc import Callable

from wafer_engine.batching.cost_model import StepShape
from wafer_engine.calibration.rows import (
    MAX_LENGTH_TOKENS,
    NotModelledError,
    Prediction,
    Row,
    num_requests,
    number,
    predict_row,
    whole,
)
from wafer_engine.hardware.constants import (
    SERVICE_CONSTANTS,
    WSE2_CONSTANTS,
    WSE3_CONSTANTS,
    ServiceConstants,
    WaferConstants,
)
from wafer_engine.hardware.cost import WaferCost
from wafer_engine.hardware.models import ModelShape, find_model
from wafer_engine.hardware.spec import WaferSpec, find_wafer
from wafer_engine.mesh import kernels

SERVICE_BAR = 0.15
KERNEL_BAR = 0.03
END_TO_END_BAR = 0.08

# The context assumed for a service row that names no lengths.
SERVICE_CONTEXT_TOKENS = 1024
LAUNCH_DATE = "2024-08"  # rows of the first public software; later rows are faster

# metric -> the constants of its kernel, and the cycles they give
KERNELS: dict[str, tuple[str, Callable[..., float]]] = {
    "meshgemv_cycles": ("gemv", kernels.gemv_cycles),
    "meshgemm_cycles": ("gemm", kernels.gemm_cycles),
    "summa_cycles": ("summa", kernels.gemm_cycles),
    "pipeline_allreduce_gemv_cycles": ("pipeline_gemv", kernels.pipeline_gemv_cycles),
}

# Widths of weights by a service row's precision; its first word where it names two. Arithmetic
# stays 16 bits wide.
_WEIGHT_BITS = {
    **dict.fromkeys(("fp16", "bf16", "float16", "bfloat16"), 16.0),
    **dict.fromkeys(("fp8", "int8", "w8a8", "w8a16"), 8.0),
    **dict.fromkeys(("fp4", "nvfp4", "mxfp4", "int4", "w4a16"), 4.0),
}


class WaferRows:
    """Predicts rows with one set of constants per generation and one for the service."""

    def __init__(
        self,
        wse2: WaferConstants = WSE2_CONSTANTS,
        wse3: WaferConstants = WSE3_CONSTANTS,
        service: ServiceConstants = SERVICE_CONSTANTS,
    ) -> None:
        self._constants = {"WSE-2": wse2, "WSE-3": wse3}
        self._service = service
        self._by_metric: dict[str, Callable[[Row], float]] = {
            "decode_tpr": self._decode,
            "prefill_tpr": self._prefill,
            "e2e_tpr": self._end_to_end,
            **dict.fromkeys(KERNELS, self._kernel),
            "max_decode_len_shift": self._kv_shift,
            "max_decode_len_concat": lambda row: self._kv_shift(row) / _sides(row, 1)[0],
            "output_speed_per_user": self._service_speed,
            "ttft_ms": self._service_ttft,
            "tpot_ms": self._service_tpot,
        }

    def predict(self, row: Row) -> Prediction:
        """Predicts one row; never raises for invalid cells."""
        formula = self._by_metric.get(row.get("metric", "")) or _why_not(row)
        return predict_row(row, *_group(row), formula)

    def _machine(self, row: Row) -> tuple[WaferSpec, WaferConstants]:
        name = row.get("hardware", "").split(" ", 1)[0]
        wafer = find_wafer(name)
        longest = min(wafer.fabric_width, wafer.fabric_height)
        for side in _grid_sides(row):
            if not 1 <= side <= longest:
                raise NotModelledError(
                    f"a grid of {side}x{side} is not on {wafer.name}, whose fabric has "
                    f"{wafer.fabric_width}x{wafer.fabric_height} cores"
                )
        return wafer, self._constants[wafer.name]

    def _decode(self, row: Row) -> float:
        machine, model = self._machine(row), _grid_model(row)
        return kernels.decode_tokens_per_s(model, _tiling(row, model), *machine)

    def _prefill(self, row: Row) -> float:
        machine, model = self._machine(row), _grid_model(row)
        tokens = number(row, "input_len")
        return tokens / kernels.prefill_us(model, _tiling(row, model), *machine) * 1e6

    def _end_to_end(self, row: Row) -> float:
        machine, model = self._machine(row), _grid_model(row)
        prefill_side, decode_side = _sides(row, 2)
        prompt, output = int(number(row, "input_len")), int(number(row, "output_len"))
        lengths_and_sides = prompt, output, prefill_side, decode_side
        return output / kernels.request_us(model, *lengths_and_sides, *machine) * 1e6

    def _kernel(self, row: Row) -> float:
        name, cycles = KERNELS[row["metric"]]
        fit = getattr(self._machine(row)[1], name)
        if fit is None:
            raise NotModelledError(
                "no pipelined GEMV was measured on this generation"
                if name == "pipeline_gemv"
                else f"no {name.upper()} was measured on a stated grid of {row['hardware']}"
            )
        return cycles(*_kernel_tile(row), fit)

    def _kv_shift(self, row: Row) -> float:
        machine = self._machine(row)
        return kernels.kv_shift_capacity_tokens(find_model(row["model"]), *machine)

    def service_cost(self, row: Row) -> WaferCost:
        """Makes the cost model that predicts a service row.

        Raises ValueError for an unknown model, or one that the stated wafers do not hold, and
        `NotModelledError` for an unknown precision, or sequences that exceed the KV cache.
        """
        count = whole(row, "count", 1)
        precision, bits = _precision(row)
        if bits is None:
            known = ", ".join(_WEIGHT_BITS)
            raise NotModelledError(f"unknown precision {precision!r}: expected one of {known}")
        cost = WaferCost(
            find_model(row["model"]),
            num_wafers=count if count > 1 else None,
            weight_bits=bits,
            constants=self._constants["WSE-3"],
            service=self._service,
        )
        num_seqs = num_requests(row)
        prompt, output = _service_lengths(row)
        held = num_seqs * (prompt + output)
        if held > cost.limits.kv_capacity_tokens:
            raise NotModelledError(
                f"{num_seqs} requests of this length need {held:,.0f} tokens of KV, the wafers "
                f"hold {cost.limits.kv_capacity_tokens:,}"
            )
        return cost

    def _service_speed(self, row: Row) -> float:
        cost, num_seqs = self.service_cost(row), num_requests(row)
        if row.get("note", "").startswith(LAUNCH_DATE):
            speed = 1e6 / cost.pass_us(SERVICE_CONTEXT_TOKENS) * self._service.launch_factor
            return speed * min(1.0, cost.model.num_layers / num_seqs)
        prompt, output = _service_lengths(row)
        return cost.tokens_per_s(prompt + output / 2, num_seqs)

    def _service_ttft(self, row: Row) -> float:
        if not row.get("input_len"):
            raise NotModelledError("no prompt length is given")
        tokens = int(number(row, "input_len"))
        cost, others = self.service_cost(row), num_requests(row) - 1
        shape = StepShape(others, others * tokens, tokens, tokens * (tokens + 1) // 2)
        return (self._service.network_us + self._service.overhead_us + cost.step_us(shape)) / 1e3

    def _service_tpot(self, row: Row) -> float:
        context = number(row, "input_len") + number(row, "output_len") / 2
        return 1e3 / self.service_cost(row).tokens_per_s(context, num_requests(row))


def _group(row: Row) -> tuple[str, float | None]:
    """Returns the group in which a row is judged, and that group's bar on the mean error."""
    metric = row.get("metric", "")
    generation = row.get("hardware", "").split(" ", 1)[0]
    if metric in ("decode_tpr", "prefill_tpr"):
        return f"{generation} {metric.removesuffix('_tpr')}", KERNEL_BAR
    if metric == "e2e_tpr":
        return f"{generation} end to end", END_TO_END_BAR
    if metric.endswith("_cycles"):
        return f"{generation} kernel {metric.removesuffix('_cycles')}", KERNEL_BAR
    if metric == "output_speed_per_user":
        return "service speed", SERVICE_BAR
    if metric in ("ttft_ms", "tpot_ms"):
        return f"service {metric.removesuffix('_ms')}", SERVICE_BAR
    if metric.startswith("max_decode_len"):
        return f"{generation} KV capacity", None
    return f"{generation} not modelled", None


def _why_not(row: Row) -> str:
    metric = row.get("metric", "")
    if metric.endswith(("_T10", "_Ladder")):
        return "another compiler's code on the wafer, given for context"
    if metric.startswith("energy_ratio"):
        return "a ratio to GPUs, not a wafer's own figure"
    if metric == "gemv_time":
        return "the grid is not stated"
    return f"no model for the metric {metric!r}"


def _sides(row: Row, count: int) -> list[int]:
    sides = _grid_sides(row)
    if len(sides) < count:
        raise NotModelledError("the grid is not stated")
    return sides[:count]


def _grid_sides(row: Row) -> list[int]:
    grids = re.findall(r"(\d{1,9})x(\d{1,9})", row.get("core_grid", ""))
    if any(width != height for width, height in grids):
        raise NotModelledError(f"the grid is not square: {row['core_grid']}")
    return [int(width) for width, _ in grids]


def _service_lengths(row: Row) -> tuple[float, float]:
    """Reads prompt and output of a service row; by default `SERVICE_CONTEXT_TOKENS` and 0."""
    prompt = number(row, "input_len") if row.get("input_len") else SERVICE_CONTEXT_TOKENS
    return prompt, number(row, "output_len", 0.0) if row.get("output_len") else 0.0


def _precision(row: Row) -> tuple[str, float | None]:
    precision = row.get("precision") or "fp16"
    return precision, _WEIGHT_BITS.get(precision.split("/")[0].lower())


def _grid_model(row: Row) -> ModelShape:
    """Finds the model of a row of the measured code: one request in 16 bits on one wafer."""
    if num_requests(row) > 1:
        raise NotModelledError("the measured code runs one request at a time")
    if whole(row, "count", 1) > 1:
        raise NotModelledError("the measured code runs on one wafer")
    precision, bits = _precision(row)
    if bits != 16.0:
        raise NotModelledError(f"the measured code runs in 16 bits, not in {precision}")
    model = find_model(row["model"])
    if model.moe is not None:
        raise NotModelledError("the measured code runs dense models only")
    return model


def _tiling(row: Row, model: ModelShape) -> kernels.Tiling:
    """Returns the padded sizes that ran if the row has them, else our own padding."""
    side = _sides(row, 1)[0]
    own = kernels.tile(model, number(row, "input_len"), side)
    return kernels.Tiling(
        side,
        whole(row, "pad_dim", own.pad_hidden, MAX_LENGTH_TOKENS),
        whole(row, "pad_seq", own.pad_tokens, 2 * MAX_LENGTH_TOKENS),
        whole(row, "pad_ffn", own.pad_ffn, MAX_LENGTH_TOKENS),
    )


def _kernel_tile(row: Row) -> tuple[float, int]:
    """Returns tile length and grid side of a square kernel, by its padded size or its name."""
    side = _sides(row, 1)[0]
    size = row.get("pad_dim") or ""
    if not size:
        named = re.search(r"(\d+)(K?)$", row["model"])
        if named is None:
            raise NotModelledError("the matrix size is not stated")
        size = str(int(named[1]) * (1024 if named[2] else 1))
    return math.ceil(float(size) / side), side
