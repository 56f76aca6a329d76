"""Schemas made to be expensive: the work on one instance is bounded, whatever it asks for."""

from typing import Any

import pytest

from backends.script import schema as schema_module
from backends.script.chance import Chance
from backends.script.length import wanted_length
from backends.script.schema import MAX_ITEMS, MAX_NODES, instance
from backends.script.values import Values

NAMED = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
PATTERN = {"type": "string", "pattern": "^[a-z]{3,8}-[0-9]+$"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 20_000, "uniqueItems": True, "items": NAMED},
        {"type": "array", "minItems": 10**6, "uniqueItems": True, "items": {"type": "integer"}},
        {
            "type": "array",
            "minItems": 3_000,
            "uniqueItems": True,
            "items": {"enum": [*range(3_000)]},
        },
        {
            "allOf": [
                {
                    "type": "object",
                    "required": [f"p{i}_{j}" for j in range(20)],
                    "properties": {f"p{i}_{j}": PATTERN for j in range(20)},
                }
                for i in range(200)
            ]
        },
    ],
)
def test_work_is_bounded(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    makers: list[Any] = []

    class Watched(schema_module._Maker):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            makers.append(self)

    monkeypatch.setattr(schema_module, "_Maker", Watched)
    instance(schema, Values("x"), Chance(0, 1))
    (maker,) = makers
    assert maker._num_nodes <= MAX_NODES + MAX_ITEMS


def test_unique_items_are_unique() -> None:
    numbers = instance(
        {"type": "array", "minItems": 200, "uniqueItems": True, "items": {"type": "integer"}},
        Values("x"),
        Chance(0, 1),
    )
    assert len(numbers) == len(set(numbers)) == 200


def test_an_answer_is_no_longer_than_its_limit_needs() -> None:
    """A huge number in a prompt is no reason to write what the limit cuts."""
    from_prompt = wanted_length("Implement 1795231234.8821871 words on caches")
    assert from_prompt.within(100).num_tokens <= 116
    assert wanted_length("Write 5000 words").within(100).number == 116
