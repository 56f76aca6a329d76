"""Tests that a run starts backends, merges what they push, ends, and says what each used."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from backends.contract import (
    BackendError,
    BackendGroup,
    CustomTool,
    Delta,
    DeltaKind,
    FinishReason,
    FunctionTool,
    GenerateRequest,
    Message,
    TextFormat,
    TextPart,
    ToolChoice,
    Usage,
)
from backends.prompt import measure, prompt_size
from gateway.run.branch import TokenTimes
from gateway.run.dispatch import Run, RunOutcome
from gateway.run.side_reservations import PendingReservation, Settle, SideReservations
from gateway.wire.errors import ProtocolError
from gateway.wire.response import ResponseStream
from gateway.wire.routing import RoutedGeneration
from router.classify.task import Route
from router.decide.decision import RankedRoute, Reason
from router.strategies.table import RECORDS, STRATEGIES
from tests.patience import until
from tests.unit.gateway.doubles import (
    RecordingBackend,
    Transcript,
    failure,
    parsed_create,
    stop,
    text,
)

# For `delegate` see tests/unit/gateway/task/test_delegation.py.
WITHOUT_DELEGATE = tuple(s for s in STRATEGIES if s != "delegate")
FULL = BackendError("wafer", "server_is_overloaded", "full", retryable=True)
DOWN = BackendError("gpu", "server_error", "down", retryable=True)
USED = Usage(num_input_tokens=7, num_output_tokens=2)  # of a cancelled recording generation


def usages_of(run: Run) -> list[Usage]:
    """Returns what each backend of the route used, by its index."""
    totals = [Usage()] * len(run.branches.backends)
    for branch in run.branches.all():
        totals[branch.backend_index] += branch.usage or Usage()
    return totals


def request(**fields: Any) -> GenerateRequest:
    items = (measure(Message("user", (TextPart("Hi."),))),)
    tools = (FunctionTool("look"), CustomTool("shell"))
    instructions = fields.get("instructions")
    num_prompt_tokens, prefix = prompt_size(instructions, tools, TextFormat(), items)
    base: dict[str, Any] = {
        "id": "resp_1",
        "model": "auto",
        "items": items,
        "num_prompt_tokens": num_prompt_tokens,
        "prefix": prefix,
        "max_output_tokens": 1000,
        "tools": tools,
        "tool_choice": ToolChoice("required", ("look",)),
        "reasoning_effort": "high",
        "reasoning_summary": "auto",
    }
    return GenerateRequest(**(base | fields))


def route(strategy: str | None, **options: Any) -> RankedRoute:
    both = strategy is not None
    kind = RECORDS[strategy].options
    own = {name: value for name, value in options.items() if name in kind.__struct_fields__}
    return RankedRoute(
        route=Route.PARALLEL if both else Route.FAST,
        backends=("wafer", "gpu") if both else ("wafer",),
        strategy=strategy,
        options=kind(**own),
        reason=Reason.CLASS,
        why="A test says so.",
    )


class Held:
    """Is a reservation that counts its settlements."""

    def __init__(self) -> None:
        self.settled: list[Usage] = []

    def settle(self, backend: str, usage: Usage) -> None:
        self.settled.append(usage)


class AtOnce(SideReservations):
    """Grants everything, in the call itself."""

    def __init__(self) -> None:
        self.held: list[Held] = []

    def take(
        self,
        name: str,
        group: BackendGroup,
        expected: Usage,
        used: Callable[[], Usage],
        granted: Callable[[Settle], None],
        refused: Callable[[ProtocolError], None],
    ) -> PendingReservation:
        self.held.append(Held())
        granted(self.held[-1].settle)
        return PendingReservation()


class Stage:
    """Is a run over two recording backends, and what its response said."""

    def __init__(
        self,
        strategy: str | None,
        *,
        fast_refuses: Exception | None = None,
        deep_refuses: Exception | None = None,
        **options: Any,
    ) -> None:
        self.fast = RecordingBackend("wafer", "fast", refusing=fast_refuses)
        self.deep = RecordingBackend("gpu", "deep", refusing=deep_refuses)
        self.heard = Transcript()
        self.writer = ResponseStream(parsed_create(), self.heard.emit)
        self.writer.open(100, "m", {})
        self.now_us = 0
        self.apart = AtOnce()
        self.run = Run(route(strategy, **options), self.writer, lambda: self.now_us, self.apart)

    def start(self) -> None:
        self.run.start({"wafer": self.fast, "gpu": self.deep}, request())

    @property
    def said(self) -> list[tuple[str, str | None]]:
        """Returns every delta's text with the phase of its item."""
        phases = {
            event["output_index"]: event["item"].get("phase")
            for event in self.heard.events
            if event["type"] == "response.output_item.added"
        }
        return [
            (event["delta"], phases[event["output_index"]])
            for event in self.heard.events
            if event["type"].endswith(".delta")
        ]

    @property
    def items(self) -> list[dict[str, Any]]:
        """Returns the items that have begun."""
        return [
            event["item"]
            for event in self.heard.events
            if event["type"] == "response.output_item.added"
        ]

    def outcome(self) -> RunOutcome:
        return self.run.ended.result()


