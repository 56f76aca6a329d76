"""Tests a predicted text, checked in blocks: what a step yields, and what it costs."""

import random

import pytest

from tests.unit.wafer_engine.affine_cost import AffineCost
from tests.unit.wafer_engine.batching.engine_rows import run_out, sequence
from wafer_engine.batching.engine import Engine
from wafer_engine.batching.predicted_text import FIRST_BLOCK, MAX_BLOCK, NEVER, PredictedText


def words(text: str) -> list[str]:
    return text.split()


def written(prediction: PredictedText, num_tokens: int) -> list[tuple[int, int]]:
    """Returns each step's (checked, yielded) after the first token, which a prompt's end yields."""
    steps, position = [], 1
    while position < num_tokens:
        block = prediction.block_at(position)
        kept = prediction.check(position, block) if block else 0
        steps.append((block, kept + 1))
        position += kept + 1
    assert position == num_tokens, "the last token is the model's own"
    return steps


def test_blocks_grow_while_they_are_kept_whole() -> None:
    answer = [str(number) for number in range(300)]
    prediction = PredictedText(answer, answer)
    steps = written(prediction, 300)
    assert steps == [(16, 17), (32, 33), (64, 65), (64, 65), (64, 65), (53, 54)]
    assert FIRST_BLOCK == 16
    assert max(checked for checked, _ in steps) == MAX_BLOCK
    assert (prediction.num_accepted, prediction.num_rejected) == (299, 0), "the first was not asked"


def test_a_wrong_prediction_is_left_after_a_few_steps() -> None:
    answer = [str(number) for number in range(300)]
    prediction = PredictedText(answer, ["x"] * 300)
    steps = written(prediction, 300)
    assert [checked for checked, _ in steps if checked] == [16, 8, 4, 2, 1]
    assert len(steps) == 299
    assert prediction.plain_steps(100) == NEVER - 100
    assert prediction.num_accepted == 0
    assert 0 < prediction.num_rejected <= 2 * FIRST_BLOCK


@pytest.mark.parametrize(
    ("answer", "predicted"),
    [
        ("a b c d e f g h i j k l", "a b X d e f g h i j k l"),  # another word
        ("a b c d e f g h i j k l", "a b c d f g h i j k l"),  # a word more
        ("a b c e f g h i j k l m", "a b c d e f g h i j k l m"),  # a word less
        ("a b c d e f g h i j k l", "v w x y z a b c d e f g h i j k l"),  # it begins later
    ],
)
def test_it_goes_on_where_the_texts_agree_again(answer: str, predicted: str) -> None:
    prediction = PredictedText(words(answer), words(predicted))
    steps = written(prediction, 12)
    assert len(steps) < 11, "some step yielded several"
    assert prediction.num_accepted >= 2


def test_what_comes_before_the_text_is_not_compared() -> None:
    answer = ["", "", "", "", *words("a b c d e f g h")]
    prediction = PredictedText(answer, words("a b c d e f g h"), start=4)
    assert prediction.block_at(1) == 0
    assert prediction.plain_steps(1) == 3
    assert prediction.block_at(4) == 7, "all but the last, which is the model's own"
    assert prediction.check(4, 7) == 7
    assert prediction.num_accepted == 8


def test_a_prediction_may_end_before_the_answer() -> None:
    answer = [str(number) for number in range(100)]
    prediction = PredictedText(answer, answer[:20])
    steps = written(prediction, 100)
    assert steps[:3] == [(16, 17), (2, 3), (0, 1)]
    assert prediction.num_accepted == 19


def predicted(acceptance: float, num_tokens: int, chance: random.Random) -> PredictedText:
    answer = [str(chance.randrange(500)) for _ in range(num_tokens)]
    guesses = [word if chance.random() < acceptance else "\0" for word in answer]
    return PredictedText(answer, guesses)


