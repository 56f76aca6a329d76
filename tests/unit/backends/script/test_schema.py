"""Instances of random schemas must be valid; jsonschema, which we did not write, is the judge."""

from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.script.chance import Chance
from backends.script.pattern import MAX_CHARS, matching_string
from backends.script.schema import instance
from backends.script.values import Values
from backends.script.work import TooMuchWorkError

PROMPT = (
    'Find 3 flights from Paris to "New York" on 2025-03-04 for ada@example.com, max price 250.5'
)

PATTERNS = (
    r"^[A-Z]{2,4}-\d{3}$",
    r"^(red|green|blue)$",
    r"^\+?[0-9]{7,15}$",
    r"^[a-z0-9_]+@[a-z]+\.(com|org)$",
    r"\d+",
    r"^(?:[a-f0-9]{2}:){5}[a-f0-9]{2}$",
    r"^\S+$",
    r"^#[0-9a-fA-F]{6}$",
    r"^[^/]+/[^/]+$",
    r"^v\d+(\.\d+)*$",
)


def bounded(draw: st.DrawFn, low: str, high: str, limit: int) -> dict[str, int]:
    """Returns two bounds, the lower first; either may be missing."""
    pair = sorted([draw(st.integers(0, limit)), draw(st.integers(0, limit))])
    return {key: value for key, value in zip((low, high), pair, strict=True) if draw(st.booleans())}


@st.composite
def strings(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["plain", "sized", "pattern", "format", "enum"]))
    if kind == "sized":
        return {"type": "string", **bounded(draw, "minLength", "maxLength", 60)}
    if kind == "pattern":
        return {"type": "string", "pattern": draw(st.sampled_from(PATTERNS))}
    if kind == "format":
        formats = ["date", "date-time", "time", "email", "uri", "uuid", "hostname", "ipv4"]
        return {"type": "string", "format": draw(st.sampled_from(formats))}
    if kind == "enum":
        return {"enum": draw(st.lists(st.text(max_size=8) | st.none(), min_size=1))}
    return {"type": "string"}


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": draw(st.sampled_from(["integer", "number"]))}
    low = draw(st.integers(-1_000, 1_000))
    # Room for every multiple drawn below, and for bounds that are left out.
    high = low + draw(st.integers(60, 500))
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = high
    if draw(st.booleans()):
        steps = [1, 2, 7, 25] if schema["type"] == "integer" else [1, 2, 0.5, 0.25, 0.1, 0.01]
        schema["multipleOf"] = draw(st.sampled_from(steps))
    return schema


@st.composite
def narrow_numbers(draw: st.DrawFn) -> dict[str, Any]:
    low = draw(st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 3)))
    return {
        "type": "number",
        draw(st.sampled_from(["minimum", "exclusiveMinimum"])): low,
        draw(st.sampled_from(["maximum", "exclusiveMaximum"])): round(low + 0.002, 3),
    }


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    names = st.sampled_from(["city", "max_price", "email", "query", "tags", "when", "x"])
    properties = draw(st.dictionaries(names, inner, max_size=4))
    required = (
        draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    )
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    if draw(st.booleans()):
        schema["additionalProperties"] = False
        schema["minProperties"] = draw(st.integers(0, len(properties)))
    else:
        schema["additionalProperties"] = draw(inner)
        schema["minProperties"] = draw(st.integers(0, 6))
    return schema


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", "items": draw(inner)}
    schema |= bounded(draw, "minItems", "maxItems", 5)
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(inner, max_size=2))
    if draw(st.booleans()):
        schema = {
            "type": "array",
            "items": {"type": draw(st.sampled_from(["integer", "number"]))},
            "uniqueItems": True,
            "minItems": draw(st.integers(0, 12)),
        }
    return schema


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return (
        objects(inner)
        | arrays(inner)
        | several.map(lambda parts: {"anyOf": parts})
        | st.tuples(strings(), numbers()).map(lambda parts: {"oneOf": list(parts)})
        | st.tuples(numbers(), st.integers(0, 1)).map(
            lambda pair: {"allOf": [pair[0], {"description": "a number"}]}
        )
    )


LEAVES = (
    strings()
    | numbers()
    | narrow_numbers()
    | st.just({"type": "boolean"})
    | st.just({"type": "null"})
    | st.just({"type": ["string", "null"]})
    | st.just({"type": ["null", "integer"]})
    | st.just({"const": {"a": [1, None]}})
    | st.just(True)
    | st.just({})
)
SCHEMAS = st.recursive(LEAVES, combined, max_leaves=12)


def check(schema: Any, prompt: str = PROMPT, seed: int = 0) -> Any:
    """Returns the instance for a prompt, after jsonschema has accepted it, formats too."""
    made = instance(schema, Values(prompt), Chance(seed))
    validator = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    validator.validate(made)
    return made


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(SCHEMAS, st.integers(0, 5), st.sampled_from([PROMPT, "", "go"]))
def test_random_schemas_get_valid_instances(schema: Any, seed: int, prompt: str) -> None:
    check(schema, prompt, seed)


