"""Instances of a JSON schema, filled from what an ask mentions.

Understood: type (lists too), enum, const, properties, required, additionalProperties,
minProperties, maxProperties, items, prefixItems, minItems, maxItems, uniqueItems, minLength,
maxLength, pattern (see pattern.py), format (date, date-time, time, email, uri, uuid, hostname,
ipv4), minimum, maximum, their exclusive forms, multipleOf, anyOf, oneOf, allOf, $ref into the same
document. The rest (not, if/then/else, dependent..., contains, patternProperties, remote $ref) is
passed over, so a schema that relies on it may get an instance it does not accept; so may a oneOf
whose branches overlap.

Optional properties are filled only where the ask offers a value. Recursion stops where it may: past
`SHALLOW_DEPTH`, only what is required is made, the plainest alternative first.
"""

import math
from fractions import Fraction
from typing import Any

import msgspec

from backends.script.chance import Chance
from backends.script.pattern import matching_string
from backends.script.values import Values

SHALLOW_DEPTH = 6
MAX_DEPTH = 32
MAX_NODES = 5_000  # of work on one instance; what exceeds it is cut, valid or not
PATTERN_NODES = 20  # of work, about, for a string that matches a pattern
COPIES_PER_NODE = 50  # properties copied, or options of an enum read
MAX_ITEMS = 1_000  # in one array, and properties of one object
MAX_CHARS = 20_000  # in one string

_WORDS = (
    "alpha", "bright", "cedar", "delta", "ember", "field", "grove", "harbor", "inlet", "juniper",
    "kite", "lantern", "meadow", "north", "orchard", "pebble", "quartz", "river", "summit",
    "timber",
)  # fmt: skip

_FORMATS = {
    "date": "2025-06-17",
    "date-time": "2025-06-17T09:30:00Z",
    "time": "09:30:00Z",
    "email": "ada@example.com",
    "uri": "https://example.com/",
    "hostname": "example.com",
    "ipv4": "192.0.2.10",
}


def instance(schema: Any, values: Values, chance: Chance) -> Any:
    """A JSON value that a schema (decoded JSON) accepts.

    What is no schema at all ({"required": 3}) accepts nothing and gets an empty object.
    """
    try:
        return _Maker(schema, values, chance).make(schema, "", 0, wanted=True)
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return {}


