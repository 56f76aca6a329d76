"""Tests tasks that a strategy cannot serve: tool loops, required calls, missing predictions."""

from typing import Any

import msgspec
import pytest

from backends.contract import FunctionTool, ToolChoice
from router.classify.task import Hints, Route, Task
from router.policy.policy import Choice, Policy
from tests.unit.router.decide.ranked_routes import GPU, WAFER, ranked, routes
from tests.unit.router.tasks import TOOL_OUTPUT, backend, of_class, task

FALLS_BACK = Choice(route=Route.DEEP, fallback=(Route.PARALLEL, Route.FAST))


def requiring_a_call(judged: bool, mode: Any = "required", route: Route | None = None) -> Task:
    hints = Hints(strategy="breadth", strategy_options={"judged": judged}, route=route)
    asked = task(hints=hints, tools=(FunctionTool("look"),))
    request = msgspec.structs.replace(asked.request, tool_choice=ToolChoice(mode))
    return msgspec.structs.replace(asked, request=request)


@pytest.mark.parametrize("route", [None, Route.PARALLEL])
def test_where_a_call_is_required_no_strategy_of_texts_alone_applies(route: Route | None) -> None:
    result = ranked(requiring_a_call(judged=False, route=route))
    assert routes(result)[0] == ("fast", "fallback")
    assert result[0].strategy is None
    assert result[0].why == (
        "Without strategy breadth, as it calls no tools and a call is required: fast on wafer-0."
    )
    assert ranked(requiring_a_call(judged=True, route=route))[0].strategy == "breadth"
    assert ranked(requiring_a_call(judged=False, mode="auto"))[0].strategy == "breadth"


DRAFT = Hints(strategy="draft")
OLD_GPU = backend("gpu-1", "deep", window_tokens=262_144, images=True, predictions=False)


def test_a_draft_needs_a_deep_engine_that_takes_predictions() -> None:
    (drafted, *_) = ranked(task(hints=DRAFT), stats=(WAFER, OLD_GPU, GPU))
    assert (drafted.strategy, drafted.backends) == ("draft", ("wafer-0", "gpu-0"))
    assert drafted.spares == ((), ("gpu-1",)), "which would answer without the prediction"


@pytest.mark.parametrize("route", [None, Route.PARALLEL])
def test_without_one_the_task_goes_deep_alone_and_is_told_why(route: Route | None) -> None:
    hints = Hints(strategy="draft", route=route)
    result = ranked(task(hints=hints), stats=(WAFER, OLD_GPU))
    assert routes(result)[0] == ("deep", "fallback")
    assert result[0].strategy is None
    assert result[0].why == (
        "Without strategy draft, as no deep engine that takes predictions is up: deep on gpu-1."
    )
    assert routes(result)[1:] == ([] if route else [("fast", "fallback")])


def test_an_answer_that_may_call_tools_is_not_drafted() -> None:
    tools = (FunctionTool("look"),)
    result = ranked(task(hints=DRAFT, tools=tools))
    assert (result[0].route, result[0].strategy) == (Route.DEEP, None)
    assert "an answer that may call tools cannot be predicted" in result[0].why
    asked = task(hints=DRAFT, tools=tools)
    without = msgspec.structs.replace(asked.request, tool_choice=ToolChoice("none"))
    forbidden = msgspec.structs.replace(asked, request=without)
    assert ranked(forbidden)[0].strategy == "draft"


def test_a_draft_takes_one_engine_where_the_other_is_down() -> None:
    down = backend("gpu-0", "deep", healthy=False)
    result = ranked(task(hints=DRAFT), stats=(WAFER, down))
    assert [route.route for route in result] == [Route.FAST]


# -- both engines as a fallback only -----------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "asked"),
    [
        ("breadth", requiring_a_call(judged=False)),
        ("draft", task(tools=(FunctionTool("look"),))),
        ("hedge", task(items=(TOOL_OUTPUT,), last_backend="gpu-0")),
    ],
)
def test_a_fallback_is_left_out_where_its_strategy_cannot_serve(strategy: str, asked: Task) -> None:
    options = {"judged": False} if strategy == "breadth" else {}
    hints = Hints(model="mine", strategy_options=options)
    asked = msgspec.structs.replace(asked, hints=hints)
    policy = Policy(strategy=strategy, aliases={"mine": FALLS_BACK})
    result = ranked(asked, of_class(), policy=policy)
    assert routes(result) == [("deep", "model"), ("fast", "fallback")]
    plain = ranked(task(hints=Hints(model="mine")), of_class(), policy=policy)
    assert [route.route for route in plain] == [Route.DEEP, Route.PARALLEL, Route.FAST]
    assert [route.strategy for route in plain] == [None, strategy, None]