def test_steps_per_token_follow_the_acceptance() -> None:
    """Of independent tokens, each accepted with chance a, a block yields at most 1 / (1 - a)."""
    for acceptance, least, most in ((0.8, 4.2, 5.0), (0.5, 1.6, 2.0), (0.0, 1.0, 1.0)):
        prediction = predicted(acceptance, 4_000, random.Random(2))
        speed = 3_999 / len(written(prediction, 4_000))
        assert least <= speed <= most, acceptance
        # Of tokens that are often wrong some are not checked at all.
        assert 0.85 * acceptance <= prediction.num_accepted / 4_000 <= 1.05 * acceptance


def test_a_step_that_checks_is_one_of_its_own_and_costs_what_it_holds() -> None:
    cost = AffineCost(fixed_us=1_000.0, checked_us=10.0)
    engine = Engine(cost)
    answer = [str(number) for number in range(40)]
    engine.add(sequence(1, 8, 40, prediction=PredictedText(answer, answer)), 0)
    engine.add(sequence(2, 8, 4), 0)
    found = run_out(engine)
    # A prompt; the other's beside a block of 16; a block of all that is left but one.
    assert [row for row in found if row[3]] == [
        (1, 39, 1_000 + (1_000 + 160) + (1_000 + 210), True),
        (2, 3, 1_000 + (1_000 + 160) + (1_000 + 210) + 2_000, True),
    ]


def test_a_full_batch_is_not_slowed_by_what_is_checked() -> None:
    cost = AffineCost(max_num_seqs=8, checked_us=10.0, max_checked_tokens=8)
    engine = Engine(cost)
    answer = [str(number) for number in range(40)]
    engine.add(sequence(1, 8, 40), 0)
    for number in range(2, 9):
        engine.add(sequence(number, 8, 40, prediction=PredictedText(answer, answer)), 0)
    assert {row[2] for row in run_out(engine) if row[3]} == {40_000, 41_000}, "a step per token"


@pytest.mark.parametrize("seed", range(6))
def test_jumps_change_nothing_whatever_is_predicted_cancelled_or_preempted(seed: int) -> None:
    outcomes = []
    for max_run_steps in (2**31, 1):
        chance = random.Random(seed)
        cost = AffineCost(
            context_us=0.25, seq_us=3.0, checked_us=2.0, max_num_seqs=6, kv_capacity_tokens=1_600
        )
        engine = Engine(cost, max_run_steps=max_run_steps)
        found, now_us, wanted = [], 0, {}
        for number in range(1, 40):
            now_us += chance.randrange(40_000)
            num_tokens = chance.randrange(1, 200)
            wanted[number] = num_tokens
            prediction = predicted(chance.random(), num_tokens, chance)
            given = prediction if chance.random() < 0.7 else None
            num_prompt_tokens = chance.randrange(1, 300)
            asked = sequence(number, num_prompt_tokens, num_tokens, prediction=given)
            engine.add(asked, now_us)
            found += engine.advance(now_us, progress=False)
            if chance.random() < 0.2:
                gone = chance.randrange(1, number + 1)
                if gone in engine_ids(engine):
                    wanted[gone] = -engine.cancel(gone, now_us)
        found += run_out(engine)
        stats = engine.stats()
        assert (stats.num_running, stats.num_waiting, stats.kv_used_tokens) == (0, 0, 0)
        totals: dict[int, int] = {}
        for number, num_tokens, _, _ in found:
            totals[number] = totals.get(number, 0) + num_tokens
        for number, num_tokens in wanted.items():
            if num_tokens > 0:
                assert totals[number] == num_tokens, number
        outcomes.append((found, stats.num_generated_tokens, stats.num_preemptions))
    assert outcomes[0] == outcomes[1]
    if seed == 0:
        assert outcomes[0][2] > 0, "some were preempted"


def engine_ids(engine: Engine) -> set[int]:
    """Returns the sequences whose end was not fetched."""
    return set(engine._sequences)
