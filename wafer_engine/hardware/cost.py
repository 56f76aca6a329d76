"""Computes how long the hosted wafer service takes for a batch, with layers on many wafers.

Every layer owns a rectangle of PEs for good; a token's activations pass from region to region, over
wafer boundaries where they must. So sequences form a pipeline: each advances one token per pass,
and a pass takes as long for one sequence as for as many as the pipeline holds. Beyond that,
sequences wait for each other. A draft's tokens take pipeline slots like any others.

The time of a layer uses the WSE-3 decode constants (measured); what a region holds, how drafts fare
and what surrounds the wafers are assumptions, each one a parameter. Speeds of models without a
published row are good to about 30 % (dense) and 45 % (mixtures of experts). docs/engines.md.
"""

import functools
import math

import msgspec

from wafer_engine.batching.cost_model import EngineLimits, StepShape
from wafer_engine.batching.speculation import NO_SPECULATION, Speculation
from wafer_engine.hardware.constants import (
    SERVICE_CONSTANTS,
    ServiceConstants,
    WaferConstants,
    constants_of,
)
from wafer_engine.hardware.model_config import model_named
from wafer_engine.hardware.models import ModelShape
from wafer_engine.hardware.placement import place
from wafer_engine.hardware.spec import WSE3, WaferSpec, find_wafer

ALLREDUCES_DENSE = 10  # per layer, in the measured code
ALLREDUCES_MOE = 12  # assumed: two more to dispatch to experts and gather from them
ALLREDUCES_HEAD = 2  # the final norm's and the output product's, as `transformer.py` does them
WEIGHT_FRACTION = 0.85  # of SRAM that weights may fill; assumed
DRAFTED_PARAMS = 20e9  # smaller models, which one CS-3 holds (published), run without a draft
LINK_LATENCY_US = 1.0  # per crossing between wafers; assumed, no published figure

# Published at 1,400-1,500 tokens/s (Cerebras, 2025); computed here, at 1,024 tokens of context:
# 1,147 on the 13 wafers its weights take, 1,127 on the 14 that also hold a window of 131,072
# tokens. Not among the rows that anything was fitted to.
DEFAULT_MODEL = "Qwen3-235B-A22B"


_placed = functools.lru_cache(maxsize=256)(place)


def wafers_needed(
    model: ModelShape,
    weight_bits: float = 16.0,
    wafer: WaferSpec = WSE3,
    kv_bits: float = 16.0,
    kv_tokens: int = 0,
) -> int:
    """Returns how many wafers the service is assumed to give a model.

    As many as hold its weights with `WEIGHT_FRACTION` of their SRAM, and no fewer than its layers
    can be placed on whole, beside `kv_tokens` of KV cache.
    """
    by_bytes = math.ceil(model.weight_bytes(weight_bits) / (wafer.sram_bytes * WEIGHT_FRACTION))
    bits = {"weight_bits": weight_bits, "kv_bits": kv_bits}
    return max(by_bytes, _placed(model, wafer=wafer, kv_tokens=kv_tokens, **bits).num_wafers)


def published_speculation(
    model: ModelShape, service: ServiceConstants = SERVICE_CONSTANTS
) -> Speculation:
    """Returns the draft that the hosted service is assumed to use for a model.

    A small model runs without: the published Llama-3.1-8B speed needs none.
    """
    if model.num_params < DRAFTED_PARAMS:
        return NO_SPECULATION
    acceptance = service.acceptance_moe if model.moe else service.acceptance_dense
    return Speculation(service.draft_tokens, acceptance)


