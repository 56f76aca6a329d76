"""The conjunction of two JSON schemas, as far as it has a plain form."""

from typing import Any

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
