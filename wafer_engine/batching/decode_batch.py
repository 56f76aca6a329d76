"""Keeps the decoding sequences of an engine as sums.

Every decoding sequence gets one token in every step, so its state follows from the step count.
Advancing by k steps therefore costs the same for any number of sequences and steps.
"""

from heapq import heappop, heappush

from wafer_engine.batching.sequence import Sequence, SequenceStatus


class DecodeBatch:
    """Holds the sequences in status DECODING, with their contexts and KV blocks summed."""

    def __init__(self, block_tokens: int) -> None:
        self.num_steps = 0  # since the engine's start; mixed steps included
        self.num_seqs = 0
        self.sum_context_tokens = 0  # attended to in the next step, the token fed in included
        self._block_tokens = block_tokens
        # How many sequences have KV tokens congruent to (index + num_steps) modulo the block size:
        # a sequence keeps its index while it decodes. Those at index -num_steps begin a block next.
        self._phases = [0] * block_tokens
        # (the step count at which the last token is due, order of joining, sequence); stale once
        # the sequence was removed, though it may be back, and due at that same step.
        self._finishes: list[tuple[int, int, Sequence]] = []
        self._num_joined = 0

    def generated(self, sequence: Sequence) -> int:
        return sequence.num_generated + self.num_steps - sequence.joined_step

    def kv_tokens(self, sequence: Sequence) -> int:
        """Returns the tokens of a sequence whose KV exists: all but the newest, fed next."""
        return sequence.num_prompt_tokens + self.generated(sequence) - 1

    def join(self, sequence: Sequence) -> None:
        """Adds a sequence that has just had a token from prefill and needs more."""
        sequence.status = SequenceStatus.DECODING
        sequence.joined_step = self.num_steps
        finish_step = self.num_steps + sequence.num_output_tokens - sequence.num_generated
        self._num_joined += 1
        sequence.join_number = self._num_joined
        heappush(self._finishes, (finish_step, self._num_joined, sequence))
        self._count(sequence.num_prompt_tokens + sequence.num_generated, 1)

    def remove(self, sequence: Sequence) -> None:
        """Removes a finished, cancelled or preempted sequence and settles its `num_generated`."""
        sequence.num_generated += self.num_steps - sequence.joined_step
        sequence.join_number = 0
        self._count(sequence.num_prompt_tokens + sequence.num_generated, -1)

    def _count(self, context_tokens: int, sign: int) -> None:
        self.num_seqs += sign
        self.sum_context_tokens += sign * context_tokens
        self._phases[(context_tokens - 1 - self.num_steps) % self._block_tokens] += sign

    @property
    def blocks_for_next(self) -> int:
        return self._phases[-self.num_steps % self._block_tokens]

    def blocks_for(self, num_steps: int) -> int:
        if not self.num_seqs:
            return 0
        if num_steps == 1:
            return self._phases[-self.num_steps % self._block_tokens]
        cycles, rest = divmod(num_steps, self._block_tokens)
        phases, last = self._phases, -self.num_steps % self._block_tokens
        first = last + 1 - rest  # below 0: the rest of them are at the end
        if first >= 0:
            return cycles * self.num_seqs + sum(phases[first : last + 1])
        return cycles * self.num_seqs + sum(phases[: last + 1]) + sum(phases[first:])

    def steps_ahead(self, num_blocks: int) -> int:
        """Returns the steps until a sequence finishes or KV blocks run out; there must be one."""
        to_finish = self.steps_to_finish()
        # Mostly there are enough blocks, as no sequence begins more than this.
        if self.num_seqs * (to_finish // self._block_tokens + 1) <= num_blocks:
            return to_finish
        return min(to_finish, self.steps_within(num_blocks))

    def steps_within(self, num_blocks: int) -> int:
        """Returns the most steps that take at most so many KV blocks; there must be a sequence."""
        cycles, left = divmod(num_blocks, self.num_seqs)
        for step in range(self._block_tokens):
            left -= self._phases[-(self.num_steps + step) % self._block_tokens]
            if left < 0:
                return cycles * self._block_tokens + step
        raise AssertionError("one cycle crosses num_seqs blocks, more than were left")

    def steps_to_finish(self) -> int:
        """Returns the steps until the next sequence finishes; there must be one."""
        finishes = self._finishes
        while finishes[0][1] != finishes[0][2].join_number:
            heappop(finishes)
        return finishes[0][0] - self.num_steps

    def advance(self, num_steps: int) -> list[Sequence]:
        """Runs steps; returns the sequences that now have all their tokens, in order of joining.

        They are still in the batch: `remove` them.
        """
        self.num_steps += num_steps
        self.sum_context_tokens += num_steps * self.num_seqs
        finished = []
        finishes, now_step = self._finishes, self.num_steps
        while finishes and finishes[0][0] <= now_step:
            _, number, sequence = heappop(finishes)
            if number == sequence.join_number:
                finished.append(sequence)
        return finished
