"""Says which fleets do no better than another one, by what their servers can do at most.

A fleet is compared group by group. In each group it does no better if it has the same kinds of
servers and no more of any, or clearly less in all that counts: tokens per second, sequences at
once, and tokens per second of each sequence. A single slow server among quick ones may do harm,
so kinds are only left out of account where the slower fleet is the smaller one as well.
"""

from collections.abc import Sequence

import msgspec

from backends.contract import BackendGroup
from router.planning.terms import Counts, ServerKind

# A fleet with less than this share of another's capacity in a group does no better. It is assumed;
# where sequences at once did not count, three more of 312 objectives of 40 seeded traces were
# missed (2026-11).
CLEARLY_LESS = 0.9


class Dominance:
    """Compares fleets of these kinds of servers."""

    def __init__(self, kinds: Sequence[ServerKind]) -> None:
        self._of_group: dict[BackendGroup, list[int]] = {}  # indexes of a group's kinds
        for at, kind in enumerate(kinds):
            self._of_group.setdefault(kind.group, []).append(at)
        self._kinds = kinds
        self._parts: dict[Counts, tuple[_Part, ...]] = {}
        self._known: dict[tuple[_Part, _Part], bool] = {}  # there are few: each in many fleets

    def is_less(self, counts: Counts, other: Counts) -> bool:
        """Returns whether a fleet does no better than another one; it does not by itself."""
        for mine, theirs in zip(self._parts_of(counts), self._parts_of(other), strict=True):
            key = mine, theirs
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = _is_less(mine, theirs)
            if not known:
                return False
        return True

    def least_capacity(self, counts: Counts) -> float:
        """Returns what the weakest of a fleet's groups makes at most, in tokens per second."""
        return min(part.capacity for part in self._parts_of(counts))

    def _parts_of(self, counts: Counts) -> "tuple[_Part, ...]":
        parts = self._parts.get(counts)
        if parts is None:
            parts = self._parts[counts] = tuple(
                self._part(tuple(counts[at] for at in places), places)
                for places in self._of_group.values()
            )
        return parts

    def _part(self, counts: Counts, places: Sequence[int]) -> "_Part":
        kinds = [self._kinds[at] for at in places]
        numbers = list(zip(counts, kinds, strict=True))
        return _Part(
            counts,
            sum(number * kind.capacity for number, kind in numbers),
            sum(number * kind.machine.cost.limits.max_num_seqs for number, kind in numbers),
        )


class _Part(msgspec.Struct, frozen=True):
    """Holds the servers of one group."""

    counts: Counts  # of the group's kinds
    capacity: float  # output tokens per second at most
    num_seqs: int  # at once


def _is_less(part: _Part, other: _Part) -> bool:
    if same_kinds(part.counts, other.counts):
        if within(part.counts, other.counts):
            return True
    elif not any(part.counts) or not any(other.counts):
        return False  # without the group tasks go elsewhere
    return (
        part.capacity <= CLEARLY_LESS * other.capacity
        and part.num_seqs <= other.num_seqs
        and part.capacity * other.num_seqs <= other.capacity * part.num_seqs
    )


def within(small: Counts, large: Counts) -> bool:
    """Returns whether a fleet has no more servers of any kind than another."""
    return all(one <= other for one, other in zip(small, large, strict=True))


def same_kinds(one: Counts, other: Counts) -> bool:
    """Returns whether two fleets have servers of the same kinds: a slow kind may do harm."""
    return kinds_in(one) == kinds_in(other)


def kinds_in(counts: Counts) -> tuple[bool, ...]:
    """Says of each kind whether a fleet has it."""
    return tuple([number > 0 for number in counts])
