"""Tests who is next: first in, first out within a tenant, fair by weight between them."""

import random
from collections import Counter

import pytest

from router.waiting.fair_queue import MAX_LINES_KEPT, Block, FairQueue, Waiter

S = 1_000_000
SHORT = Block(wait_us=5 * S, unit="tokens", per_min=60)
FULL = Block(wait_us=S, unit="concurrent")


def waiter(name: str, *, weight: int = 1, tokens: int = 10, joined_us: int = 0) -> Waiter:
    """`a3` is the task 3 of the tenant a."""
    return Waiter(
        id=name,
        tenant_id=name[0],
        weight=weight,
        tokens=tokens,
        joined_us=joined_us,
        until_us=joined_us + 60 * S,
    )


def queue(*waiters: Waiter) -> FairQueue:
    made = FairQueue(1_000, 1_000)
    for each in waiters:
        made.join(each)
    return made


def drain(fair: FairQueue, now_us: int = 1, most: int = 10_000) -> list[str]:
    """Serve everybody that can be served now, in order."""
    order: list[str] = []
    while len(order) < most and (each := fair.next(now_us)) is not None:
        fair.served(each, now_us)
        order.append(each.id)
    return order


ORDERS: dict[str, tuple[list[Waiter], list[str]]] = {
    "nobody": ([], []),
    "one tenant, in order": (
        [waiter("a1"), waiter("a2", tokens=1), waiter("a3")],
        ["a1", "a2", "a3"],
    ),
    "two tenants take turns": (
        [waiter(f"a{n}") for n in range(3)]
        + [waiter("b0", joined_us=1), waiter("b1", joined_us=1)],
        ["a0", "b0", "a1", "b1", "a2"],
    ),
    "by tokens, not by tasks": (
        [waiter("a0", tokens=30), waiter("a1", tokens=30)]
        + [waiter(f"b{n}", joined_us=1) for n in range(6)],
        ["a0", "b0", "b1", "b2", "a1", "b3", "b4", "b5"],
    ),
    "twice the weight, twice the tokens": (
        [waiter(f"a{n}", weight=2) for n in range(4)]
        + [waiter(f"b{n}", joined_us=1) for n in range(2)],
        ["a0", "b0", "a1", "a2", "b1", "a3"],
    ),
}


@pytest.mark.parametrize("case", ORDERS)
def test_orders(case: str) -> None:
    waiters, order = ORDERS[case]
    assert drain(queue(*waiters)) == order


def test_a_blocked_line_lets_the_others_go_on() -> None:
    fair = queue(waiter("a1"), waiter("a2"), waiter("b1", joined_us=1), waiter("b2", joined_us=1))
    first = fair.next(0)
    assert first is not None
    assert first.id == "a1"
    fair.put_back(first, SHORT, 0)
    assert drain(fair) == ["b1", "b2"]
    assert fair.next(5 * S - 1) is None
    assert fair.wake_us() == 5 * S
    assert drain(fair, 5 * S) == ["a1", "a2"]
    assert fair.wake_us() is None


def test_idling_saves_up_no_claim() -> None:
    fair = queue(*(waiter(f"a{n}") for n in range(20)))
    drain(fair, most=10)
    for n in range(5):
        fair.join(waiter(f"b{n}", joined_us=1))
    assert Counter(name[0] for name in drain(fair, most=8)) == {"a": 4, "b": 4}


def test_a_held_group_takes_nothing_until_something_ends() -> None:
    fair = queue(waiter("a1"), waiter("b1"))
    fair.hold(10 * S)
    assert fair.next(0) is None
    assert fair.wake_us() == 10 * S
    assert fair.released("somebody", S)
    assert len(drain(fair, S)) == 2


def test_an_end_lets_its_own_tenant_try_again() -> None:
    fair = FairQueue(10, 10)
    fair.join(waiter("a1"), FULL)
    fair.join(waiter("b1"), SHORT)
    assert fair.next(0) is None
    assert not fair.released("b", 1), "tokens do not come back with a place"
    assert fair.released("a", 1)
    assert drain(fair, 1) == ["a1"]


def test_bounds() -> None:
    fair = FairQueue(3, 2)
    for name in ("a1", "a2"):
        assert fair.has_room("a")
        fair.join(waiter(name))
    assert not fair.has_room("a")
    assert fair.has_room("b")
    fair.join(waiter("b1"))
    assert not fair.has_room("c")
    assert fair.remove("a1", 0)
    assert fair.has_room("a")
    assert not fair.remove("a1", 0)


def test_whoever_leaves_first_in_line_lets_the_next_try() -> None:
    fair = FairQueue(10, 10)
    fair.join(waiter("a1", tokens=1_000), SHORT)
    fair.join(waiter("a2", tokens=1))
    assert fair.next(S) is None
    fair.remove("a1", S)
    assert drain(fair, S) == ["a2"]


def test_who_has_waited_long_enough() -> None:
    fair = queue(waiter("a1"), waiter("b1", joined_us=S))
    assert fair.expired(60 * S - 1) == []
    assert [each.id for each in fair.expired(60 * S)] == ["a1"]
    fair.hold(100 * S)
    assert fair.wake_us() == 60 * S


