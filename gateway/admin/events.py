"""`/admin/events` and `/admin/placements` serve what the page *Live* shows. This is an edge."""

from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any

import msgspec
from litestar import get
from litestar.response import Stream

from backends.simulated.wafer import WaferBackendConfig, WaferOptions, cost_of
from gateway.http.services import services_of
from gateway.http.streams import AnyRequest
from gateway.wire.errors import ProtocolError
from wafer_engine.hardware.placement import Placement, place

_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_MAX_PLACED = 8  # options whose placement is remembered


class RegionView(msgspec.Struct, frozen=True, kw_only=True):
    """Is the rectangle of processing elements that holds one part of a model."""

    part: str
    wafer: int
    x: int
    y: int
    width: int
    height: int
    fill: float  # of its memory, by weights and KV cache


class PlacementView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows where the model of a simulated wafer lies."""

    backend: str
    model: str
    wafer: str
    wafers: int
    width: int  # of a wafer, in processing elements
    height: int
    regions: list[RegionView]


@get("/events")
async def get_events(request: AnyRequest) -> Stream:
    """Sends a snapshot, then what changes, at most four times a second, as server-sent events."""
    services = services_of(request)
    feed = services.feed.watch()
    first = await anext(feed)  # so that a refusal is an HTTP status, and not a broken stream

    async def events() -> AsyncIterator[bytes]:
        try:
            yield first
            async for each in feed:
                # Something comes once a second at least, so a removed key soon reads no more.
                services.admin_keys.admin(request.headers, writes=False)
                yield each
        except ProtocolError:
            return
        finally:
            await feed.aclose()

    return Stream(events(), media_type="text/event-stream", headers=_HEADERS)


@get("/placements")
async def get_placements(request: AnyRequest) -> list[PlacementView]:
    """Shows where the models of the configured simulated wafers lie."""
    services = services_of(request)
    configs = services.configured_backends
    wafers = [each for each in configs if isinstance(each, WaferBackendConfig)]
    return [_view(each.name, await services.apart(_placement, each.options)) for each in wafers]


@lru_cache(_MAX_PLACED)
def _placement(options: WaferOptions) -> Placement:
    """Takes a tenth of a second."""
    cost = cost_of(options)
    return place(
        cost.model,
        wafer=cost.wafer,
        num_wafers=cost.num_wafers,
        weight_bits=options.weight_bits,
        kv_bits=options.kv_bits,
    )


def _view(backend: str, placement: Placement) -> PlacementView:
    return PlacementView(
        backend=backend,
        model=placement.model,
        wafer=placement.wafer.name,
        wafers=placement.num_wafers,
        width=placement.wafer.fabric_width,
        height=placement.wafer.fabric_height,
        regions=[
            RegionView(
                part=region.part.name,
                wafer=region.wafer,
                x=region.x,
                y=region.y,
                width=region.width,
                height=region.height,
                fill=round(placement.fill(region), 4),
            )
            for region in placement.regions
        ],
    )


HANDLERS: list[Any] = [get_events, get_placements]
