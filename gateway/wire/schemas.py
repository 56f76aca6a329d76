"""Checks a request's JSON schemas, so that what is generated can fit them."""

from typing import Any

from backends.json_pointer import pointed_at
from gateway.wire.errors import ProtocolError

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_MAX_NODES = 2_000  # of a schema that are checked


def check_parameters(schema: dict[str, Any], json_path: str) -> None:
    """Checks that a function's parameters can be an object, at the top level only.

    Raises `ProtocolError` if no object of arguments could fit; `param` says where.
    """
    reference = schema.get("$ref")
    if isinstance(reference, str) and not _is_found(reference, schema):
        raise _invalid(f"{json_path}.$ref", "a pointer to a part of this schema", reference)
    kinds = schema.get("type", "object")
    if kinds != "object" and "object" not in (kinds if isinstance(kinds, list) else ()):
        raise _invalid(f"{json_path}.type", "'object', since arguments are named", kinds)


def check_schema(schema: dict[str, Any], json_path: str) -> None:
    """Checks that every `type` is one of JSON schema's; engines check the rest.

    Raises `ProtocolError` if one is not; `param` says which.
    """
    unread: list[tuple[str, Any]] = [(json_path, schema)]
    for _ in range(_MAX_NODES):
        if not unread:
            return
        where, node = unread.pop()
        if not isinstance(node, dict):
            continue
        kinds = node.get("type", [])
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if kind not in _TYPES:
                expected = ", ".join(f"'{name}'" for name in _TYPES)
                raise _invalid(f"{where}.type", f"one of {expected}", kind)
        unread.extend(_parts(node, where))


def _parts(node: dict[str, Any], where: str) -> list[tuple[str, Any]]:
    """Finds the direct subschemas, and their paths."""
    found: list[tuple[str, Any]] = []
    for name in ("properties", "$defs", "definitions"):
        if isinstance(below := node.get(name), dict):
            found += [(f"{where}.{name}.{key[:64]}", part) for key, part in below.items()]
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(below := node.get(name), list):
            found += [(f"{where}.{name}[{index}]", part) for index, part in enumerate(below)]
    if "items" in node:
        found.append((f"{where}.items", node["items"]))
    return found


def _is_found(reference: str, root: dict[str, Any]) -> bool:
    """Says whether a `#/...` pointer resolves; other kinds are not followed."""
    if reference != "#" and not reference.startswith("#/"):
        return not reference.startswith("#")
    try:
        pointed_at(reference, root)
    except LookupError:
        return False
    return True


def _invalid(param: str, expected: str, got: object) -> ProtocolError:
    shown = f"'{got[:64]}'" if isinstance(got, str) else f"{got!r}"[:66]
    message = f"Invalid '{param}': expected {expected}, got {shown}."
    return ProtocolError("invalid_value", message, param=param)
