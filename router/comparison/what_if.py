"""Changes a back-test's traffic and policies: more tasks, and rules that a log cannot test."""

from collections.abc import Sequence

import msgspec

from backends.script.chance import Chance
from router.backtest.arrivals import Arrival
from router.backtest.packed import Packed
from router.policy.policy import Policy, Rule

MAX_SCALE = 20.0
SPREAD_US = 5_000_000  # within which a copy of a task comes before or after it
_PARTS = 1_000_000


class Untestable(msgspec.Struct, frozen=True):
    """Names a rule that a log has not enough for, and why."""

    rule: str
    why: str


def scaled(arrivals: Sequence[Arrival], scale: float, seed: int = 0) -> Sequence[Arrival]:
    """Returns so many times the traffic, from the same tasks at neighbouring times.

    A copy is another user's: it shares no more of a prompt than its head. Below 1, tasks are left
    out. Raises ValueError beyond `MAX_SCALE`.
    """
    if not 0 < scale <= MAX_SCALE:
        raise ValueError(f"scale {scale:g}: expected a number above 0, up to {MAX_SCALE:g}")
    if scale == 1:
        return arrivals
    places: dict[tuple[int, int], int] = {}
    rows: list[tuple[int, int, int]] = []  # when, which, which copy
    roots: list[str] = []  # the first task of each conversation goes for all of it
    for index, arrival in enumerate(arrivals):
        roots.append(arrival.id if arrival.follows < 0 else roots[arrival.follows])
        chance = Chance(seed, roots[index], "scale")
        num_copies = int(scale) + (chance.below(_PARTS) < (scale - int(scale)) * _PARTS)
        for number in range(num_copies):
            shift_us = 0 if number == 0 else chance.below(2 * SPREAD_US) - SPREAD_US
            rows.append((arrival.at_us + shift_us, index, number))
    rows.sort()
    for place, (_, index, number) in enumerate(rows):
        places[index, number] = place
    found = Packed(Arrival)
    for at_us, index, number in rows:
        arrival = arrivals[index]
        found.append(_copy(arrival, at_us, number, places.get((arrival.follows, number), -1)))
    return found


def _copy(arrival: Arrival, at_us: int, number: int, follows: int) -> Arrival:
    if number == 0:
        return msgspec.structs.replace(arrival, follows=follows)
    salt = Chance("copy", number).below(1 << 31) << 16
    head, rest = arrival.prefix[:1], arrival.prefix[1:]
    end = arrival.end_prefix
    return msgspec.structs.replace(
        arrival,
        id=f"{arrival.id}~{number}",
        at_us=at_us,
        conversation=f"{arrival.conversation}~{number}",
        prefix=(*head, *((hashed ^ salt, tokens) for hashed, tokens in rest)),
        end_prefix=None if end is None else (end[0] ^ salt, end[1]),
        follows=follows,
    )


def without_untestable(
    policy: Policy, *, has_text: bool, metadata_names: frozenset[str]
) -> tuple[Policy, tuple[Untestable, ...]]:
    """Returns the policy without the rules that the log cannot test, and names those.

    `metadata_names` are the keys of requests' metadata that the log has.
    """
    found = {
        rule.name: why
        for _, rule in policy.all_rules()
        if rule.enabled and (why := _obstacle(rule, has_text, metadata_names))
    }
    if not found:
        return policy, ()
    tenants = {
        name: msgspec.structs.replace(own, rules=_without(own.rules, found))
        for name, own in policy.tenants.items()
    }
    kept = msgspec.structs.replace(policy, rules=_without(policy.rules, found), tenants=tenants)
    return kept, tuple(Untestable(rule, why) for rule, why in found.items())


def _obstacle(rule: Rule, has_text: bool, metadata_names: frozenset[str]) -> str:
    for _, when in rule.when.walk():
        if when.words is not None and not has_text:
            return "it goes by words, and the log has none (record_text)"
        unknown = sorted((when.metadata or {}).keys() - metadata_names)
        if unknown:
            return f"it goes by metadata {', '.join(unknown)}, which the log does not have"
    return ""


def _without(rules: Sequence[Rule], names: dict[str, str]) -> tuple[Rule, ...]:
    return tuple(
        msgspec.structs.replace(rule, enabled=False) if rule.name in names else rule
        for rule in rules
    )
