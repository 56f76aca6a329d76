"""Starting backends and merging what they push: one run, its ends, and what each backend used."""

from typing import Any

import pytest

from backends.contract import (
    BackendError,
    BackendGroup,
    CustomTool,
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
from gateway.dispatch import (
    BRIEF_INSTRUCTIONS,
    BRIEF_MAX_OUTPUT_TOKENS,
    Outcome,
    Pace,
    Run,
    branch_request,
)
from gateway.response import ResponseStream
from router.decision import RankedRoute, Reason
from router.task import Route, Strategy
from tests.unit.gateway.doubles import (
    RecordingBackend,
    Transcript,
    call,
    failure,
    parsed_create,
    stop,
    text,
)

FULL = BackendError("wafer", "server_is_overloaded", "full", retryable=True)
DOWN = BackendError("gpu", "server_error", "down", retryable=True)
USED = Usage(num_input_tokens=7, num_output_tokens=2)  # of a cancelled recording generation


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


def route(strategy: Strategy | None) -> RankedRoute:
    both = strategy is not None
    return RankedRoute(
        route=Route.PARALLEL if both else Route.FAST,
        backends=("wafer", "gpu") if both else ("wafer",),
        strategy=strategy,
        reason=Reason.CLASS,
        why="A test says so.",
    )


class Stage:
    """A run over two recording backends, and what its response said."""

    def __init__(
        self,
        strategy: Strategy | None,
        *,
        fast_refuses: BackendError | None = None,
        deep_refuses: BackendError | None = None,
    ) -> None:
        self.fast = RecordingBackend("wafer", "fast", refusing=fast_refuses)
        self.deep = RecordingBackend("gpu", "deep", refusing=deep_refuses)
        self.heard = Transcript()
        self.writer = ResponseStream(parsed_create(), self.heard.emit)
        self.writer.open(100, "m", {})
        self.now_us = 0
        self.run = Run(route(strategy), self.writer, lambda: self.now_us)

    def start(self) -> None:
        self.run.start({"wafer": self.fast, "gpu": self.deep}, request())

    @property
    def said(self) -> list[tuple[str, str | None]]:
        """Every delta's text with the phase of its item."""
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

    def outcome(self) -> Outcome:
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
    assert stage.outcome() == Outcome(stop(3))
    assert stage.said == [("a", None), ("b", None)]
    stage.run.close()
    assert generation.num_cancels == 0, "it had finished"
    assert stage.run.usages == [stop(3).usage]
    assert stage.run.first == Pace(0, 10, 30, 40)
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
    assert stage.run.usages == [failure().usage]


async def test_a_refusal_of_the_only_backend_is_raised() -> None:
    stage = Stage(None, fast_refuses=FULL)
    with pytest.raises(BackendError) as caught:
        stage.start()
    assert caught.value is FULL
    stage.run.close()
    assert stage.run.usages == [Usage()]
    assert stage.said == []


@pytest.mark.parametrize("strategy", ["brief", "race"])
async def test_refusals_of_both_backends_are_raised(strategy: Strategy) -> None:
    stage = Stage(strategy, fast_refuses=FULL, deep_refuses=DOWN)
    with pytest.raises(BackendError) as caught:
        stage.start()
    assert caught.value is DOWN
    assert not stage.run.ended.done()
    stage.run.close()
    assert stage.run.usages == [Usage(), Usage()]


@pytest.mark.parametrize("strategy", ["brief", "race"])
async def test_one_refusal_leaves_the_other_backend(strategy: Strategy) -> None:
    rows: list[tuple[BackendError | None, BackendError | None, int]] = [
        (FULL, None, 1),
        (None, DOWN, 0),
    ]
    for fast_refuses, deep_refuses, left in rows:
        stage = Stage(strategy, fast_refuses=fast_refuses, deep_refuses=deep_refuses)
        stage.start()
        sink = (stage.fast, stage.deep)[left].only.sink
        sink.push(text("alone"))
        sink.finish(stop(4))
        outcome = stage.outcome()
        assert stage.said == [("alone", "final_answer")]
        assert outcome.errors == ((FULL, DOWN)[1 - left],)
        assert outcome.finish is not None
        assert outcome.finish.error is None
        stage.run.close()
        assert stage.run.usages[left] == stop(4).usage
        assert stage.run.usages[1 - left] == Usage()


async def test_brief_comments_and_then_answers() -> None:
    stage = Stage("brief")
    stage.start()
    fast, deep = stage.fast.only, stage.deep.only
    fast.sink.push(text("soon"))
    deep.sink.push(text("it "))
    assert stage.said == [("soon", "commentary")]
    fast.sink.push(call("{}", 1))
    fast.sink.finish(stop(2))
    assert stage.said == [("soon", "commentary"), ("it ", "final_answer")]
    deep.sink.push(text("is"))
    deep.sink.push(call("{}", 1))
    deep.sink.finish(stop(5))
    assert [words for words, _ in stage.said] == ["soon", "it ", "is", "{}"]
    outcome = stage.outcome()
    assert outcome.finish is not None
    assert outcome.finish.usage == stop(2).usage + stop(5).usage
    assert (fast.num_cancels, deep.num_cancels) == (0, 0)


async def test_brief_cancels_commentary_that_comes_too_late() -> None:
    stage = Stage("brief")
    stage.start()
    stage.deep.only.sink.push(text("done"))
    stage.deep.only.sink.finish(stop())
    assert stage.outcome().finish is not None
    assert stage.fast.only.num_cancels == 1
    stage.run.close()
    assert stage.fast.only.num_cancels == 1
    assert stage.run.usages == [USED, stop().usage], "what was cancelled is paid too"
    assert stage.said == [("done", "final_answer")]


async def test_race_is_won_by_the_first_complete_answer() -> None:
    stage = Stage("race")
    stage.start()
    fast, deep = stage.fast.only, stage.deep.only
    deep.sink.push(text("deep "))
    fast.sink.push(text("fast"))
    assert stage.said == [], "nothing may go out that could lose"
    fast.sink.finish(stop(2))
    assert stage.said == [("fast", "final_answer")]
    assert (fast.num_cancels, deep.num_cancels) == (0, 1)
    assert stage.run.usages == [stop(2).usage, USED]
    assert stage.run.first is not None
    assert stage.run.first.backend == 0, "the client saw the winner's token first"
    assert stage.run.answerer == 0


@pytest.mark.parametrize("strategy", [None, "brief", "race"])
async def test_stop_ends_it_from_outside(strategy: Strategy | None) -> None:
    stage = Stage(strategy)
    stage.start()
    stage.fast.only.sink.push(text("a"))
    stage.run.stop()
    assert stage.outcome() == Outcome(None)
    generations = stage.fast.generations + stage.deep.generations
    assert [generation.num_cancels for generation in generations] == [1] * len(generations)
    assert stage.run.usages == [USED] * len(generations)
    stage.run.stop()
    stage.run.close()
    assert [generation.num_cancels for generation in generations] == [1] * len(generations)
    assert stage.run.usages == [USED] * len(generations)


async def test_stop_after_the_end_changes_nothing() -> None:
    stage = Stage(None)
    stage.start()
    stage.fast.only.sink.finish(stop(3))
    stage.run.stop()
    assert stage.outcome() == Outcome(stop(3))
    assert stage.fast.only.num_cancels == 0


async def test_stop_before_the_start_of_a_backend_costs_nothing() -> None:
    stage = Stage("race")
    stage.run.close()
    assert stage.run.usages == [Usage(), Usage()]


async def test_a_finish_after_the_wait_was_cancelled_is_harmless() -> None:
    stage = Stage(None)
    stage.start()
    stage.run.ended.cancel()
    stage.fast.only.sink.finish(stop())
    assert stage.run.ended.cancelled()


@pytest.mark.parametrize(
    ("num_output_tokens", "tpot_us"), [(0, None), (1, None), (2, 90.0), (10, 10.0)]
)
def test_tpot(num_output_tokens: int, tpot_us: float | None) -> None:
    usage = Usage(num_output_tokens=num_output_tokens)
    assert Pace(0, 10, 100, 5).tpot_us(usage) == tpot_us


# -- what each backend is asked ----------------------------------------------------------------


def asked(
    strategy: Strategy | None, index: int, *, window_tokens: int = 100_000, **fields: Any
) -> GenerateRequest:
    group: BackendGroup = "deep" if index else "fast"
    backend = RecordingBackend("any", group, window_tokens=window_tokens)
    return branch_request(request(**fields), route(strategy), index, backend.info)


def test_one_backend_is_asked_what_came() -> None:
    assert asked(None, 0) == request()


@pytest.mark.parametrize("index", [0, 1])
def test_racers_are_asked_the_same(index: int) -> None:
    assert asked("race", index) == request(id=f"resp_1-{index}")


def test_the_commentary_is_a_request_of_its_own() -> None:
    brief = asked("brief", 0, instructions="Rhyme.")
    assert brief.id == "resp_1-0"
    assert brief.instructions == f"Rhyme.\n\n{BRIEF_INSTRUCTIONS}"
    assert (brief.tools, brief.tool_choice) == ((), ToolChoice("none"))
    assert (brief.reasoning_effort, brief.reasoning_summary) == (None, None)
    assert brief.max_output_tokens == BRIEF_MAX_OUTPUT_TOKENS
    size = prompt_size(brief.instructions, (), brief.text_format, brief.items)
    assert (brief.num_prompt_tokens, brief.prefix) == size
    assert asked("brief", 0).instructions == BRIEF_INSTRUCTIONS
    assert asked("brief", 0, max_output_tokens=16).max_output_tokens == 16
    assert asked("brief", 1) == request(id="resp_1-1")


# wanted, window, given
ROOMS = [(1000, 100_000, 1000), (9_000, 100_000, 8_192), (1000, 500, None), (1000, 1, 1)]


@pytest.mark.parametrize(("wanted", "window_tokens", "given"), ROOMS)
def test_no_backend_is_asked_for_more_than_it_can_give(
    wanted: int, window_tokens: int, given: int | None
) -> None:
    made = asked(None, 0, window_tokens=window_tokens, max_output_tokens=wanted)
    room_tokens = window_tokens - made.num_prompt_tokens
    assert made.max_output_tokens == (room_tokens if given is None else given)


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