KEYWORDS = (
    *("type", "properties", "required", "items", "anyOf", "allOf", "$ref", "enum", "minimum"),
    *("minLength", "minItems", "multipleOf", "pattern", "format", "uniqueItems", "const"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYWORDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(JSON)
def test_what_is_no_schema_does_no_harm(schema: Any) -> None:
    instance(schema, Values(PROMPT), Chance(0))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("seed", range(5))
def test_patterns(pattern: str, seed: int) -> None:
    check({"type": "string", "pattern": pattern, "minLength": 1, "maxLength": 40}, seed=seed)


@pytest.mark.parametrize(
    "pattern",
    [r"(?=a)b", r"(a)\1", r"\p{L}+", "(", "a{2,1}", "[z-a]", "*", "a" * 2_000, "a{1001}", "\ud800"],
)
def test_patterns_not_understood_have_no_string(pattern: str) -> None:
    assert matching_string(pattern, Chance(1)) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$b",  # a search that backtracks never ends
        "^(a|a)*$b",
        "^(a|b|ab)*c$d",
        f"{'(' * 25}{')*' * 25}",  # 8 to the power of 25 empty strings
        f"{'(?:' * 6}a?{'){10}' * 6}",
        "(?:[a-z]{999}){999}",
    ],
)
def test_patterns_made_to_be_expensive_have_no_string(pattern: str) -> None:
    made = matching_string(pattern, Chance(1))
    assert made is None or len(made) <= MAX_CHARS


TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "label": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["label", "children", "next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize(
    "schema",
    [
        TREE,
        {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"const": 1}}}]},
        {"allOf": [{"minimum": 3, "type": "integer"}, {"maximum": 3}]},
        {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"const": 1}}, "required": ["a"]},
        {"$ref": "#/$defs/x~1y", "$defs": {"x/y": {"type": "boolean"}}},
        {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 3},
        {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 2},
        {"type": "integer", "multipleOf": 0.5, "minimum": 0.2},
        {"type": "number", "minimum": 1e20},
        {"type": "integer", "exclusiveMaximum": -5},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"type": "object", "required": ["free"]},
        {"type": "object", "maxProperties": 1, "properties": {"city": {}, "email": {}}},
        {"anyOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}],
         "required": ["a"]},
    ],
)  # fmt: skip
def test_particular_schemas(schema: dict[str, Any]) -> None:
    check(schema)


def test_hopeless_schemas_end() -> None:
    endless = {
        "$defs": {"a": {"type": "object", "required": list("abcdefgh"),
                        "additionalProperties": {"$ref": "#/$defs/a"}}},
        "$ref": "#/$defs/a",
    }  # fmt: skip
    with pytest.raises(TooMuchWorkError):
        instance(endless, Values(""), Chance(1))
    assert instance({"$ref": "#"}, Values(""), Chance(1)) is None
    assert instance({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, Values(""), Chance(1)) in ({}, None)
    doubled = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)}
    with pytest.raises(TooMuchWorkError):
        instance({"$defs": doubled, "$ref": "#/$defs/d0"}, Values(""), Chance(1))


@pytest.mark.parametrize(
    ("schema", "prompt", "expected"),
    [
        ({"type": "string", "enum": ["celsius", "kelvin"]}, "in Kelvin please", "kelvin"),
        ({"properties": {"city": {"type": "string"}}, "required": ["city"]},
         "What's the weather in San Francisco?", {"city": "San Francisco"}),
        ({"properties": {"max_price": {"type": "number"}}, "required": ["max_price"]},
         "3 rooms, max price 250.5", {"max_price": 250.5}),
        ({"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
          "required": ["a", "b"]}, "add 17 and 25", {"a": 17, "b": 25}),
        ({"properties": {"path": {"type": "string"}}, "required": ["path"]},
         "open src/app/main.py now", {"path": "src/app/main.py"}),
        ({"properties": {"url": {"type": "string", "format": "uri"}}, "required": ["url"]},
         "fetch https://example.org/x?y=1.", {"url": "https://example.org/x?y=1"}),
        ({"properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
         "run `make test -j2`", {"cmd": "make test -j2"}),
        ({"properties": {"title": {"type": "string"}, "note": {"type": ["string", "null"]}},
          "required": ["title", "note"]}, 'title: "Big"', {"title": "Big", "note": None}),
        ({"properties": {"verbose": {"type": "boolean"}}, "required": ["verbose"]},
         "be verbose", {"verbose": True}),
    ],
)  # fmt: skip
def test_values_come_from_the_prompt(schema: dict[str, Any], prompt: str, expected: Any) -> None:
    assert check(schema, prompt) == expected
