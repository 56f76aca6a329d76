"""Generates instances of a JSON schema, filled with values that a prompt mentions.

Supported: type (lists too), enum, const, properties, required, additionalProperties,
minProperties, maxProperties, items, prefixItems, minItems, maxItems, uniqueItems, minLength,
maxLength, pattern (see pattern.py), format (date, date-time, time, email, uri, uuid, hostname,
ipv4), minimum, maximum, their exclusive forms, multipleOf, anyOf, oneOf, allOf, $ref into the same
document. The rest (not, if/then/else, dependent..., contains, patternProperties, remote $ref) is
ignored, so a schema that relies on it may get an instance it does not accept; so may a oneOf
whose branches overlap.

What it does is paid for from the answer's `Work`, so a schema that asks for too much is refused.
Optional properties are filled only if the prompt offers a value. Past `SHALLOW_DEPTH`, only
required properties are filled, with the plainest alternative first, so that recursion ends.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from operator import ge, gt, le, lt
from typing import Any

import msgspec

from backends.json_pointer import pointed_at
from backends.script.chance import Chance
from backends.script.pattern import ReadPattern, matching_string
from backends.script.values import Values
from backends.script.work import Work

SHALLOW_DEPTH = 6
MAX_DEPTH = 32
NODE_CHARS = 45  # the work on a node of a schema, and at least
ITEM_CHARS = 100  # besides, on an array's item: a number asks for a thousand, and for more in each
MERGE_CHARS = 10  # on two schemas to be merged, besides their entries
ENTRY_CHARS = 5  # on an entry that is copied or compared: a property, a name, an option
BITS_PER_CHAR = 2  # of a fraction
MAX_ITEMS = 1_000  # of one array, and properties of one object
MAX_CHARS = 20_000  # in one string
FILLER_WORDS = 24  # of a long string; then they come again

_WORDS = (
    "alpha", "bright", "cedar", "delta", "ember", "field", "grove", "harbor", "inlet", "juniper",
    "kite", "lantern", "meadow", "north", "orchard", "pebble", "quartz", "river", "summit", "tide",
)  # fmt: skip
_LOWS, _HIGHS = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
_COMPARISONS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "minimum": ge, "exclusiveMinimum": gt, "maximum": le, "exclusiveMaximum": lt
}  # fmt: skip
# The type that a keyword implies if a schema has none; the first keyword counts.
_KINDS = {
    **dict.fromkeys(("properties", "required", "minProperties"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems"), "array"),
    **dict.fromkeys((*_LOWS, *_HIGHS, "multipleOf"), "number"),
}
_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}$"
_FORMATS = {
    "date": "2025-06-17", "date-time": "2025-06-17T09:30:00Z", "time": "09:30:00Z",
    "email": "ada@example.com", "uri": "https://example.com/", "hostname": "example.com",
    "ipv4": "192.0.2.10",
}  # fmt: skip


def instance(
    schema: Any, values: Values, chance: Chance, work: Work | None = None, param: str = "schema"
) -> Any:
    """Generates a JSON value that a schema (decoded JSON) accepts.

    An invalid schema ({"required": 3}) gets an empty object. Raises `TooMuchWorkError`, which names
    `param`, if it asks for more than `work` has left.
    """
    maker = _Maker(schema, values, chance, work or Work(), param)
    try:
        return maker.make(schema, "", 0, wanted=True)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return {}


class _Maker:
    def __init__(self, root: Any, values: Values, chance: Chance, work: Work, param: str) -> None:
        self._root = root
        self._values = values
        self._chance = chance
        self._work = work
        self._param = param
        self._patterns: dict[str, ReadPattern] = {}

    def _spend(self, num_chars: int) -> None:
        self._work.spend(num_chars, self._param)

    def make(self, schema: Any, name: str, depth: int, *, wanted: bool) -> Any:
        """Generates a value for a property or array of that name; the root's name is empty.

        A wanted value is not null even if the schema allows null.
        """
        if depth > MAX_DEPTH:
            self._spend(2 * ENTRY_CHARS)
            return None
        schema = self._resolved(schema, depth)
        if not isinstance(schema, dict):
            return self._values.text(name) or self._chance.pick(_WORDS)
        if "const" in schema:
            return self._paid(schema["const"])
        if schema.get("enum"):
            return self._of_enum(schema["enum"], wanted)
        match self._kind(schema, name, depth, wanted):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "string":
                return self._string(schema, name)
            case "integer" | "number" as kind:
                return self._number(schema, name, whole=kind == "integer")
            case "boolean":
                return self._values.mentions(name)
        return None

    def _resolved(self, schema: Any, depth: int) -> Any:
        for _ in range(MAX_DEPTH):
            self._spend(NODE_CHARS)
            if not isinstance(schema, dict):
                return schema
            if "$ref" in schema:
                schema = self._merged(_without(schema, "$ref"), self._target(schema["$ref"]))
            elif schema.get("allOf"):
                rest: Any = _without(schema, "allOf")
                for part in schema["allOf"]:
                    rest = self._merged(rest, self._resolved(part, depth))
                schema = rest
            elif alternatives := schema.get("anyOf") or schema.get("oneOf"):
                rest = _without(schema, "anyOf", "oneOf")
                schema = self._merged(rest, self._alternative(alternatives, depth))
            else:
                return schema
        return {"type": "null"}  # circular references, or far too many

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return {}
        self._spend(len(reference))
        try:
            return pointed_at(reference, self._root)
        except LookupError:
            return {}

    def _alternative(self, alternatives: list[Any], depth: int) -> Any:
        """Chooses the plainest alternative when deep, else the first that is not null."""
        self._spend(ENTRY_CHARS * len(alternatives))
        if depth >= SHALLOW_DEPTH:
            return min(alternatives, key=_weight)
        some = [s for s in alternatives if not (isinstance(s, dict) and s.get("type") == "null")]
        return (some or alternatives)[0]

    def _kind(self, schema: dict[str, Any], name: str, depth: int, wanted: bool) -> str:
        kinds = schema.get("type")
        if isinstance(kinds, str):
            return kinds
        if isinstance(kinds, list) and kinds:
            needed = depth < SHALLOW_DEPTH and (wanted or self._offers(name, schema))
            if "null" in kinds and not needed:
                return "null"
            return str(next((kind for kind in kinds if kind != "null"), "null"))
        return next((kind for keyword, kind in _KINDS.items() if keyword in schema), "string")

    def _offers(self, name: str, schema: Any) -> bool:
        """Returns whether the prompt has a value for a property, as far as work is left to see."""
        if not self._work.affords(NODE_CHARS + len(name)):
            return False
        options = schema.get("enum") if isinstance(schema, dict) else None
        if options:
            return self._values.one_of(options) is not None
        return self._values.mentions(name) or self._values.text(name) is not None

    def _of_enum(self, options: list[Any], wanted: bool) -> Any:
        self._spend(ENTRY_CHARS * len(options))
        spoken = self._values.one_of(options)
        if spoken is not None or (not wanted and None in options):
            return spoken
        return self._paid(next((option for option in options if option is not None), None))

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        others = schema.get("additionalProperties", True)
        self._spend(ENTRY_CHARS * (len(properties) + len(schema.get("required", ()))))
        required = dict.fromkeys(key for key in schema.get("required", ()) if isinstance(key, str))
        # A strict schema requires everything and marks the optional by allowing null.
        keys = dict.fromkeys(
            key
            for key, part in properties.items()
            if key in required or (depth < SHALLOW_DEPTH and self._offers(key, part))
        )
        keys |= required
        least = min(int(schema.get("minProperties", 0)), MAX_ITEMS)
        spare = [key for key in properties if key not in keys]
        if others is not False:
            spare += [f"key{number + 1}" for number in range(len(keys) + len(spare), least)]
        keys |= dict.fromkeys(spare[: max(least - len(keys), 0)])
        optional = [key for key in keys if key not in required]
        while optional and len(keys) > schema.get("maxProperties", math.inf):
            del keys[optional.pop()]
        self._spend(sum(map(len, keys)))
        return {
            key: self.make(properties.get(key, others), key, depth + 1, wanted=False)
            for key in keys
        }

    def _array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        firsts = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        least = min(int(schema.get("minItems", 0)), MAX_ITEMS)
        most = min(int(schema.get("maxItems", MAX_ITEMS)), MAX_ITEMS)
        number = least if depth >= SHALLOW_DEPTH else max(least, len(firsts), 1)
        if rest is False:
            number = min(number, len(firsts))
        made: list[Any] = []
        seen: set[bytes] | None = set() if schema.get("uniqueItems") else None
        for index in range(min(number, most)):
            self._spend(ITEM_CHARS)
            part = firsts[index] if index < len(firsts) else rest
            value = self.make(part, "" if index else name, depth + 1, wanted=True)
            if seen is not None:
                value = self._unseen(value, part, depth + 1, index, seen)
            made.append(value)
        return made

    def _unseen(self, value: Any, schema: Any, depth: int, index: int, seen: set[bytes]) -> Any:
        """Varies an array's item until it differs from the earlier ones, and records it."""
        options = schema.get("enum", ()) if isinstance(schema, dict) else ()
        for attempt in range(index, index + 100):
            key = _canonical(value)
            self._spend(len(key))
            if key not in seen:
                break
            if attempt < len(options):
                value = options[attempt]
            else:
                value = self._varied(schema, attempt + 1 - len(options), depth)
        seen.add(_canonical(value))
        return value

    def _varied(self, schema: Any, number: int, depth: int) -> Any:
        resolved = self._resolved(schema, depth)
        kind = self._kind(resolved, "", depth, True) if isinstance(resolved, dict) else "string"
        if kind == "boolean":
            return number % 2 == 1
        if kind in ("integer", "number"):
            whole = kind == "integer"
            low, high, step = _bounds(resolved, whole)
            first = min(Fraction(0), high or Fraction(0)) if low is None else low
            return self._nearest(resolved, first + number * step, whole)
        return self.make(schema, "", depth, wanted=True)

    def _string(self, schema: dict[str, Any], name: str) -> str:
        least = min(int(schema.get("minLength", 0)), MAX_CHARS)
        most = min(int(schema.get("maxLength", MAX_CHARS)), MAX_CHARS)
        if pattern := schema.get("pattern"):
            self._spend(len(pattern))
            made = matching_string(
                *(pattern, self._chance, least, most, self._spend, self._patterns)
            )
            if made is not None:
                return made
        match schema.get("format"):
            case "uuid":
                return matching_string(_UUID, self._chance) or ""
            case "email" | "uri" | "date" as form:
                return self._values.text("url" if form == "uri" else form) or _FORMATS[form]
            case str() as form if form in _FORMATS:
                return _FORMATS[form]
        pick = self._chance.pick
        text = self._values.text(name) or f"{pick(_WORDS)} {pick(_WORDS)}"
        self._spend(max(len(text), least))
        if len(text) < least:
            filler = " " + " ".join(pick(_WORDS) for _ in range(FILLER_WORDS))
            text += filler * -(-(least - len(text)) // len(filler))
        return text[:most]

    def _number(self, schema: dict[str, Any], name: str, *, whole: bool) -> int | float:
        offered = self._values.number(name) if name else None
        wish = self._chance.below(20) if offered is None else offered
        return self._nearest(schema, Fraction(str(wish)), whole)

    def _nearest(self, schema: dict[str, Any], wish: Fraction, whole: bool) -> int | float:
        """Finds an allowed number near a wish; floats divide unevenly, so it tries many."""
        low, high, step = _bounds(schema, whole)
        wish = wish if high is None else min(wish, high)
        wish = wish if low is None else max(wish, low)
        multiple = schema.get("multipleOf")
        if not whole and multiple is None and _allows(schema, wish):
            return _as_json(wish)
        for distance in range(200):
            away = (distance + 1) // 2
            near = (wish // step + (away if distance % 2 == 0 else -away)) * step
            num_bits = near.numerator.bit_length() + near.denominator.bit_length()
            self._spend(NODE_CHARS + num_bits // BITS_PER_CHAR)
            is_multiple = whole or not multiple or (_as_json(near) / multiple) % 1 == 0
            if is_multiple and _allows(schema, near):
                return _as_json(near)
        return _as_json(wish)

    def _paid(self, value: Any) -> Any:
        """Pays for a value of the schema, which is written as it stands."""
        self._spend(len(msgspec.json.encode(value)))
        return value

    def _merged(self, a: Any, b: Any) -> Any:
        """Merges two schemas so that both accept the result; in doubt b's keyword wins."""
        self._spend(MERGE_CHARS)
        if a is False or b is False:
            return False
        if not isinstance(a, dict) or not a:
            return b
        if not isinstance(b, dict):
            return a
        self._spend(ENTRY_CHARS * (_num_entries(a) + _num_entries(b)))
        merged = self._merged
        both = {key: _BOTH[key](a[key], b[key], merged) for key in b if key in a and key in _BOTH}
        return {**a, **b, **both}


def _bounds(
    schema: dict[str, Any], whole: bool
) -> tuple[Fraction | None, Fraction | None, Fraction]:
    lows, highs = (
        [Fraction(str(schema[key])) for key in keywords if key in schema]
        for keywords in (_LOWS, _HIGHS)
    )
    low, high = max(lows, default=None), min(highs, default=None)
    step = Fraction(str(schema.get("multipleOf", 1)))
    if whole:
        step = Fraction(step.numerator)  # the whole multiples of 0.5 are the multiples of 1
    elif low is not None and high is not None and "multipleOf" not in schema:
        step = min(step, (high - low) / 4) or step
    return low, high, step


def _allows(schema: dict[str, Any], value: Fraction) -> bool:
    bounds = ((key, compare) for key, compare in _COMPARISONS.items() if key in schema)
    return all(compare(value, Fraction(str(schema[key]))) for key, compare in bounds)


def _as_json(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _canonical(value: Any) -> bytes:
    """Encodes equal JSON values as equal bytes; true is not 1."""
    return msgspec.json.encode(value, order="deterministic")


def _weight(schema: Any) -> int:
    if not isinstance(schema, dict):
        return 1
    if "$ref" in schema:
        return 3
    kind = schema.get("type")
    if "const" in schema or "enum" in schema or kind == "null":
        return 0
    if kind == "object" or "properties" in schema:
        return 2 + 2 * len(schema.get("required", ()))
    return 2 + 2 * int(schema.get("minItems", 0)) if kind == "array" else 1


def _without(schema: dict[str, Any], *keywords: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keywords}


def _num_entries(schema: dict[str, Any]) -> int:
    sized = [part for part in schema.values() if isinstance(part, dict | list)]
    return len(schema) + sum(map(len, sized))


def _common_types(a: Any, b: Any) -> Any:
    first, second = ([kinds] if isinstance(kinds, str) else list(kinds) for kinds in (a, b))
    for one, other in ((first, second), (second, first)):
        if "number" in one and "integer" in other:
            one.append("integer")
    common = [kind for kind in first if kind in second]
    return common[0] if len(common) == 1 else common or b


def _options_of_both(a: list[Any], b: list[Any]) -> list[Any]:
    others = set(map(_canonical, b))
    return [option for option in a if _canonical(option) in others]


_Merge = Callable[[Any, Any], Any]
# How to merge a keyword that both schemas have, given how to merge schemas.
_BOTH: dict[str, Callable[[Any, Any, _Merge], Any]] = {
    **dict.fromkeys(
        (*_HIGHS, "maxLength", "maxItems", "maxProperties"), lambda a, b, merge: min(a, b)
    ),
    **dict.fromkeys(
        (*_LOWS, "minLength", "minItems", "minProperties"), lambda a, b, merge: max(a, b)
    ),
    **dict.fromkeys(("items", "additionalProperties"), lambda a, b, merge: merge(a, b)),
    "properties": lambda a, b, merge: {**a, **{key: merge(a.get(key, {}), b[key]) for key in b}},
    "required": lambda a, b, merge: list(dict.fromkeys([*a, *b])),
    "enum": lambda a, b, merge: _options_of_both(a, b),
    "allOf": lambda a, b, merge: [*a, *b],
    "type": lambda a, b, merge: _common_types(a, b),
    # One of each: the choices are made one after the other.
    "anyOf": lambda a, b, merge: [merge(one, {"anyOf": b}) for one in a],
    "oneOf": lambda a, b, merge: [merge(one, {"oneOf": b}) for one in a],
}
