"""Tests the simulated backends as the gateway uses them: deltas and one finish for a request."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from backends.contract import (
    BackendError,
    Delta,
    DeltaKind,
    Extras,
    Finish,
    FinishReason,
    FunctionTool,
    GenerateRequest,
    Message,
    Reasoning,
    TextPart,
    ToolChoice,
    Usage,
)
from backends.prompt import measure
from backends.simulated.backend import SimulatedBackend
from backends.simulated.gpu import GpuBackendConfig, GpuOptions
from backends.simulated.wafer import WaferBackendConfig, WaferOptions, cost_of
from backends.tokenizer import token_ends
from tests.unit.backends.script.requests import assistant, request, user
from tests.unit.backends.simulated.sinks import RecordingSink

FAST = WaferOptions(overhead_us=0.0)
DEEP = GpuOptions(overhead_us=0.0)


async def answered(backend: SimulatedBackend, made: GenerateRequest) -> RecordingSink:
    sink = RecordingSink()
    backend.start(made, sink)
    await asyncio.wait_for(sink.ended.wait(), 30)
    return sink


def finish_of(sink: RecordingSink) -> Finish:
    assert sink.finished is not None
    return sink.finished


async def test_a_fast_answer_whole() -> None:
    backend = WaferBackendConfig(name="w", options=FAST).make()
    made = request("Write 300 tokens about herons")
    sink = await answered(backend, made)
    finish = finish_of(sink)
    assert finish.reason is FinishReason.STOP
    energy_uj = finish.usage.energy_uj
    assert finish.usage == Usage(made.num_prompt_tokens, 0, 300, 0, energy_uj=energy_uj)
    assert energy_uj == pytest.approx(
        backend.stats().power_w * (finish.times.prefill_us + finish.times.decode_us), rel=0.01
    )
    assert sink.num_tokens == 300
    # The engine's own pace: over 1,000 tokens a second for a single user.
    span_us = finish.at_us - sink.deltas[0].at_us
    assert 299 / (span_us / 1e6) > 1_000
    assert finish.times is not None
    assert finish.times.queue_us >= 0
    assert finish.times.prefill_us > 0
    assert finish.times.decode_us == span_us
    stats = backend.stats()
    assert stats.power_w == cost_of(FAST).power_w > 0
    whole_us = finish.times.prefill_us + finish.times.decode_us
    assert stats.busy_us == pytest.approx(whole_us, abs=2)  # fractions of a microsecond
    assert sink.deltas[0].num_tokens == 1
    assert len(sink.deltas) < 150
    await backend.close()


@pytest.mark.parametrize(
    ("asks", "num_tokens", "reason"),
    [
        (Extras(min_tokens=150), 150, FinishReason.STOP),
        (Extras(min_tokens=5), 21, FinishReason.STOP),
        (Extras(ignore_eos=True), 200, FinishReason.LENGTH),
        (Extras(ignore_eos=True, min_tokens=200), 200, FinishReason.LENGTH),
    ],
)
async def test_an_answer_of_a_fixed_length(
    asks: Extras, num_tokens: int, reason: FinishReason
) -> None:
    backend = WaferBackendConfig(name="w", options=FAST).make()
    made = request("Write 21 tokens about herons", max_output_tokens=200, extras=asks)
    finish = finish_of(await answered(backend, made))
    assert (finish.usage.num_output_tokens, finish.reason) == (num_tokens, reason)
    await backend.close()


async def test_reasoning_is_sealed_for_who_sends_it_back() -> None:
    backend = GpuBackendConfig(name="g", options=DEEP).make()
    made = request("hello", reasoning_effort="medium", extras=Extras(seals_reasoning=True))
    sink = await answered(backend, made)
    (sealed,) = {delta.sealed for delta in sink.deltas} - {""}
    num_tokens = finish_of(sink).usage.num_reasoning_tokens
    assert measure(Reasoning(encrypted_content=sealed)).num_tokens == num_tokens
    await backend.close()


async def test_a_deep_answer_reasons_first_at_its_own_pace() -> None:
    backend = GpuBackendConfig(name="g", options=DEEP).make()
    sink = await answered(
        backend, request("hello", reasoning_effort="medium", max_output_tokens=100)
    )
    finish = finish_of(sink)
    assert sink.deltas[0].kind is DeltaKind.REASONING
    assert finish.usage.num_reasoning_tokens == 50
    assert sink.text
    rate = (sink.num_tokens - 1) / ((finish.at_us - sink.deltas[0].at_us) / 1e6)
    assert 60 < rate < 75
    await backend.close()


async def test_the_next_turn_finds_its_prefix() -> None:
    backend = WaferBackendConfig(options=FAST).make()
    first = await answered(backend, request("Write 200 tokens about herons"))
    turn = request(user("Write 200 tokens about herons"), assistant(first.text), "thanks")
    second = await answered(backend, turn)
    cached = finish_of(second).usage.num_cached_tokens
    assert turn.num_prompt_tokens - 30 < cached < turn.num_prompt_tokens
    await backend.close()


@pytest.mark.parametrize(("gpu", "source"), [("RTX-4090", ""), ("L40S", "RTX-4090")])
async def test_a_speed_that_was_taken_over_says_so(gpu: str, source: str) -> None:
    """Its band is in the backend's info, and so in `routing` and over links."""
    options = GpuOptions(gpu=gpu, engine="vllm_0_7", shape="Llama-3.1-8B", precision="w4a16", tp=1)
    backend = GpuBackendConfig(options=options).make()
    basis = backend.info.speed_basis
    assert (source in basis, "within about" in basis) == (True, bool(source))
    await backend.close()


