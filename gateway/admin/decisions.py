"""`/admin/decisions` finds decisions and their outcomes by id, tenant, rule, outcome and time.

This is an edge.
"""

from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.params import FromQuery, Parameter

from gateway.admin.guard import no_tenant
from gateway.http.services import Services, services_of
from gateway.http.streams import AnyRequest
from gateway.metrics.labels import Outcome
from gateway.store.decision_search import MAX_FOUND, DecisionQuery, found_in_files, found_in_memory
from router.record.recording import DecisionRecord

MAX_UNIX_S = 253_402_300_799  # the last second of the year 9999, and of Python's calendar
UnixTime = Annotated[float | None, Parameter(ge=0, le=MAX_UNIX_S)]


@get("/decisions")
async def get_decisions(
    request: AnyRequest,
    limit: Annotated[int, Parameter(ge=0, le=1_000_000)] = 50,
    id: FromQuery[str | None] = None,
    tenant: FromQuery[str | None] = None,
    rule: FromQuery[str | None] = None,
    outcome: FromQuery[Outcome | None] = None,
    since: UnixTime = None,
    before: UnixTime = None,
) -> list[DecisionRecord]:
    """Lists the latest decisions that fit, the last one first; 1,000 at most.

    Each process has its latest 200 in memory; with `recording.path`, older ones are read from the
    log's files on this machine.
    """
    services = services_of(request)
    query = DecisionQuery(
        limit=min(limit, MAX_FOUND),
        id=id,
        tenant=tenant,
        rule=rule,
        outcome=outcome,
        since=since,
        before=before,
    )
    found = await _found(services, query)
    if tenant is not None and not found and not services.access.keys.tenant_view.tenant(tenant):
        raise no_tenant(request, tenant)  # a deleted one's are shown as long as they are kept
    return found


async def _found(services: Services, query: DecisionQuery) -> list[DecisionRecord]:
    found = found_in_memory(await _in_memory(services), query)
    path = services.config.recording.path
    if len(found) >= query.limit or path is None or (query.id is not None and found):
        return found
    older = await services.apart(found_in_files, Path(path), query)
    known = {record.id for record in found}
    return found_in_memory([*found, *(record for record in older if record.id not in known)], query)


async def _in_memory(services: Services) -> list[DecisionRecord]:
    if services.fleet is None:
        recorder = services.gw.recorder
        return list(recorder.recent) if recorder else []
    answers = await services.fleet.gather("decisions")
    return list(chain(*(msgspec.json.decode(each, type=list[DecisionRecord]) for each in answers)))


HANDLERS: list[Any] = [get_decisions]