@pytest.mark.parametrize(
    ("block", "tokens", "expected_s"),
    [
        (Block(wait_us=5 * S, unit="tokens", per_min=60), 10, [5, 5 + 10, 5 + 20]),
        (Block(wait_us=2 * S, unit="requests", per_min=30), 10, [2, 4, 6]),
        (Block(wait_us=S, unit="concurrent"), 10, [1, 2, 3]),  # a second each, until it is known
    ],
)
def test_what_a_client_is_told(block: Block, tokens: int, expected_s: list[int]) -> None:
    fair = FairQueue(10, 10)
    waiters = [waiter(f"a{n}", tokens=tokens) for n in range(3)]
    for each in waiters:
        fair.join(each, block)
    fair.join(waiter("b0", joined_us=1), SHORT)
    positions = fair.positions(0)
    found = [positions[each.id] for each in waiters]
    assert [position.expected_us // S for position in found] == expected_s
    assert [position.position for position in found] == [1, 3, 4], "b's turn is between"
    step = expected_s[2] - expected_s[1]
    assert fair.expected_us("a", tokens, 0) == (expected_s[-1] + step) * S
    own = Block(wait_us=7, unit="tokens", per_min=60)
    assert fair.expected_us("c", tokens, 0, own) == 7, "others' pools are not mine"


def test_nobody_is_refused_for_a_guess() -> None:
    fair = FairQueue(100, 100)
    assert fair.expected_us("a", 1, 0, FULL, guess=False) == 0, (
        "when a place falls free nobody knows"
    )
    assert fair.expected_us("a", 1, 0, SHORT, guess=False) == SHORT.wait_us
    for n in range(20):
        fair.join(waiter(f"a{n}"), FULL)
    fair.hold(S)
    assert fair.expected_us("a", 1, 0, guess=False) == 0
    assert fair.expected_us("a", 1, 0) == 21 * S
    fair.hold(0)
    now_us = S
    for _ in range(12):  # now it has been seen: a tenth of a second each
        now_us += S // 10
        turn = fair.next(now_us)
        assert turn is not None
        fair.served(turn, now_us)
    fair.hold(now_us + S)
    assert fair.expected_us("a", 1, now_us, guess=False) == 9 * S // 10


def test_pauses_without_anybody_waiting_are_none() -> None:
    fair = FairQueue(100, 100)
    now_us = 0
    for n in range(30):
        now_us += 100 * S
        for name in (f"a{n}", f"b{n}"):
            fair.join(waiter(name, joined_us=now_us))
        for _ in range(2):
            turn = fair.next(now_us)
            assert turn is not None
            fair.served(turn, now_us)
            now_us += S // 2
    fair.join(waiter("a99", joined_us=now_us))
    fair.hold(now_us + S)
    assert fair.positions(now_us)["a99"].expected_us == S // 2


@pytest.mark.parametrize("seed", range(5))
def test_nobody_gets_more_than_its_weight_while_others_wait(seed: int) -> None:
    """Over any run, two tenants that always wait are apart by no more than their largest tasks."""
    chance = random.Random(seed)
    weights = {"a": 1, "b": 2, "c": 5}
    fair = FairQueue(10_000, 10_000)
    largest = 500
    names = dict.fromkeys(weights, 0)

    def join(tenant: str) -> None:
        names[tenant] += 1
        tokens = chance.randrange(1, largest)
        fair.join(waiter(f"{tenant}{names[tenant]}", weight=weights[tenant], tokens=tokens))

    for tenant in weights:
        for _ in range(20):
            join(tenant)
    had: Counter[str] = Counter()
    last = dict.fromkeys(weights, 0)
    for _ in range(3_000):
        each = fair.next(0)
        assert each is not None
        number = int(each.id[1:])
        assert number > last[each.tenant_id], "first in, first out"
        last[each.tenant_id] = number
        fair.served(each, 0)
        had[each.tenant_id] += each.tokens
        join(each.tenant_id)
        shares = [had[tenant] / weights[tenant] for tenant in weights]
        assert max(shares) - min(shares) <= 2 * largest


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_nobody_is_lost_or_served_twice(seed: int) -> None:
    chance = random.Random(seed)
    fair = FairQueue(50, 20)
    now_us, number = 0, 0
    inside: set[str] = set()
    out: Counter[str] = Counter()
    for _ in range(3_000):
        now_us += chance.randrange(S)
        action = chance.random()
        if action < 0.4:
            number += 1
            each = waiter(f"{chance.choice('abcde')}{number}", joined_us=now_us)
            if fair.has_room(each.tenant_id):
                fair.join(each, chance.choice([None, SHORT, FULL]))
                inside.add(each.id)
        elif action < 0.5 and inside:
            name = chance.choice(sorted(inside))
            assert fair.remove(name, now_us)
            inside.remove(name)
            out[name] += 1
        elif action < 0.6:
            for gone in fair.expired(now_us):
                assert fair.remove(gone.id, now_us)
                inside.remove(gone.id)
                out[gone.id] += 1
        elif action < 0.65:
            fair.released(chance.choice("abcde"), now_us)
        elif (turn := fair.next(now_us)) is not None:
            assert sorted(p.position for p in fair.positions(now_us).values()) == [
                *range(1, len(fair) + 1)
            ]
            if chance.random() < 0.5:
                fair.put_back(turn, chance.choice([SHORT, FULL]), now_us)
            else:
                fair.served(turn, now_us)
                inside.remove(turn.id)
                out[turn.id] += 1
        assert len(fair) == len(inside) <= 50
        wake_us = fair.wake_us()
        assert (wake_us is None) == (not inside)
    assert set(out.values()) <= {1}


def test_tenants_that_waited_once_are_forgotten() -> None:
    fair = FairQueue(10, 10)
    for n in range(MAX_LINES_KEPT + 100):
        each = Waiter(id="x", tenant_id=f"t{n}", weight=1, tokens=1, joined_us=0, until_us=1)
        fair.join(each)
        fair.served(each, 0)
    assert len(fair._lines) <= MAX_LINES_KEPT + 1
