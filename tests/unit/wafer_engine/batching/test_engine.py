"""Tests the engine, step by step, against times worked out by hand."""

import random

import pytest

from tests.unit.wafer_engine.affine_cost import AffineCost
from tests.unit.wafer_engine.batching.engine_rows import run_out, sequence
from wafer_engine.batching.engine import Engine
from wafer_engine.batching.predicted_text import PredictedText

PROMPT = ((101, 32), (102, 64))


def test_one_sequence_from_prompt_to_end() -> None:
    engine = Engine(AffineCost(fixed_us=1_000, prefill_us=10, context_us=1))
    one = sequence(1, 100, 4)
    engine.add(one, 5_000)
    # Prefill: 1,000 + 100 * 10. Then three steps over contexts of 101, 102 and 103 tokens.
    assert run_out(engine) == [
        (1, 1, 7_000, False),
        (1, 3, 7_000 + 3_000 + 101 + 102 + 103, True),
    ]
    assert engine.next_event_us() is None
    stats = engine.stats()
    assert (stats.num_generated_tokens, stats.num_prompt_tokens) == (4, 100)
    assert (stats.num_running, stats.num_waiting, stats.kv_used_tokens) == (0, 0, 0)
    assert (one.arrived_us, one.scheduled_us, one.first_token_us) == (5_000, 5_000, 7_000)
    assert stats.busy_us == 2_000 + 3_000 + 101 + 102 + 103


def test_time_in_the_queue_is_no_time_of_the_engine() -> None:
    engine = Engine(AffineCost(max_num_seqs=1))
    first, second = sequence(1, 10, 3), sequence(2, 10, 1)
    engine.add(first, 0)
    engine.add(second, 0)
    ended_us = max(at_us for _, _, at_us, _ in run_out(engine))
    assert second.arrived_us == 0
    assert second.scheduled_us == ended_us - 1_000
    assert second.first_token_us == ended_us
    assert engine.stats().busy_us == ended_us


def test_sequences_share_the_time_of_their_steps() -> None:
    engine = Engine(AffineCost())
    both, longer = sequence(1, 10, 3), sequence(2, 10, 5)
    engine.add(both, 0)
    engine.add(longer, 0)
    late, cancelled = sequence(3, 10, 2), sequence(4, 10, 50)
    engine.add(late, 10_000)
    run_out(engine)
    engine.add(cancelled, 20_000)
    engine.cancel(4, 23_500)
    # A step of the first alone, two of both, three of the second alone.
    assert (both.share_us, longer.share_us) == (1_000 + 2 * 500, 2 * 500 + 3_000)
    assert (late.share_us, cancelled.share_us) == (2_000, 3_000)
    assert engine.stats().busy_us == 6_000 + 2_000 + 3_000


def test_a_preempted_sequence_has_no_share_of_the_steps_without_it() -> None:
    engine = Engine(AffineCost(kv_capacity_tokens=320, max_num_batched_tokens=64))
    sequences = [sequence(number, 10 + 7 * number, 90 - 5 * number) for number in range(12)]
    for each in sequences:
        engine.add(each, 1_500 * each.id)
    run_out(engine)
    stats = engine.stats()
    assert stats.num_preemptions > 5
    assert sum(each.share_us for each in sequences) == pytest.approx(stats.busy_us)


def test_a_single_token_is_start_and_finish_in_one_row() -> None:
    engine = Engine(AffineCost())
    engine.add(sequence(1, 10, 1), 0)
    assert run_out(engine) == [(1, 1, 1_000, True)]


def test_progress_sums_up_what_came_since() -> None:
    engine = Engine(AffineCost())
    engine.add(sequence(1, 10, 100), 0)
    assert engine.advance(999) == []
    assert engine.advance(3_500) == [(1, 1, 1_000, False), (1, 2, 3_000, False)]
    assert engine.advance(3_999) == []
    assert engine.advance(5_000, progress=False) == []
    assert engine.advance(6_000) == [(1, 3, 6_000, False)]


