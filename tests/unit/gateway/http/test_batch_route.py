"""Tests batches over HTTP: how many at once, and that others have their turn in between."""

import asyncio
import json
import tracemalloc

import msgspec
import pytest

from gateway.http.batch_route import MAX_AT_ONCE, MAX_HELD, MAX_LINES, RouteBatches
from gateway.wire.errors import ProtocolError
from router.classify.task import Tenant
from router.policy.policy import DEFAULT_POLICY
from router.record.batch import Desk
from tests.unit.router.tasks import PRO

NUM_LINES = 1_000  # far more than fit one slice on any machine
LINES = [json.dumps({"id": str(n), "text": f"fix the typo {n}"}) for n in range(NUM_LINES)]
BODY = "\n".join(LINES).encode()


async def test_a_few_at_once_and_turns_for_others() -> None:
    batches = RouteBatches(lambda tenant: Desk(policy=DEFAULT_POLICY, tenant=tenant))
    running = [asyncio.create_task(batches.decide(PRO, BODY)) for _ in range(MAX_AT_ONCE)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in running)  # each let go after its first slice
    with pytest.raises(ProtocolError) as refused:
        await batches.decide(PRO, BODY)
    assert refused.value.code == "server_is_overloaded"
    assert refused.value.headers["retry-after"] == "1"
    for one in running:
        rows = [json.loads(line) for line in (await one).splitlines()]
        assert [row["id"] for row in rows] == [str(n) for n in range(NUM_LINES)]
    assert await batches.decide(PRO, b'{"id": "a", "text": "b"}')


async def test_no_tenant_keeps_the_others_out() -> None:
    begun: list[str] = []

    def desk_for(tenant: Tenant) -> Desk:
        begun.append(tenant.id)
        return Desk(policy=DEFAULT_POLICY, tenant=tenant)

    batches = RouteBatches(desk_for)

    async def decide(tenant_id: str) -> None:
        await batches.decide(msgspec.structs.replace(PRO, id=tenant_id), BODY)

    async def greedy() -> None:
        while "small" not in begun:
            await decide("greedy")

    running = [asyncio.create_task(greedy()) for _ in range(MAX_AT_ONCE)]
    await asyncio.sleep(0)
    await decide("small")
    await asyncio.gather(*running)
    assert begun.index("small") <= MAX_AT_ONCE, "it waited for more than those that ran"


async def test_only_so_many_wait() -> None:
    batches = RouteBatches(lambda tenant: Desk(policy=DEFAULT_POLICY, tenant=tenant))
    tenants = [msgspec.structs.replace(PRO, id=f"t{number}") for number in range(MAX_HELD + 1)]
    held = [asyncio.create_task(batches.decide(one, BODY)) for one in tenants[:MAX_HELD]]
    await asyncio.sleep(0)
    with pytest.raises(ProtocolError) as refused:
        await batches.decide(tenants[-1], BODY)
    assert refused.value.code == "server_is_overloaded"
    for one in held:
        one.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    assert await batches.decide(tenants[-1], LINES[0].encode())


async def test_a_batch_that_is_cancelled_makes_room() -> None:
    batches = RouteBatches(lambda tenant: Desk(policy=DEFAULT_POLICY, tenant=tenant))
    for _ in range(MAX_AT_ONCE + 1):
        one = asyncio.create_task(batches.decide(PRO, BODY))
        await asyncio.sleep(0)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("last", [b"", b"x"])
async def test_too_many_lines_are_counted_and_not_made(end: bytes, last: bytes) -> None:
    batches = RouteBatches(lambda tenant: Desk(policy=DEFAULT_POLICY, tenant=tenant))
    body = (b"ab" + end) * 1_000_000 + last
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=f"got {1_000_000 + len(last)}:") as refused:
            await batches.decide(PRO, body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.code == "message_too_large"
    assert peak_bytes < len(body)
    rows = await batches.decide(PRO, end * MAX_LINES)
    assert rows == b""
