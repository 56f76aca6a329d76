"""What all admin routes share: the guard, and writes with an audit entry.

A route below `/admin` that is no GET but changes nothing has `opt=READS`. This is an edge.
"""

from collections.abc import Mapping
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from gateway.access.admin_keys import Admin
from gateway.access.tenant_store import AuditEntry, Change
from gateway.http.services import Services
from gateway.http.streams import AnyRequest

READS = {"reads": True}

AnyConnection = ASGIConnection[Any, Any, Any, Any]


def require_admin(connection: AnyConnection, handler: BaseRouteHandler) -> None:
    """Admits requests with an admin key; a read-only key may only read."""
    services: Services = connection.app.state.services
    writes = connection.scope.get("method") != "GET" and not handler.opt.get("reads", False)
    admin = services.admin_keys.admin(connection.headers, writes=writes)
    services.count_connection(connection.scope, f"admin:{admin.name}")
    connection.state.admin = admin


def admin_of(request: AnyRequest) -> Admin:
    """Returns the admin who sent a guarded request."""
    admin: Admin = request.state.admin
    return admin


def services_of(request: AnyRequest) -> Services:
    """Returns the services of the gateway."""
    services: Services = request.app.state.services
    return services


async def write_records(
    request: AnyRequest, action: str, subject: str, records: Mapping[str, bytes]
) -> None:
    """Replaces records that are still as this process knows them; empty bytes delete."""
    services = services_of(request)
    known = services.access.keys.tenant_view
    changes = [Change(name, known.raw(name), after) for name, after in records.items()]
    audit = AuditEntry(
        at_s=services.gw.wall_s(), author=admin_of(request).name, action=action, subject=subject
    )
    await services.access.tenant_store.write(changes, audit)
