"""Decides which sequences run in the next step, and with how many tokens: continuous batching.

Running sequences come first: each decoding one gets a token, then prompts under way get chunks of
the rest of the step's token budget. Waiting sequences are admitted first come, first served,
until one does not fit; it needs KV blocks for its whole prompt. An engine may keep prompts with
much left to a part of the step beside others, so that short ones need not wait for them. When the
decoding sequences have no block left to grow into, the last admitted one is preempted: its KV is
dropped and, once it is admitted again, computed anew. A step that preempts admits no sequence.

A decoding sequence with a prediction may have a block of it checked in a step: with what is kept
of the block it gets several tokens. Such a step is one of its own, and blocks get only what the
others leave of the token budget and of the KV cache.

Warm-ups (sequences without output) take nothing from the others: no slot in the batch, and only
the rest of a step in which no sequence waits and no prompt is computed. One warm-up at a time
holds KV blocks, until another sequence needs them; its computed prefix is kept as long as it fits.

The scheduler has no clock. `plan` decides what runs, and the engine calls `complete` after that.
"""

from collections import OrderedDict

import msgspec

from wafer_engine.batching.cost_model import EngineLimits, StepShape
from wafer_engine.batching.decode_batch import DecodeBatch
from wafer_engine.batching.kv_cache import KvCache
from wafer_engine.batching.sequence import Sequence, SequenceStatus

# Prompt tokens of warm-ups in one step: on an idle engine as many as a newcomer may wait for (60 ms
# on the GPU engine, 2 ms on the wafer); beside decoding sequences so few that their tokens hardly
# come later (by a quarter on the GPU engine beside one of them, not at all on the wafer). Computed
# from the default cost models, 2026-11.
IDLE_WARM_TOKENS = 512
BESIDE_WARM_TOKENS = 64


class ScheduledStep(msgspec.Struct, frozen=True, gc=False):
    """Is the next step, or a run of equal ones."""

    shape: StepShape  # of the first step
    max_steps: int  # how many such steps may follow one another; 1 if it prefills or preempted
    chunks: tuple[tuple[Sequence, int], ...]  # sequence, prompt tokens computed for it
    preempted: tuple[Sequence, ...]
    checks: tuple[tuple[Sequence, int], ...] = ()  # sequence, predicted tokens checked for it


