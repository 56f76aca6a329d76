"""Serves the pages that alerts link to, from the package: no key, since they tell nothing of it.

This is an edge.
"""

from functools import cache
from importlib import resources

import msgspec
from litestar import get
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from gateway.wire.errors import ProtocolError

_MARKDOWN = "text/plain; charset=utf-8"  # which browsers show, unlike Markdown's own type


@cache
def _pages() -> dict[str, str]:
    content = resources.files(__package__).joinpath("runbooks.json").read_bytes()
    return msgspec.json.decode(content, type=dict[str, str])


@get("/runbooks", include_in_schema=False)
async def list_runbooks() -> ASGIResponse:
    """Lists the names of all runbooks."""
    names = "".join(f"/runbooks/{name}\n" for name in sorted(_pages()))
    return ASGIResponse(body=names.encode(), headers={"content-type": _MARKDOWN})


@get("/runbooks/{name:str}", include_in_schema=False)
async def get_runbook(name: FromPath[str]) -> ASGIResponse:
    """Returns a runbook by its alert's name, with or without `.md`."""
    page = _pages().get(f"{name.removesuffix('.md')}.md")
    if page is None:
        raise ProtocolError("not_found", f"No runbook '{name[:80]}'. GET /runbooks names them.")
    return ASGIResponse(body=page.encode(), headers={"content-type": _MARKDOWN})


HANDLERS = (list_runbooks, get_runbook)
