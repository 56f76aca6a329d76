"""Tests who may start one more task on a group whose capacity is bounded."""

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


def nobody(tenant_id: str, group: BackendGroup) -> bool:
    return False


def somebody(tenant_id: str, group: BackendGroup) -> bool:
    return True


def test_without_limits_everything_is_open() -> None:
    limiter = ConcurrencyLimiter(somebody)
    assert not limiter.is_on
    assert limiter.open_routes((PARALLEL, FAST), "a") == (PARALLEL, FAST)


def test_a_full_group_closes_the_routes_that_need_it() -> None:
    limiter = ConcurrencyLimiter(nobody)
    limiter.set_limit("fast", 2, {})
    for number in range(2):
        assert limiter.open_routes((FAST,), "a") == (FAST,)
        limiter.acquire(str(number), tenant("a"), ("fast",))
    assert limiter.open_routes((PARALLEL, FAST, DEEP), "a") == (DEEP,)
    refusal = limiter.refusal(PARALLEL.route.groups, "a")
    assert (refusal.index, refusal.shed, refusal.limited_by) == (
        None,
        "capacity",
        ("fast", "concurrent"),
    )
    limiter.release("0")
    limiter.release("0")
    assert limiter.num_running("fast") == 1
    assert limiter.open_routes((PARALLEL,), "a") == (PARALLEL,)


def test_a_share_binds_only_while_others_wait() -> None:
    others: list[str] = []
    limiter = ConcurrencyLimiter(lambda tenant_id, group: bool(others))
    limiter.set_limit("deep", 10, {"a": 2})
    for number in range(2):
        limiter.acquire(str(number), tenant("a"), ("deep",))
    assert limiter.shed("deep", "a") is None
    others.append("b")
    assert limiter.shed("deep", "a") == "share"
    assert limiter.shed("deep", "b") is None, "one that came since the last tick"
    limiter.set_limit("deep", 10, {"a": 0})
    limiter.release("0")
    limiter.release("1")
    assert limiter.shed("deep", "a") is None, "one task each is always possible"


def test_while_it_asks_a_task_counts_for_all_its_routes() -> None:
    limiter = ConcurrencyLimiter(nobody)
    limiter.set_limit("fast", 1, {})
    limiter.set_limit("deep", 1, {})
    limiter.acquire("t", tenant("a"), ("fast", "deep"))
    assert limiter.open_routes((FAST, DEEP), "b") == ()
    limiter.acquire("t", tenant("a"), ("deep",))
    assert limiter.open_routes((FAST, DEEP), "b") == (FAST,)
    assert limiter.running_by_tenant("deep") == Counter({("a", "pro"): 1})
    assert limiter.running_by_tenant("fast") == Counter()


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_the_tasks(seed: int) -> None:
    chance = random.Random(seed)
    limiter = ConcurrencyLimiter(nobody)
    limiter.set_limit("fast", 10**6, {})
    inside: dict[str, tuple[str, tuple[BackendGroup, ...]]] = {}
    choices: list[tuple[BackendGroup, ...]] = [("fast",), ("deep",), ("fast", "deep")]
    for _ in range(2_000):
        name = str(chance.randrange(50))
        if chance.random() < 0.6:
            who, groups = chance.choice("abc"), chance.choice(choices)
            limiter.acquire(name, tenant(who), groups)
            inside[name] = who, groups
        else:
            limiter.release(name)
            inside.pop(name, None)
        for group in ("fast", "deep"):
            mine = Counter((who, "pro") for who, groups in inside.values() if group in groups)
            assert limiter.running_by_tenant(group) == mine  # type: ignore[arg-type]
            assert limiter.num_running(group) == mine.total()  # type: ignore[arg-type]
    assert {name for name, _ in limiter._of_tenant} <= {who for who, _ in inside.values()}
