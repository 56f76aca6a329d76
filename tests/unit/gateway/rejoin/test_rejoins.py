"""Tests how long lost responses are kept, and what they hold of their tenant's."""

import asyncio

import msgspec
import pytest

from gateway.config.sections import ServerConfig
from gateway.core.job import Ended, Job
from gateway.rejoin.rejoins import Rejoins
from gateway.rejoin.remote_response import RemoteResponse
from gateway.rejoin.unconfirmed import Unconfirmed
from gateway.task.context import load_task
from gateway.wire.response import Ending, unheard
from tests.unit.gateway.doubles import TENANT, parsed_create, stop
from tests.unit.gateway.world import World

ENDED = Ended(ending=Ending(status="completed", usage=stop().usage), items=(), backend=None)


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


@pytest.mark.parametrize("has_ended", [False, True])
@pytest.mark.parametrize("num_bytes", [0, 50])
async def test_a_request_is_in_flight_until_its_response_ends(
    num_bytes: int, has_ended: bool
) -> None:
    """Its client came back, by a request of so many bytes or by its name, and was lost again."""
    world = World()
    rejoins, in_flight = Rejoins(world.gw, ServerConfig()), world.gw.budgets.in_flight
    parsed = parsed_create()
    writer = unheard(parsed)
    job = Job(parsed, writer, TENANT, arrived_us=0, refuse=lambda _: None)
    job.request = (await load_task(world.gw, job)).request
    end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    async def run() -> Ended:
        return await end

    pump = asyncio.create_task(run())
    in_flight.take(TENANT.id, 300)
    assert rejoins.keep(job, writer, 300, pump)
    lost = rejoins.claimed_by_name((TENANT.id, TENANT.key_id), parsed.id, -1)
    assert lost is not None
    in_flight.take(TENANT.id, num_bytes)
    if has_ended:
        end.set_result(ENDED)
        await asyncio.wait((pump,))
    assert rejoins.keep_again(lost, num_bytes)
    if not has_ended:
        assert in_flight.num_bytes == 300 + num_bytes
        end.set_result(ENDED)
        await asyncio.wait((pump,))
    assert in_flight.num_bytes == 0
    await rejoins.close()


async def test_a_request_for_a_response_elsewhere_is_in_flight_on_its_connection_alone() -> None:
    world = World()
    rejoins, in_flight = Rejoins(world.gw, ServerConfig()), world.gw.budgets.in_flight
    parsed = parsed_create()
    job = Job(parsed, unheard(parsed), TENANT, arrived_us=0, refuse=lambda _: None)
    lost = RemoteResponse(job, parsed.id, ("owner", "inbox", 1), lambda channel, note: None)
    in_flight.take(TENANT.id, 50)
    assert rejoins.keep_again(lost, 50)
    assert in_flight.num_bytes == 0
