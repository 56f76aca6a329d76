"""Tests warm-ups: a prompt is computed and kept, and nobody else has to wait for it."""

import random

import pytest

from tests.unit.wafer_engine.affine_cost import AffineCost
from tests.unit.wafer_engine.batching.engine_rows import run_out, sequence
from wafer_engine.batching.engine import Engine
from wafer_engine.batching.scheduler import BESIDE_WARM_TOKENS, IDLE_WARM_TOKENS

LONG = 4 * IDLE_WARM_TOKENS
PROMPT = ((101, 600), (102, LONG))


def test_a_warm_up_leaves_its_prompt_and_nothing_else() -> None:
    engine = Engine(AffineCost(prefill_us=10, max_num_batched_tokens=1_024))
    engine.add(sequence(1, LONG, 0, prefix=PROMPT), 0)
    done_us = 4 * (1_000 + 10 * IDLE_WARM_TOKENS)
    assert run_out(engine) == [(1, 0, done_us, True)]
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_warming) == (0, 0, 0)
    assert (stats.kv_used_tokens, stats.num_generated_tokens) == (0, 0)
    # The next turn computes what it adds, and no more.
    engine.add(sequence(2, LONG + 32, 1, prefix=(*PROMPT, (103, LONG + 32))), done_us)
    assert run_out(engine) == [(2, 1, done_us + 1_000 + 320, True)]
    engine.add(sequence(3, LONG, 0, prefix=PROMPT), 1_000_000)
    assert run_out(engine) == [(3, 0, 1_001_010, True)], "it was warm: its last token only"


@pytest.mark.parametrize(("num_steps", "held"), [(0, 0), (1, IDLE_WARM_TOKENS), (3, 1_536)])
def test_what_was_computed_before_it_was_cut_stays(num_steps: int, held: int) -> None:
    engine = Engine(AffineCost(prefill_us=10, max_num_batched_tokens=1_024))
    step_us = 1_000 + 10 * IDLE_WARM_TOKENS
    warm = sequence(1, LONG, 0, prefix=PROMPT)
    engine.add(warm, 0)
    cut_us = num_steps * step_us + 500
    assert engine.cancel(1, cut_us) == 0
    assert warm.num_computed == held
    assert engine.stats().kv_used_tokens == 0
    turn = sequence(2, LONG, 2, prefix=PROMPT)
    engine.add(turn, cut_us)
    assert run_out(engine)[-1][3]
    assert turn.num_cached_tokens == held
    # Its own prefill has made the whole of what was there in part.
    again = sequence(3, LONG + 16, 1, prefix=(*PROMPT, (103, LONG + 16)))
    engine.add(again, 1_000_000)
    run_out(engine)
    assert again.num_cached_tokens == LONG


def test_who_comes_waits_for_the_step_under_way_at_most() -> None:
    engine = Engine(AffineCost(prefill_us=10, max_num_batched_tokens=1_024))
    step_us = 1_000 + 10 * IDLE_WARM_TOKENS
    engine.add(sequence(1, LONG, 0, prefix=PROMPT), 0)
    engine.add(sequence(2, 100, 3), 100)
    found = engine.advance(10**6)
    assert found[0] == (2, 1, step_us + 2_000, False)
    # Beside its second and third token only a little of the prompt is computed.
    beside_us = 1_000 + 10 * BESIDE_WARM_TOKENS
    assert found[1] == (2, 2, step_us + 2_000 + 2 * beside_us, True)
    assert found[2][0] == 1, "and then the warm-up goes on"


def test_it_takes_no_place_and_yields_its_memory() -> None:
    engine = Engine(AffineCost(max_num_seqs=2, kv_capacity_tokens=1_024))
    engine.add(sequence(1, 960, 0, prefix=((1, 960),)), 0)
    for number in (2, 3):
        engine.add(sequence(number, 400, 20), 100)
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_warming) == (0, 2, 1)
    engine.advance(3_000)
    assert engine.stats().num_running == 2, "both, although the warm-up had taken nearly all KV"
    assert engine.stats().num_preemptions == 0
    ends = [row[0] for row in run_out(engine) if row[3]]
    assert ends == [2, 3, 1]


def test_nobody_who_waits_is_overtaken() -> None:
    engine = Engine(AffineCost(max_num_seqs=1))
    engine.add(sequence(1, 10, 5), 0)
    engine.add(sequence(2, 1_000, 0, prefix=((1, 1_000),)), 10)
    engine.add(sequence(3, 10, 5), 20)
    assert [row[0] for row in run_out(engine) if row[3]] == [1, 3, 2]


@pytest.mark.parametrize("seed", range(8))
def test_random_use_keeps_the_books(seed: int) -> None:
    """Warm-ups, turns and cancels over tight memory: all that is not cancelled ends, once."""
    chance = random.Random(seed)
    engine = Engine(AffineCost(prefill_us=1, max_num_seqs=3, kv_capacity_tokens=2_048))
    kv = engine._scheduler.kv
    now_us, live, ended = 0, set(), []
    for number in range(1, 300):
        now_us += chance.choice([0, 400, 3_000, 40_000])
        ended += [row[0] for row in engine.advance(now_us) if row[3]]
        name = chance.randrange(6)
        size = 16 * chance.randrange(1, 50) + chance.randrange(3)
        ends = [*range(200, size, 200), size]
        prefix = tuple((1_000 * name + end, end) for end in ends)
        output = chance.choice([0, 0, 1, 30, 200])
        engine.add(sequence(number, size, output, prefix=prefix), now_us)
        live.add(number)
        if chance.random() < 0.3:
            gone = chance.choice(sorted(live))
            engine.cancel(gone, now_us)
            live.discard(gone)
        assert kv.live_blocks >= 0
        assert kv.live_blocks + kv.kept_blocks <= kv.num_blocks
        assert kv.live_blocks <= kv.pinned_blocks <= kv.live_blocks + kv.kept_blocks
    ended += [row[0] for row in run_out(engine) if row[3]]
    assert len(ended) == len(set(ended))
    assert live <= set(ended)
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_warming) == (0, 0, 0)
    assert kv.live_blocks == 0
    assert kv.pinned_blocks == 0
