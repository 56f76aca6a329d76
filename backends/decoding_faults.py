"""Says more of what is wrong with a document than its decoder does.

msgspec names the path of a wrong value, and not which values a literal may have, nor what stands
there that is out of bounds, nor the key of a map's entry.
"""

import re
from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

Json: TypeAlias = "bytes | str | msgspec.Raw"  # a document's text
MAX_SAID_CHARS = 32  # of a number, whose digits have no end
MAX_KEY_CHARS = 64
MAX_TRIED = 1_000  # entries of a map, to find the wrong one

_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")  # of a path such as `.tools[0].name`


def fuller(kind: Any, text: Json, path: str, said: str) -> tuple[str, str]:
    """Returns an error's path with the key of a map's entry in it, and all that there is to say.

    Args:
        path: As msgspec gives it; of a map's key, that of the map.
        said: What msgspec says without the path, as "Expected `str`, got `int`".
    """
    before, in_map, after = path.partition("[...]")
    is_key = " in a key" in said
    key = wrong_key(kind, text, before) if in_map or is_key else None
    if said.startswith("Invalid enum value ") and (literals := literals_at(kind, path)):
        known = ", ".join(f"'{value}'" for value in literals)
        said = f"expected {known}, got {said.removeprefix('Invalid enum value ')}"
    elif is_key and key is not None:
        said += f", got {len(key)} characters: '{key[:MAX_KEY_CHARS]}'"
    elif ", got " not in said and not is_key and (key is not None or not in_map):
        said += got_at(text, before, key, after)
    named = "" if key is None or is_key else f".{key[:MAX_KEY_CHARS]}"
    return before + named + after.replace("[...]", ""), said


def got_at(text: Json, path: str, key: str | None = None, below: str = "") -> str:
    """Returns ", got ..." for what stands at a path, or there at a key; "" if it cannot be said.

    `key` is one that `wrong_key` found at the path, and `below` the path from there on.
    """
    walked = _walked(text, path)
    if walked is not None and key is not None:
        walked = _walked(msgspec.json.encode(walked[1][key]), below)
    if walked is None:
        return ""
    found = walked[1]
    if isinstance(found, int | float):
        return f", got {msgspec.json.encode(found).decode()[:MAX_SAID_CHARS]}"
    units: dict[type, tuple[str, str]] = {
        str: ("character", "characters"),
        list: ("entry", "entries"),
        dict: ("field", "fields"),
    }
    one_and_many = units.get(type(found))
    return "" if one_and_many is None else f", got {len(found)} {one_and_many[len(found) != 1]}"


def _walked(text: Json, path: str) -> tuple[list[tuple[str, Any]], Any] | None:
    """Returns the steps to a path, each with what it leads from, and what stands at its end.

    None: nothing does, or the document is no JSON, as what follows a wrong value may not be.
    """
    above: list[tuple[str, Any]] = []
    try:
        found = msgspec.json.decode(text)
        for step in _STEP.findall(path):  # a map's `[...]` names no key: ValueError
            above.append((step, found))
            found = found[int(step[1:-1])] if step.startswith("[") else found[step]
    except (msgspec.DecodeError, RecursionError, ValueError, LookupError, TypeError):
        return None
    return above, found


def wrong_key(kind: Any, text: Json, path: str) -> str | None:
    """Finds the key of the entry for which the map at a path is refused; None if none is found.

    An entry is wrong if it is refused where it stands alone in its document.
    """
    walked = _walked(text, path)
    if walked is None:
        return None
    above, found = walked
    if not isinstance(found, dict):
        return None
    key: str
    for key, value in islice(found.items(), MAX_TRIED):
        alone: Any = {key: value}
        for step, around in reversed(above):
            if step.startswith("["):
                alone = [alone]
            else:  # an object's type tells which of several Structs it is
                alone = {name: around[name] for name in ("type",) if name in around} | {step: alone}
        try:
            msgspec.json.decode(msgspec.json.encode(alone), type=kind)
        except msgspec.ValidationError as error:
            if "[...]" in str(error) or "`key` in" in str(error):
                return key
    return None


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
