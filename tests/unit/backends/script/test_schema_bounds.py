"""Tests schemas made to be expensive: the work on one answer is bounded, whatever it asks for."""

import re
from typing import Any, ClassVar

import pytest

from backends.contract import FunctionTool
from backends.script import pattern as pattern_module
from backends.script import values as values_module
from backends.script.answering import answer_script
from backends.script.chance import Chance
from backends.script.length import wanted_length
from backends.script.schema import MERGE_CHARS, _Maker, instance
from backends.script.values import SEARCH_CHARS, Values
from backends.script.work import MAX_CHARS, TooMuchWorkError, Work
from tests.unit.backends.script.requests import request

NAMED = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
PATTERN = {"type": "string", "pattern": "^[a-z]{3,8}-[0-9]+$"}


def many(kind: str = "string", number: int = 5_000, **more: Any) -> dict[str, Any]:
    names = [f"property_{i}" for i in range(number)]
    return {"type": "object", "properties": {name: {"type": kind, **more} for name in names}}


def array(**items: Any) -> dict[str, Any]:
    return {"type": "array", "minItems": 1_000, "items": items}


@pytest.mark.parametrize(
    "schema",
    [
        array(type="string", minLength=20_000, maxLength=20_000),
        array(const="x" * 10_000),
        array(enum=["x" * 10_000]),
        array(enum=[f"x{i}" for i in range(5_000)]),
        array(type="string", pattern="^[a-z]{900}[^a]{900}$"),
        array(**many() | {"minProperties": 1_000}),
        array(type="integer", minimum=10**4_000),
        array(type="number", multipleOf=1e-300, minimum=1e300, maximum=1.1e300)
        | {"uniqueItems": True},
        {"type": "object", "required": ["x" * 1_000 + str(i) for i in range(1_000)]},
        {"allOf": [{"enum": [*range(3_000)]}] * 30},
        {"allOf": [{"required": [f"r{i}_{j}" for j in range(500)]} for i in range(200)]},
        {"allOf": [{"allOf": [{"allOf": [{"type": "string"}] * 30}] * 30}] * 30},
        {"type": "array", "minItems": 20_000, "uniqueItems": True, "items": NAMED},
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
def test_what_asks_for_too_much_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(TooMuchWorkError, match=f"'tools'.*{MAX_CHARS} characters") as refused:
        instance(schema, Values("x"), Chance(0, 1), Work(), "tools")
    assert refused.value.param == "tools"


def test_the_largest_schema_of_the_protocol_is_filled() -> None:
    """Structured outputs allow 5,000 properties and 1,000 options of enums in all."""
    schema = many()
    schema["required"] = [*schema["properties"]]
    assert len(instance(schema, Values("Hi."), Chance(0, 1))) == 5_000
    options = [f"option {i}" for i in range(1_000)]
    assert instance({"enum": options}, Values("Hi."), Chance(0, 1)) == "option 0"


def test_properties_that_nobody_asked_for_are_no_reason_to_refuse() -> None:
    assert instance(many(number=50_000), Values("Hi."), Chance(0, 1)) == {}


def test_what_a_prompt_names_is_searched_for_within_the_same_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Recorded:
        searches: ClassVar[list[str]] = []

        def search(self, pattern: str, *others: Any) -> None:
            self.searches.append(pattern)

        def __getattr__(self, name: str) -> Any:
            return getattr(re, name)

    monkeypatch.setattr(values_module, "re", Recorded())
    letters = "abcdefghijklmnopqrstuvwxyz"
    pairs = [a + b for a in letters for b in letters]
    schema = {"type": "object", "properties": {pair + "q": {"type": "string"} for pair in pairs}}
    work = Work()
    made = instance(schema, Values("q".join(pairs) + "q", work=work), Chance(0, 1), work)
    assert made == {}
    assert 100 < len(Recorded.searches) <= MAX_CHARS // SEARCH_CHARS


def test_all_calls_of_an_answer_share_one_bound() -> None:
    tools = tuple(
        FunctionTool(f"make_it_{i}", "", array(type="string", minLength=200)) for i in range(16)
    )
    script = answer_script(0, reasons=False)
    assert script(request("Use make_it_1.", tools=tools)).items
    with pytest.raises(TooMuchWorkError):
        script(request(" ".join(f"Use make_it_{i}." for i in range(16)), tools=tools))


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


def test_items_of_items_are_given_up_soon() -> None:
    class Counted(Work):
        num_spent = 0

        def spend(self, num_chars: int, param: str) -> None:
            self.num_spent += 1
            super().spend(num_chars, param)

    work = Counted()
    with pytest.raises(TooMuchWorkError):
        instance(array(**{"$ref": "#"}) | {"minItems": 99}, Values("x"), Chance(0, 1), work)
    assert work.num_spent < 10_000  # 74,000 without what items cost, ten times as long


@pytest.mark.parametrize("alternatives", [[{}] * 50, "x" * 1_000])
def test_alternatives_of_alternatives_are_given_up_soon(
    monkeypatch: pytest.MonkeyPatch, alternatives: Any
) -> None:
    num_merges = 0
    merged = _Maker._merged

    def counted(self: _Maker, a: Any, b: Any) -> Any:
        nonlocal num_merges
        num_merges += 1
        return merged(self, a, b)

    monkeypatch.setattr(_Maker, "_merged", counted)
    with pytest.raises(TooMuchWorkError):
        instance({"anyOf": alternatives, "$ref": "#"}, Values("x"), Chance(0, 1))
    assert num_merges <= MAX_CHARS // MERGE_CHARS + 1


def patterned(pattern: str) -> dict[str, Any]:
    """Makes a schema of a thousand strings of that pattern, each with an end of its own."""
    properties = {f"p{i}": {"type": "string", "pattern": f"{pattern}{i:b}"} for i in range(1_000)}
    return {"type": "object", "properties": properties, "required": [*properties]}


@pytest.mark.parametrize("pattern", [r"(?:\D{0,9}){90}", r"(?:\pL{20}){40}", "[\u4e00-\u9fff]"])
def test_reading_patterns_is_paid_for(monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    num_read = 0
    parsed = pattern_module._parsed

    def counted(tokens: list[str], depth: int) -> Any:
        nonlocal num_read
        num_read += depth == 0
        return parsed(tokens, depth)

    monkeypatch.setattr(pattern_module, "_parsed", counted)
    with pytest.raises(TooMuchWorkError):
        instance(patterned(pattern), Values("x"), Chance(0, 1))
    assert num_read <= MAX_CHARS // pattern_module.READ_WORK + 1


def test_searching_for_patterns_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """RE2 may look at each part of a pattern at each character, and nothing matches this one."""
    num_searched = 0

    class Never:
        def search(self, text: str) -> None:
            nonlocal num_searched
            num_searched += 900 * len(text)

    monkeypatch.setattr(pattern_module, "compiled", lambda _: Never())
    pattern_module._read.cache_clear()
    try:
        with pytest.raises(TooMuchWorkError):
            instance(patterned("(?:[a-z]?){900}$"), Values("x"), Chance(0, 1))
    finally:
        pattern_module._read.cache_clear()
    assert 0 < num_searched <= MAX_CHARS * pattern_module.SEARCHED_PER_WORK


def test_items_of_one_pattern_pay_for_reading_it_once() -> None:
    made = instance(array(**PATTERN), Values("x"), Chance(0, 1))
    assert len(made) == 1_000
