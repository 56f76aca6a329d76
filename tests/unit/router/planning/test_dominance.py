"""Tests which fleets do no better than another."""

import msgspec
import pytest

from router.backtest.arrivals import AnswerLength
from router.backtest.fleet import EngineMachine
from router.planning.capacity import capacity_of
from router.planning.dominance import Dominance
from router.planning.terms import Counts
from tests.unit.router.planning.scenes import server, traffic
from tests.unit.wafer_engine.affine_cost import AffineCost

KINDS = (
    server("wafer", "fast", 1.0, 10.0),
    server("big", "deep", 1.0, 5.0),
    server("small", "deep", 3.0, 2.0),
)


@pytest.mark.parametrize(
    ("counts", "other", "is_less"),
    [
        ((1, 2, 0), (1, 2, 0), True),
        ((1, 2, 0), (1, 3, 0), True),
        ((1, 3, 0), (1, 2, 0), False),
        ((1, 2, 0), (1, 2, 1), False),  # the slow one may be what does harm
        ((1, 0, 3), (1, 3, 0), True),  # as many, and slower
        ((1, 0, 4), (1, 3, 0), False),  # slower, but more sequences at once
        ((1, 1, 0), (1, 0, 5), False),  # fewer, but quicker
        ((1, 1, 4), (1, 3, 2), True),  # of the same kinds, less of what is quick
        ((1, 2, 1), (1, 1, 5), False),  # fewer, but quicker on the mean
        ((1, 0, 0), (1, 3, 0), False),  # without the group tasks go elsewhere
        ((2, 1, 0), (1, 3, 0), False),  # in one group it does better
    ],
)
def test_a_fleet_does_no_better_in_any_group(counts: Counts, other: Counts, is_less: bool) -> None:
    assert Dominance(KINDS).is_less(counts, other) == is_less


def test_prompts_beyond_one_step_take_several() -> None:
    """Of two such servers, that which computes more prompt tokens in a step does no less."""
    info, length = KINDS[1].machine.info, AnswerLength(10)
    asks = [
        msgspec.structs.replace(each, prompt_tokens=4_000, lengths=(("deep", length),))
        for each in traffic(0)
    ]
    small, large = (
        capacity_of(
            EngineMachine(
                info=info,
                cost=AffineCost(
                    prefill_us=20,
                    max_num_seqs=64,
                    max_num_batched_tokens=max_tokens,
                    kv_capacity_tokens=1_000_000,
                ),
            ),
            asks,
        )
        for max_tokens in (512, 8_192)
    )
    prompts_per_s = 1e6 / (20 * 4_000)
    assert small < large < 10 * prompts_per_s
    assert small > 0.9 * 10 * prompts_per_s * 512 * 20 / (512 * 20 + 1_000)


def test_the_weakest_group_counts() -> None:
    wafer, big, _ = (kind.capacity for kind in KINDS)
    assert Dominance(KINDS).least_capacity((3, 1, 0)) == min(3 * wafer, big)
    assert Dominance(KINDS).least_capacity((3, 0, 0)) == 0.0
