"""Tests the checker of JSON schemas, beside the library that knows all of them."""

import random
from typing import Any

import jsonschema
import pytest

from router.strategies.json_schema import MAX_STEPS, compiled, fits

POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", 1]}},
    },
    "required": ["x"],
    "additionalProperties": False,
}
LIST = {
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    "$ref": "#/$defs/node",
}
SCHEMAS: list[Any] = [
    True,
    {},
    POINT,
    LIST,
    {"type": ["string", "null"], "minLength": 2, "maxLength": 3},
    {"type": "string", "pattern": "^[a-c]+$"},
    {"type": "number", "minimum": 1, "exclusiveMaximum": 2},
    {"anyOf": [{"type": "integer"}, {"type": "string", "const": "a"}]},
    {"allOf": [{"type": "number"}, {"maximum": 3}]},
    {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
    {"type": "array", "minItems": 1, "maxItems": 2},
    {"type": "object", "patternProperties": {"^n": {"type": "integer"}}, "minProperties": 1},
    {"enum": [1, "a", None, {"x": 1}]},
    {"const": False},
]
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    1.0,
    1.5,
    2,
    "",
    "a",
    "ab",
    "abcd",
    [],
    ["a"],
    ["a", 1],
    ["a", 1, "b"],
    {},
    {"x": 1},
    {"x": "1"},
    {"x": 1, "y": 2},
    {"x": 1, "tags": ["a", 1]},
    {"x": 1, "tags": ["b"]},
    {"n": "1"},
    {"next": {"next": {}}},
    {"next": {"next": 1}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_it_says_what_the_library_says(schema: Any) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    for value in VALUES:
        assert fits(value, schema) == validator.is_valid(value), value


def test_random_values_and_schemas_never_raise() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)

    def any_json(depth: int) -> Any:
        kinds = ["leaf"] if depth == 0 else ["leaf", "list", "object"]
        kind = chance.choice(kinds)
        if kind == "list":
            return [any_json(depth - 1) for _ in range(chance.randrange(3))]
        if kind == "object":
            names = ["type", "items", "required", "enum", "anyOf", "$ref", "minimum", "pattern"]
            names += ["properties", "minLength", "prefixItems", "const", "x"]
            return {chance.choice(names): any_json(depth - 1) for _ in range(chance.randrange(4))}
        return chance.choice([None, True, 1, -1.5, "a", "(", "#/x", "object", "string"])

    for _ in range(2_000):
        value, schema = any_json(3), any_json(4)
        assert fits(value, schema) in (True, False), f"seed {seed}"


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (1, {"$ref": "https://example.com/schema"}),
        (1, {"$ref": "#/nowhere"}),
        (1, {"$ref": "#"}),
        ("a", {"pattern": "(?=a)"}),
        (1, {"unheardOf": 1}),
        (1, {"type": "unheardOf"}),
    ],
    ids=str,
)
def test_what_it_does_not_know_is_not_held_against_a_value(value: Any, schema: Any) -> None:
    assert fits(value, schema)


def test_its_work_is_bounded() -> None:
    tree: Any = {"type": "string"}
    for _ in range(40):
        tree = {"anyOf": [tree, tree]}
    assert fits(1, tree), f"beyond {MAX_STEPS} steps nothing is held against it"
    value: Any = []
    for _ in range(20_000):
        value = [value]
    assert fits(value, {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"})


def test_a_pattern_that_re2_does_not_know_is_none() -> None:
    assert compiled("(?=a)") is None
    assert compiled("(") is None
    pattern = compiled("a|b")
    assert pattern is not None
    assert pattern.fullmatch("b") is not None