class Scheduler:
    """Holds the waiting and the running sequences, and the KV cache that they share."""

    def __init__(self, limits: EngineLimits) -> None:
        if limits.max_num_batched_tokens <= limits.max_num_seqs:
            raise ValueError(
                "max_num_batched_tokens must exceed max_num_seqs, or prompts starve: "
                f"got {limits.max_num_batched_tokens} and {limits.max_num_seqs}"
            )
        self.limits = limits
        self.kv = KvCache(limits.kv_capacity_tokens, limits.kv_block_tokens)
        self.batch = DecodeBatch(limits.kv_block_tokens)
        self.waiting: OrderedDict[int, Sequence] = OrderedDict()
        self.running: dict[int, Sequence] = {}  # in order of admission
        self._prefilling: dict[int, Sequence] = {}  # those of the running, in the same order
        self._predicted: dict[int, Sequence] = {}  # those decoding that have a prediction
        self.warming: OrderedDict[int, Sequence] = OrderedDict()  # the first may hold KV
        self.num_preemptions = 0
        self.num_prompt_tokens = 0  # admitted so far, cached ones included
        self.num_cached_tokens = 0
        self.num_generated_tokens = 0

    def check_fits(self, sequence: Sequence) -> None:
        """Raises ValueError for a sequence whose prompt and output exceed the whole KV cache."""
        num_tokens = sequence.num_prompt_tokens + sequence.num_output_tokens
        capacity_tokens = self.kv.num_blocks * self.kv.block_tokens
        if num_tokens > capacity_tokens:
            raise ValueError(f"{num_tokens} tokens exceed the KV cache's {capacity_tokens}")

    def enqueue(self, sequence: Sequence) -> None:
        queue = self.warming if sequence.is_warm_up else self.waiting
        queue[sequence.id] = sequence
        sequence.prefill_tokens = sequence.num_prompt_tokens

    @property
    def admits_newcomer(self) -> bool:
        """Returns whether a new sequence might be admitted before the batch changes."""
        return not self.waiting and len(self.running) < self.limits.max_num_seqs

    def plan(self) -> ScheduledStep | None:
        """Decides the next step; None if there is no work.

        There is always progress: every sequence fits into the KV cache alone (`check_fits`), so the
        first one running never has to be preempted, nor the first one waiting refused.
        """
        batch, kv = self.batch, self.kv
        preempted: list[Sequence] = []
        if batch.num_seqs > kv.available_blocks:  # else there are enough: none begins more than one
            preempted = self._preempt_for_growth()
        chunks: list[tuple[Sequence, int]] = []
        if self._prefilling or self.waiting:
            chunks = self._prefill_chunks(admit=not preempted)
        if self.warming and not chunks and not preempted:
            chunks = self._warm_chunk()
        checks = self._checks(chunks) if self._predicted else []
        if not chunks and not checks:
            if not batch.num_seqs:
                return None
            max_steps = 1 if preempted else batch.steps_ahead(kv.available_blocks)
            for sequence in self._predicted.values():
                assert sequence.prediction is not None
                next_block = sequence.prediction.plain_steps(batch.generated(sequence))
                max_steps = min(max_steps, next_block)
            shape = StepShape(batch.num_seqs, batch.sum_context_tokens)
            return ScheduledStep(shape, max_steps, (), tuple(preempted))
        num_tokens = num_pairs = num_checked = num_checked_pairs = 0
        for sequence, chunk in chunks:
            num_tokens += chunk
            # Each token attends to all before it and to itself.
            num_pairs += chunk * sequence.num_computed + chunk * (chunk + 1) // 2
        for sequence, block in checks:
            num_checked += block
            num_checked_pairs += block * (batch.kv_tokens(sequence) + 1) + block * (block + 1) // 2
        shape = StepShape(
            batch.num_seqs,
            batch.sum_context_tokens,
            num_tokens,
            num_pairs,
            num_checked,
            num_checked_pairs,
        )
        return ScheduledStep(shape, 1, tuple(chunks), tuple(preempted), tuple(checks))

    def complete(
        self, step: ScheduledStep, num_steps: int
    ) -> tuple[list[Sequence], list[Sequence]]:
        """Accounts for steps of this plan that have run.

        Returns the sequences that got their first token, and those that now have all of theirs; a
        sequence may be in both.
        """
        batch = self.batch
        if batch.num_seqs:
            num_blocks = batch.blocks_for(num_steps)
            if num_blocks:
                self.kv.take(num_blocks)
            self.num_generated_tokens += batch.num_seqs * num_steps
        finished = batch.advance(num_steps)
        if step.checks:
            finished += [checked for checked, block in step.checks if self._check(checked, block)]
        for sequence in finished:
            self._release(sequence, finished=True)
            sequence.status = SequenceStatus.FINISHED
        started: list[Sequence] = []
        for sequence, num_tokens in step.chunks:
            if sequence.status is not SequenceStatus.PREFILLING:
                continue  # cancelled meanwhile
            sequence.num_computed += num_tokens
            if sequence.num_computed < sequence.prefill_tokens:
                continue
            is_last = self._end_prefill(sequence)
            if self.warming and sequence.is_warm_up:
                del self.warming[sequence.id]
            if sequence.num_generated == 1:
                started.append(sequence)
            if is_last:
                finished.append(sequence)
        return started, finished

    def remove(self, sequence: Sequence) -> None:
        """Drops a sequence that was cancelled and settles its `num_generated`."""
        if sequence.is_warm_up:
            if self.warming.pop(sequence.id, None) is not None:
                self._suspend(sequence)
        elif sequence.status is SequenceStatus.WAITING:
            del self.waiting[sequence.id]
        elif sequence.status is not SequenceStatus.FINISHED:
            self._release(sequence)
        sequence.status = SequenceStatus.FINISHED

    def _preempt_for_growth(self) -> list[Sequence]:
        preempted: list[Sequence] = []
        while self.batch.blocks_for_next > self.kv.available_blocks:
            if self._warm_up_yields():
                continue
            sequence = next(reversed(self.running.values()))
            self._release(sequence)
            sequence.status = SequenceStatus.WAITING
            sequence.prefill_tokens = sequence.num_prompt_tokens + sequence.num_generated
            sequence.num_preemptions += 1
            self.num_preemptions += 1
            self.waiting[sequence.id] = sequence
            self.waiting.move_to_end(sequence.id, last=False)
            preempted.append(sequence)
        return preempted

    def _prefill_chunks(self, admit: bool) -> list[tuple[Sequence, int]]:
        budget = self.limits.max_num_batched_tokens - self.batch.num_seqs
        limit = self.limits.long_prefill_tokens
        if limit:
            return self._shared_chunks(budget, limit, admit)
        chunks: list[tuple[Sequence, int]] = []
        for sequence in self._prefilling.values():
            if budget == 0:
                return chunks
            budget -= self._add_chunk(chunks, sequence, budget)
        while admit and budget and self.waiting and self._admit_first():
            budget -= self._add_chunk(chunks, next(reversed(self.running.values())), budget)
        return chunks

    def _shared_chunks(self, budget: int, limit: int, admit: bool) -> list[tuple[Sequence, int]]:
        """Shares a step between short prompts and long ones: neither waits for the other."""
        while admit and self.waiting and self._admit_first():
            pass
        short: list[Sequence] = []
        long: list[Sequence] = []
        for sequence in self._prefilling.values():
            left = sequence.prefill_tokens - sequence.num_computed
            (long if left > limit else short).append(sequence)
        for_long = budget
        if short or self.batch.num_seqs:
            for_long = min(limit, max(1, budget // 2))
        chunks: list[tuple[Sequence, int]] = []
        budget -= for_long if long else 0
        for group, left in ((short, budget), (long, for_long)):
            for sequence in group:
                if left == 0:
                    break
                left -= self._add_chunk(chunks, sequence, left)
        return chunks

    def _add_chunk(
        self, chunks: list[tuple[Sequence, int]], sequence: Sequence, budget: int
    ) -> int:
        chunk = min(budget, sequence.prefill_tokens - sequence.num_computed)
        chunks.append((sequence, chunk))
        return chunk

    def _admit_first(self) -> bool:
        if len(self.running) >= self.limits.max_num_seqs:
            return False
        sequence = next(iter(self.waiting.values()))
        while not self._take_blocks(sequence):
            if not self._warm_up_yields():
                return False
        del self.waiting[sequence.id]
        self.running[sequence.id] = self._prefilling[sequence.id] = sequence
        return True

    def _take_blocks(self, sequence: Sequence) -> bool:
        """Begins a sequence's prefill, on the longest kept prefix, if its whole prompt has room."""
        kv = self.kv
        kept = kv.find(reversed(sequence.prefix)) if sequence.prefix else None
        num_blocks = kv.blocks(sequence.prefill_tokens, kept)
        if num_blocks + self.batch.blocks_for_next > kv.available_if_pinned(kept):
            return False
        kv.pin(kept)
        kv.take(num_blocks)
        sequence.kept = kept
        # The last token must be computed in any case: the next one is sampled from it.
        sequence.num_computed = min(kv.reusable_tokens(kept), sequence.prefill_tokens - 1)
        if sequence.num_preemptions == 0:
            sequence.num_cached_tokens = sequence.num_computed
            self.num_prompt_tokens += sequence.num_prompt_tokens
            self.num_cached_tokens += sequence.num_cached_tokens
        sequence.status = SequenceStatus.PREFILLING
        return True

    def _checks(self, chunks: list[tuple[Sequence, int]]) -> list[tuple[Sequence, int]]:
        """Returns the predicted tokens to check in a step beside these chunks, by sequence."""
        batch, limits = self.batch, self.limits
        left = limits.max_num_batched_tokens - sum(chunk for _, chunk in chunks)
        share = (min(left, limits.max_checked_tokens) - batch.num_seqs) // len(self._predicted)
        spare_blocks = self.kv.available_blocks - batch.blocks_for_next
        checks = []
        for sequence in self._predicted.values():
            assert sequence.prediction is not None
            block = min(share, sequence.prediction.block_at(batch.generated(sequence)))
            if block <= 0:
                continue
            num_blocks = self._blocks_between(sequence, batch.kv_tokens(sequence) + 1, block)
            if num_blocks <= spare_blocks:
                spare_blocks -= num_blocks
                checks.append((sequence, block))
        return checks

    def _check(self, sequence: Sequence, block: int) -> bool:
        """Adds what is kept of a block to a sequence that has had its token of this step.

        Returns whether it has all of its tokens now.
        """
        if sequence.status is not SequenceStatus.DECODING:
            return False  # cancelled meanwhile
        assert sequence.prediction is not None
        batch = self.batch
        num_kept = sequence.prediction.check(batch.generated(sequence) - 1, block)
        if num_kept:
            self.kv.take(self._blocks_between(sequence, batch.kv_tokens(sequence), num_kept))
            batch.remove(sequence)
            sequence.num_generated += num_kept
            self.num_generated_tokens += num_kept
            batch.join(sequence)
        return batch.generated(sequence) == sequence.num_output_tokens

    def _blocks_between(self, sequence: Sequence, kv_tokens: int, num_more: int) -> int:
        kv, kept = self.kv, sequence.kept
        return kv.blocks(kv_tokens + num_more, kept) - kv.blocks(kv_tokens, kept)

    def _warm_chunk(self) -> list[tuple[Sequence, int]]:
        """Returns the warm-up's chunk that fits into a step without other prompts."""
        if self.waiting:
            return []
        sequence = next(iter(self.warming.values()))
        if sequence.status is SequenceStatus.WAITING and not self._take_blocks(sequence):
            return []
        num_decoding = self.batch.num_seqs
        limit = BESIDE_WARM_TOKENS if num_decoding else IDLE_WARM_TOKENS
        limit = min(limit, self.limits.max_num_batched_tokens - num_decoding)
        return [(sequence, min(limit, sequence.prefill_tokens - sequence.num_computed))]

    def _warm_up_yields(self) -> bool:
        """Frees the KV of the warm-up that holds any; it continues once there is room again."""
        sequence = next(iter(self.warming.values()), None)
        if sequence is None or sequence.status is not SequenceStatus.PREFILLING:
            return False
        self._suspend(sequence)
        sequence.num_preemptions += 1
        return True

    def _suspend(self, sequence: Sequence) -> None:
        """Frees a warm-up's blocks; its computed prefix is kept for as long as there is room."""
        if sequence.status is SequenceStatus.PREFILLING:
            whole = [entry for entry in sequence.prefix if entry[1] <= sequence.num_computed]
            computed = sequence.prefix[: len(whole) + 1]  # the last of them in part
            if sequence.num_computed >= self.kv.block_tokens:
                sequence.kept = self.kv.keep(sequence.kept, computed, sequence.num_computed)
            self._release_kv(sequence, sequence.prefill_tokens, finished=False)
        sequence.status = SequenceStatus.WAITING

    def _end_prefill(self, sequence: Sequence) -> bool:
        """Gives a sequence the first token after its prompt; returns whether it was the last."""
        if not sequence.is_warm_up:
            del self._prefilling[sequence.id]
            sequence.num_generated += 1
            self.num_generated_tokens += 1
        if sequence.prefix:
            sequence.kept = self.kv.keep(sequence.kept, sequence.prefix, sequence.num_prompt_tokens)
        if sequence.num_generated < sequence.num_output_tokens:
            self.batch.join(sequence)
            if sequence.prediction is not None:
                self._predicted[sequence.id] = sequence
            return False
        self._release_kv(sequence, sequence.prefill_tokens, finished=True)
        self.running.pop(sequence.id, None)  # a warm-up never was among them
        sequence.status = SequenceStatus.FINISHED
        return True

    def _release(self, sequence: Sequence, *, finished: bool = False) -> None:
        if sequence.status is SequenceStatus.DECODING:
            self.batch.remove(sequence)
            kv_tokens = sequence.num_prompt_tokens + sequence.num_generated - 1  # not the newest
            if sequence.prediction is not None:
                self._predicted.pop(sequence.id, None)
        else:
            kv_tokens = sequence.prefill_tokens  # its blocks were taken at admission
            del self._prefilling[sequence.id]
        self._release_kv(sequence, kv_tokens, finished=finished)
        del self.running[sequence.id]

    def _release_kv(self, sequence: Sequence, kv_tokens: int, *, finished: bool) -> None:
        kv = self.kv
        if finished and sequence.end_prefix is not None:
            sequence.kept = kv.keep(sequence.kept, (sequence.end_prefix,), kv_tokens)
        kv.release(kv.blocks(kv_tokens, sequence.kept))
        kv.unpin(sequence.kept)
        sequence.kept = None
