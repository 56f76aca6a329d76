"""Checks a JSON value against a schema, within bounds: pure.

A client sends both the schema and, by its prompt, the value. A library would follow references to
other servers and run the schema's patterns in exponential time; this follows none, and patterns run
in linear time (RE2). It knows the keywords that structured outputs and tools use; what it does not
know or cannot afford it does not hold against a value.
"""

import operator
from collections.abc import Callable, Iterator
from typing import Any

from backends.client_patterns import compiled
from backends.json_pointer import pointed_at

MAX_STEPS = 20_000  # pairs of a value and a schema
MAX_REFERENCES = 32  # in a row, without a value in between

_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_UNITS: dict[type, str] = {
    str: "Length",
    list: "Items",
    dict: "Properties",
}  # of a size, in its bounds' names
_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}


class _TooLongError(Exception):
    pass


def fits(value: Any, schema: Any) -> bool:
    """Says whether a decoded value fits a schema, as far as it can be told in `MAX_STEPS`."""
    try:
        return _Check(schema).fits(value, schema)
    except (_TooLongError, RecursionError):
        return True


class _Check:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._num_steps = 0

    def fits(self, value: Any, schema: Any, num_references: int = 0) -> bool:
        self._num_steps += 1
        if self._num_steps > MAX_STEPS:
            raise _TooLongError
        if not isinstance(schema, dict):
            return schema is not False
        reference = schema.get("$ref")
        follows = isinstance(reference, str) and num_references < MAX_REFERENCES
        return (
            (not follows or self.fits(value, self._target(reference), num_references + 1))
            and _has_kind(value, schema.get("type"))
            and _is_one_of(value, schema)
            and all(self._alternatives(value, schema))
            and all(self._parts(value, schema))
            and _is_within(value, schema)
        )

    def _target(self, reference: Any) -> Any:
        """Resolves `#/...`; what is not there, or elsewhere, fits everything."""
        if not reference.startswith("#"):
            return True
        try:
            return pointed_at(reference, self._root)
        except LookupError:
            return True

    def _alternatives(self, value: Any, schema: dict[str, Any]) -> Iterator[bool]:
        # Of "oneOf" more than one may seem to fit, by keywords that are not known here.
        for name, enough in (("anyOf", any), ("oneOf", any), ("allOf", all)):
            if isinstance(schema.get(name), list):
                yield enough(self.fits(value, each) for each in schema[name])

    def _parts(self, value: Any, schema: dict[str, Any]) -> Iterator[bool]:
        if isinstance(value, dict):
            yield from self._members(value, schema)
        elif isinstance(value, list):
            first = _of(schema, "prefixItems", list, [])
            yield from (self.fits(*pair) for pair in zip(value, first, strict=False))
            rest = schema.get("items", True)
            yield from (self.fits(each, rest) for each in value[len(first) :])

    def _members(self, value: dict[str, Any], schema: dict[str, Any]) -> Iterator[bool]:
        known = _of(schema, "properties", dict, {})
        patterns = _of(schema, "patternProperties", dict, {})
        yield set(filter(_is_text, _of(schema, "required", list, []))) <= value.keys()
        for name, member in value.items():
            matching = [part for pattern, part in patterns.items() if _matches(pattern, name)]
            if name in known:
                matching.append(known[name])
            for part in matching or [schema.get("additionalProperties", True)]:
                yield self.fits(member, part)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _of(schema: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    found = schema.get(name)
    return found if isinstance(found, kind) else default


def _has_kind(value: Any, wanted: Any) -> bool:
    kinds = wanted if isinstance(wanted, list) else [wanted]
    names = [kind for kind in kinds if isinstance(kind, str) and kind in _KINDS]
    if not names:
        return True
    if isinstance(value, bool):
        return "boolean" in names
    if isinstance(value, float) and value.is_integer() and "integer" in names:
        return True
    return any(isinstance(value, _KINDS[name]) for name in names)


def _is_one_of(value: Any, schema: dict[str, Any]) -> bool:
    choices = _of(schema, "enum", list, None)
    if "const" in schema:
        choices = [schema["const"]]
    return choices is None or any(_same(value, choice) for choice in choices)


def _same(value: Any, other: Any) -> bool:
    # In JSON true is not 1, but 1.0 is.
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _is_within(value: Any, schema: dict[str, Any]) -> bool:
    """Compares a number, or the size of what has one, with its bounds."""
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int | float):
        return all(
            holds(value, schema[name])
            for name, holds in _BOUNDS.items()
            if isinstance(schema.get(name), int | float)
        )
    unit = _UNITS[type(value)]
    least, most = schema.get(f"min{unit}"), schema.get(f"max{unit}")
    if isinstance(least, int) and len(value) < least:
        return False
    if isinstance(most, int) and len(value) > most:
        return False
    return not isinstance(value, str) or _matches(schema.get("pattern"), value)


def _matches(pattern: Any, text: str) -> bool:
    """Says whether a pattern is found in a text; one that RE2 does not know, is."""
    found = compiled(pattern) if isinstance(pattern, str) else None
    return found is None or found.search(text) is not None
