"""Makes the OpenAPI document at `/schema`, with errors as this gateway sends them.

Litestar describes its own error body for what it validates, and nothing for the rest. Here every
error of every operation has the one body of OpenAI's API, which clients and `ProtocolError` share.

The document takes 70 ms to make (a core of a server, 2026), so a thread makes it, when it is asked
for first. Its YAML takes as long each time, so that is its JSON, which is YAML. This is an edge.
"""

from dataclasses import fields
from typing import Any

from litestar import Request, Router
from litestar.enums import OpenAPIMediaType
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import OpenAPI

from gateway.openapi.operations import described
from gateway.openapi.page import DocumentPage
from gateway.wire.errors import ERRORS

_TYPES = sorted({kind.type for kind in ERRORS.values()})
ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "What to do about it."},
                "type": {"type": "string", "enum": _TYPES},
                "param": {
                    "type": ["string", "null"],
                    "description": "The field that is wrong, if one is.",
                },
                "code": {"type": "string", "examples": ["rate_limit_exceeded"]},
                "violated-policies": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Which of the `ratelimit-policy` header refused it.",
                },
            },
        }
    },
}
RENDERINGS = (
    DocumentPage(path="/"),
    JsonRenderPlugin(),
    JsonRenderPlugin(
        path=("/openapi.yaml", "/openapi.yml"), media_type=OpenAPIMediaType.OPENAPI_YAML
    ),
)
TENANT_KEY = "TenantKey"
_CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


def with_errors(schema: dict[str, Any]) -> dict[str, Any]:
    """Adds the body of every error to the document, and that any may come."""
    schema["components"].setdefault("schemas", {})["Error"] = ERROR_SCHEMA
    for operations in schema["paths"].values():
        for operation in operations.values():
            responses = operation["responses"]
            for status in responses:
                if status >= "400":
                    responses[status] = {"description": "Bad request", "content": _CONTENT}
            responses["default"] = {"description": "An error", "content": _CONTENT}
    return schema


def with_operations(schema: dict[str, Any]) -> dict[str, Any]:
    """Adds what the handlers' types do not say: bodies and answers that are made as bytes."""
    operations, schemas = described()
    schema["components"].setdefault("schemas", {}).update(schemas)
    for (path, method), known in operations.items():
        operation = schema["paths"].get(path, {}).get(method)
        if operation is None:  # of another address
            continue
        refused = {code: told for code, told in operation["responses"].items() if code >= "4"}
        operation["responses"] = refused | known["responses"]
        if "requestBody" in known:
            operation["requestBody"] = known["requestBody"]
        if path.startswith("/v1/"):
            operation["security"] = [{TENANT_KEY: []}]
            operation["tags"] = ["v1"]
    return schema


def _describe_items(schema: Any) -> None:
    """Says of arrays whose items may be anything that they have items: generators of clients ask.

    It changes the schema in place.
    """
    if isinstance(schema, dict):
        if schema.get("type") == "array" and "prefixItems" not in schema:
            schema.setdefault("items", {})
        for part in schema.values():
            _describe_items(part)
    elif isinstance(schema, list):
        for part in schema:
            _describe_items(part)


class OpenApiDocument(OpenAPI):
    """Is a document that is made when somebody reads it, once; a thread makes it."""

    _made: dict[str, Any] | None = None

    def to_schema(self) -> dict[str, Any]:
        """Returns the document, with what Litestar does not know of it."""
        if self._made is None:
            self._made = with_operations(with_errors(super().to_schema()))
            _describe_items(self._made)
        return self._made


class OpenApiConfig(OpenAPIConfig):
    """Makes an `OpenApiDocument`."""

    def to_openapi_schema(self) -> OpenAPI:
        """Takes over the document that Litestar begins."""
        made = super().to_openapi_schema()
        return OpenApiDocument(**{field.name: getattr(made, field.name) for field in fields(made)})


async def _make_apart(request: Request[Any, Any, Any]) -> None:
    """Has the document made before the framework asks for it on the event loop."""
    app = request.app
    await app.state.services.apart(lambda: app.openapi_schema.to_schema())


def schema_routes() -> Router:
    """Returns what serves the document at `/schema`; the framework adds its handlers."""
    return Router("/schema", route_handlers=[], include_in_schema=False, before_request=_make_apart)
