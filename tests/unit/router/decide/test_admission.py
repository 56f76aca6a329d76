"""Tests the way from routes to demands, from a grant to a decision, and the decision in words."""

import msgspec
import pytest

from backends.contract import Usage
from router.classify.classify import classify, features
from router.classify.task import GroupLimits, Hints, Route, Task, TaskClass, Tenant
from router.decide.admission import decide, demands, explain
from router.decide.decision import Reason, Refusal, RouteDecision
from router.decide.ranking import rank
from router.policy.policy import DEFAULT_POLICY
from router.pools.memory_pools import MemoryPools
from router.pools.pools import Demand, Grant
from router.strategies.table import STRATEGIES
from tests.unit.router.tasks import backend, of_class, task

STATS = (backend("wafer-0", "fast"), backend("gpu-0", "deep"))
TIGHT = Tenant(
    id="tight",
    tier="free",
    limits={
        "fast": GroupLimits(requests_per_min=60, tokens_per_min=1_000, max_concurrent=2),
        "deep": GroupLimits(requests_per_min=60, tokens_per_min=1_000, max_concurrent=1),
    },
)


def decision(
    pools: MemoryPools, a_task: Task, task_class: TaskClass, now_us: int = 0
) -> RouteDecision:
    ranked = rank(DEFAULT_POLICY, a_task, task_class, STATS)
    assert isinstance(ranked, tuple)
    asked = demands(a_task, task_class, ranked)
    grant = pools.reserve_first(a_task.tenant, a_task.id, asked, now_us)
    return decide(a_task, task_class, ranked, grant, DEFAULT_POLICY)


@pytest.mark.parametrize(
    ("a_task", "tokens"),
    [
        (task(), 100 + 500),
        (task(max_output_tokens=50), 100 + 50),
    ],
)
def test_demands_are_prompt_plus_expected_output(a_task: Task, tokens: int) -> None:
    ranked = rank(DEFAULT_POLICY, a_task, of_class("uncertain"), STATS)
    assert isinstance(ranked, tuple)
    fast, deep = Demand(group="fast", tokens=tokens), Demand(group="deep", tokens=tokens)
    asked = demands(a_task, of_class("uncertain"), ranked)
    assert asked == ((deep,), (fast,), (deep,)), "a hedge asks for its fast engine when it joins"


def test_a_warm_up_demands_a_place_of_each_group() -> None:
    warm_up = task(generate=False)
    ranked = rank(DEFAULT_POLICY, warm_up, of_class("uncertain"), STATS)
    assert isinstance(ranked, tuple)
    fast, deep = Demand(group="fast", tokens=0), Demand(group="deep", tokens=0)
    asked = demands(warm_up, of_class("uncertain"), ranked)
    assert asked == ((fast, deep), (fast,), (deep,))


def test_demands_follow_the_strategy() -> None:
    hints = Hints(route=Route.PARALLEL, strategy="breadth", strategy_options={"num_variations": 7})
    ranked = rank(DEFAULT_POLICY, task(hints=hints), of_class(), STATS)
    assert isinstance(ranked, tuple)
    ((fast, deep),) = demands(task(hints=hints), of_class(), ranked)
    assert (fast.group, fast.tokens) == ("fast", 600), "the others ask for their own"
    assert deep.tokens > 7 * 500 + 600, "the judge reads them all"
    ((fast, deep),) = demands(task(hints=hints, generate=False), of_class(), ranked)
    assert fast.tokens == deep.tokens == 0


@pytest.mark.parametrize("strategy", [None, *STRATEGIES])
def test_what_prepares_an_answer_is_asked_for_with_it(strategy: str | None) -> None:
    """It is asked of one group: the first that the strategy is sure to use."""
    hints = Hints(route=Route.PARALLEL if strategy else Route.FAST, strategy=strategy)
    plain = task(hints=hints)
    prepared = task(hints=hints, beforehand=Usage(5_000, num_output_tokens=500))
    ranked = rank(DEFAULT_POLICY, prepared, of_class(), STATS)
    assert isinstance(ranked, tuple)
    (before,) = demands(plain, of_class(), ranked)
    (after,) = demands(prepared, of_class(), ranked)
    more = {b.group: a.tokens - b.tokens for a, b in zip(after, before, strict=True)}
    leading = "deep" if strategy == "hedge" else "fast"
    assert {group: tokens for group, tokens in more.items() if tokens} == {leading: 5_500}


def test_what_prepares_an_answer_must_fit_the_window_too() -> None:
    prompt = max(stats.info.window_tokens for stats in STATS)
    asked = task(beforehand=Usage(prompt, num_output_tokens=500))
    refusal = rank(DEFAULT_POLICY, asked, of_class(), STATS)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "context_length_exceeded"
    assert str(prompt) in refusal.message


