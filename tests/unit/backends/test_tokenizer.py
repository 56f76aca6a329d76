"""Tests the tokenizer's rule, row by row, and its promises on any text."""

import inspect
import random
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import token_runs, tokenizer
from backends.token_runs import count_by_runs
from backends.tokenizer import MAX_TOKEN_CHARS, count, min_tokens, split, token_ends


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("hello world", ["hello", " world"]),
        ("considerations", ["consider", "ations"]),
        ("in 2025!", ["in", " 202", "5", "!"]),
        ("a->b", ["a", "->", "b"]),
        ("x == y", ["x", " ==", " y"]),
        ("if x:\n    return y", ["if", " x", ":", "\n    ", "return", " y"]),
        ("a\n\n\nb", ["a", "\n\n", "\n", "b"]),
        ("a   b", ["a", "  ", " b"]),
        ("snake_case", ["snake", "_", "case"]),
        ("größer", ["gr", "öß", "er"]),
        ("東京", ["東", "京"]),
        ("ok 👍", ["ok", " ", "👍"]),
        ("\x00\ud800", ["\x00", "\ud800"]),
    ],
)
def test_rule(text: str, tokens: list[str]) -> None:
    assert split(text) == tokens


@given(st.text(st.characters()))
def test_promises(text: str) -> None:
    tokens = split(text)
    assert "".join(tokens) == text
    assert count(text) == len(tokens) == len(token_ends(text))
    assert all(0 < len(token) <= MAX_TOKEN_CHARS for token in tokens)
    assert token_ends(text)[-1:] == ([len(text)] if text else [])
    assert min_tokens(len(text)) <= count(text)


def test_about_four_characters_a_token() -> None:
    code = inspect.getsource(textwrap)
    prose = " ".join(line for line in (tokenizer.__doc__ or "").splitlines())
    for text in (code, prose):
        assert 3.3 < len(text) / count(text) < 5.0


def test_counting_in_chunks_counts_the_same() -> None:
    """Long texts are counted piece by piece; the pieces' edges must not show."""
    generator = random.Random(7)
    for size in (65_535, 65_536, 65_537, 140_001):
        text = "".join(generator.choices("ab  \n\t.,1\u00e9\u6f22 ", k=size))
        assert count(text, 10**9) == len(split(text)), size


@pytest.mark.parametrize("chunk_chars", [3, 7, 20, 1 << 14])
def test_counting_by_runs_is_counting_the_tokens(
    chunk_chars: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clever count equals the plain one, on texts that meet every edge of the rule."""
    monkeypatch.setattr(token_runs, "_CHUNK_CHARS", chunk_chars)
    generator = random.Random(11)
    mixtures = ["ab  \n\t.,1\u00e9\u6f22 ", "a \n", "a \t.", "\ud800\r\x00 a1.", "\t \n", "aaaa1"]
    tails = ["", "a", "\n", "\t", "\r", "\u2fff", "\u3000", "\U0001f44d"]
    for _ in range(500):
        text = "".join(generator.choices(generator.choice(mixtures), k=generator.randrange(50)))
        text += generator.choice(" \t\na") * generator.randrange(40) + generator.choice(tails)
        assert count_by_runs(text) == len(split(text)), repr(text)


@given(st.text(st.characters()))
def test_counting_by_runs_takes_any_text(text: str) -> None:
    assert count_by_runs(text) == len(split(text))


def test_counting_stops_soon_after_the_maximum() -> None:
    counted = count("a b " * 1_000_000, 1_000)
    assert 1_000 < counted < 100_000
