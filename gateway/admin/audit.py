"""`/admin/audit` lists who changed what, of all that admins change. This is an edge."""

from typing import Annotated, Any, Literal

from litestar import get
from litestar.params import FromQuery, Parameter

from gateway.http.services import services_of
from gateway.http.streams import AnyRequest
from router.redis.audit import AuditEntry

MAX_LISTED = 1_000

Trail = Literal["policies", "tenants"]


@get("/audit")
async def get_audit(
    request: AnyRequest,
    limit: Annotated[int, Parameter(ge=1, le=MAX_LISTED)] = 100,
    trail: FromQuery[Trail | None] = None,
) -> list[AuditEntry]:
    """Lists the latest changes, the newest first.

    Of policies (the last 1,000 are kept) and of tenants, tiers, keys, backends and what was learned
    (the last 10,000), or of one of these two trails.
    """
    services = services_of(request)
    entries: list[AuditEntry] = []
    if trail in (None, "policies"):
        entries += await services.policies.store.audit(limit)
    if trail in (None, "tenants"):
        entries += await services.access.tenant_store.audit(limit)
    return sorted(entries, key=lambda entry: entry.at, reverse=True)[:limit]


HANDLERS: list[Any] = [get_audit]