async def test_a_warm_up_says_nothing_and_holds_the_prompt() -> None:
    for backend in (WaferBackendConfig(options=FAST).make(), GpuBackendConfig(options=DEEP).make()):
        ask = user("Read this. " + "It is long. " * 300)
        warm = msgspec.structs.replace(request(ask), generate=False)
        sink = await answered(backend, warm)
        assert (sink.deltas, finish_of(sink).usage) == ([], Usage(warm.num_prompt_tokens))
        assert backend.stats().num_warming == 0
        assert backend.stats().num_generated_tokens == 0
        turn = request(ask, "Now say 5 tokens.", max_output_tokens=5)
        cached = finish_of(await answered(backend, turn)).usage.num_cached_tokens
        assert warm.num_prompt_tokens - 16 <= cached <= warm.num_prompt_tokens
        again = finish_of(await answered(backend, warm)).usage
        assert again.num_cached_tokens >= warm.num_prompt_tokens - 16, "nothing to do"
        await backend.close()


async def test_a_warm_up_ends_like_any_other_generation() -> None:
    backend = GpuBackendConfig(options=DEEP).make()
    warm = msgspec.structs.replace(request("word " * 60_000), generate=False)
    sink, cut = RecordingSink(), RecordingSink()
    backend.start(warm, sink)
    generation = backend.start(warm, cut)
    assert (backend.stats().num_warming, backend.stats().num_waiting) == (2, 0)
    assert generation.cancel() == generation.cancel() == Usage()
    assert backend.stats().num_warming == 1
    await backend.close()
    assert finish_of(sink).reason is FinishReason.ERROR
    assert cut.finished is None


async def test_a_full_engine_declines_warm_ups() -> None:
    backend = WaferBackendConfig(options=WaferOptions(overhead_us=0.0, max_num_seqs=1)).make()
    generation = backend.start(request("Write 2000 tokens about herons"), RecordingSink())
    while not backend.stats().num_running:  # noqa: ASYNC110 - turns of the loop
        await asyncio.sleep(0)
    warm = msgspec.structs.replace(request("Read this."), generate=False)
    with pytest.raises(BackendError, match="no place to spare") as refused:
        backend.start(warm, RecordingSink())
    assert refused.value.code == "server_is_overloaded"
    generation.cancel()
    sinks = [RecordingSink() for _ in range(8)]
    long = msgspec.structs.replace(request("word " * 20_000), generate=False)
    for sink in sinks:
        backend.start(long, sink)
    with pytest.raises(BackendError, match="no place to spare"):
        backend.start(long, RecordingSink())
    await backend.close()


async def test_length_and_stop() -> None:
    backend = WaferBackendConfig(options=FAST).make()
    cut = await answered(backend, request("Write 200 tokens", max_output_tokens=10))
    assert finish_of(cut).reason is FinishReason.LENGTH
    assert finish_of(cut).usage.num_output_tokens == cut.num_tokens == 10
    stopped = await answered(backend, request("Say one two three", stop=(" two",)))
    assert (stopped.text, finish_of(stopped).reason) == ("one", FinishReason.STOP)
    silent = await answered(backend, request("Say one two three", stop=("one",)))
    assert (silent.deltas, finish_of(silent).usage.num_output_tokens) == ([], 1)
    await backend.close()


async def test_calls() -> None:
    backend = WaferBackendConfig(options=FAST).make()
    tool = FunctionTool("f", "", {"properties": {"n": {"type": "integer"}}, "required": ["n"]})
    made = request("use 7", tools=(tool,), tool_choice=ToolChoice("required"))
    sink = await answered(backend, made)
    assert {d.kind for d in sink.deltas} == {DeltaKind.FUNCTION_CALL}
    assert {(d.name, d.call_id) for d in sink.deltas} == {("f", sink.deltas[0].call_id)}
    assert msgspec.json.decode("".join(d.text for d in sink.deltas)) == {"n": 7}
    await backend.close()