async def test_one_backend_passes_through() -> None:
    stage = Stage(None)
    stage.start()
    generation = stage.fast.only
    assert generation.request.id == "resp_1"
    stage.now_us = 40
    generation.sink.push(text("a", at_us=10))
    stage.now_us = 50
    generation.sink.push(text("b", at_us=30))
    assert not stage.run.ended.done()
    generation.sink.finish(stop(3))
    assert stage.outcome() == RunOutcome(stop(3))
    assert stage.said == [("a", None), ("b", None)]
    stage.run.close()
    assert generation.num_cancels == 0, "it had finished"
    assert usages_of(stage.run) == [stop(3).usage]
    first = stage.run.shown.first_branch
    assert first is not None
    assert (first.backend_index, first.times) == (0, TokenTimes(10, text("b", at_us=30), 40))
    assert (first.num_pieces, first.last_at_us) == (2, 30)
    assert stage.deep.generations == []


async def test_an_engines_error_is_the_outcome() -> None:
    stage = Stage(None)
    stage.start()
    stage.fast.only.sink.push(text("a"))
    stage.fast.only.sink.finish(failure())
    outcome = stage.outcome()
    assert outcome.finish is not None
    assert outcome.finish.reason is FinishReason.ERROR
    assert [error.backend for error in outcome.errors] == ["wafer"]
    assert usages_of(stage.run) == [failure().usage]


async def test_a_refusal_of_the_only_backend_is_raised() -> None:
    stage = Stage(None, fast_refuses=FULL)
    with pytest.raises(BackendError) as caught:
        stage.start()
    assert caught.value is FULL
    stage.run.close()
    assert usages_of(stage.run) == [Usage()]
    assert stage.said == []


@pytest.mark.parametrize("strategy", WITHOUT_DELEGATE)
async def test_refusals_of_both_backends_are_raised(strategy: str) -> None:
    stage = Stage(strategy, fast_refuses=FULL, deep_refuses=DOWN)
    with pytest.raises(BackendError) as caught:
        stage.start()
    assert caught.value is (FULL if strategy == "hedge" else DOWN), "whoever was asked last"
    stage.run.close()
    assert usages_of(stage.run) == [Usage(), Usage()]


REFUSALS: list[tuple[str, int]] = [
    *((strategy, 0) for strategy in WITHOUT_DELEGATE if strategy != "hedge"),
    ("hedge", 1),
]


@pytest.mark.parametrize(("strategy", "refusing"), REFUSALS)
async def test_one_refusal_leaves_the_other_backend(strategy: str, refusing: int) -> None:
    refusals = [FULL, None] if refusing == 0 else [None, DOWN]
    stage = Stage(strategy, fast_refuses=refusals[0], deep_refuses=refusals[1])
    stage.start()
    left = 1 - refusing
    sink = (stage.fast, stage.deep)[left].generations[-1].sink
    sink.push(text("alone"))
    sink.finish(stop(4))
    outcome = stage.outcome()
    assert stage.said == [("alone", "final_answer")]
    assert set(outcome.errors) == {(FULL, DOWN)[refusing]}
    assert outcome.finish is not None
    assert outcome.finish.error is None
    stage.run.close()
    assert usages_of(stage.run)[left].num_output_tokens >= 4
    assert usages_of(stage.run)[refusing] == Usage()


