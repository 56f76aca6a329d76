"""Defines a sequence: one generation as the engine sees it, in counts alone."""

import enum

import msgspec

from wafer_engine.batching.kv_cache import KeptPrefix
from wafer_engine.batching.predicted_text import PredictedText


class SequenceStatus(enum.IntEnum):
    """Says which stage a sequence is in; preemption takes it from running back to WAITING."""

    WAITING = 0
    PREFILLING = 1  # running; its prompt is not yet computed
    DECODING = 2  # running; one token per step
    FINISHED = 3


class Sequence(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """Is one generation: the caller's request, then the engine's state of it.

    The caller holds the text, so it knows `num_output_tokens`. A sequence without output is a
    warm-up: its prompt is computed and kept. Prefix entries are (hash of the prompt so far, its
    tokens), shortest first.
    """

    id: int  # unique among the engine's live sequences
    num_prompt_tokens: int  # at least 1
    num_output_tokens: int  # 0: a warm-up
    prefix: tuple[tuple[int, int], ...] = ()
    end_prefix: tuple[int, int] | None = None  # prompt and output, as a prefix of the next turn
    prediction: PredictedText | None = None  # of its output; it holds the state of its checks, too

    # The fields from here on are the engine's own.
    status: SequenceStatus = SequenceStatus.WAITING
    num_cached_tokens: int = 0  # of the prompt, found in the KV cache when first admitted
    num_generated: int = 0  # while decoding, as of step `joined_step`
    num_reported: int = 0  # generated tokens that were reported
    num_preemptions: int = 0
    prefill_tokens: int = 0  # to compute before the next token: prompt, and output if preempted
    num_computed: int = 0  # of those
    joined_step: int = 0  # the decode batch's step count when it joined
    join_number: int = 0  # of its joining of that batch, in the order of all; 0: it is not in it
    arrived_us: int = 0  # when it was added
    scheduled_us: int = -1  # when its first prompt chunk began; -1: not yet
    first_token_us: int = -1  # when its first token, or a warm-up's end, came out; -1: not yet
    # Its part of the engine's time: of each step that it was in, divided by the sequences in it.
    # While it runs, what the engine had counted when it came is taken off, so it is negative.
    share_us: float = 0.0
    kept: KeptPrefix | None = None  # the kept prefix that it pins; its other KV is its own

    @property
    def is_warm_up(self) -> bool:
        return self.num_output_tokens == 0
