"""Tests weighted max-min: all is used, floors hold, nobody is richer at another's cost."""

import random

import pytest

from router.waiting.fair_share import ShareClaim, stepped, water_fill

CASES: list[tuple[int, dict[str, ShareClaim], dict[str, int]]] = [
    (10, {}, {}),
    (10, {"a": ShareClaim(demand=4)}, {"a": 4}),
    (10, {"a": ShareClaim(demand=40)}, {"a": 10}),
    (10, {"a": ShareClaim(demand=40), "b": ShareClaim(demand=40)}, {"a": 5, "b": 5}),
    (10, {"a": ShareClaim(demand=2), "b": ShareClaim(demand=40)}, {"a": 2, "b": 8}),
    (12, {"a": ShareClaim(demand=40, weight=3), "b": ShareClaim(demand=40)}, {"a": 9, "b": 3}),
    (10, {"a": ShareClaim(demand=40, ceiling=3), "b": ShareClaim(demand=40)}, {"a": 3, "b": 7}),
    (10, {"a": ShareClaim(demand=40), "b": ShareClaim(demand=40, floor=8)}, {"a": 2, "b": 8}),
    (10, {"a": ShareClaim(demand=40), "b": ShareClaim(demand=1, floor=8)}, {"a": 9, "b": 1}),
    (4, {"a": ShareClaim(demand=9, floor=6), "b": ShareClaim(demand=9, floor=6)}, {"a": 2, "b": 2}),
    (0, {"a": ShareClaim(demand=9, floor=6)}, {"a": 0}),
    (3, {"a": ShareClaim(demand=2), "b": ShareClaim(demand=2)}, {"a": 2, "b": 1}),
]


@pytest.mark.parametrize(("capacity", "claims", "shares"), CASES)
def test_shares(capacity: int, claims: dict[str, ShareClaim], shares: dict[str, int]) -> None:
    assert water_fill(capacity, claims) == shares


@pytest.mark.parametrize("seed", range(200))
def test_what_holds_for_all_claims(seed: int) -> None:
    chance = random.Random(seed)
    capacity = chance.randrange(200)
    claims = {
        f"t{n}": ShareClaim(
            demand=chance.randrange(60),
            weight=chance.choice([1, 1, 2, 3, 10, 1_000]),
            floor=chance.choice([0, 0, 1, 5]),
            ceiling=chance.choice([None, None, 8, 30]),
        )
        for n in range(chance.randrange(1, 25))
    }
    shares = water_fill(capacity, claims)
    tops = {
        name: min(claim.demand, claim.demand if claim.ceiling is None else claim.ceiling)
        for name, claim in claims.items()
    }
    floors = {name: min(claim.floor, tops[name]) for name, claim in claims.items()}
    assert all(0 <= shares[name] <= tops[name] for name in claims)
    if sum(floors.values()) <= capacity:
        assert sum(shares.values()) == min(capacity, sum(tops.values())), "work-conserving"
        assert all(shares[name] >= floors[name] for name in claims), "nobody below its floor"
        wanting = [name for name in claims if shares[name] < tops[name]]
        rich = [name for name in claims if shares[name] > floors[name]]
        for poor in wanting:
            for other in rich:
                # Moving one place from the other to the poor would not make the poorest richer.
                least = (shares[poor] + 1) / claims[poor].weight
                assert shares[other] / claims[other].weight <= least + 1e-9
    else:
        assert sum(shares.values()) == capacity
        assert all(shares[name] <= floors[name] for name in claims)


@pytest.mark.parametrize(
    ("before", "wanted", "share"),
    [(None, 9, 9), (8, 9, 9), (8, 100, 10), (8, 0, 6), (1, 0, 0), (0, 9, 1), (2, 2, 2)],
)
def test_steps_are_bounded(before: int | None, wanted: int, share: int) -> None:
    assert stepped(before, wanted, 0.25) == share
