"""Tests packed records: they come out as they were put in, in any order, in little memory."""

import pickle
import random

import pytest

from router.agent_runs.run_state import RunState
from router.backtest.arrivals import AnswerLength, Arrival, Seen
from router.backtest.packed import BLOCK, MAX_DECODED, Packed
from router.classify.agent import Agent
from router.classify.task import Hints, Route

NUM_BLOCKS = 2 * MAX_DECODED + 1


def arrival(number: int) -> Arrival:
    """Returns one with something in every kind of field."""
    return Arrival(
        id=f"resp_{number:048x}",
        at_us=1_750_000_000_000_000 + number,
        tenant="studio",
        prompt_tokens=number + 1,
        shares={"seed": 0.25},
        hints=Hints(
            route=Route.FAST,
            strategy_options={"hedge_after_ms": 5, "judge": True},
            agent=Agent(turn_id="t"),
        ),
        run=RunState(stuck=True, signs=("a test failed",)),
        seen=Seen(0.5, 3, 0.1, ("words",)),
        prefix=((2**64 - 1 - number, 7),),
        end_prefix=(number, 9),
        p_deep=random.Random(number).random(),
        lengths=(("fast", AnswerLength(3, 1)),),
        rounds=(1, 2),
    )


def test_what_is_read_is_what_was_put_in() -> None:
    given = [arrival(number) for number in range(NUM_BLOCKS * BLOCK + 5)]
    packed = Packed(Arrival, given)
    assert len(packed) == len(given)
    assert list(packed) == given
    assert packed[-1] == given[-1]
    assert packed[BLOCK - 1 : BLOCK + 1] == given[BLOCK - 1 : BLOCK + 1]
    for place in random.Random(1).sample(range(len(given)), 100):
        assert packed[place] == given[place]
    with pytest.raises(IndexError):
        packed[len(given)]
    assert list(pickle.loads(pickle.dumps(packed))) == given


def test_they_take_little_memory() -> None:
    packed = Packed(Arrival, map(arrival, range(NUM_BLOCKS * BLOCK)))
    num_bytes = sum(map(len, packed._blocks)) / len(packed)
    assert num_bytes < 100, "the object itself has more than a kilobyte"
    for _ in packed:
        pass
    for place in range(0, len(packed), BLOCK):
        packed[place]
    assert len(packed._decoded) == MAX_DECODED
