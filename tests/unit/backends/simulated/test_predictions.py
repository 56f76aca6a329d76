"""Tests predictions at the simulated engines: the answer is compared, sooner, and counted."""

import asyncio
import random
from typing import Any

import msgspec

from backends.contract import Finish, FinishReason, Usage
from backends.simulated.backend import SimulatedBackend
from backends.simulated.gpu import GpuOptions, cost_of
from backends.simulated.wafer import WaferBackendConfig
from tests.sim.sleeping_loop import SleepingLoop
from tests.unit.backends.script.requests import request, user
from tests.unit.backends.simulated.sinks import RecordingSink

ASK = request(user("Write 120 words about caches."))


async def deep(**options: Any) -> SimulatedBackend:
    """Returns a GPU engine on the running loop's clock, which never waits."""
    loop = asyncio.get_running_loop()
    set_to = GpuOptions(overhead_us=0.0, **options)
    info = set_to.info("gpu", "deep", takes_predictions=set_to.takes_predictions)
    return SimulatedBackend(
        info, cost_of(set_to), set_to, clock_us=lambda: round(loop.time() * 1e6)
    )


async def _answered(
    prediction: str | None, fields: dict[str, Any], options: dict[str, Any]
) -> tuple[str, Finish, int]:
    backend, sink = await deep(**options), RecordingSink()
    backend.start(msgspec.structs.replace(ASK, prediction=prediction, **fields), sink)
    await sink.ended.wait()
    assert sink.finished is not None
    await backend.close()
    return sink.text, sink.finished, sink.finished.at_us - sink.deltas[0].at_us


def answered(
    prediction: str | None, options: dict[str, Any] | None = None, **fields: Any
) -> tuple[str, Finish, int]:
    """Returns the answer, its finish, and how long it took by the engine's clock."""
    with asyncio.Runner(loop_factory=lambda: SleepingLoop(random.Random(1))) as runner:
        return runner.run(_answered(prediction, fields, options or {}))


def test_a_right_prediction_changes_no_word_and_takes_a_fraction_of_the_time() -> None:
    text, plain, alone_us = answered(None)
    same, finish, us = answered(text)
    assert same == text
    assert us < alone_us / 5
    num_tokens = plain.usage.num_output_tokens
    assert finish.usage.num_output_tokens == num_tokens
    assert finish.usage.num_accepted_tokens == num_tokens - 1, "the first came with the prompt"
    assert finish.usage.num_rejected_tokens == 0


def test_a_wrong_prediction_costs_little_and_is_charged() -> None:
    text, plain, alone_us = answered(None)
    same, finish, us = answered("0 " * 400)
    assert same == text
    assert us < 1.1 * alone_us
    usage = finish.usage
    assert usage.num_accepted_tokens == 0
    assert usage.num_rejected_tokens > 0
    expected = plain.usage.num_output_tokens + usage.num_rejected_tokens
    assert usage.num_output_tokens == expected


def test_an_acceptance_may_be_set_and_is_drawn_the_same_each_time() -> None:
    text, _, _ = answered(None)
    first, once, _ = answered("word " * 400, {"prediction_acceptance": 0.8})
    again, twice, _ = answered("word " * 400, {"prediction_acceptance": 0.8})
    assert first == again == text
    assert once.usage == twice.usage
    num_tokens = once.usage.num_output_tokens - once.usage.num_rejected_tokens
    assert 0.7 < once.usage.num_accepted_tokens / num_tokens < 0.9


def test_reasoning_comes_before_what_was_predicted() -> None:
    text, _, _ = answered(None, reasoning_effort="medium")
    same, finish, _ = answered(text, reasoning_effort="medium")
    assert same == text
    usage = finish.usage
    said = usage.num_output_tokens - usage.num_reasoning_tokens
    assert usage.num_reasoning_tokens > 0
    assert usage.num_accepted_tokens == said
    assert usage.num_rejected_tokens == 0


def test_a_limit_or_a_stop_ends_a_predicted_answer_where_it_should() -> None:
    text, _, _ = answered(None)
    cut, finish, _ = answered(text, max_output_tokens=40)
    assert (finish.reason, finish.usage.num_output_tokens) == (FinishReason.LENGTH, 40)
    assert text.startswith(cut)
    stop = text.split()[30]
    stopped, finish, _ = answered(text, stop=(stop,))
    assert stopped == text[: text.index(stop)]
    assert finish.reason is FinishReason.STOP


def test_a_cancelled_one_is_charged_for_what_was_computed() -> None:
    text, _, _ = answered(None)

    async def cancelled() -> tuple[Usage, int]:
        backend, sink = await deep(), RecordingSink()
        generation = backend.start(msgspec.structs.replace(ASK, prediction=text), sink)
        await asyncio.sleep(0.06)
        assert sink.num_tokens > 0
        assert sink.finished is None
        usage = generation.cancel()
        stats = backend.stats()
        assert (stats.num_running, stats.kv_used_tokens) == (0, 0)
        await backend.close()
        return usage, sink.num_tokens

    with asyncio.Runner(loop_factory=lambda: SleepingLoop(random.Random(1))) as runner:
        usage, num_seen = runner.run(cancelled())
    assert usage.num_output_tokens >= num_seen
    assert 0 < usage.num_accepted_tokens < usage.num_output_tokens


def test_an_engine_without_the_option_ignores_it() -> None:
    _, finish, _ = answered("0 " * 400, {"takes_predictions": False})
    assert finish.usage.num_rejected_tokens == 0


async def test_both_simulated_engines_take_predictions() -> None:
    backend = WaferBackendConfig().make()
    assert backend.info.takes_predictions
    await backend.close()
