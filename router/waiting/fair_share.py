"""Shares a capacity between tenants by weighted max-min fairness with floors and ceilings.

No tenant gets more than its demand or its ceiling. Floors come first, then water-filling by weight,
until the capacity or the demand is used up. If the floors alone exceed the capacity, they are
shared in the same way.
"""

from collections.abc import Mapping

import msgspec

_SCALE = 1 << 20  # steps of the water level per slot of weight 1


class ShareClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what one tenant claims of a capacity, in slots."""

    demand: int
    weight: int = 1  # at least 1
    floor: int = 0  # guaranteed, as far as there is demand
    ceiling: int | None = None


def water_fill(capacity: int, claims: Mapping[str, ShareClaim]) -> dict[str, int]:
    """Returns each tenant's whole slots, which use up the capacity or meet all demand."""
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
    # Less than one slot per tenant is left, for those with the fewest for their weight.
    thirsty = sorted(
        (name for name in claims if shares[name] < tops[name]),
        key=lambda name: ((shares[name] + 1) / weights[name], name),
    )
    for name in thirsty[: capacity - sum(shares.values())]:
        shares[name] += 1
    return shares


def stepped(before: int | None, wanted: int, max_step: float) -> int:
    """Moves a share towards `wanted` by at most `max_step` of it, but at least one slot."""
    if before is None:
        return wanted
    step = max(1, int(before * max_step))
    return max(before - step, min(before + step, wanted))
