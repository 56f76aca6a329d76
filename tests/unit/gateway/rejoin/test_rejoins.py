"""For how long an ended response is remembered whose client may not have received its end."""

import msgspec
import pytest

from gateway.config.sections import ServerConfig
from gateway.core.job import Job
from gateway.rejoin.rejoins import Rejoins
from gateway.rejoin.unconfirmed import Unconfirmed
from gateway.wire.response import unheard
from tests.unit.gateway.doubles import TENANT, parsed_create
from tests.unit.gateway.world import World


@pytest.mark.parametrize(
    ("configured_s", "by_policy_s", "expected_s"), [(20, None, 20), (20, 60, 60), (0, 60, 60)]
)
async def test_it_is_remembered_for_its_tenants_grace(
    configured_s: float, by_policy_s: float | None, expected_s: int
) -> None:
    now_us = 0
    world = World(clock_us=lambda: now_us)
    state = world.gw.state
    state.policy = msgspec.structs.replace(state.policy, rejoin_grace_s=by_policy_s)
    rejoins = Rejoins(world.gw, ServerConfig(rejoin_grace_s=configured_s))
    parsed = parsed_create()
    job = Job(parsed, unheard(parsed), TENANT, arrived_us=0, refuse=lambda _: None)
    last = Unconfirmed(job, None, None, 0)
    rejoins.note_ended(last)
    now_us = expected_s * 1_000_000
    await rejoins.sweep()
    assert last.job is job
    now_us += 1
    await rejoins.sweep()
    assert last.job is None
