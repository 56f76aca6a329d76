"""Tests a response that another process keeps: that is told once when it is lost."""

import asyncio
import contextlib

import pytest

from gateway.core.job import Job
from gateway.rejoin.lost_response import LostResponse
from gateway.rejoin.notes import Finished, Left, Listens, Note, Told
from gateway.rejoin.remote_response import RemoteResponse
from gateway.wire.response import unheard
from tests.unit.gateway.doubles import TENANT, parsed_create

OWNER, INBOX, NUMBER = "lw1:lost:there", "lw1:lost:here", 7


@pytest.fixture
def sent() -> list[Note]:
    return []


@pytest.fixture
async def remote(sent: list[Note]) -> RemoteResponse:
    parsed = parsed_create("resp_1")
    job = Job(parsed, unheard(parsed), TENANT, arrived_us=0, refuse=lambda _: None)

    def send(channel: str, note: Note) -> None:
        assert channel == OWNER
        sent.append(note)

    remote = RemoteResponse(job, "resp_1", (OWNER, INBOX, NUMBER), send)
    remote.begin()
    remote.join(lambda *_: None, None)
    await asyncio.sleep(0)
    return remote


async def over(remote: LostResponse) -> None:
    assert remote.pump is not None
    with contextlib.suppress(asyncio.CancelledError):
        async with asyncio.timeout(30):
            await remote.pump


@pytest.mark.parametrize("num_turns", range(5))
@pytest.mark.parametrize("comes", ["nothing", "an event", "its end"])
async def test_it_is_given_back_whatever_is_under_way(
    remote: RemoteResponse, sent: list[Note], comes: str, num_turns: int
) -> None:
    """`num_turns` of the loop pass between what comes and the loss."""
    if comes == "an event":
        remote.take(Told(NUMBER, "response.in_progress", b'{"sequence_number":1}'))
    elif comes == "its end":
        remote.take(Finished(NUMBER, None))
    for _ in range(num_turns):
        await asyncio.sleep(0)
    remote.lose()
    await over(remote)
    assert sent == [Listens(INBOX, NUMBER, None), Left(INBOX, NUMBER, "lost")]
