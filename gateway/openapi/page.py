"""Shows the document as a page: no script, and nothing from elsewhere. This is an edge."""

from collections.abc import Iterator
from html import escape
from typing import Any

import msgspec
from litestar import Request
from litestar.openapi.plugins import OpenAPIRenderPlugin

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
summary { cursor: pointer; padding: .3rem 0; }
code, pre { font: .85rem/1.4 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .7rem; border: 1px solid #8886; border-radius: .3rem; }
details { border-top: 1px solid #8884; }
dt { font-weight: 600; }
"""


class DocumentPage(OpenAPIRenderPlugin):
    """Shows all operations with what they take and give, and every schema below them."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """Returns the page."""
        info = openapi_schema["info"]
        title = f"{info['title']} {info['version']}"
        parts = [
            "<!doctype html><html lang=en><meta charset=utf-8>",
            "<meta name=viewport content='width=device-width'>",
            "<meta http-equiv=content-security-policy "
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{escape(title)}: API</title><style>{_STYLE}</style>",
            f"<h1>{escape(title)}: API</h1>",
            "<p>For programs: <a href=/schema/openapi.json>openapi.json</a>, "
            "<a href=/schema/openapi.yaml>openapi.yaml</a>.</p><h2>Operations</h2>",
            *_operations(openapi_schema["paths"]),
            "<h2>Schemas</h2>",
            *_schemas(openapi_schema["components"]["schemas"]),
            "</html>",
        ]
        return "".join(parts).encode()


def _operations(paths: dict[str, Any]) -> Iterator[str]:
    for path, operations in sorted(paths.items()):
        for method, operation in operations.items():
            said = escape(operation.get("description") or operation.get("summary") or "")
            yield f"<details><summary><code>{method.upper()} {escape(path)}</code> {said}</summary>"
            yield "<dl>"
            for each in operation.get("parameters", ()):
                name = f"{each['in']} {each['name']}"
                yield f"<dt>{escape(name)}<dd><code>{_shown(each.get('schema', {}))}</code>"
            if body := operation.get("requestBody"):
                yield from _content("takes", body)
            for status, answer in operation["responses"].items():
                yield from _content(status, answer)
            yield "</dl></details>"


def _content(name: str, described: dict[str, Any]) -> Iterator[str]:
    for media_type, content in described.get("content", {}).items():
        yield f"<dt>{escape(name)}, {escape(media_type)}<dd>{_shown(content.get('schema', {}))}"


def _shown(schema: dict[str, Any]) -> str:
    """Returns a schema in a line, with links to those it refers to."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    for union in ("oneOf", "anyOf"):
        if union in schema:
            return " | ".join(map(_shown, schema[union]))
    if schema.get("type") == "array":
        return f"[{_shown(schema.get('items', {}))}]"
    return f"<code>{escape(_json(schema))}</code>"


def _json(schema: Any, indent: int = 0) -> str:
    return msgspec.json.format(msgspec.json.encode(schema), indent=indent).decode()


def _schemas(schemas: dict[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        text = escape(_json(schema, indent=2))
        yield f"<details id='{escape(name)}'><summary>{escape(name)}</summary><pre>{text}</pre>"
        yield "</details>"