@pytest.mark.parametrize("strategy", [None, *WITHOUT_DELEGATE])
async def test_stop_ends_it_from_outside(strategy: str | None) -> None:
    stage = Stage(strategy)
    stage.start()
    generations = stage.fast.generations + stage.deep.generations
    generations[0].sink.push(text("a"))
    for _ in range(2):
        stage.run.stop()
        assert stage.outcome() == RunOutcome(None)
        assert [generation.num_cancels for generation in generations] == [1] * len(generations)
        assert sum(usages_of(stage.run), Usage()) == sum([USED] * len(generations), Usage())
        stage.run.close()


async def test_nothing_begins_after_a_stop() -> None:
    for strategy in WITHOUT_DELEGATE:
        stage = Stage(strategy)
        stage.start()
        generations = stage.fast.generations + stage.deep.generations
        stage.run.stop()
        for generation in generations:
            generation.sink.finish(stop())  # as a backend might that hears of the cancel too late
        await asyncio.sleep(0)
        assert stage.fast.generations + stage.deep.generations == generations


async def test_hedge_lets_the_fast_engine_join_in_time() -> None:
    stage = Stage("hedge", hedge_after_ms=0)
    stage.start()
    assert stage.fast.generations == []
    await until(lambda: bool(stage.fast.generations))
    stage.fast.only.sink.push(text("quick"))
    assert stage.deep.only.num_cancels == 0, "it may break off yet"
    assert stage.said == [], "and is not shown until it leads"
    stage.fast.only.sink.push(text(" and so on for many words to come"))
    assert stage.deep.only.num_cancels == 1, "it leads"
    stage.fast.only.sink.finish(stop(2))
    assert stage.said[0] == ("quick and so on for many words to come", "final_answer")
    assert stage.outcome().finish is not None
    assert [row.state for row in stage.run.branches.generations()] == ["cancelled", "finished"]
    assert [held.settled for held in stage.apart.held] == [[stop(2).usage]]


async def test_what_the_loser_has_reasoned_is_not_of_the_answer() -> None:
    stage = Stage("hedge", hedge_after_ms=0)
    stage.start()
    stage.deep.only.sink.push(Delta(0, DeltaKind.REASONING, "hm", 2, 0))
    await until(lambda: bool(stage.fast.generations))
    stage.fast.only.sink.push(text("quick"))
    stage.fast.only.sink.push(text(" and so on for many words to come"))
    stage.fast.only.sink.finish(stop(5))
    assert stage.outcome().finish is not None
    assert stage.run.branches.answer_usage(9).num_output_tokens == 5


async def test_a_draft_that_nobody_has_seen_is_not_of_the_answer() -> None:
    stage = Stage("draft")
    stage.start()
    stage.fast.only.sink.push(text("a draft"))
    stage.run.stop()
    assert stage.run.branches.answer_usage(9) == Usage(num_input_tokens=9)


async def test_hedge_gives_the_fast_engine_back_the_moment_it_has_lost() -> None:
    stage = Stage("hedge", hedge_after_ms=0)
    stage.start()
    await until(lambda: bool(stage.fast.generations))
    stage.deep.only.sink.push(text("after all"))
    stage.deep.only.sink.push(text(" it says a lot of words that are many"))
    assert stage.fast.only.num_cancels == 1
    assert [held.settled for held in stage.apart.held] == [[USED]], "while deep goes on"
    assert not stage.run.ended.done()
    stage.deep.only.sink.finish(stop())
    stage.run.close()
    assert [held.settled for held in stage.apart.held] == [[USED]]


JSON = TextFormat("json_object")


@pytest.mark.parametrize("strategy", ["hedge", "breadth"])
async def test_an_answer_in_json_is_one_message(strategy: str) -> None:
    stage = Stage(strategy, num_variations=2)
    stage.run.start({"wafer": stage.fast, "gpu": stage.deep}, request(text_format=JSON))
    for generation in stage.fast.generations:
        generation.sink.push(text("{}"))
        generation.sink.finish(stop())
    for generation in stage.deep.generations:
        generation.sink.push(text('{"a":1}'))
        generation.sink.finish(stop())
    assert stage.outcome().finish is not None
    assert stage.said[-1] == ('{"a":1}', "final_answer")
    assert [item["type"] for item in stage.items].count("message") == 1, "drafts are shown apart"
    assert len(stage.fast.generations) == (0 if strategy == "hedge" else 2)


