"""Answers a POST that comes back to a response whose connection was lost. This is an edge."""

import asyncio
from functools import partial

from litestar.types import Receive

from gateway.core.gateway import Gateway
from gateway.core.job import Job
from gateway.http.streams import JSON, EventStream, HttpAnswer, send_error, sse_event
from gateway.rejoin.lost_response import LostResponse
from gateway.rejoin.matching import asks_for_grace
from gateway.rejoin.rejoins import Rejoins
from gateway.transport.outbox import Outbox
from gateway.transport.response_cycle import attended
from gateway.wire.errors import ProtocolError
from gateway.wire.requests import ParsedCreate
from gateway.wire.response import unheard
from router.classify.task import Tenant


async def find_lost(
    rejoins: Rejoins, gw: Gateway, tenant: Tenant, parsed: ParsedCreate
) -> LostResponse | None:
    """Returns the lost response that a request comes back to, if any."""
    # It is never run: what would refuse it does so when the request itself is.
    job = Job(parsed, unheard(parsed), tenant, arrived_us=gw.clock_us(), refuse=lambda _: None)
    if (parent_id := parsed.body.previous_response_id) is not None:
        job.bring(await rejoins.recalled(tenant, parent_id))
    return await rejoins.find(job)


async def answer_lost(
    rejoins: Rejoins, gw: Gateway, lost: LostResponse, parsed: ParsedCreate, receive: Receive
) -> HttpAnswer:
    """Answers with what is left of a response, as events, or with all of it.

    Raises `ProtocolError` if it was refused meanwhile, or failed, and is not answered as events.
    """
    if parsed.body.stream:
        return _events(rejoins, gw, lost, parsed)
    refusals: list[ProtocolError] = []
    lost.job.refuse = refusals.append
    lost.join(lambda kind, *events: None, lambda writer: None)
    pump = asyncio.create_task(lost.follow())
    await attended(pump, receive)
    ended = None if pump.cancelled() else pump.result()
    if ended is None:
        raise next(iter(refusals), ProtocolError("server_error", "It ended early. Send it again."))
    if (fault := ended.ending.fault()) is not None:
        raise fault
    return HttpAnswer(JSON.encode(), {}, lost.writer.body, is_final=ended.ending.is_final)


def _events(rejoins: Rejoins, gw: Gateway, lost: LostResponse, parsed: ParsedCreate) -> EventStream:
    outbox = Outbox(gw.flush_timer, gw.max_unread_bytes)
    put = outbox.emit

    lost.job.refuse = partial(send_error, lost.writer)
    lost.join(lambda kind, *events: put(kind, *map(sse_event, events)), outbox.mark)
    pump = asyncio.create_task(lost.follow())
    keep = partial(rejoins.keep_again, lost) if asks_for_grace(parsed) else None
    return EventStream(gw, outbox, pump, {}, on_leave=keep)