def test_full_pools_move_a_task_to_its_fallback_and_say_so() -> None:
    pools = MemoryPools()
    first = decision(pools, task(id="a", tenant=TIGHT), of_class("deep"))
    assert first.chosen is not None
    assert (first.chosen.route, first.chosen.reason) == (Route.DEEP, Reason.CLASS)
    second = decision(pools, task(id="b", tenant=TIGHT), of_class("deep"))
    assert second.chosen is not None
    assert (second.chosen.route, second.chosen.reason) == (Route.FAST, Reason.FALLBACK)
    assert second.chosen.why == "The tenant's pools for deep are full: fast instead."
    assert second.reservation is not None
    assert second.reservation.demands == (Demand(group="fast", tokens=600),)
    assert second.refusal is None


def test_a_refusal_names_the_pool_the_numbers_and_the_true_wait() -> None:
    pools = MemoryPools()
    pinned = task(id="a", tenant=TIGHT, hints=Hints(route=Route.FAST))
    assert decision(pools, pinned, of_class()).chosen is not None
    later = task(id="b", tenant=TIGHT, hints=Hints(route=Route.FAST))
    refused = decision(pools, later, of_class())
    assert refused.chosen is None
    assert refused.reservation is None
    assert refused.refusal is not None
    assert refused.refusal.code == "rate_limit_exceeded"
    assert refused.refusal.message == (
        "Rate limit reached for the fast engines on tokens per min: "
        "Limit 1000, Remaining 400, Requested 600. Please try again in 12s."
    )
    assert refused.refusal.retry_after_us == 12_000_000
    assert decision(pools, later, of_class(), 12_000_000).chosen is not None


def test_a_limit_of_0_tells_no_wait() -> None:
    limits = GroupLimits(requests_per_min=0, tokens_per_min=1_000, max_concurrent=2)
    blocked = msgspec.structs.replace(TIGHT, limits={"fast": limits})
    pinned = task(id="a", tenant=blocked, hints=Hints(route=Route.FAST))
    refusal = decision(MemoryPools(), pinned, of_class()).refusal
    assert refusal is not None
    assert refusal.message == (
        "Rate limit reached for the fast engines on requests per min: the limit is 0, which admits "
        "nothing. An admin can raise it."
    )
    assert refusal.retry_after_us is None
    assert refusal.limited_by == ("fast", "requests")


def test_a_refusal_for_want_of_a_place() -> None:
    pools = MemoryPools()
    hints = Hints(route=Route.DEEP)
    for name in ("a", "b"):
        last = decision(
            pools,
            task(id=name, tenant=TIGHT, hints=hints, prompt_tokens=1, max_output_tokens=1),
            of_class("deep"),
        )
    assert last.refusal is not None
    assert last.refusal.message == (
        "Rate limit reached for the deep engines on concurrent tasks: "
        "Limit 1 at once, all in use. Please try again in 1s."
    )


def test_explain_says_class_signals_routes_and_outcome() -> None:
    a_task = task("Refactor the storage engine across all services", tenant=TIGHT)
    lines = explain(decision(MemoryPools(), a_task, classify(features(a_task))))
    assert lines[0].startswith("Class: deep; p_deep ")
    assert '"refactor' in lines[1]
    assert lines[2].startswith("1. deep [class] An ask that needs thought")
    assert lines[3].startswith("2. fast [fallback] For when deep is full: fast on wafer-0.")
    assert lines[4].startswith("Chosen by policy default: deep on gpu-0.")


@pytest.mark.parametrize(
    ("wait_us", "words"),
    [
        (1, "1ms"),
        (120_000, "120ms"),
        (1_500_000, "1.5s"),
        (1_001_000, "1.01s"),
        (61_000_000, "61s"),
    ],
)
def test_waits_read_like_openais(wait_us: int, words: str) -> None:
    grant = MemoryPools().reserve_first(TIGHT, "a", [(Demand(group="fast", tokens=1),)], 0)
    refused = Grant(
        index=None,
        reservation=None,
        balances=grant.balances,
        wait_us=wait_us,
        limited_by=("fast", "tokens"),
    )
    ranked = rank(DEFAULT_POLICY, task(), of_class(), STATS)
    assert isinstance(ranked, tuple)
    outcome = decide(task(), of_class(), ranked, refused, DEFAULT_POLICY)
    assert outcome.refusal is not None
    assert outcome.refusal.message.endswith(f"Please try again in {words}.")
