"""`draft` over the simulated engines, in their own time: what it gains, and what it costs at worst.

Ratios to the deep engine alone, which writes the same answer in the same run.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from backends.simulated.backend import SimulatedBackend
from backends.simulated.gpu import GpuOptions
from backends.simulated.gpu import cost_of as gpu_cost
from backends.simulated.wafer import WaferOptions
from backends.simulated.wafer import cost_of as wafer_cost
from gateway.task.pipeline import handle_task
from router.strategies.draft import SILENCE_US
from tests.e2e.events import check_response
from tests.sim.sleeping_loop import SleepingLoop
from tests.sim.timed import BreakingBackend, HangingBackend, Punctual
from tests.unit.gateway.world import World

ASK = "Write a Python program of 300 lines that simulates a library."
START_US = 10_000_000


class Answered(msgspec.Struct):
    """A response, and when its first and its last word came, from its arrival."""

    response: dict[str, Any]
    first_us: int
    end_us: int

    @property
    def text(self) -> str:
        """The whole text of the one message."""
        (message,) = self.response["output"]
        return str(message["content"][0]["text"])

    def used(self, backend: str) -> dict[str, Any]:
        """What a backend used."""
        used: dict[str, Any] = self.response["routing"]["usage"][backend]
        return used


async def _answered(
    metadata: dict[str, str], fast: type[SimulatedBackend], **options: Any
) -> Answered:
    loop = asyncio.get_running_loop()

    def clock_us() -> int:
        return START_US + round(loop.time() * 1e6)

    world = World()
    world.gw.clock_us = clock_us
    backends = {
        "wafer": _backend("wafer", WaferOptions(), wafer_cost(WaferOptions()), clock_us),
        "gpu": _backend("gpu", GpuOptions(**options), gpu_cost(GpuOptions()), clock_us),
    }
    world.gw.backends = backends
    backends["wafer"].__class__ = fast
    words_us: list[int] = []
    emit = world.heard.emit

    def timed(event_type: str, frame: bytes) -> None:
        if event_type == "response.output_text.delta":
            words_us.append(clock_us() - START_US)
        emit(event_type, frame)

    world.heard.emit = timed  # type: ignore[method-assign]
    await handle_task(world.gw, world.job(input=ASK, metadata=metadata))
    await world.check()
    for backend in backends.values():
        stats = backend.stats()
        assert (stats.num_running, stats.num_waiting, stats.kv_used_tokens) == (0, 0, 0)
        await backend.close()
    check_response(world.heard.events)
    assert world.terminal["status"] == "completed"
    return Answered(world.terminal, words_us[0], words_us[-1])


def _backend(name: str, options: Any, cost: Any, clock_us: Callable[[], int]) -> SimulatedBackend:
    group: Any = "fast" if name == "wafer" else "deep"
    info = options.info(name, group, takes_predictions=options.takes_predictions)
    return SimulatedBackend(info, cost, options, clock_us=clock_us)


def answered(
    strategy: str | None = "draft",
    *,
    fast: type[SimulatedBackend] = SimulatedBackend,
    metadata: dict[str, str] | None = None,
    **options: Any,
) -> Answered:
    """The task on an idle gateway; `options` are the deep engine's, `fast` the other's class."""
    asked = dict(metadata or {})
    asked |= {"route": "deep"} if strategy is None else {"strategy": strategy}
    with asyncio.Runner(loop_factory=lambda: SleepingLoop(Punctual())) as runner:
        return runner.run(_answered(asked, fast, **options))


@pytest.fixture(scope="module")
def deep() -> Answered:
    return answered(None)


def test_the_ask_is_for_300_lines(deep: Answered) -> None:
    assert 280 <= deep.text.count("\n") <= 320


def test_it_takes_a_third_of_the_time_where_four_of_five_tokens_are_right(deep: Answered) -> None:
    drafted = answered(prediction_acceptance=0.8)
    assert drafted.text == deep.text, "one message, in the deep engine's own words"
    assert drafted.end_us <= deep.end_us / 3
    details = drafted.used("gpu")["output_tokens_details"]
    num_tokens = deep.used("gpu")["output_tokens"]
    assert details["accepted_prediction_tokens"] == pytest.approx(0.8 * num_tokens, rel=0.05)
    rejected = details["rejected_prediction_tokens"]
    assert 0 < rejected < num_tokens
    assert drafted.used("gpu")["output_tokens"] == num_tokens + rejected, "charged, as servers do"
    parts = [(row["part"], row["state"]) for row in drafted.response["routing"]["generations"]]
    assert parts == [("draft", "finished"), ("answer", "finished")]


def test_it_is_hardly_slower_where_no_token_is_right(deep: Answered) -> None:
    drafted = answered(prediction_acceptance=0.0)
    assert drafted.text == deep.text
    assert drafted.end_us <= 1.1 * deep.end_us


def test_by_their_own_words_the_engines_say_nearly_the_same(deep: Answered) -> None:
    drafted = answered()
    assert drafted.text == deep.text
    assert drafted.end_us < deep.end_us / 5


def test_a_draft_that_is_late_predicts_as_far_as_it_came(deep: Answered) -> None:
    drafted = answered(metadata={"draft_ms": "500"})
    assert drafted.text == deep.text
    assert 500_000 <= drafted.first_us <= 500_000 + 2 * deep.first_us + 20_000
    assert drafted.end_us < deep.end_us
    states = [row["state"] for row in drafted.response["routing"]["generations"]]
    assert states == ["cancelled", "finished"]


def test_a_silent_fast_engine_holds_nothing_up(deep: Answered) -> None:
    drafted = answered(fast=HangingBackend)
    assert drafted.text == deep.text
    assert drafted.first_us <= SILENCE_US + deep.first_us + 20_000
    assert "backend wafer: silent for 1 s" in drafted.response["routing"]["errors"][0]


def test_a_draft_that_breaks_off_predicts_as_far_as_it_came(deep: Answered) -> None:
    drafted = answered(fast=BreakingBackend)
    assert drafted.text == deep.text
    assert drafted.end_us < deep.end_us
    rows = drafted.response["routing"]["generations"]
    found = [(row["backend"], row["part"], row["state"]) for row in rows]
    assert found == [("wafer", "draft", "failed"), ("gpu", "answer", "finished")], "nobody goes on"
    assert drafted.used("gpu")["output_tokens_details"]["accepted_prediction_tokens"] > 0


def test_without_predictions_it_is_the_deep_engine_alone(deep: Answered) -> None:
    plain = answered(takes_predictions=False)
    assert (plain.text, plain.end_us) == (deep.text, deep.end_us)
    assert plain.response["routing"]["strategy"] is None
    assert "no deep engine that takes predictions is up" in plain.response["routing"]["why"]
