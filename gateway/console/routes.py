"""Serves the console's files, and says where this gateway serves what. This is an edge."""

import asyncio
from typing import Any

from litestar import get
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from gateway.access.auth import is_local
from gateway.config.config import admin_keys
from gateway.config.development import DEVELOPMENT_ADMIN_KEY, DEVELOPMENT_KEY
from gateway.config.version import VERSION
from gateway.console.assets import asset, paths
from gateway.http.services import services_of
from gateway.http.streams import AnyRequest, error_response, json_response
from gateway.wire.errors import ProtocolError

# `scope["state"]` has it where admins have an address of their own, and says whether it is this
# one.
AT_ADMIN_ADDRESS = "at_admin_address"
# Under it the admin address serves `/v1` to the page of *Play*, whose origin it is.
API_AT_ADMIN_ADDRESS = "/console/v1"

_CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",  # CodeMirror's marks of faults
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": _CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-cache",  # asked again each time, and answered by a 304
    "vary": "Accept-Encoding",
}


@get("/", include_in_schema=False)
async def lead_to_console() -> ASGIResponse:
    """Redirects a person's browser, which comes here first, to the console."""
    return _redirection()


@get("/console", include_in_schema=False)
async def get_console(request: AnyRequest) -> ASGIResponse:
    """Serves the page; relative addresses in it begin at `/console/`."""
    if not request.scope["raw_path"].endswith(b"/"):
        return _redirection()
    return await _file(request, "index.html")


@get("/console/site.json", include_in_schema=False)
async def get_site(request: AnyRequest) -> ASGIResponse:
    """Says what this address serves, and shows the development keys where they are in use.

    Those are in everybody's copy of this program, and hold on loopback only.
    """
    config = services_of(request).config
    is_admin: bool | None = request.scope.get("state", {}).get(AT_ADMIN_ADDRESS)
    site: dict[str, Any] = {
        "version": VERSION,
        "api": API_AT_ADMIN_ADDRESS if is_admin else "/v1",
        "serves_admin": is_admin is not False,
    }
    if is_local(request.headers.get("host", "")):
        if any(DEVELOPMENT_KEY in tenant.keys for tenant in config.tenants):
            site["development_key"] = DEVELOPMENT_KEY
        is_offered = any(key.key == DEVELOPMENT_ADMIN_KEY for key in admin_keys(config))
        if is_offered and site["serves_admin"]:
            site["development_admin_key"] = DEVELOPMENT_ADMIN_KEY
    return json_response(site, headers=HEADERS | {"cache-control": "no-store"})


@get("/console/{path:path}", include_in_schema=False)
async def get_console_file(request: AnyRequest, path: FromPath[str]) -> ASGIResponse:
    """Serves one of the console's files."""
    return await _file(request, path.lstrip("/"))


async def _file(request: AnyRequest, path: str) -> ASGIResponse:
    if path not in paths():
        error = ProtocolError("not_found", f"/console/{path[:200]} is no file of the console.")
        return error_response(error)
    found = await asyncio.to_thread(asset, path)
    coding = found.best(request.headers.get("accept-encoding", ""))
    headers = HEADERS | {"etag": found.etag}
    if request.headers.get("if-none-match") == found.etag:
        return ASGIResponse(body=b"", status_code=304, headers=headers)
    if coding:
        headers["content-encoding"] = coding
    return ASGIResponse(body=found.bodies[coding], media_type=found.media_type, headers=headers)


def _redirection() -> ASGIResponse:
    headers = {"location": "/console/", "cache-control": "no-cache"}
    return ASGIResponse(body=b"", status_code=307, headers=headers)


HANDLERS: list[Any] = [lead_to_console, get_console, get_site, get_console_file]