async def test_a_draft_that_stands_is_the_answer() -> None:
    stage = Stage("breadth", num_variations=2, deep_refuses=DOWN)
    stage.run.start({"wafer": stage.fast, "gpu": stage.deep}, request(text_format=JSON))
    for generation in stage.fast.generations:
        generation.sink.push(text("{"))
        generation.sink.push(text("}"))
        generation.sink.finish(stop())
    assert stage.outcome().errors == (DOWN,)
    assert stage.said[-1] == ("{}", "final_answer")
    assert [item["type"] for item in stage.items] == [*["reasoning"] * 2, "message"]
    assert stage.run.shown.answered_by == "wafer"
    assert stage.run.shown.first_branch is not None


async def test_breadth_starts_all_variations_at_once_and_adds_their_usage_up() -> None:
    stage = Stage("breadth", num_variations=3)
    stage.start()
    assert [g.request.id for g in stage.fast.generations] == ["resp_1-0", "resp_1-1", "resp_1-2"]
    for number, generation in enumerate(stage.fast.generations):
        generation.sink.push(text(f"v{number}"))
        generation.sink.finish(stop(10))
    stage.deep.only.sink.push(text("best"))
    stage.deep.only.sink.finish(stop(5))
    assert usages_of(stage.run) == [
        Usage(num_input_tokens=21, num_output_tokens=30),
        stop(5).usage,
    ]
    assert stage.outcome().finish is not None
    assert stage.run.shown.answered_by == "gpu"
    assert stage.run.branches.generations() == (
        *[RoutedGeneration("wafer", "vary", "finished", 7, 0, 10, 0)] * 3,
        RoutedGeneration("gpu", "judge", "finished", 7, 0, 5, 0),
    )


async def test_a_final_answer_that_is_cut_is_no_whole_one() -> None:
    stage = Stage("breadth", num_variations=2, judged=False)
    stage.start()
    first, second = (generation.sink for generation in stage.fast.generations)
    first.push(text("half"))
    second.push(text("whole"))
    second.finish(stop())
    first.finish(failure())
    assert stage.outcome().finish is not None
    events = stage.heard.events
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [(item["status"], item["content"][0]["text"]) for item in done] == [
        ("incomplete", "half")
    ]
    assert stage.said == [("half", "final_answer"), ("whole", "final_answer")]


async def test_a_fault_of_ours_in_the_timer_ends_the_run() -> None:
    stage = Stage("hedge", hedge_after_ms=0, fast_refuses=RuntimeError("a fault of ours"))
    stage.start()
    await until(stage.run.ended.done)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        stage.outcome()
    assert stage.deep.only.num_cancels == 1


async def test_stop_after_the_end_changes_nothing() -> None:
    stage = Stage(None)
    stage.start()
    stage.fast.only.sink.finish(stop(3))
    stage.run.stop()
    assert stage.outcome() == RunOutcome(stop(3))
    assert stage.fast.only.num_cancels == 0


async def test_stop_before_the_start_of_a_backend_costs_nothing() -> None:
    stage = Stage("hedge")
    stage.run.close()
    assert usages_of(stage.run) == [Usage(), Usage()]


async def test_a_finish_after_the_wait_was_cancelled_is_harmless() -> None:
    stage = Stage(None)
    stage.start()
    stage.run.ended.cancel()
    stage.fast.only.sink.finish(stop())
    assert stage.run.ended.cancelled()


@pytest.mark.parametrize(
    ("num_output_tokens", "tpot_us"), [(0, None), (1, None), (2, 90.0), (10, 10.0)]
)
async def test_tpot(num_output_tokens: int, tpot_us: float | None) -> None:
    stage = Stage(None)
    stage.start()
    branch = stage.run.branches[0]
    branch.times, branch.last_at_us = TokenTimes(10, text("b", at_us=100), 5), 100
    branch.over(Usage(num_output_tokens=num_output_tokens))
    assert branch.tpot_us == tpot_us


async def test_a_fault_of_ours_ends_its_run_and_spares_the_engine() -> None:
    stage = Stage(None)
    stage.start()

    def fails(delta: object, phase: object) -> None:
        raise RuntimeError("a fault of ours")

    stage.writer.push = fails  # type: ignore[method-assign,assignment]
    stage.fast.only.sink.push(text("a"))  # raises nothing into the engine
    with pytest.raises(RuntimeError, match="a fault of ours"):
        stage.outcome()
    assert stage.fast.only.num_cancels == 1
