"""Tests the link's frames: what goes in comes out, joined where it can be."""

from backends.contract import (
    BackendError,
    BackendInfo,
    BackendStats,
    ContextItem,
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    FunctionTool,
    GenerateRequest,
    Message,
    TextPart,
    Usage,
)
from backends.link.frames import (
    VERSION,
    Cancel,
    Hello,
    Start,
    Step,
    StepBuilder,
    encode,
    engine_frames,
    finish_of,
    gateway_frames,
)

INFO = BackendInfo(
    name="wafer", model="fast", group="fast", window_tokens=1000, max_output_tokens=100
)
STATS = BackendStats(
    info=INFO,
    healthy=True,
    num_running=1,
    num_waiting=0,
    max_num_seqs=8,
    kv_used_tokens=10,
    kv_capacity_tokens=100,
)
REQUEST = GenerateRequest(
    id="resp_1",
    model="fast",
    items=(ContextItem(Message("user", (TextPart("hi"),)), 5, 2**64 - 1),),
    num_prompt_tokens=5,
    prefix=((2**64 - 1, 5),),
    max_output_tokens=10,
    tools=(FunctionTool("f", parameters={"type": "object"}),),
)


def text(index: int, piece: str, at_us: int = 0) -> Delta:
    return Delta(index, DeltaKind.TEXT, piece, 1, at_us)


def test_frames_come_out_as_they_went_in() -> None:
    hello = Hello(VERSION, 123, INFO, STATS)
    assert engine_frames.decode(encode(hello)) == hello
    for frame in (Start(7, REQUEST), Cancel(7)):
        assert gateway_frames.decode(encode(frame)) == frame


def test_a_step_holds_columns_for_all_generations() -> None:
    steps = StepBuilder()
    steps.add(1, text(0, "a", 10))
    steps.add(2, Delta(0, DeltaKind.FUNCTION_CALL, "{", 1, 11, "call_1", "f"))
    steps.add(1, text(0, "b", 20))
    steps.add(1, text(1, "c", 30))
    step = steps.take(STATS)
    assert step is not None
    assert engine_frames.decode(encode(step)) == step
    assert step.keys == [1, 2, 1]
    assert step.texts == ["ab", "{", "c"]
    assert step.num_tokens == [2, 1, 1]
    assert step.at_us == [20, 11, 30]
    assert step.calls == {1: ("call_1", "f")}
    assert steps.take(None) is None, "taken is gone"


def test_a_step_carries_sealed_reasoning_and_phases() -> None:
    steps = StepBuilder()
    steps.add(1, Delta(0, DeltaKind.REASONING, "Hm.", 1, 10))
    steps.add(1, Delta(0, DeltaKind.REASONING, "", 0, 11, sealed="blob"))
    steps.add(2, Delta(0, DeltaKind.TEXT, "So ", 1, 12, phase="commentary"))
    steps.add(1, text(1, "Yes."))
    steps.add(2, Delta(0, DeltaKind.TEXT, "far.", 1, 13, phase="commentary"))
    step = steps.take(None)
    assert step is not None
    assert engine_frames.decode(encode(step)) == step
    assert step.texts == ["Hm.", "So far.", "Yes."]
    assert (step.sealed, step.phases) == ({0: "blob"}, {1: "commentary"})


def test_a_seal_stays_when_more_joins_its_row() -> None:
    steps = StepBuilder()
    steps.add(1, Delta(0, DeltaKind.REASONING, "", 0, 11, sealed="blob"))
    steps.add(1, Delta(0, DeltaKind.REASONING, "late", 1, 12))
    step = steps.take(None)
    assert step is not None
    assert step.sealed == {0: "blob"}


def test_what_a_cancelled_generation_said_is_dropped() -> None:
    steps = StepBuilder()
    steps.add(1, text(0, "a"))
    steps.add(2, text(0, "b"))
    steps.end(1, Finish(FinishReason.STOP, Usage(), 0))
    steps.forget(1)
    steps.add(2, text(0, "c"))
    step = steps.take(None)
    assert step == Step([2], [0], [0], ["bc"], [2], [0], {}, [])


def test_an_end_keeps_its_stop_sequence() -> None:
    steps = StepBuilder()
    steps.end(1, Finish(FinishReason.STOP, Usage(3, 1, 2), 100, None, "END"))
    step = steps.take(None)
    assert step is not None
    decoded = engine_frames.decode(encode(step))
    assert isinstance(decoded, Step)
    assert finish_of(decoded.ends[0], "link", 1000).stop_sequence == "END"


def test_an_end_keeps_its_error_and_moves_to_the_gateways_clock() -> None:
    error = BackendError("remote", "server_error", "it broke", retryable=True, param="tools")
    steps = StepBuilder()
    steps.end(1, Finish(FinishReason.ERROR, Usage(3, 1, 2), 100, error))
    step = steps.take(None)
    assert step is not None
    decoded = engine_frames.decode(encode(step))
    assert isinstance(decoded, Step)
    finish = finish_of(decoded.ends[0], "link", 1000)
    assert finish.reason is FinishReason.ERROR
    assert (finish.usage, finish.at_us) == (Usage(3, 1, 2), 1100)
    assert finish.error is not None
    assert (finish.error.backend, finish.error.code) == ("link", "server_error")
    assert finish.error.param == "tools"
    assert finish.error.retryable
