"""Defines the work of one engine step, and the cost model that computes its duration.

The engine decides *what* runs in a step; a `CostModel` computes *how long* it takes. The wafer and
the GPU differ in nothing else.
"""

from typing import Protocol

import msgspec


class StepShape(msgspec.Struct, frozen=True, gc=False):
    """Is the work of one engine step, as far as its duration depends on it."""

    num_decode_seqs: int  # sequences that get one token each
    sum_context_tokens: int  # tokens those sequences attend to, the one fed in included, summed
    num_prefill_tokens: int = 0  # prompt tokens computed in this step, over all sequences
    num_prefill_pairs: int = 0  # (query, key) pairs those prompt tokens attend to, summed
    num_checked_tokens: int = 0  # predicted tokens computed beside those sequences' own, summed
    num_checked_pairs: int = 0  # pairs that they attend to; their context is read once already


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the limits of an engine."""

    max_num_seqs: int  # sequences in the running batch
    max_num_batched_tokens: int  # decode and prefill tokens in one step
    kv_capacity_tokens: int  # KV cache, in tokens
    kv_block_tokens: int = 16  # tokens per KV block, the unit of allocation and of prefix reuse
    overhead_us: int = 0  # from a sequence's arrival until the scheduler first sees it
    # Prompt tokens in one step for all prompts together that have more than so many left, where
    # anybody else runs or waits; 0: they take the whole step, and others come after them.
    long_prefill_tokens: int = 0
    # Decoding and predicted tokens together in a step that checks predictions: with more, the
    # others in the batch would wait for what is checked.
    max_checked_tokens: int = 64


class CostModel(Protocol):
    """Computes how long an engine's steps take.

    A pure-decode step must be affine in `sum_context_tokens` for a fixed number of sequences. The
    engine relies on it: q consecutive decode steps, all contexts growing by one token each time,
    take `q * t + growth * q * (q - 1) / 2` microseconds, where `t` is the first one's duration.
    """

    @property
    def limits(self) -> EngineLimits: ...

    def step_us(self, shape: StepShape) -> float:
        """Returns one step's duration in microseconds, above zero."""
        ...

    def growth_us(self, num_decode_seqs: int) -> float:
        """Returns by how many microseconds each pure-decode step is longer than the one before it.

        Equals `step_us` of `sum_context_tokens + num_decode_seqs` less `step_us` of
        `sum_context_tokens`, whatever `sum_context_tokens` is; never negative.
        """
        ...
