"""Tests background responses whose store fails, or whose stream is taken up ahead of them."""

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.http.background import BackgroundRuns
from gateway.store.stored_response import StoredResponse
from gateway.transport.byte_budgets import Budgets, ByteBudgets
from gateway.wire.errors import ProtocolError
from gateway.wire.events import CreateBody
from tests.patience import until
from tests.unit.gateway.doubles import TENANT, DictStore, stop, text
from tests.unit.gateway.world import World

AWAY = ProtocolError("server_is_overloaded", "The store is away.", retry_after_us=1_000_000)


class AwayStore(DictStore):
    """Is a store that takes nothing."""

    async def save(
        self, tenant_id: str, response_id: str, stored: StoredResponse, *, only_new: bool = False
    ) -> None:
        await asyncio.sleep(0)
        raise AWAY


class KeptStore(DictStore):
    """Is a store that also takes which responses run."""

    async def beat(self, tenant_id: str, response_ids: list[str]) -> list[str]:
        return []


def asked(**fields: Any) -> CreateBody:
    body = {"model": "wafer-model", "input": "Hi.", "background": True, **fields}
    return msgspec.convert(body, CreateBody)


async def stays() -> Any:
    """Stands for a client that never leaves."""
    await asyncio.Event().wait()


async def test_one_that_cannot_be_stored_counts_as_its_client_was_told() -> None:
    world = World([])
    world.gw.store = AwayStore()
    runs = BackgroundRuns(world.gw, 8)
    with pytest.raises(ProtocolError) as refused:
        await runs.create(TENANT, asked(), 100, stays)
    assert refused.value is AWAY
    await until(lambda: bool(world.entries))
    assert world.outcomes() == {("fast", "shed"): 1}
    assert [entry.outcome for entry in world.entries] == ["shed"]
    await runs.close()
    await world.check()
    assert world.gw.budgets.memory.num_bytes == 0  # nobody can ask for its events


async def test_a_stream_begins_after_the_number_that_was_not_reached_yet() -> None:
    world = World([])
    world.gw.store = KeptStore()
    runs = BackgroundRuns(world.gw, 8)
    await runs.create(TENANT, asked(), 100, stays)
    (response_id,) = (reservation.id for reservation in world.pools.granted)
    answer = await runs.follow(TENANT, response_id, 5)
    (generation,) = world.fast.generations
    generation.sink.push(text("word "))
    generation.sink.finish(stop())
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await answer({"type": "http"}, asyncio.Event().wait, send)  # type: ignore[arg-type]
    body = b"".join(message.get("body", b"") for message in sent)
    events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]
    numbers = [msgspec.json.decode(event)["sequence_number"] for event in events]
    assert numbers
    assert numbers == list(range(6, 6 + len(numbers)))
    await runs.close()


async def test_what_readers_are_sent_at_once_is_bounded() -> None:
    world = World([])
    world.gw.store = KeptStore()
    in_flight = ByteBudgets(2_500, 1 << 40)  # less than two of its first events
    world.gw.budgets = Budgets(in_flight=in_flight)
    runs = BackgroundRuns(world.gw, 8)
    await runs.create(TENANT, asked(instructions="x" * 900), 100, stays)
    (response_id,) = (reservation.id for reservation in world.pools.granted)
    readers: list[Any] = []

    async def follow() -> None:
        readers.append(await runs.follow(TENANT, response_id, -1))

    async def read_all() -> None:
        for reader in readers:
            await reader({"type": "http"}, asyncio.Event().wait, ignore)
        readers.clear()

    async def ignore(message: Any) -> None:
        pass

    await follow()
    with pytest.raises(ProtocolError) as refused:
        await follow()
    assert refused.value.code == "rate_limit_exceeded"
    (generation,) = world.fast.generations
    generation.sink.finish(stop())
    await read_all()
    assert in_flight.num_bytes == 0
    await follow()
    await read_all()
    await runs.close()