class _Maker:
    def __init__(self, root: Any, values: Values, chance: Chance) -> None:
        self._root = root
        self._values = values
        self._chance = chance
        self._num_nodes = 0

    def make(self, schema: Any, name: str, depth: int, *, wanted: bool) -> Any:
        """A value for one place.

        Args:
            schema: Of the place.
            name: The property's, or its array's; empty at the root.
            depth: How deep the place is.
            wanted: Whether null will not do though the schema allows it.
        """
        self._num_nodes += 1
        if depth > MAX_DEPTH or self._num_nodes > MAX_NODES:
            return None
        schema = self._resolved(schema, depth)
        if not isinstance(schema, dict):
            return self._values.text(name) or self._word()
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._of_enum(schema["enum"], wanted)
        match self._kind(schema, name, depth, wanted):
            case "object":
                return self._object(schema, name, depth)
            case "array":
                return self._array(schema, name, depth)
            case "string":
                return self._string(schema, name)
            case "integer":
                return self._number(schema, name, whole=True)
            case "number":
                return self._number(schema, name, whole=False)
            case "boolean":
                return self._values.mentions(name)
        return None

    def _resolved(self, schema: Any, depth: int) -> Any:
        """A schema without references and combinations, one alternative of each chosen."""
        for _ in range(MAX_DEPTH):
            self._num_nodes += 1
            if self._num_nodes > MAX_NODES:
                break
            if not isinstance(schema, dict):
                return schema
            if "$ref" in schema:
                target = self._target(schema["$ref"])
                rest = {key: value for key, value in schema.items() if key != "$ref"}
                schema = merged(rest, target)
            elif schema.get("allOf"):
                rest = {key: value for key, value in schema.items() if key != "allOf"}
                for part in schema["allOf"]:
                    rest = merged(rest, self._resolved(part, depth))
                    # Each merge copies what came together so far.
                    self._num_nodes += len(rest.get("properties", ())) // COPIES_PER_NODE
                    if self._num_nodes > MAX_NODES:
                        break
                schema = rest
            elif alternatives := schema.get("anyOf") or schema.get("oneOf"):
                rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
                schema = merged(rest, self._alternative(alternatives, depth))
            else:
                return schema
        return {"type": "null"}  # references that only refer to each other, or far too many

    def _target(self, reference: str) -> Any:
        """What a `#/...` pointer points at; the empty schema if nothing."""
        target = self._root
        if not reference.startswith("#"):
            return {}
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isdigit() and int(key) < len(target):
                target = target[int(key)]
            else:
                return {}
        return target

    def _alternative(self, alternatives: list[Any], depth: int) -> Any:
        """The plainest one when deep, else one the ask speaks for, else the first that says."""
        if depth >= SHALLOW_DEPTH:
            return min(alternatives, key=self._weight)
        for schema in alternatives:
            if isinstance(schema, dict):
                options = [schema["const"]] if "const" in schema else schema.get("enum", ())
                if self._values.one_of(options) is not None:
                    return schema
        told = [s for s in alternatives if not (isinstance(s, dict) and s.get("type") == "null")]
        return (told or alternatives)[0]

    def _weight(self, schema: Any) -> int:
        """How much a schema's instances need, roughly."""
        if not isinstance(schema, dict):
            return 1
        if "$ref" in schema:
            return 3
        if "const" in schema or "enum" in schema:
            return 0
        kind = schema.get("type")
        if kind == "object" or "properties" in schema:
            return 2 + 2 * len(schema.get("required", ()))
        if kind == "array":
            return 2 + 2 * int(schema.get("minItems", 0))
        return 1 if kind != "null" else 0

    def _kind(self, schema: dict[str, Any], name: str, depth: int, wanted: bool) -> str:
        kinds = schema.get("type")
        if isinstance(kinds, str):
            return kinds
        if isinstance(kinds, list) and kinds:
            needed = depth < SHALLOW_DEPTH and (wanted or self._offers(name, schema))
            if "null" in kinds and not needed:
                return "null"
            return str(next((kind for kind in kinds if kind != "null"), "null"))
        if "properties" in schema or "required" in schema or "minProperties" in schema:
            return "object"
        if "items" in schema or "prefixItems" in schema or "minItems" in schema:
            return "array"
        if {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"} & set(
            schema
        ):
            return "number"
        return "string"

    def _offers(self, name: str, schema: Any) -> bool:
        """Whether the ask has something for a property of that name and schema."""
        options = schema.get("enum") if isinstance(schema, dict) else None
        if options:
            return self._values.one_of(options) is not None
        return self._values.mentions(name) or self._values.text(name) is not None

    def _of_enum(self, options: list[Any], wanted: bool) -> Any:
        self._num_nodes += len(options) // COPIES_PER_NODE
        spoken = self._values.one_of(options)
        if spoken is not None:
            return spoken
        if not wanted and None in options:
            return None
        return next((option for option in options if option is not None), None)

    def _object(self, schema: dict[str, Any], name: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = [key for key in schema.get("required", ()) if isinstance(key, str)]
        made: dict[str, Any] = {}
        for key, place in properties.items():
            if key in required or (depth < SHALLOW_DEPTH and self._offers(key, place)):
                # A strict schema requires everything and marks the optional by allowing null.
                made[key] = self.make(place, key, depth + 1, wanted=False)
        others = schema.get("additionalProperties", True)
        for key in required:
            if key not in properties:
                made[key] = self.make(others, key, depth + 1, wanted=False)
        least = min(int(schema.get("minProperties", 0)), MAX_ITEMS)
        spare = [key for key in properties if key not in made]
        while len(made) < least and spare:
            key = spare.pop(0)
            made[key] = self.make(properties[key], key, depth + 1, wanted=False)
        while len(made) < least and others is not False:
            made[f"key{len(made) + 1}"] = self.make(others, name, depth + 1, wanted=False)
        most = schema.get("maxProperties")
        if most is not None:
            for key in [key for key in reversed(made) if key not in required]:
                if len(made) > most:
                    del made[key]
        return made

    def _array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        firsts = schema.get("prefixItems", [])
        place = schema.get("items", True)
        least = min(int(schema.get("minItems", 0)), MAX_ITEMS)
        most = min(int(schema.get("maxItems", MAX_ITEMS)), MAX_ITEMS)
        number = least if depth >= SHALLOW_DEPTH else max(least, len(firsts), 1)
        if place is False:
            number = min(number, len(firsts))
        elif depth < SHALLOW_DEPTH and not firsts and self._is_plain_text(place):
            number = max(number, min(len(self._values.names), 20))
        made: list[Any] = []
        seen: set[bytes] | None = set() if schema.get("uniqueItems") else None
        for index in range(min(number, most)):
            if self._num_nodes > MAX_NODES:
                break
            here = firsts[index] if index < len(firsts) else place
            made.append(self._item(here, name, depth, index, seen))
        return made

    def _item(self, place: Any, name: str, depth: int, index: int, seen: set[bytes] | None) -> Any:
        """One item of an array; `seen` holds the earlier ones where they must differ."""
        if self._is_plain_text(place) and index < len(self._values.names):
            value: Any = self._values.names[index]
        else:
            value = self.make(place, "" if index else name, depth + 1, wanted=True)
        if seen is None:
            return value
        options = place.get("enum", ()) if isinstance(place, dict) else ()
        for attempt in range(index, index + 100):
            if _canonical(value) not in seen or self._num_nodes > MAX_NODES:
                break
            self._num_nodes += 1
            if attempt < len(options):
                value = options[attempt]
            else:
                value = self._varied(place, attempt + 1 - len(options), depth)
        seen.add(_canonical(value))
        return value

    def _varied(self, place: Any, number: int, depth: int) -> Any:
        """Another value for a place whose first ones were taken already."""
        schema = self._resolved(place, depth)
        kind = self._kind(schema, "", depth, True) if isinstance(schema, dict) else "string"
        if kind == "boolean":
            return number % 2 == 1
        if kind in ("integer", "number"):
            low, _, step = _bounds(schema, whole=kind == "integer")
            return _as_json(low + number * step)
        return self.make(place, "", depth + 1, wanted=True)

    def _is_plain_text(self, place: Any) -> bool:
        return (
            isinstance(place, dict)
            and set(place) <= {"type", "description", "title"}
            and (place.get("type") == "string")
        )

    def _string(self, schema: dict[str, Any], name: str) -> str:
        least = min(int(schema.get("minLength", 0)), MAX_CHARS)
        most = schema.get("maxLength")
        most = MAX_CHARS if most is None else min(int(most), MAX_CHARS)
        if pattern := schema.get("pattern"):
            self._num_nodes += PATTERN_NODES
            made = matching_string(pattern, self._chance, least, most)
            if made is not None:
                return made
        if fixed := self._of_format(schema.get("format")):
            return fixed
        text = self._values.text(name) or (" ".join([self._word(), self._word()]))
        while len(text) < least:
            text += " " + self._word()
        return text[:most]

    def _of_format(self, form: Any) -> str | None:
        if form == "uuid":
            digits = "".join(self._chance.pick("0123456789abcdef") for _ in range(30))
            return f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-a{digits[15:18]}-{digits[18:30]}"
        if form in ("email", "uri", "date"):
            return self._values.text({"uri": "url"}.get(form, form)) or _FORMATS[form]
        return _FORMATS.get(form) if isinstance(form, str) else None

    def _number(self, schema: dict[str, Any], name: str, *, whole: bool) -> int | float:
        low, high, step = _bounds(schema, whole=whole)
        offered = self._values.number(name) if name else None
        wish = Fraction(str(offered)) if offered is not None else Fraction(self._chance.below(20))
        wish = max(low, wish if high is None else min(wish, high))
        if not whole and "multipleOf" not in schema:
            return _as_json(wish)
        for number in range(200):  # next to the wish; floats divide unevenly, so look around
            sign = -1 if number % 2 else 1
            near = low + step * ((wish - low) // step + sign * ((number + 1) // 2))
            if near < low or (high is not None and near > high):
                continue
            value = _as_json(near) if whole or step.denominator == 1 else float(near)
            multiple = schema.get("multipleOf")
            if not multiple or whole or (value / multiple) % 1 == 0:
                return value
        return _as_json(low)

    def _word(self) -> str:
        return self._chance.pick(_WORDS)


def _bounds(schema: dict[str, Any], *, whole: bool) -> tuple[Fraction, Fraction | None, Fraction]:
    """The least and greatest allowed value, and the distance between allowed ones.

    The least is a multiple of the distance; without a lower bound it is 0, or the greatest multiple
    below an upper bound under that.
    """
    step = Fraction(str(schema.get("multipleOf", 1)))
    if whole and step.denominator != 1:
        step = Fraction(step.numerator)  # the whole multiples of 0.5 are the multiples of 1
    lows = [Fraction(str(schema[key])) for key in ("minimum", "exclusiveMinimum") if key in schema]
    highs = [Fraction(str(schema[key])) for key in ("maximum", "exclusiveMaximum") if key in schema]
    low, high = max(lows, default=None), min(highs, default=None)
    if low is not None and high is not None and "multipleOf" not in schema and not whole:
        step = min(step, (high - low) / 4) or Fraction(1)
        return (
            low + (step if low == _fraction(schema.get("exclusiveMinimum")) else 0),
            (high - (step if high == _fraction(schema.get("exclusiveMaximum")) else 0)),
            step,
        )
    if low is None:
        low = (
            min(Fraction(0), Fraction(math.floor(high / step) * step))
            if high is not None
            else (Fraction(0))
        )
        if high is not None and low == _fraction(schema.get("exclusiveMaximum")):
            low -= step
    else:
        low = Fraction(math.ceil(low / step) * step)
        if low == _fraction(schema.get("exclusiveMinimum")):
            low += step
    if high is not None:
        high = Fraction(math.floor(high / step) * step)
        if high == _fraction(schema.get("exclusiveMaximum")):
            high -= step
    return low, high, step


def _fraction(value: Any) -> Fraction | None:
    return None if value is None or isinstance(value, bool) else Fraction(str(value))


def _as_json(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _canonical(value: Any) -> bytes:
    """The same bytes for the same JSON value; true is not 1."""
    return msgspec.json.encode(value, order="deterministic")


_TIGHTEST_HIGH = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_TIGHTEST_LOW = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")


def merged(a: Any, b: Any) -> Any:
    """A schema that accepts what both accept; where no plain form exists, b's keyword wins."""
    if not isinstance(a, dict) or not a:
        return b if a is not False else False
    if not isinstance(b, dict):
        return a if b is not False else False
    out = dict(a)
    for key, value in b.items():
        out[key] = _both(key, a[key], value) if key in a else value
    return out


def _both(key: str, a: Any, b: Any) -> Any:
    if key in _TIGHTEST_HIGH:
        return min(a, b)
    if key in _TIGHTEST_LOW:
        return max(a, b)
    if key == "properties":
        return {**a, **{name: merged(a.get(name, {}), place) for name, place in b.items()}}
    if key == "required":
        return list(dict.fromkeys([*a, *b]))
    if key == "enum":
        return [option for option in a if option in b]
    if key in ("items", "additionalProperties"):
        return merged(a, b)
    if key in ("allOf", "prefixItems"):
        return [*a, *b] if key == "allOf" else b
    if key == "type":
        return _common_types(a, b)
    if key in ("anyOf", "oneOf"):
        # One of each: the choices are made one after the other.
        return [merged(one, {key: b}) for one in a]
    return b


def _common_types(a: Any, b: Any) -> Any:
    first = [a] if isinstance(a, str) else list(a)
    second = [b] if isinstance(b, str) else list(b)
    if "number" in first and "integer" in second:
        first.append("integer")
    if "integer" in first and "number" in second:
        second.append("integer")
    common = [kind for kind in first if kind in second]
    return common[0] if len(common) == 1 else common or b
