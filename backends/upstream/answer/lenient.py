"""Reads a server's JSON where it does not have the types that we expect of it.

A field that cannot be read is left out, so that it spoils nothing where nobody needs it. That is
slower than a decoder of msgspec's, which is asked first.
"""

import json
from collections.abc import Container
from typing import Any, TypeVar, get_args, get_origin

import msgspec

# Texts that some servers write as the JSON that they should hold.
_TEXTS_OF_JSON = frozenset({"arguments", "input"})

_Kind = TypeVar("_Kind", bound=msgspec.Struct)


def fitted(found: Any, kind: type[_Kind], needed: Container[str] = ()) -> _Kind:
    """Returns what of a decoded object is of the kind's types; null is as good as nothing.

    Raises `ValidationError` if it is no object, or if a field that is `needed`, or has no default,
    is there and cannot be read; the names of needed fields hold at any depth.
    """
    if not isinstance(found, dict):
        raise msgspec.ValidationError(f"Expected `object`, got `{type(found).__name__}`")
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        name, value = field.name, found.get(field.name)
        if value is None and not field.required:
            continue
        try:
            fields[name] = _value(value, field.type, needed)
        except msgspec.ValidationError as error:
            if name in _TEXTS_OF_JSON:
                fields[name] = json.dumps(value, separators=(",", ":"))
            elif field.required or name in needed:
                raise msgspec.ValidationError(f"{error} - of `{name}`") from error
    return kind(**fields)


def _value(value: Any, kind: Any, needed: Container[str]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        for each in get_args(kind) or (kind,):  # of a union
            if isinstance(value, dict) and _is_struct(each):
                return fitted(value, each, needed)
            if isinstance(value, list) and get_origin(each) is list:
                (element,) = get_args(each)
                if _is_struct(element):  # what is no object keeps its place
                    objects = (one if isinstance(one, dict) else {} for one in value)
                    return [fitted(one, element, needed) for one in objects]
            if isinstance(value, float) and each is int and value.is_integer():
                return int(value)  # as servers in JavaScript write it
        raise


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
