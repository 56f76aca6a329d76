"""Who may start one more task on a group whose capacity is bounded."""

import random
from collections import Counter

import pytest

from backends.contract import BackendGroup
from router.classify.task import Route, Tenant
from router.decide.concurrency_limiter import ConcurrencyLimiter
from router.decide.decision import RankedRoute, Reason


def tenant(name: str) -> Tenant:
    return Tenant(id=name, tier="pro", limits={})


def route(which: Route) -> RankedRoute:
    return RankedRoute(route=which, backends=(), strategy=None, reason=Reason.CLASS, why="")


FAST, DEEP, PARALLEL = route(Route.FAST), route(Route.DEEP), route(Route.PARALLEL)


def nobody(group: BackendGroup) -> bool:
    return False


def somebody(group: BackendGroup) -> bool:
    return True


def test_without_limits_everything_is_open() -> None:
    gate = ConcurrencyLimiter()
    assert not gate.is_on
    assert gate.open_routes((PARALLEL, FAST), "a", somebody) == (PARALLEL, FAST)


def test_a_full_group_closes_the_routes_that_need_it() -> None:
    gate = ConcurrencyLimiter()
    gate.set_limit("fast", 2, {})
    for number in range(2):
        assert gate.open_routes((FAST,), "a", nobody) == (FAST,)
        gate.enter(str(number), tenant("a"), ("fast",))
    assert gate.open_routes((PARALLEL, FAST, DEEP), "a", nobody) == (DEEP,)
    refusal = gate.refusal(PARALLEL.route.groups, "a", nobody)
    assert (refusal.index, refusal.shed, refusal.limited_by) == (
        None,
        "capacity",
        ("fast", "concurrent"),
    )
    gate.leave("0")
    gate.leave("0")
    assert gate.num_running("fast") == 1
    assert gate.open_routes((PARALLEL,), "a", nobody) == (PARALLEL,)


def test_a_share_binds_only_while_others_wait() -> None:
    gate = ConcurrencyLimiter()
    gate.set_limit("deep", 10, {"a": 2})
    for number in range(2):
        gate.enter(str(number), tenant("a"), ("deep",))
    assert gate.shed("deep", "a", nobody) is None
    assert gate.shed("deep", "a", somebody) == "share"
    assert gate.shed("deep", "b", somebody) is None, "one that came since the last tick"
    gate.set_limit("deep", 10, {"a": 0})
    gate.leave("0")
    gate.leave("1")
    assert gate.shed("deep", "a", somebody) is None, "one task each is always possible"


def test_while_it_asks_a_task_counts_for_all_its_routes() -> None:
    gate = ConcurrencyLimiter()
    gate.set_limit("fast", 1, {})
    gate.set_limit("deep", 1, {})
    gate.enter("t", tenant("a"), ("fast", "deep"))
    assert gate.open_routes((FAST, DEEP), "b", nobody) == ()
    gate.enter("t", tenant("a"), ("deep",))
    assert gate.open_routes((FAST, DEEP), "b", nobody) == (FAST,)
    assert gate.running_by_tenant("deep") == Counter({("a", "pro"): 1})
    assert gate.running_by_tenant("fast") == Counter()


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_the_tasks(seed: int) -> None:
    chance = random.Random(seed)
    gate = ConcurrencyLimiter()
    gate.set_limit("fast", 10**6, {})
    inside: dict[str, tuple[str, tuple[BackendGroup, ...]]] = {}
    choices: list[tuple[BackendGroup, ...]] = [("fast",), ("deep",), ("fast", "deep")]
    for _ in range(2_000):
        name = str(chance.randrange(50))
        if chance.random() < 0.6:
            who, groups = chance.choice("abc"), chance.choice(choices)
            gate.enter(name, tenant(who), groups)
            inside[name] = who, groups
        else:
            gate.leave(name)
            inside.pop(name, None)
        for group in ("fast", "deep"):
            mine = Counter((who, "pro") for who, groups in inside.values() if group in groups)
            assert gate.running_by_tenant(group) == mine  # type: ignore[arg-type]
            assert gate.num_running(group) == mine.total()  # type: ignore[arg-type]
    assert {name for name, _ in gate._of_tenant} <= {who for who, _ in inside.values()}
