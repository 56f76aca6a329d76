"""Offers a small affine cost model for tests, every term of which is easy to compute by hand."""

from wafer_engine.batching.cost_model import EngineLimits, StepShape


class AffineCost:
    """Costs a fixed part, and so much per unit of each field of a step's shape, in microseconds."""

    def __init__(
        self,
        *,
        fixed_us: float = 1_000.0,
        seq_us: float = 0.0,
        context_us: float = 0.0,
        prefill_us: float = 0.0,
        pair_us: float = 0.0,
        checked_us: float = 0.0,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 256,
        kv_capacity_tokens: int = 16_000,
        overhead_us: int = 0,
        max_checked_tokens: int = 128,
        long_prefill_tokens: int = 0,
    ) -> None:
        self._terms = (fixed_us, seq_us, context_us, prefill_us, pair_us)
        self._checked_us = checked_us
        self.limits = EngineLimits(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            kv_capacity_tokens=kv_capacity_tokens,
            overhead_us=overhead_us,
            max_checked_tokens=max_checked_tokens,
            long_prefill_tokens=long_prefill_tokens,
        )

    def step_us(self, shape: StepShape) -> float:
        fixed, seq, context, prefill, pair = self._terms
        return (
            fixed
            + seq * shape.num_decode_seqs
            + context * shape.sum_context_tokens
            + prefill * shape.num_prefill_tokens
            + pair * shape.num_prefill_pairs
            + self._checked_us * shape.num_checked_tokens
        )

    def growth_us(self, num_decode_seqs: int) -> float:
        return self._terms[2] * num_decode_seqs
