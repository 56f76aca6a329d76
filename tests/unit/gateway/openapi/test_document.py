"""Tests the OpenAPI document: it is made beside the loop, and shows the error body that is sent."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import httpx
import jsonschema
import msgspec
import pytest
from litestar import Litestar, get
from litestar.datastructures import State

from gateway.openapi import document
from gateway.openapi.document import (
    ERROR_SCHEMA,
    RENDERINGS,
    OpenApiConfig,
    schema_routes,
    with_errors,
)
from gateway.wire.errors import ERRORS, ProtocolError


def test_every_operation_has_it() -> None:
    schema = with_errors(
        {
            "components": {},
            "paths": {
                "/a": {"get": {"responses": {"200": {"description": "Fine"}}}},
                "/b": {"post": {"responses": {"201": {}, "400": {"description": "theirs"}}}},
            },
        }
    )
    assert schema["components"]["schemas"] == {"Error": ERROR_SCHEMA}
    responses = [schema["paths"]["/a"]["get"], schema["paths"]["/b"]["post"]]
    told = [set(each["responses"]) for each in responses]
    assert told == [{"200", "default"}, {"201", "400", "default"}]
    assert responses[0]["responses"]["200"] == {"description": "Fine"}
    for each in (responses[0]["responses"]["default"], responses[1]["responses"]["400"]):
        content = each["content"]["application/json"]
        assert content == {"schema": {"$ref": "#/components/schemas/Error"}}


@pytest.mark.parametrize("code", ERRORS)
def test_errors_are_as_described(code: str) -> None:
    described = ERROR_SCHEMA["properties"]["error"]["properties"]
    for param in (None, "input"):
        error = ProtocolError(code, "Said.", param=param, violated=("fast-requests",))
        body = msgspec.json.decode(msgspec.json.encode(error.body()))
        jsonschema.validate(body, ERROR_SCHEMA)
        assert set(body["error"]) == set(described)


@get("/healthz", sync_to_thread=False)
def _health() -> str:
    return "ok"


async def test_a_thread_makes_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def making(schema: dict[str, Any]) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return with_errors(schema)

    monkeypatch.setattr(document, "with_errors", making)
    app = Litestar(
        [_health],
        state=State({"services": SimpleNamespace(apart=asyncio.to_thread)}),
        openapi_config=OpenApiConfig(
            title="Lanewise", version="1", openapi_router=schema_routes(), render_plugins=RENDERINGS
        ),
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        first, *others = [
            await client.get(f"/schema{path}")
            for path in ("/openapi.json", "/openapi.yaml", "/openapi.yml", "", "/")
        ]
    assert [each.status_code for each in (first, *others)] == [200] * 5
    assert list(first.json()["paths"]) == ["/healthz"]
    assert [each.text for each in others[:2]] == [first.text] * 2
    assert others[0].headers["content-type"] == "application/vnd.oai.openapi"
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
