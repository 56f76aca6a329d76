"""Makes the OpenAPI document at `/schema`, with errors as this gateway sends them.

Litestar describes its own error body for what it validates, and nothing for the rest. Here every
error of every operation has the one body of OpenAI's API, which clients and `ProtocolError` share.
"""

from dataclasses import fields
from typing import Any

from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import OpenAPI

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
_CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


def with_errors(schema: dict[str, Any]) -> dict[str, Any]:
    """Add the body of every error to the document, and that any may come."""
    schema["components"].setdefault("schemas", {})["Error"] = ERROR_SCHEMA
    for operations in schema["paths"].values():
        for operation in operations.values():
            responses = operation["responses"]
            for status in responses:
                if status >= "400":
                    responses[status] = {"description": "Bad request", "content": _CONTENT}
            responses["default"] = {"description": "An error", "content": _CONTENT}
    return schema


class OpenApiDocument(OpenAPI):
    """A document that is made when somebody reads it, once."""

    def to_schema(self) -> dict[str, Any]:
        """See `with_errors`."""
        return with_errors(super().to_schema())


class OpenApiConfig(OpenAPIConfig):
    """Makes an `OpenApiDocument`."""

    def to_openapi_schema(self) -> OpenAPI:
        """See Litestar."""
        made = super().to_openapi_schema()
        return OpenApiDocument(**{field.name: getattr(made, field.name) for field in fields(made)})
