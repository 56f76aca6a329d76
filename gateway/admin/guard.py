"""Defines what all admin routes share: the guard, and writes with an audit entry.

A route below `/admin` that is no GET but changes nothing has `opt=READS`; one that only
some requests have change something calls `require_writer` for these. This is an edge.
"""

from collections.abc import Mapping
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from gateway.access.admin_keys import Admin
from gateway.access.tenant_store import Change
from gateway.config.price_slips import unpriced_budgets
from gateway.http.services import services_of
from gateway.http.streams import AnyRequest
from gateway.transport.ids import REQUEST_ID
from gateway.wire.errors import ProtocolError
from router.classify.task import Tenant
from router.policy.document import suggestion
from router.redis.audit import AuditEntry, Author

READS = {"reads": True}
MAX_NAMED = 10  # tenants, in an error
MAX_COMPARED = 200  # with a name that is none, as each takes the event loop's time

AnyConnection = ASGIConnection[Any, Any, Any, Any]


def is_write(method: object, opt: Mapping[str, Any]) -> bool:
    """Says whether a request may change something, by its method and its route's `opt`."""
    return method != "GET" and not opt.get("reads", False)


def require_admin(connection: AnyConnection, handler: BaseRouteHandler) -> None:
    """Admits requests with an admin key; a read-only key may only read."""
    services = services_of(connection)
    writes = is_write(connection.scope.get("method"), handler.opt)
    admin = services.admin_keys.admin(connection.headers, writes=writes)
    _check_query(connection, handler)
    services.count_connection(connection.scope, f"admin:{admin.name}")
    connection.state.admin = admin


def _check_query(connection: AnyConnection, handler: BaseRouteHandler) -> None:
    """Raises `ProtocolError` for a slip in a parameter, which would answer another question."""
    asked = connection.query_params.keys()
    if not asked:
        return
    taken = handler.parsed_fn_signature.parameters.keys() - {"request", "data"}
    known = sorted(taken - connection.path_params.keys())
    for name in asked:
        if name not in known:
            hint = suggestion(name, known)
            there_are = (
                f"This route takes {', '.join(known)}." if known else "This route takes none."
            )
            message = f"Unknown query parameter '{name[:80]}'{hint or '.'} {there_are}"
            raise ProtocolError("invalid_value", message, param=name[:80])


def require_writer(request: AnyRequest) -> None:
    """Refuses a read-only key what a route with `opt=READS` writes after all."""
    services_of(request).admin_keys.admin(request.headers, writes=True)


def admin_of(request: AnyRequest) -> Admin:
    """Returns the admin who sent a guarded request."""
    admin: Admin = request.state.admin
    return admin


def author_of(request: AnyRequest) -> Author:
    """Returns who is to stand in the audit for a change that a guarded request makes."""
    admin = admin_of(request)
    return Author(admin.name, admin.key, request.scope["state"].get(REQUEST_ID, ""))


def no_tenant(request: AnyRequest, tenant_id: str) -> ProtocolError:
    """Makes the error for a tenant that is not known, with some that are."""
    known = sorted(services_of(request).access.keys.tenant_view.tenants)
    names = ", ".join(known[:MAX_NAMED]) or "none"
    if len(known) > MAX_NAMED:
        names += f" and {len(known) - MAX_NAMED:,} more"
    hint = suggestion(tenant_id, known[:MAX_COMPARED])
    message = f"No tenant '{tenant_id[:80]}'{hint or '.'} Known tenants: {names}."
    return ProtocolError("not_found", message, param="tenant")


def changed_entries(own: Mapping[Any, Any], changes: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """Returns a field of a record with entries changed; None takes an entry away, or all."""
    changed = {} if changes is None else {**own, **changes}
    return {name: entry for name, entry in changed.items() if entry is not None}


def budget_warnings(request: AnyRequest, tenant: Tenant) -> tuple[str, ...]:
    """Says which models a tenant's budgets in money do not count, as they have no price."""
    gw = services_of(request).gw
    if not (tenant.accounts or tenant.key_account or tenant.run_account):
        return ()
    infos = [stats.info for stats in gw.backend_stats()]
    budgeted = {f"tenant '{tenant.id}'": tenant.limits}
    return tuple(unpriced_budgets(gw.prices, infos, budgeted, gw.wall_s()))


async def write_records(
    request: AnyRequest,
    action: str,
    subject: str,
    records: Mapping[str, bytes],
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """Replaces records that are still as this process knows them; empty bytes delete.

    `before` and `after` go into the audit entry beside the records: what changed elsewhere.
    """
    services = services_of(request)
    known = services.access.keys.tenant_view
    changes = [Change(name, known.raw(name), after) for name, after in records.items()]
    author = author_of(request)
    audit = AuditEntry(
        author=author.name,
        key=author.key,
        request_id=author.request_id,
        action=action,
        subject=subject,
        before=before or {},
        after=after or {},
    )
    await services.access.tenant_store.write(changes, audit)
