"""`GET /admin/usage` sums what tenants used, day by day; no export consumes it. This is an edge."""

import datetime
from typing import Annotated, Any, Literal

import msgspec
from litestar import get
from litestar.params import FromQuery, QueryParameter

from gateway.admin.guard import no_tenant
from gateway.http.services import services_of
from gateway.http.streams import AnyRequest
from gateway.store.usage_days import NUM_DAYS, Dimension, UsageRow, rows_of_days
from gateway.wire.errors import ProtocolError

MAX_ROWS = 10_000

By = Literal["day"] | Dimension


class UsageView(msgspec.Struct, frozen=True):
    """Sums what was used from the first to the last of some UTC days."""

    first_day: str  # YYYY-MM-DD
    last_day: str
    by: tuple[str, ...]
    rows: list[UsageRow]


@get("/usage")
async def get_usage(
    request: AnyRequest,
    first_day: FromQuery[datetime.date | None] = None,
    last_day: FromQuery[datetime.date | None] = None,
    by: Annotated[list[By] | None, QueryParameter(name="by")] = None,
    tenant: FromQuery[str | None] = None,
) -> UsageView:
    """Sums by `by` (several of the fields below), of one tenant or of all; of today if unset.

    Days are kept for 40 days. What another gateway has not written yet is missing: 0.1 s of it.
    """
    services = services_of(request)
    today = datetime.datetime.fromtimestamp(services.gw.wall_s(), datetime.UTC).date()
    last = last_day or today
    first = first_day or last
    if not 0 <= (last - first).days < NUM_DAYS:
        raise ProtocolError(
            "invalid_value",
            f"first_day {first} and last_day {last}: expected at most {NUM_DAYS} days, in order.",
            param="first_day",
        )
    dimensions: tuple[Any, ...] = tuple(by or ("tenant",))
    await services.ledger.flush()
    days = await services.ledger.used(_unix_s(first), _unix_s(last))
    rows = rows_of_days(days, dimensions, tenant)
    if tenant is not None and not rows and not services.access.keys.tenant_view.tenant(tenant):
        raise no_tenant(request, tenant)  # a deleted one's usage is shown as long as it is kept
    if len(rows) > MAX_ROWS:
        raise ProtocolError(
            "invalid_value",
            f"{len(rows):,} rows; at most {MAX_ROWS:,} are sent. Ask for fewer days, for one "
            "tenant, or by less.",
            param="by",
        )
    return UsageView(first.isoformat(), last.isoformat(), dimensions, rows)


def _unix_s(day: datetime.date) -> int:
    return int(datetime.datetime.combine(day, datetime.time(), datetime.UTC).timestamp())


HANDLERS = (get_usage,)