def _check_positive(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and not 0 < number < math.inf:
            raise ValueError(f"{name} {number:g}: expected a number above 0")


def check_not_negative(**numbers: float | None) -> None:
    """Raises ValueError for the first negative or infinite number; None passes."""
    for name, number in numbers.items():
        if number is not None and not 0 <= number < math.inf:
            raise ValueError(f"{name} {number:g}: expected 0 or more")


class WaferCost:
    """Computes the wafer engine's costs, for one model on as many wafers as it needs.

    Satisfies `wafer_engine.batching.cost_model.CostModel`.
    """

    def __init__(
        self,
        model: str | ModelShape = DEFAULT_MODEL,
        *,
        wafer: str | WaferSpec = WSE3,
        num_wafers: int | None = None,  # None: `wafers_needed`
        weight_bits: float = 16.0,  # 16, 8 or 4
        kv_bits: float = 16.0,
        kv_tokens: int = 0,  # KV cache to hold at least, where `num_wafers` is not given
        speculation: Speculation | None = None,  # None: the hosted service's assumed draft
        attention_window_tokens: int | None = None,  # sparse: any layer attends to at most
        max_num_seqs: int | None = None,  # None: as run at full speed; with more, each is slower
        max_num_batched_tokens: int = 2048,  # prompt tokens computed in one step at most
        long_prefill_tokens: int = 256,  # of them for long prompts, beside others; 0: no limit
        overhead_us: float | None = None,  # arrival to first scheduling; None: the fitted one
        link_latency_us: float = LINK_LATENCY_US,
        clock_hz: float | None = None,
        constants: WaferConstants | None = None,
        service: ServiceConstants = SERVICE_CONSTANTS,
    ) -> None:
        """Lays the model out and derives what a step costs.

        Fewer weight bits need fewer wafers, so fewer cores share a layer: shorter allreduces,
        longer products; arithmetic stays 16 bits wide (assumed). With an attention window the whole
        KV cache is kept, and steps count the window in full from the first token. Raises ValueError
        for an unknown model or wafer, a number out of range, a window wider than the KV cache, or a
        model that does not fit on `num_wafers` (by how much).
        """
        self.model = model_named(model) if isinstance(model, str) else model
        self.wafer = find_wafer(wafer) if isinstance(wafer, str) else wafer
        _check_positive(num_wafers=num_wafers, clock_hz=clock_hz, window=attention_window_tokens)
        _check_positive(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
        check_not_negative(long_prefill_tokens=long_prefill_tokens)
        check_not_negative(link_latency_us=link_latency_us, overhead_us=overhead_us)
        if clock_hz is not None:
            self.wafer = msgspec.structs.replace(self.wafer, clock_hz=clock_hz)
        bits = {"weight_bits": weight_bits, "kv_bits": kv_bits}
        self.num_wafers = num_wafers or wafers_needed(
            self.model, wafer=self.wafer, kv_tokens=kv_tokens, **bits
        )
        placed = _placed(self.model, wafer=self.wafer, num_wafers=self.num_wafers, **bits)
        self.speculation = speculation or published_speculation(self.model, service)
        self._window_tokens = attention_window_tokens or 0
        self._span = self.model.attention_span(attention_window_tokens)
        if self._window_tokens > placed.kv_tokens:
            raise ValueError(
                f"attention window of {self._window_tokens:,} tokens: no context reaches it, the "
                f"KV cache holds {placed.kv_tokens:,}"
            )
        self._fit = (constants or constants_of(self.wafer.name)).decode
        self._link_latency_us = link_latency_us
        self._derive_times()
        self.limits = EngineLimits(
            max_num_seqs=max_num_seqs or self._pipeline_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            long_prefill_tokens=long_prefill_tokens,
            kv_capacity_tokens=placed.kv_tokens,
            overhead_us=round(service.overhead_us if overhead_us is None else overhead_us),
            max_checked_tokens=self.model.num_layers,  # what the pipeline's places hold
        )

    def _derive_times(self) -> None:
        model, fit, wafer = self.model, self._fit, self.wafer
        layer_cores = min(self.num_wafers * wafer.num_cores / model.num_layers, wafer.num_cores)
        region_side = math.sqrt(layer_cores)
        mac_us = wafer.cycles_to_us(fit.mac / layer_cores)
        allreduce_us = wafer.cycles_to_us(fit.allreduce + fit.hop * region_side)
        num_moe = model.moe.num_layers if model.moe else 0
        num_allreduces = ALLREDUCES_DENSE * (model.num_layers - num_moe) + ALLREDUCES_HEAD
        num_allreduces += ALLREDUCES_MOE * num_moe
        fixed_tokens, context_fraction = self._span
        # Vector starts, as in `kernels.Tiling.vectors_per_row`: what bounds the WSE-2.
        start_us = wafer.cycles_to_us(fit.start / region_side)
        starts_us = start_us * (7 * model.hidden + model.active_ffn)
        pair_us = mac_us * model.attention_macs_per_pair + start_us
        crossing_us = model.hidden * 2 / wafer.io_bytes_per_s * 1e6 + self._link_latency_us
        self._pass_us = (
            mac_us * model.matmul_params
            + model.num_layers * starts_us
            + num_allreduces * allreduce_us
            + (self.num_wafers - 1) * crossing_us
            + model.num_layers * pair_us * fixed_tokens
        )
        # What a token of a window that the context does not yet fill is counted with.
        sliding = model.sliding_layers / model.num_layers
        self._unused_token_us = model.num_layers * pair_us * (1.0 - sliding)
        self._pass_per_token_us = model.num_layers * pair_us * context_fraction
        # A prompt's tokens stream through the resident weights; successive tokens overlap their
        # allreduces, so a layer's products alone bound the rate (assumed; agrees with the hosted
        # service's TTFT at two prompt lengths).
        self._prefill_token_us = (
            mac_us * model.layer_active_params + starts_us + pair_us * fixed_tokens
        )
        self._prefill_pair_us = pair_us * context_fraction
        draft = self.speculation
        self._pipeline_seqs = max(1, model.num_layers // (draft.draft_tokens + 1))
        latency = 1.0 + draft.draft_tokens * (1.0 / model.num_layers + draft.draft_cost)
        self._latency_passes = latency / draft.tokens_per_pass
        self._occupancy_passes = (draft.draft_tokens + 1) / model.num_layers / draft.tokens_per_pass

    def full_speed_seqs(self, context_tokens: int) -> int:
        """Returns how many sequences of a context run at full speed; 0 if not even one fits."""
        block = self.limits.kv_block_tokens
        blocks_each = -(-max(context_tokens, 1) // block)
        fit = self.limits.kv_capacity_tokens // block // blocks_each
        return min(self.limits.max_num_seqs, self._pipeline_seqs, fit)

    def pass_us(self, context_tokens: float) -> float:
        """Returns the time of one token through all layers, before any draft's gain."""
        return self._pass_us + self._pass_per_token_us * context_tokens

    def tokens_per_s(self, context_tokens: float, num_seqs: int = 1) -> float:
        """Returns the output speed of each of `num_seqs` sequences at a context length.

        A window counts as far as the context goes; an engine's affine steps cannot model that.
        """
        step_us = self.step_us(StepShape(num_seqs, round(num_seqs * context_tokens)))
        unused_us = max(0.0, self._window_tokens - context_tokens) * self._unused_token_us
        return 1e6 / (step_us - unused_us * self._decode_factor(num_seqs))

    @property
    def power_w(self) -> float:
        """Returns the rated power of the whole machine."""
        return self.wafer.power_w * self.num_wafers

    def joules_per_token(self, context_tokens: float, num_seqs: int = 1) -> float:
        """Returns the energy of one output token, with all systems at rated power."""
        system_tokens_per_s = num_seqs * self.tokens_per_s(context_tokens, num_seqs)
        return self.power_w / system_tokens_per_s

    def _decode_factor(self, num_seqs: int) -> float:
        """Returns the passes per output token: a draft's latency, or the full pipeline."""
        occupied = num_seqs * self._occupancy_passes
        return occupied if occupied > self._latency_passes else self._latency_passes

    def step_us(self, shape: StepShape) -> float:
        """Returns a step's duration: the pass's latency, or the pipeline's work if that is longer.

        Prompt tokens fill slots that decoding leaves free before they slow it. Predicted tokens
        follow their sequence's own through the pipeline, a slot each, in place of a draft's.
        """
        num_seqs = shape.num_decode_seqs
        prefill_us = (
            shape.num_prefill_tokens * self._prefill_token_us
            + shape.num_prefill_pairs * self._prefill_pair_us
        )
        if num_seqs == 0:
            return self._pass_us + prefill_us
        pass_us = self._pass_us + self._pass_per_token_us * (shape.sum_context_tokens / num_seqs)
        occupied = num_seqs * self._occupancy_passes
        decode_us = pass_us * self._decode_factor(num_seqs)
        if shape.num_checked_tokens:
            checked = shape.num_checked_tokens / self.model.num_layers
            occupied = num_seqs / self.model.num_layers + checked
            decode_us = pass_us * max(1.0 + checked / num_seqs, occupied)
        if not prefill_us:
            return decode_us
        return max(decode_us, pass_us * occupied + prefill_us)

    def growth_us(self, num_decode_seqs: int) -> float:
        """Returns how much a decode step grows per token of context that each sequence gains."""
        return self._pass_per_token_us * self._decode_factor(num_decode_seqs)
