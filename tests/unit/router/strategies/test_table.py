"""Tests the table of strategies: what each record says, and that nobody else names one."""

import ast
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

import msgspec
import pytest

from router.strategies.table import RECORDS, STRATEGIES, PolicyOptions

ROOT = Path(__file__).resolve().parents[4]
FLOORS = ("gateway", "router", "backends")
QUOTED = [f'"{name}"' for name in STRATEGIES]


def compared_names(source: str, names: Set[str] = frozenset(STRATEGIES)) -> Iterator[int]:
    """Yields lines that compare something with a strategy's name, or look one up by it."""
    for node in ast.walk(ast.parse(source)):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            asked = [node.slice]
        elif isinstance(node, ast.MatchValue):
            asked = [node.value]
        for expression in asked:
            if names & set(words_in(expression)):
                yield node.lineno


def words_in(expression: ast.expr) -> list[str]:
    """Returns the string, or the strings of a tuple, list or set."""
    parts = getattr(expression, "elts", [expression])
    values = [part.value for part in parts if isinstance(part, ast.Constant)]
    return [value for value in values if isinstance(value, str)]


def names_of_other_things(sources: Iterable[str], names: Set[str]) -> set[str]:
    """Strategies' names that are words of another closed set, too: a `Literal` with one of them."""
    literals = [
        names & set(words_in(node.slice))
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal"
    ]
    return {name for found in literals if len(found) == 1 for name in found}


def test_nobody_compares_with_a_strategys_name() -> None:
    paths = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    sources = {path: text for path, text in sources.items() if any(map(text.__contains__, QUOTED))}
    names = STRATEGIES.keys() - names_of_other_things(sources.values(), STRATEGIES.keys())
    found = [
        f"{path}:{line}"
        for path, source in sources.items()
        for line in compared_names(source, names)
    ]
    assert found == []


def test_a_word_of_another_set_is_no_comparison() -> None:
    one, two = 'script: Literal["hedge", "x"]', 'how: Literal["hedge", "breadth"]'
    assert names_of_other_things([one, two], {"hedge", "breadth"}) == {"hedge"}
    assert names_of_other_things([two], {"hedge", "breadth"}) == set()


@pytest.mark.parametrize(
    "source",
    [
        'strategy == "hedge"',
        '"hedge" != strategy',
        'strategy in ("breadth", "x")',
        'strategy in {"x", "breadth"}',
        'RECORDS["hedge"]',
        'match strategy:\n    case "hedge":\n        pass',
    ],
)
def test_a_comparison_would_be_found(source: str) -> None:
    assert list(compared_names(source)) != []


def test_other_strings_may_be_compared() -> None:
    assert list(compared_names('part == "vary" or kind in ("text", x) or rows[0]')) == []


def test_every_record_is_listed_under_its_name() -> None:
    assert [record.name for record in STRATEGIES.values()] == list(STRATEGIES)
    assert all(RECORDS[name] is record for name, record in STRATEGIES.items())
    assert RECORDS[None].name not in STRATEGIES


def test_a_policy_has_the_options_of_all() -> None:
    fields = [
        field.name
        for record in STRATEGIES.values()
        for field in msgspec.structs.fields(record.options)
    ]
    assert list(PolicyOptions.__struct_fields__) == fields
    assert len(set(fields)) == len(fields), "names differ between strategies"
    for record in STRATEGIES.values():
        assert record.options_from(PolicyOptions(), {}) == record.options(), "the same defaults"


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_a_client_sets_is_an_option_with_bounds(name: str) -> None:
    record = STRATEGIES[name]
    for option in record.client_options:
        assert option.field in record.options.__struct_fields__
        default = getattr(record.options(), option.field)
        assert default is None or type(default) is option.kind
        if option.bounds is not None and default is not None:
            assert option.bounds[0] <= default <= option.bounds[1]
        assert (option.bounds is not None) == (option.kind is int)


def test_a_hedge_waits_as_long_as_first_words_take_where_nobody_says() -> None:
    record = STRATEGIES["hedge"]
    assert record.tuned is not None
    measured = {1: 812_300.0}.get
    assert record.tuned(record.options(), measured).hedge_after_ms == 813
    assert record.tuned(record.options(hedge_after_ms=0), measured).hedge_after_ms == 0
    assert record.tuned(record.options(), {}.get).hedge_after_ms is None
