"""Says more of what is wrong with a document than its decoder does.

msgspec names the path of a wrong value, and not which values a literal may have, nor what stands
there that is out of bounds.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

Json: TypeAlias = "bytes | str | msgspec.Raw"  # a document's text
MAX_SAID_CHARS = 32  # of a number, whose digits have no end

_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")  # of a path such as `.tools[0].name`


def got_at(text: Json, path: str) -> str:
    """Returns ", got ..." for what stands at a path; "" if that cannot be said."""
    try:
        found = msgspec.json.decode(text)
        for step in _STEP.findall(path):  # a map's `[...]` names no key: ValueError
            found = found[int(step[1:-1])] if step.startswith("[") else found[step]
    except (msgspec.DecodeError, RecursionError, ValueError, LookupError, TypeError):
        return ""  # what follows the wrong value may be no JSON at all
    if isinstance(found, int | float):
        return f", got {msgspec.json.encode(found).decode()[:MAX_SAID_CHARS]}"
    units: dict[type, str] = {str: "characters", list: "entries", dict: "fields"}
    unit = units.get(type(found))
    return "" if unit is None else f", got {len(found)} {unit}"


def literals_at(kind: Any, path: str) -> list[Any]:
    """Finds the values that a type's literal at this path may have."""
    found = [_type_info(kind)]
    for step in _STEP.findall(path):
        plain = _plain(found)
        if step.startswith("["):
            found = [info.item_type for info in plain if isinstance(info, inspect.ListType)]
        else:
            structs = [info for info in plain if isinstance(info, inspect.StructType)]
            fields = [field for info in structs for field in info.fields]
            found = [field.type for field in fields if field.encode_name == step]
    literals = [info for info in _plain(found) if isinstance(info, inspect.LiteralType)]
    return [value for info in literals for value in info.values]


@cache
def _type_info(kind: Any) -> inspect.Type:
    """Describes a type once: of a request it takes a millisecond, and leaves hundreds of cycles."""
    return inspect.type_info(kind)


def _plain(infos: Sequence[inspect.Type]) -> list[inspect.Type]:
    """Takes types out of the unions and bounds around them."""
    plain: list[inspect.Type] = []
    for info in infos:
        if isinstance(info, inspect.UnionType):
            plain += _plain(info.types)
        elif isinstance(info, inspect.Metadata):
            plain += _plain([info.type])
        else:
            plain.append(info)
    return plain
