"""Shares of a capacity between tenants: weighted max-min with floors and ceilings, pure.

Nobody gets more than it asks or than its ceiling. Floors come first; what is left rises like water
in vessels as wide as their weights. Nothing is left over while anybody could use it. If the floors
alone are more than there is, they are what is shared, in the same way.
"""

from collections.abc import Mapping

import msgspec

_SCALE = 1 << 20  # steps of the water level per slot of weight 1


class ShareClaim(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant wants of a capacity, in slots."""

    demand: int
    weight: int = 1  # at least 1
    floor: int = 0  # guaranteed, as far as it is asked for
    ceiling: int | None = None


def water_fill(capacity: int, claims: Mapping[str, ShareClaim]) -> dict[str, int]:
    """Each tenant's slots: whole numbers whose sum is all there is, or all that is wanted."""
    tops = {
        name: max(0, claim.demand if claim.ceiling is None else min(claim.demand, claim.ceiling))
        for name, claim in claims.items()
    }
    floors = {name: min(max(0, claim.floor), tops[name]) for name, claim in claims.items()}
    if sum(floors.values()) > capacity:
        floors, tops = dict.fromkeys(claims, 0), floors
    weights = {name: claim.weight for name, claim in claims.items()}
    if sum(tops.values()) <= capacity:
        return tops

    def filled(level: int) -> dict[str, int]:
        return {
            name: max(floors[name], min(tops[name], level * weights[name] // _SCALE))
            for name in claims
        }

    low, high = 0, _SCALE * (max(tops.values(), default=0) + 1)
    while high - low > 1:  # at `low` it fits, at `high` it does not
        middle = (low + high) // 2
        if sum(filled(middle).values()) <= capacity:
            low = middle
        else:
            high = middle
    shares = filled(low)
    # Less than one slot per tenant is left: to those who have least for their weight.
    thirsty = sorted(
        (name for name in claims if shares[name] < tops[name]),
        key=lambda name: ((shares[name] + 1) / weights[name], name),
    )
    for name in thirsty[: capacity - sum(shares.values())]:
        shares[name] += 1
    return shares


def stepped(before: int | None, wanted: int, max_step: float) -> int:
    """The next step from one share to another: at most that part of it, at least one slot."""
    if before is None:
        return wanted
    step = max(1, int(before * max_step))
    return max(before - step, min(before + step, wanted))