def test_prompts_are_computed_in_chunks_of_what_the_step_has_left() -> None:
    engine = Engine(AffineCost(prefill_us=1, max_num_batched_tokens=100))
    engine.add(sequence(1, 50, 100), 0)
    engine.add(sequence(2, 250, 2), 0)
    # First the first prompt alone. Then three steps with one decoding sequence and 99, 99 and 52
    # prompt tokens; the fourth token of the first comes with the second's first.
    assert engine.advance(1_050) == [(1, 1, 1_050, False)]
    at_us = 1_050 + 3_000 + 250
    assert engine.advance(at_us) == [(2, 1, at_us, False), (1, 3, at_us, False)]
    assert engine.advance(at_us + 1_000) == [
        (2, 1, at_us + 1_000, True),
        (1, 1, at_us + 1_000, False),
    ]


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    """Beside others long prompts share 40 tokens of a step; alone the first takes it all."""
    cost = AffineCost(prefill_us=10, max_num_batched_tokens=100, long_prefill_tokens=40)
    engine = Engine(cost)
    engine.add(sequence(1, 1_000, 1), 0)
    engine.add(sequence(2, 400, 1), 1)
    engine.add(sequence(3, 30, 2), 2)
    # The first step is the first prompt's. The second has 40 tokens of it and all of the third's,
    # the third step 40 beside the decoding one.
    second_us = 2_000 + 1_700
    third_us = second_us + 1_400
    assert engine.advance(third_us) == [(3, 1, second_us, False), (3, 1, third_us, True)]
    # Then long ones are alone, one after the other; the last 20 of the first count as short.
    first_us = third_us + 8 * 2_000 + 1_600
    assert run_out(engine) == [(1, 1, first_us, True), (2, 1, first_us + 3 * 2_000 + 1_600, True)]


def test_who_arrives_during_a_step_joins_after_it() -> None:
    engine = Engine(AffineCost())
    engine.add(sequence(1, 10, 10), 0)
    engine.add(sequence(2, 10, 10), 4_200)
    starts = {row[0]: row[2] for row in run_out(engine) if row[1] == 1}
    assert starts == {1: 1_000, 2: 6_000}


def test_overhead_delays_the_start_alone() -> None:
    engine = Engine(AffineCost(overhead_us=700))
    engine.add(sequence(1, 10, 3), 100)
    assert engine.next_event_us() == 800
    assert engine.num_waiting == 1
    assert run_out(engine) == [(1, 1, 1_800, False), (1, 2, 3_800, True)]


def test_no_more_run_than_allowed_and_first_come_is_first_served() -> None:
    engine = Engine(AffineCost(max_num_seqs=2))
    for number in range(5):
        engine.add(sequence(number, 10, 3), number)
    assert (engine.stats().num_running, engine.num_waiting) == (1, 4)
    engine.advance(1_500)
    assert (engine.stats().num_running, engine.num_waiting) == (2, 3)
    finished = [row[0] for row in run_out(engine) if row[3]]
    assert finished == [0, 1, 2, 3, 4]


def test_admission_stops_at_the_first_that_does_not_fit() -> None:
    engine = Engine(AffineCost(kv_capacity_tokens=160))
    engine.add(sequence(1, 60, 30), 0)
    engine.add(sequence(2, 100, 2), 10)  # needs 7 of the 6 blocks left
    engine.add(sequence(3, 10, 2), 20)  # would fit, but waits its turn
    order = [row[0] for row in run_out(engine) if row[1] == 1 and not row[3]]
    assert order == [1, 2, 3]


def test_what_can_never_fit_is_refused() -> None:
    engine = Engine(AffineCost(kv_capacity_tokens=160))
    with pytest.raises(ValueError, match="161 tokens exceed the KV cache's 160"):
        engine.add(sequence(1, 100, 61), 0)
    engine.add(sequence(1, 100, 60), 0)
    with pytest.raises(ValueError, match="sequence 1 is already here"):
        engine.add(sequence(1, 10, 10), 0)
    assert run_out(engine)[-1][3]


def test_the_last_admitted_is_preempted_and_computed_anew() -> None:
    engine = Engine(AffineCost(kv_capacity_tokens=96, prefill_us=1))
    first, second = sequence(1, 32, 40), sequence(2, 32, 20)
    engine.add(first, 0)
    engine.add(second, 0)
    found = run_out(engine)
    assert [row[0] for row in found if row[3]] == [1, 2]
    assert (first.num_preemptions, second.num_preemptions) == (0, 1)
    # Nothing is told twice or lost: the rows add up.
    for number, expected in ((1, 40), (2, 20)):
        assert sum(row[1] for row in found if row[0] == number) == expected
    assert engine.stats().kv_used_tokens == 0
    assert engine.stats().num_generated_tokens == 60


def test_a_kept_prefix_is_not_computed_again() -> None:
    engine = Engine(AffineCost(fixed_us=1_000, prefill_us=10))
    engine.add(sequence(1, 64, 1, prefix=PROMPT), 0)
    assert run_out(engine) == [(1, 1, 1_640, True)]
    again = sequence(2, 64, 1, prefix=PROMPT)
    engine.add(again, 10_000)
    # One token must be computed in any case: the next one is sampled from it.
    assert run_out(engine) == [(2, 1, 11_010, True)]
    assert again.num_cached_tokens == 63
    longer = sequence(3, 100, 1, prefix=(*PROMPT, (103, 100)))
    engine.add(longer, 20_000)
    assert run_out(engine) == [(3, 1, 21_360, True)]
    assert longer.num_cached_tokens == 64
    assert engine.stats().num_cached_tokens == 63 + 64


