"""The tokenizer's rule, row by row, and its promises on any text."""

import inspect
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import tokenizer
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