async def test_cancel_counts_what_was_generated_and_silences() -> None:
    backend = WaferBackendConfig(options=FAST).make()
    sink = RecordingSink()
    seen = asyncio.Event()
    generation = backend.start(request("Write 9000 tokens"), sink)
    sink.push = lambda delta: (sink.deltas.append(delta), seen.set())  # type: ignore[assignment]
    await asyncio.wait_for(seen.wait(), 20)
    usage = generation.cancel()
    num_seen = sink.num_tokens
    assert usage.num_output_tokens >= num_seen >= 1
    assert generation.cancel() == usage
    other = await answered(backend, request("Say pong."))
    assert other.text == "pong"
    assert (sink.num_tokens, sink.finished) == (num_seen, None)
    assert backend.stats().kv_used_tokens == 0
    await backend.close()


async def test_cancel_from_within_a_push_says_nothing_more() -> None:
    backend = WaferBackendConfig(options=FAST).make()
    sink = RecordingSink()
    pushed = []

    def push(delta: Delta) -> None:
        pushed.append(delta)
        generation.cancel()

    sink.push = push  # type: ignore[method-assign]
    generation = backend.start(request("Write 900 tokens"), sink)
    await answered(backend, request("ping"))
    assert len(pushed) == 1
    assert sink.finished is None
    await backend.close()


async def test_cancel_within_the_last_push_counts_all_of_it() -> None:
    backend = WaferBackendConfig(options=FAST).make()
    sink = RecordingSink()
    usages: list[Usage] = []
    pushed = asyncio.Event()

    def push(_delta: Delta) -> None:
        usages.append(generation.cancel())
        pushed.set()

    sink.push = push  # type: ignore[method-assign]
    generation = backend.start(request("ping"), sink)
    # The engine has finished when the loop looks: all of it is one push.
    time.sleep(0.2)  # noqa: ASYNC251
    await asyncio.wait_for(pushed.wait(), 20)
    assert [usage.num_output_tokens > 0 for usage in usages] == [True]
    assert sink.finished is None
    await backend.close()


async def test_cancel_after_the_finish_returns_its_usage() -> None:
    backend = WaferBackendConfig(options=FAST).make()
    sink = RecordingSink()
    generation = backend.start(request("ping"), sink)
    await asyncio.wait_for(sink.ended.wait(), 20)
    assert generation.cancel() == finish_of(sink).usage
    await backend.close()


async def test_close_finishes_with_an_error_and_refuses_more() -> None:
    backend = WaferBackendConfig(options=FAST).make()
    sink = RecordingSink()
    backend.start(request("Write 900 tokens"), sink)
    await backend.close()
    finish = finish_of(sink)
    assert finish.reason is FinishReason.ERROR
    assert finish.error is not None
    assert (finish.error.code, finish.error.retryable) == ("server_error", True)
    assert not backend.stats().healthy
    with pytest.raises(BackendError, match="backend wafer: the engine is closed"):
        backend.start(request("hi"), RecordingSink())


async def test_what_is_refused() -> None:
    options = WaferOptions(overhead_us=0.0, window_tokens=100, max_num_seqs=1, max_num_waiting=2)
    backend = WaferBackendConfig(options=options).make()
    with pytest.raises(BackendError) as long:
        backend.start(request("word " * 100), RecordingSink())
    assert (long.value.code, long.value.retryable) == ("context_length_exceeded", False)
    for _ in range(3):
        backend.start(request("Write 90 tokens"), RecordingSink())
    with pytest.raises(BackendError) as full:
        backend.start(request("hi"), RecordingSink())
    assert (full.value.code, full.value.retryable) == ("server_is_overloaded", True)
    await backend.close()


async def test_the_window_bounds_the_output() -> None:
    backend = WaferBackendConfig(options=WaferOptions(overhead_us=0.0, window_tokens=100)).make()
    made = request("Write 900 tokens")
    sink = await answered(backend, made)
    assert finish_of(sink).reason is FinishReason.LENGTH
    assert sink.num_tokens == 100 - made.num_prompt_tokens
    await backend.close()


async def test_a_prompt_without_items() -> None:
    backend = WaferBackendConfig(options=FAST).make()
    assert (await answered(backend, request())).text
    await backend.close()


