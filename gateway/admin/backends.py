"""`/admin/backends` shows how they are; draining one takes it out, on every gateway.

This is an edge.
"""

from typing import Any

import msgspec
from litestar import get, post
from litestar.params import FromPath

from backends.contract import BackendStats
from gateway.access.tenant_view import Drain
from gateway.admin.guard import admin_of, write_records
from gateway.http.services import Services, services_of
from gateway.http.streams import AnyRequest
from gateway.wire.errors import ProtocolError


class BackendView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows one backend as it is now."""

    name: str
    model: str
    group: str
    healthy: bool
    drained: bool  # it gets no new tasks
    drained_at: int | None  # Unix time
    simulated: bool
    window_tokens: int
    running: int
    waiting: int
    max_num_seqs: int
    kv_used_tokens: int
    kv_capacity_tokens: int


@get("/backends")
async def get_backends(request: AnyRequest) -> list[BackendView]:
    """Lists the backends of this process, and how busy each is."""
    services = services_of(request)
    return [_view(services, stats) for stats in services.gw.backend_stats()]


@post("/backends/{name:str}/drain", status_code=200)
async def drain_backend(request: AnyRequest, name: FromPath[str]) -> BackendView:
    """Let a backend have no new tasks, on every gateway of this Redis; those that run go on.

    It holds until it is resumed, also over reloads and restarts. Doing it again changes nothing.
    """
    services = services_of(request)
    _find(services, name)
    if name not in services.gw.state.drained:
        drain = Drain(services.gw.wall_s(), admin_of(request).name)
        records = {f"drain:{name}": msgspec.json.encode(drain)}
        await write_records(request, "backends.drain", name, records)
    return _view(services, _find(services, name))


@post("/backends/{name:str}/resume", status_code=200)
async def resume_backend(request: AnyRequest, name: FromPath[str]) -> BackendView:
    """Let a drained backend have tasks again."""
    services = services_of(request)
    _find(services, name)
    if name in services.gw.state.drained:
        await write_records(request, "backends.resume", name, {f"drain:{name}": b""})
    return _view(services, _find(services, name))


HANDLERS: list[Any] = [get_backends, drain_backend, resume_backend]


def _find(services: Services, name: str) -> BackendStats:
    every = {stats.info.name: stats for stats in services.gw.backend_stats()}
    if name not in every:
        message = f"No backend '{name[:80]}' here. Backends: {', '.join(list(every)[:20])}."
        raise ProtocolError("not_found", message)
    return every[name]


def _view(services: Services, stats: BackendStats) -> BackendView:
    drain = services.access.keys.tenant_view.drains.get(stats.info.name)
    return msgspec.convert(
        msgspec.structs.asdict(stats.info)
        | msgspec.structs.asdict(stats)
        | {
            "running": stats.num_running,
            "waiting": stats.num_waiting,
            "drained_at": None if drain is None else drain.since_s,
        },
        BackendView,
    )
