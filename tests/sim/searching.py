"""Searches histories for one that breaks an invariant, and makes what it finds short."""

from collections.abc import Callable
from typing import get_args

import hypothesis
import hypothesis.strategies as st

from router.pools.memory_pools import MemoryPools
from tests.sim.histories import (
    NUM_GATEWAYS,
    ROUTES,
    TENANTS,
    Arrive,
    Break,
    Crash,
    Event,
    Fault,
    Leave,
    Release,
    Step,
    ViolatedError,
    Wait,
    played,
)

MAX_EVENTS = 24  # of a history

_GATEWAY = st.integers(0, NUM_GATEWAYS - 1)
_ARRIVE = st.builds(
    Arrive,
    _GATEWAY,
    st.integers(0, len(TENANTS) - 1),
    st.integers(0, len(ROUTES) - 1),
    st.integers(1, 2_000),
    st.integers(0, 6_000),
    st.integers(1, 60_000),
)
_WAIT = st.builds(Wait, st.integers(1, 45_000))
EVENTS: st.SearchStrategy[Event] = st.one_of(
    _ARRIVE,
    _ARRIVE,  # twice as often: without tasks nothing happens
    _WAIT,
    st.builds(Break, st.sampled_from(get_args(Fault)), st.integers(1, 4)),
    st.builds(Crash, _GATEWAY),
    st.builds(Release, _GATEWAY),
    st.builds(Leave, _GATEWAY),
    st.builds(Step, st.sampled_from((-60_000, -1_000, 1_000, 60_000))),
)
HISTORIES = st.lists(EVENTS, max_size=MAX_EVENTS)


class FoundError(Exception):
    """Is a history that breaks an invariant, as short as it could be made."""

    def __init__(self, events: list[Event], why: str, number: int) -> None:
        super().__init__(f"after {number} histories: {why}\n" + "\n".join(map(repr, events)))
        self.events = events
        self.number = number  # of histories until the first that broke one


def search(number: int, seed: int, make: Callable[[], MemoryPools | None] = lambda: None) -> None:
    """Plays so many histories of a seed on pools that `make` makes; raises `FoundError`."""
    num_played = first = 0
    last: tuple[list[Event], str] = ([], "")

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=number,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(HISTORIES)
    def one(events: list[Event]) -> None:
        nonlocal num_played, first, last
        num_played += 1
        try:
            played(events, make())
        except ViolatedError as error:
            first = first or num_played
            last = (list(events), str(error))
            raise

    try:
        one()
    except ViolatedError:
        raise FoundError(*last, first) from None
