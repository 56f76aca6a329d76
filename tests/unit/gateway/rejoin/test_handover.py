"""A response that is handed over: its follower is lost, so it is kept, and nothing more is sent."""

import asyncio

import pytest

from gateway.core.job import Job
from gateway.rejoin import handover
from gateway.rejoin.handover import Handover
from gateway.rejoin.lost_response import LostResponse
from gateway.rejoin.notes import Claim, Left, Note
from gateway.transport.flush_timer import FlushTimer
from gateway.transport.outbox import Outbox
from gateway.wire.response import unheard
from tests.unit.gateway.doubles import TENANT, parsed_create

CLAIM = Claim("resp_1", "lw1:lost:there", 7, key=("acme", ""))


@pytest.mark.parametrize("num_turns", range(3))
@pytest.mark.parametrize("how", ["lost", "gone"])
async def test_a_handover_that_is_over_sends_nothing_more(
    monkeypatch: pytest.MonkeyPatch, how: str, num_turns: int
) -> None:
    """`num_turns` of the loop pass between the claim and the loss."""
    monkeypatch.setattr(handover, "BEAT_S", 0)
    sent: list[Note] = []
    kept: list[LostResponse] = []
    parsed = parsed_create("resp_1")
    job = Job(parsed, unheard(parsed), TENANT, arrived_us=0, refuse=lambda _: None)
    pump = asyncio.create_task(asyncio.Event().wait())
    lost = LostResponse(job, unheard(parsed), 0, 0, pump)  # type: ignore[arg-type]

    def keep_again(lost: LostResponse) -> bool:
        kept.append(lost)
        return True

    given = Handover(
        lost, CLAIM, lambda _, note: sent.append(note), Outbox(FlushTimer()), keep_again, 20.0
    )
    for _ in range(num_turns):
        await asyncio.sleep(0)
    given.take(Left(CLAIM.inbox, CLAIM.number, "lost" if how == "lost" else "gone"))
    await asyncio.sleep(0)
    num_sent = len(sent)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(sent) <= num_sent + 1
    assert given.following.done()
    assert kept == ([lost] if how == "lost" else [])
    pump.cancel()
