"""Tests what is counted of compactions."""

import asyncio
from typing import Any

import pytest

from tests.unit.gateway.compacting import SUMMARY, held, run, world_of
from tests.unit.gateway.doubles import failure
from tests.unit.gateway.playing_backend import Script
from tests.unit.gateway.world import World


def told(world: World) -> dict[tuple[str, str], float]:
    """Counts compactions by (kind, outcome)."""
    return {
        (sample.labels["kind"], sample.labels["outcome"]): sample.value
        for family in world.gw.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "lanewise_compactions_total" and sample.value
    }


def tokens(world: World, kind: str, moment: str) -> float:
    return world.sample("lanewise_compaction_tokens_sum", kind=kind, moment=moment)


TRIGGER: dict[str, Any] = {
    "context_management": None,
    "previous_response_id": "resp_stored",
    "input": [{"type": "compaction_trigger"}],
}


@pytest.mark.parametrize(
    ("summary", "fields", "most", "expected"),
    [
        (SUMMARY, {}, 2, ("automatic", "done")),
        ([failure()], {}, 2, ("automatic", "failed")),
        (SUMMARY, {}, 0, ("automatic", "limit_reached")),
        (SUMMARY, TRIGGER, 2, ("requested", "done")),
        ([failure()], TRIGGER, 2, ("requested", "failed")),
        (SUMMARY, {"context_management": None}, 2, None),
    ],
)
async def test_each_is_counted_once(
    summary: Script, fields: dict[str, Any], most: int, expected: tuple[str, str] | None
) -> None:
    world = world_of(summary)
    world.gw.max_compactions = most
    await run(world, **fields)
    assert told(world) == ({} if expected is None else {expected: 1.0})
    kind, outcome = expected or ("automatic", "")
    before, after = tokens(world, kind, "before"), tokens(world, kind, "after")
    assert (before > after > 0) if outcome == "done" else (before == after == 0)
    if kind == "automatic" and outcome == "done":
        view = world.terminal["routing"]["compaction"]
        assert (view["tokens_before"], view["tokens_after"]) == (before, after)


@pytest.mark.parametrize("how", ["cancelled", "leaves"])
async def test_what_is_not_wanted_any_more_has_not_failed(how: str) -> None:
    world, _, job, pump = await held()
    if how == "leaves":
        pump.cancel()
    else:
        job.stop(how)
    await asyncio.gather(pump, return_exceptions=True)
    await world.check()
    assert told(world) == {("automatic", "stopped"): 1.0}