def test_the_next_turn_finds_prompt_and_answer() -> None:
    engine = Engine(AffineCost())
    engine.add(sequence(1, 64, 33, prefix=PROMPT, end_prefix=(777, 100)), 0)
    run_out(engine)
    turn = sequence(2, 130, 2, prefix=(*PROMPT, (777, 100), (778, 130)))
    engine.add(turn, 100_000)
    run_out(engine)
    assert turn.num_cached_tokens == 96  # 64 + 33 - 1 tokens have KV: 6 full blocks
    assert engine.stats().kv_used_tokens == 0


def test_prompts_shared_while_running() -> None:
    engine = Engine(AffineCost())
    engine.add(sequence(1, 64, 50, prefix=PROMPT), 0)
    engine.advance(2_000)
    second = sequence(2, 64, 50, prefix=PROMPT)
    engine.add(second, 2_000)
    engine.advance(5_000)
    assert second.num_cached_tokens == 63
    assert engine.stats().kv_used_tokens == (4 + 1 + 1) * 16  # the prompt once, one block each


@pytest.mark.parametrize("cancel_us", [0, 500, 1_000, 1_500, 3_000, 3_999])
def test_cancel_returns_what_was_generated_and_leaves_nothing(cancel_us: int) -> None:
    engine = Engine(AffineCost())
    engine.add(sequence(1, 10, 100, prefix=((1, 10),)), 0)
    assert engine.cancel(1, cancel_us) == cancel_us // 1_000
    assert engine.cancel(1, cancel_us) == 0
    assert run_out(engine) == []
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.kv_used_tokens) == (0, 0, 0)


def test_cancel_after_the_unseen_end_counts_all_tokens_and_reports_none() -> None:
    engine = Engine(AffineCost())
    engine.add(sequence(1, 10, 3), 0)
    engine.add(sequence(2, 10, 3), 0)
    assert engine.cancel(1, 60_000) == 3
    assert {row[0] for row in run_out(engine)} == {2}


def test_cancel_of_the_blocked_first_lets_the_next_in() -> None:
    engine = Engine(AffineCost(kv_capacity_tokens=160))
    engine.add(sequence(1, 60, 90), 0)
    engine.add(sequence(2, 100, 2), 10)
    engine.add(sequence(3, 10, 2), 20)
    assert engine.cancel(2, 4_500) == 0
    starts = {row[0]: row[2] for row in run_out(engine) if row[0] == 3}
    assert starts == {3: 7_000}  # let in at 5,000, started at 6,000, done at 7,000


def test_cancel_before_the_overhead_is_over() -> None:
    engine = Engine(AffineCost(overhead_us=10_000))
    engine.add(sequence(1, 10, 3), 0)
    assert engine.cancel(1, 5_000) == 0
    assert engine.next_event_us() is None
    assert engine.num_waiting == 0


def test_long_runs_of_odd_steps_do_not_drift() -> None:
    # A third of a microsecond more per step, a million steps, on a clock that reads years.
    start_us = 1_800_000_000_000_000
    engine = Engine(AffineCost(fixed_us=100 + 1 / 3, kv_capacity_tokens=2_000_000))
    engine.add(sequence(1, 10, 1_000_000), start_us)
    assert run_out(engine)[-1][2] - start_us == pytest.approx(100_333_334, abs=1)


def test_more_sequences_than_a_step_has_tokens_starve_prompts() -> None:
    with pytest.raises(ValueError, match="max_num_batched_tokens must exceed"):
        Engine(AffineCost(max_num_seqs=256, max_num_batched_tokens=256))


@pytest.mark.parametrize("seed", range(20))
def test_predictions_in_a_crowded_cache_end_once(seed: int) -> None:
    chance = random.Random(seed)
    engine = Engine(AffineCost(kv_capacity_tokens=256, max_num_batched_tokens=64))
    lengths = [chance.randint(1, 100) for _ in range(40)]
    for number, length in enumerate(lengths):
        answer = chance.choices("ab", k=length)
        predicted = [chance.choice("ab") if chance.random() < 0.15 else each for each in answer]
        prediction = PredictedText(answer, predicted)
        prompt = chance.randint(10, 90)
        engine.add(sequence(number, prompt, length, prediction=prediction), number * 3_000)
    found = run_out(engine)
    assert engine.stats().num_preemptions > 0
    assert sorted(row[0] for row in found if row[3]) == list(range(40))
    for number, length in enumerate(lengths):
        assert sum(row[1] for row in found if row[0] == number) == length
