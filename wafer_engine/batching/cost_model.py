"""Defines what one engine step computes, and the cost model that says how long that takes.

The engine decides *what* runs in a step; a `CostModel` says *how long* it takes. The wafer and the
GPU differ in nothing else.
"""

from typing import Protocol

import msgspec


class StepShape(msgspec.Struct, frozen=True, gc=False):
    """The work of one engine step, as far as its duration depends on it."""

    num_decode_seqs: int  # sequences that get one token each
    sum_context_tokens: int  # tokens those sequences attend to, the one fed in included, summed
    num_prefill_tokens: int = 0  # prompt tokens computed in this step, over all sequences
    num_prefill_pairs: int = 0  # (query, key) pairs those prompt tokens attend to, summed


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can hold and do at most."""

    max_num_seqs: int  # sequences in the running batch
    max_num_batched_tokens: int  # decode and prefill tokens in one step
    kv_capacity_tokens: int  # KV cache, in tokens
    kv_block_tokens: int = 16  # tokens per KV block, the unit of allocation and of prefix reuse
    overhead_us: int = 0  # from a sequence's arrival until the scheduler first sees it


class CostModel(Protocol):
    """How long the steps of one engine take.

    A pure-decode step must be affine in `sum_context_tokens` for a fixed number of sequences. The
    engine relies on it: q consecutive decode steps, all contexts growing by one token each time,
    take `q * t + growth * q * (q - 1) / 2` microseconds, where `t` is the first one's duration.
    """

    @property
    def limits(self) -> EngineLimits: ...

    def step_us(self, shape: StepShape) -> float:
        """Duration of one step in microseconds, above zero."""
        ...

    def growth_us(self, num_decode_seqs: int) -> float:
        """By how much each further pure-decode step is longer than the one before it, in us.

        Equals `step_us` of `sum_context_tokens + num_decode_seqs` less `step_us` of
        `sum_context_tokens`, whatever `sum_context_tokens` is; never negative.
        """
        ...
