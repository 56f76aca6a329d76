"""Tests ranking: precedence, hard rules, pins, fallbacks, load, stickiness, refusals."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from backends.contract import BackendStats
from router.classify.agent import Agent
from router.classify.durations import in_words
from router.classify.task import Hints, Route, Task, TaskClass, Tenant
from router.decide.decision import Reason, Refusal
from router.decide.ranking import rank
from router.policy.conditions import When
from router.policy.policy import DEFAULT_POLICY, Choice, Policy, Rule, TenantPolicy
from router.strategies.breadth import BreadthOptions
from router.strategies.table import PolicyOptions
from tests.unit.router.decide.ranked_routes import BOTH, GPU, WAFER, ranked, routes
from tests.unit.router.tasks import FAST_ONLY, LIMITS, PRO, TOOL_OUTPUT, backend, of_class, task


def refused(
    a_task: Task,
    task_class: TaskClass | None = None,
    stats: Sequence[BackendStats] = BOTH,
    policy: Policy = DEFAULT_POLICY,
) -> Refusal:
    result = rank(policy, a_task, task_class or of_class(), stats)
    assert isinstance(result, Refusal)
    return result


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("interactive", [("fast", "class"), ("deep", "fallback")]),
        ("uncertain", [("parallel", "class"), ("fast", "fallback"), ("deep", "fallback")]),
        ("deep", [("deep", "class"), ("fast", "fallback")]),
    ],
)
def test_class(label: str, expected: list[tuple[str, str]]) -> None:
    result = ranked(task(), of_class(label))
    assert routes(result) == expected
    assert result[0].strategy == ("hedge" if label == "uncertain" else None)
    assert all(route.why.endswith(".") for route in result)


def test_parallel_names_the_fast_backend_first() -> None:
    assert ranked(task(), of_class("uncertain"), (GPU, WAFER))[0].backends == ("wafer-0", "gpu-0")


# -- hard rules --------------------------------------------------------------------------------


def test_security_goes_deep_and_nowhere_else() -> None:
    result = ranked(task(), of_class("interactive", security=True))
    assert routes(result) == [("deep", "security")]


def test_security_waits_for_a_deep_backend_that_is_down() -> None:
    refusal = refused(
        task(), of_class(security=True), (WAFER, backend("gpu-0", "deep", healthy=False))
    )
    assert refusal.code == "server_is_overloaded"
    assert refusal.retry_after_us == 1_000_000
    assert refusal.message.startswith(
        "Security-sensitive work goes deep (90% likely to be such), but"
    )


def test_a_refusal_says_when_the_first_of_those_that_are_out_is_tried_again() -> None:
    outs = [("gpu-0", 30_000_000), ("gpu-1", 12_340_000)]
    stats = [backend(name, "deep", healthy=False, out_us=out_us) for name, out_us in outs]
    refusal = refused(task(hints=Hints(route=Route.DEEP)), of_class(), (WAFER, *stats))
    assert refusal.retry_after_us == 12_340_000
    assert refusal.message.endswith("is down at the moment. Please try again in 12.34s.")


@pytest.mark.parametrize(
    ("second", "code", "wait_us"),
    [
        ({"limited": True, "out_us": 340_000}, "rate_limit_exceeded", 340_000),
        ({"out_us": 30_000_000}, "server_is_overloaded", 12_340_000),
        ({}, "server_is_overloaded", 1_000_000),
        ({"drained": True}, "rate_limit_exceeded", 12_340_000),
    ],
)
def test_a_refusal_for_the_limits_of_all_servers_is_a_rate_limit(
    second: dict[str, Any], code: str, wait_us: int
) -> None:
    limited = backend("gpu-0", "deep", healthy=False, limited=True, out_us=12_340_000)
    other = backend("gpu-1", "deep", healthy=False, **second)
    refusal = refused(task(hints=Hints(route=Route.DEEP)), of_class(), (WAFER, limited, other))
    assert (refusal.code, refusal.retry_after_us) == (code, wait_us)
    assert ("rate limit" in refusal.message) == (code == "rate_limit_exceeded")
    assert refusal.message.endswith(f"Please try again in {in_words(wait_us)}.")


def test_only_a_policy_that_says_so_lets_security_stay() -> None:
    policy = Policy(security_goes_deep=False)
    assert ranked(task(), of_class(security=True), policy=policy)[0].route is Route.FAST


def test_security_binds_aliases_and_rules_too() -> None:
    quick = Choice(route=Route.FAST)
    policy = Policy(aliases={"quick": quick}, rules=(Rule(name="all-fast", route=Route.FAST),))
    for model in ("quick", "auto"):
        a_task = task(hints=Hints(model=model))
        assert ranked(a_task, of_class(security=True), policy=policy)[0].route is Route.DEEP


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (Route.FAST, ("deep", "security")),
        (Route.DEEP, ("deep", "hint")),
        (Route.PARALLEL, ("deep", "security")),
    ],
)
def test_no_hint_takes_security_away_from_deep(hint: Route, expected: tuple[str, str]) -> None:
    result = ranked(task(hints=Hints(route=hint)), of_class(security=True))
    assert routes(result) == [expected]


def test_a_pin_is_the_clients_own_decision_about_security() -> None:
    pinned = task(hints=Hints(model="wafer-model"))
    assert routes(ranked(pinned, of_class(security=True))) == [("fast", "model")]


def test_a_tenant_without_deep_access_never_reaches_it() -> None:
    for label in ("interactive", "uncertain", "deep"):
        for security in (False, True):
            result = ranked(task(tenant=FAST_ONLY), of_class(label, security=security))
            assert {route.route for route in result} == {Route.FAST}
    (only,) = ranked(task(tenant=FAST_ONLY), of_class("deep"))
    assert only.reason is Reason.ACCESS
    assert "no access" in only.why


def test_images_go_only_where_they_are_taken() -> None:
    result = ranked(task(has_images=True))
    assert routes(result) == [("deep", "images")]
    assert result[0].why == "Images or files cannot go to the fast engine: deep on gpu-0."


def test_a_context_goes_only_where_it_fits_with_its_answer() -> None:
    fits = task(prompt_tokens=130_000)
    tight = task(prompt_tokens=131_000)  # 72 tokens short of the expected 500
    assert ranked(fits)[0].route is Route.FAST
    assert routes(ranked(tight)) == [("deep", "window")]
    assert routes(ranked(tight, of_class("uncertain"))) == [("deep", "window")]


def test_a_tight_fit_is_better_than_none() -> None:
    assert ranked(task(prompt_tokens=131_000), stats=(WAFER,))[0].route is Route.FAST


# -- pins --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        (Hints(model="gpu-model"), [("deep", "model")]),
        (Hints(model="wafer-model", route=Route.FAST), [("fast", "model")]),
        (Hints(route=Route.DEEP), [("deep", "hint")]),
        (Hints(route=Route.PARALLEL, strategy="breadth"), [("parallel", "hint")]),
    ],
)
def test_pins_have_no_fallback(hints: Hints, expected: list[tuple[str, str]]) -> None:
    result = ranked(task(hints=hints), of_class("interactive"))
    assert routes(result) == expected
    if hints.route is Route.PARALLEL:
        assert result[0].strategy == "breadth"


def test_a_strategy_without_a_route_asks_for_both_engines_and_may_fall_back() -> None:
    hints = Hints(
        strategy="breadth",
        strategy_options={"num_variations": 7, "judged": False},
        reasoning_effort="none",
    )
    result = ranked(task(hints=hints), of_class("interactive"))
    assert routes(result) == [("parallel", "hint"), ("deep", "fallback"), ("fast", "fallback")]
    assert result[0].strategy == "breadth"
    assert result[0].options == BreadthOptions(num_variations=7, judged=False)
    policy = Policy(strategies=PolicyOptions(hedge_after_ms=1, num_variations=3, judged=False))
    some = Hints(strategy="breadth", strategy_options={"num_variations": 7})
    assert ranked(task(hints=some), policy=policy)[0].options == result[0].options
    assert ranked(task(hints=hints), stats=(WAFER,))[0].route is Route.FAST
    secure = ranked(task(hints=hints), of_class("deep", security=True))
    assert routes(secure) == [("deep", "security")]
    answering = ranked(task(hints=hints, items=(TOOL_OUTPUT,)), of_class("interactive"))
    assert answering[0].reason is Reason.STICKY


def test_a_pin_stands_above_rules() -> None:
    hints = Hints(model="gpu-model", reasoning_effort="minimal")
    assert ranked(task(hints=hints))[0].route is Route.DEEP


NO_GPU = (WAFER, backend("gpu-0", "deep", healthy=False))


@pytest.mark.parametrize(
    ("a_task", "stats", "code", "param", "words"),
    [
        (
            task(hints=Hints(model="gpt-9")),
            BOTH,
            "model_not_found",
            "model",
            "'gpt-9' does not exist. Models here: auto, gpu-model, wafer-model",
        ),
        (
            task(hints=Hints(model="gpu-model"), tenant=FAST_ONLY),
            BOTH,
            "insufficient_permissions",
            "model",
            "no access to model 'gpu-model'; it may use: fast",
        ),
        (
            task(hints=Hints(route=Route.PARALLEL), tenant=FAST_ONLY),
            BOTH,
            "insufficient_permissions",
            "metadata.route",
            "no access to route 'parallel'",
        ),
        (
            task(hints=Hints(model="gpu-model", route=Route.FAST)),
            BOTH,
            "invalid_value",
            "metadata.route",
            "runs on route 'deep', but `metadata.route` asks for 'fast'",
        ),
        (
            task(hints=Hints(model="wafer-model"), prompt_tokens=200_000),
            BOTH,
            "context_length_exceeded",
            "input",
            "maximum context length is 131072 tokens. However, your messages resulted in 200000",
        ),
        (
            task(prompt_tokens=300_000),
            BOTH,
            "context_length_exceeded",
            "input",
            "maximum context length is 262144 tokens. However, your messages resulted in 300000",
        ),
        (
            task(has_files=True),
            BOTH,
            "invalid_value",
            "input",
            "Files cannot be taken by any engine this key may use",
        ),
        (
            task(hints=Hints(model="wafer-model"), has_images=True),
            BOTH,
            "invalid_value",
            "input",
            "Images cannot be taken by model 'wafer-model'",
        ),
        (
            task(hints=Hints(model="gpu-model")),
            NO_GPU,
            "server_is_overloaded",
            None,
            "The client asked for model gpu-model, but model 'gpu-model' is down",
        ),
        (
            task(hints=Hints(route=Route.PARALLEL)),
            NO_GPU,
            "server_is_overloaded",
            None,
            "route 'parallel' is down",
        ),
        (
            task(hints=Hints(route=Route.FAST, strategy="breadth")),
            BOTH,
            "invalid_value",
            "metadata.strategy",
            "The strategy 'breadth' uses both engines, but `metadata.route` asks for 'fast' alone.",
        ),
        (
            task(hints=Hints(model="gpu-model", strategy="breadth")),
            BOTH,
            "invalid_value",
            "metadata.strategy",
            "The strategy 'breadth' uses both engines, but model 'gpu-model' runs on route 'deep'",
        ),
        (task(), (), "server_is_overloaded", None, "is down at the moment"),
        (
            task(tenant=Tenant(id="none", tier="none", limits={})),
            BOTH,
            "insufficient_permissions",
            "model",
            "it may use: nothing",
        ),
    ],
)
def test_refusals(
    a_task: Task, stats: Sequence[BackendStats], code: str, param: str | None, words: str
) -> None:
    refusal = refused(a_task, stats=stats)
    assert (refusal.code, refusal.param) == (code, param)
    assert words in refusal.message


# -- the policy --------------------------------------------------------------------------------


def test_an_alias_is_the_policys_choice_with_its_fallback() -> None:
    careful = Choice(route=Route.PARALLEL, strategy="breadth", fallback=(Route.DEEP,))
    policy = Policy(aliases={"careful": careful})
    result = ranked(task(hints=Hints(model="careful")), policy=policy)
    assert result[0].strategy == "breadth"
    assert routes(result)[:2] == [("parallel", "model"), ("deep", "fallback")]
    assert "alias 'careful'" in result[0].why


def test_the_first_rule_that_holds_decides() -> None:
    rules = (
        Rule(name="other-tenant", when=When(tenants=("other",)), route=Route.DEEP),
        Rule(name="first", when=When(tiers=("pro",)), route=Route.DEEP),
        Rule(name="second", route=Route.PARALLEL),
    )
    (only,) = ranked(task(), policy=Policy(rules=rules))
    assert (only.route, only.reason, only.rule) == (Route.DEEP, Reason.RULE, "first")


@pytest.mark.parametrize(
    ("hints", "rule"),
    [
        (Hints(reasoning_effort="minimal"), "no-reasoning-wanted"),
        (Hints(deadline_us=2_000_000), "deadline-too-short-for-deep"),
        (Hints(deadline_us=60_000_000), None),
        (Hints(reasoning_effort="high"), None),
        (Hints(agent=Agent(role="auxiliary")), "agents-housekeeping-goes-fast"),
        (Hints(agent=Agent(role="subagent", subagent="collab_spawn")), None),
        (Hints(agent=Agent(role="main", request_kind="turn")), None),
    ],
)
def test_rules_of_the_default_policy(hints: Hints, rule: str | None) -> None:
    first = ranked(task(hints=hints), of_class("deep"))[0]
    assert first.rule == rule
    assert first.route is (Route.FAST if rule else Route.DEEP)


def test_agents_reviews_go_deep_by_default_unless_a_model_is_named() -> None:
    review = Agent(role="subagent", subagent="review")
    first = ranked(task(hints=Hints(agent=review)), of_class("interactive"))[0]
    assert (first.route, first.rule) == (Route.DEEP, "agents-reviews-go-deep")
    named = task(hints=Hints(model="wafer-model", agent=review))
    assert routes(ranked(named, of_class("interactive"))) == [("fast", "model")]


def test_a_rule_may_name_its_backends() -> None:
    stats = [backend("wafer-a", "fast"), backend("wafer-b", "fast", running=5), GPU]
    rule = Rule(name="pinned", route=Route.FAST, fallback=(Route.DEEP,), backends=("wafer-b",))
    result = ranked(task(), stats=stats, policy=Policy(rules=(rule,)))
    assert [route.backends for route in result] == [("wafer-b",), ("gpu-0",)]
    stats[1] = backend("wafer-b", "fast", healthy=False)
    result = ranked(task(), stats=stats, policy=Policy(rules=(rule,)))
    assert [route.backends for route in result] == [("gpu-0",)], "never on another of the group"


def test_a_tenants_own_rules_come_first() -> None:
    policy = Policy(
        rules=(Rule(name="all", route=Route.DEEP),),
        tenants={"acme": TenantPolicy(rules=(Rule(name="own", route=Route.FAST),))},
    )
    assert ranked(task(), policy=policy)[0].rule == "own"
    other = msgspec.structs.replace(PRO, id="other")
    assert ranked(task(tenant=other), policy=policy)[0].rule == "all"


# -- degrading ---------------------------------------------------------------------------------


def test_parallel_degrades_to_the_one_that_is_up() -> None:
    assert routes(ranked(task(), of_class("uncertain"), NO_GPU)) == [("fast", "fallback")]


def test_parallel_degrades_even_without_named_fallbacks() -> None:
    policy = Policy(uncertain=Choice(route=Route.PARALLEL))
    result = ranked(task(), of_class("uncertain"), policy=policy)
    assert [route.route for route in result] == [Route.PARALLEL, Route.FAST, Route.DEEP]


def test_a_policy_without_fallback_has_none_while_its_route_is_up() -> None:
    policy = Policy(deep=Choice(route=Route.DEEP))
    assert routes(ranked(task(), of_class("deep"), policy=policy)) == [("deep", "class")]


def test_rather_anywhere_than_nowhere() -> None:
    policy = Policy(deep=Choice(route=Route.DEEP))
    result = ranked(task(), of_class("deep"), NO_GPU, policy)
    assert routes(result) == [("fast", "fallback")]
    assert result[0].why == "At the moment no task can go to the deep engine: fast on wafer-0."


# -- which backend -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stats", "last_backend", "expected"),
    [
        ([backend("a-0", "fast", running=3), backend("b-0", "fast", running=2)], None, "b-0"),
        ([backend("a-0", "fast", waiting=3), backend("b-0", "fast", running=2)], None, "b-0"),
        ([backend("b-0", "fast"), backend("a-0", "fast")], None, "a-0"),
        (
            [backend("a-0", "fast", kv_used_tokens=900_000), backend("b-0", "fast", running=5)],
            None,
            "b-0",
        ),
        ([backend("a-0", "fast", running=9), backend("b-0", "fast")], "a-0", "a-0"),
        ([backend("a-0", "fast", running=9, waiting=1), backend("b-0", "fast")], "a-0", "b-0"),
        ([backend("a-0", "fast", healthy=False), backend("b-0", "fast", running=9)], "a-0", "b-0"),
    ],
)
def test_pick(stats: list[BackendStats], last_backend: str | None, expected: str) -> None:
    (route,) = ranked(task(last_backend=last_backend, prompt_tokens=20_000), stats=stats)
    assert route.backends == (expected,)
    assert ("holds the conversation" in route.why) == (expected == last_backend)


@pytest.mark.parametrize(
    ("prompt_tokens", "running", "expected"),
    [
        (100, 1, "a-0"),  # a little busier is no reason to move
        (100, 5, "b-0"),  # half a batch is, for so short a prefix
        (3_000, 5, "a-0"),  # not for a longer one
        (3_000, 9, "b-0"),
        (9_000, 9, "a-0"),
    ],
)
def test_a_lost_prefix_counts_against_a_lower_load(
    prompt_tokens: int, running: int, expected: str
) -> None:
    stats = [backend("a-0", "fast", running=running), backend("b-0", "fast")]
    (route,) = ranked(task(last_backend="a-0", prompt_tokens=prompt_tokens), stats=stats)
    assert route.backends == (expected,)


def test_a_model_pin_chooses_among_its_own_backends() -> None:
    stats = (
        backend("gpu-0", "deep", running=5),
        backend("gpu-1", "deep"),
        backend("big-0", "deep"),
    )
    (route,) = ranked(task(hints=Hints(model="gpu-model")), stats=stats)
    assert route.backends == ("gpu-1",)


def test_tool_loops_stay_on_one_engine() -> None:
    looping = task(items=(TOOL_OUTPUT,), last_backend="gpu-0")
    first = ranked(looping, of_class("uncertain"))[0]
    assert (first.route, first.reason) == (Route.DEEP, Reason.STICKY)
    fast_loop = msgspec.structs.replace(looping, last_backend="wafer-0")
    assert ranked(fast_loop, of_class("uncertain"))[0].route is Route.FAST
    asked_for = task(items=(TOOL_OUTPUT,), hints=Hints(route=Route.PARALLEL))
    assert ranked(asked_for, of_class("uncertain"))[0].route is Route.PARALLEL


def test_limits_of_zero_still_count_as_access() -> None:
    blocked = msgspec.structs.replace(LIMITS, requests_per_min=0)
    tenant = Tenant(id="held", tier="pro", limits={"fast": blocked})
    assert ranked(task(tenant=tenant))[0].route is Route.FAST
