"""The batch kept as sums must say what a batch kept sequence by sequence says."""

import random

import pytest

from wafer_engine.batching.decode_batch import DecodeBatch
from wafer_engine.batching.sequence import Sequence


def sequence(number: int, num_prompt_tokens: int, num_output_tokens: int) -> Sequence:
    """Returns a sequence whose first token has just come."""
    made = Sequence(
        id=number, num_prompt_tokens=num_prompt_tokens, num_output_tokens=num_output_tokens
    )
    made.num_generated = 1
    return made


def batch_of(*sequences: Sequence) -> DecodeBatch:
    batch = DecodeBatch(16)
    for each in sequences:
        batch.join(each)
    return batch


@pytest.mark.parametrize("seed", range(10))
def test_sums_agree_with_counting_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    block = chance.choice([1, 4, 16])
    batch = DecodeBatch(block)
    members: dict[int, Sequence] = {}
    for number in range(300):
        action = chance.random()
        if action < 0.4:
            made = sequence(number, chance.randint(1, 70), chance.randint(2, 90))
            members[number] = made
            batch.join(made)
        elif members and action < 0.5:
            left = members.pop(chance.choice(list(members)))
            generated = batch.generated(left)
            batch.remove(left)
            assert left.num_generated == generated, f"seed {seed}"
        elif members:
            steps = chance.randint(1, batch.steps_to_finish())
            expected = sum(
                -(-(batch.kv_tokens(m) + steps) // block) - -(-batch.kv_tokens(m) // block)
                for m in members.values()
            )
            assert batch.blocks_for(steps) == expected, f"seed {seed}"
            for finished in batch.advance(steps):
                assert batch.generated(finished) == finished.num_output_tokens, f"seed {seed}"
                batch.remove(members.pop(finished.id))
        contexts = [batch.kv_tokens(m) + 1 for m in members.values()]
        assert (batch.num_seqs, batch.sum_context_tokens) == (len(contexts), sum(contexts))


@pytest.mark.parametrize("seed", range(10))
def test_steps_within_is_the_most_that_fits(seed: int) -> None:
    chance = random.Random(seed)
    batch = DecodeBatch(16)
    for number in range(chance.randint(1, 20)):
        batch.join(sequence(number, chance.randint(1, 99), 10_000))
    for num_blocks in range(60):
        steps = batch.steps_within(num_blocks)
        assert batch.blocks_for(steps) <= num_blocks < batch.blocks_for(steps + 1), f"seed {seed}"


def test_a_sequence_that_left_does_not_finish() -> None:
    early, late = sequence(1, 5, 10), sequence(2, 5, 20)
    batch = batch_of(early, late)
    batch.remove(early)
    assert batch.steps_to_finish() == 19
    assert batch.advance(19) == [late]


def test_those_who_finish_together_come_in_order_of_joining() -> None:
    batch = batch_of(*(sequence(number, 5, 10) for number in (3, 1, 2)))
    assert [one.id for one in batch.advance(9)] == [3, 1, 2]


def test_who_leaves_and_comes_back_finishes_once() -> None:
    """A checked prediction brings the end nearer, and a preemption may put it off as far again."""
    one, other = sequence(1, 10, 20), sequence(2, 10, 40)
    batch = batch_of(one, other)
    batch.remove(one)
    one.num_generated += 5  # kept of a prediction
    batch.join(one)
    batch.remove(one)
    batch.advance(5)
    batch.join(one)
    assert batch.steps_to_finish() == 14
    assert batch.advance(14) == [one]