async def test_stats_and_identity() -> None:
    backend = WaferBackendConfig(
        name="w", options=WaferOptions(model="mine", overhead_us=0.0)
    ).make()
    assert (backend.info.name, backend.info.model, backend.info.group) == ("w", "mine", "fast")
    await answered(backend, request("Say pong."))
    stats = backend.stats()
    assert (stats.num_running, stats.num_waiting, stats.kv_used_tokens) == (0, 0, 0)
    assert stats.num_generated_tokens == 1
    assert stats.num_prompt_tokens == request("Say pong.").num_prompt_tokens
    assert stats.max_num_seqs > 0
    await backend.close()
    deep = GpuBackendConfig(name="g", options=GpuOptions(kv_capacity_tokens=50_007)).make()
    assert (deep.info.group, deep.info.accepts_images) == ("deep", True)
    assert deep.info.window_tokens == 50_000  # no wider than the blocks the cache can hold
    await deep.close()


async def test_a_prompt_without_tokens_leaves_room_for_the_one_that_engines_count() -> None:
    backend = GpuBackendConfig(options=GpuOptions(kv_capacity_tokens=1_600)).make()
    bare = request(max_output_tokens=9_999, extras=Extras(ignore_eos=True))
    assert bare.num_prompt_tokens == 0
    backend.start(bare, RecordingSink()).cancel()
    await backend.close()


async def test_echo_and_replay(tmp_path: Path) -> None:
    echo = WaferBackendConfig(options=WaferOptions(overhead_us=0.0, script="echo")).make()
    assert (await answered(echo, request("a b"))).text == "a b"
    recording = tmp_path / "recording.jsonl"
    recording.write_text('{"text": "as recorded"}\n')
    replay = GpuBackendConfig(
        options=GpuOptions(overhead_us=0.0, script="replay", replay_path=str(recording))
    ).make()
    assert (await answered(replay, request("a b"))).text == "as recorded"
    for backend in (echo, replay):
        await backend.close()
    with pytest.raises(ValueError, match="needs a replay_path"):
        WaferBackendConfig(options=WaferOptions(script="replay")).make()


@pytest.mark.parametrize("options", [WaferOptions(shape="nonesuch"), WaferOptions(num_wafers=1)])
async def test_options_that_cannot_be_met(options: WaferOptions) -> None:
    with pytest.raises(ValueError, match=r"nonesuch|too little"):
        WaferBackendConfig(options=options).make()


def test_options_come_from_configuration() -> None:
    decoded = msgspec.convert({"script": "echo", "max_num_seqs": 4}, WaferOptions)
    assert (decoded.script, decoded.max_num_seqs) == ("echo", 4)
    with pytest.raises(msgspec.ValidationError, match="unknown field `max_seqs`"):
        msgspec.convert({"max_seqs": 4}, WaferOptions)


async def test_two_engines_at_once_do_not_wait_for_each_other() -> None:
    fast, deep = WaferBackendConfig(options=FAST).make(), GpuBackendConfig(options=DEEP).make()
    slow = RecordingSink()
    deep.start(request("Write 60 tokens about herons"), slow)
    quick = await answered(fast, request("Write 60 tokens about herons"))
    assert quick.num_tokens == 60
    assert slow.finished is None
    await asyncio.wait_for(slow.ended.wait(), 30)
    assert slow.num_tokens == 60
    for backend in (fast, deep):
        await backend.close()


async def test_answers_come_from_the_whole_context() -> None:
    backend = WaferBackendConfig(options=FAST).make()
    question = Message("user", (TextPart("What is the code word?"),))
    sink = await answered(
        backend, request(user("The code word is OWL."), assistant("ok"), question)
    )
    assert "OWL" in sink.text
    await backend.close()


@pytest.mark.parametrize("limit", [20_000, 120])
async def test_an_answer_goes_on_behind_words_as_if_it_had_not_stopped(limit: int) -> None:
    backend = WaferBackendConfig(name="w", options=FAST).make()
    made = request("Write 300 tokens about herons", max_output_tokens=limit)
    whole = await answered(backend, made)
    num_said = 0
    for delta in whole.deltas[:-1:7]:
        num_said += delta.num_tokens
    said = whole.text[: token_ends(whole.text)[num_said - 1]]
    rest = await answered(
        backend,
        msgspec.structs.replace(
            made,
            prefill=said,
            max_output_tokens=limit - num_said,
            num_prompt_tokens=made.num_prompt_tokens + num_said,
        ),
    )
    assert said + rest.text == whole.text
    assert finish_of(rest).reason is finish_of(whole).reason
    assert finish_of(rest).usage.num_output_tokens == whole.num_tokens - num_said
    assert backend.info.prefills
    await backend.close()
