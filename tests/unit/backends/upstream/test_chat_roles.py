"""Tests chat templates that want turns: one role's neighbours merge, system messages lead."""

from typing import Any

import pytest

from backends.upstream.chat_roles import SystemMessages, in_turns


def said(turns: str) -> list[dict[str, Any]]:
    """Writes messages in short: `u:hi a:ho`, with s, d for system and developer."""
    roles = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}
    pairs = (turn.split(":") for turn in turns.split())
    return [{"role": roles[role], "content": text.replace("+", "\n\n")} for role, text in pairs]


ROWS: list[tuple[str, SystemMessages, str]] = [
    ("s:a u:b a:c u:d", "anywhere", "s:a u:b a:c u:d"),
    ("u:a u:b a:c a:d u:e", "anywhere", "u:a+b a:c+d u:e"),
    ("s:a s:b u:c", "anywhere", "s:a+b u:c"),
    ("s:a s:b", "anywhere", "s:a u:b"),
    ("s:a s:b u:c", "first", "s:a+b u:c"),
    ("s:a u:b s:c a:d", "anywhere", "s:a u:b s:c a:d"),
    ("s:a u:b s:c a:d", "first", "s:a u:b+c a:d"),
    ("s:a u:b s:c", "anywhere", "s:a u:b+c"),
    ("u:a d:b", "anywhere", "u:a+b"),
    ("s:a", "anywhere", "u:a"),
]


@pytest.mark.parametrize(("sent", "system_messages", "expected"), ROWS)
def test_turns(sent: str, system_messages: SystemMessages, expected: str) -> None:
    assert in_turns(said(sent), system_messages) == said(expected)


def test_calls_and_their_outputs_stay_as_they_are() -> None:
    called = {"role": "assistant", "content": "b", "tool_calls": [{"id": "1"}]}
    outputs = [{"role": "tool", "tool_call_id": each, "content": "c"} for each in ("1", "2")]
    sent = [*said("u:a"), called, *outputs, *said("a:d")]
    assert in_turns(sent, "first") == sent


def test_words_and_calls_of_an_assistant_are_one_message() -> None:
    """A fast engine that hands a task on and talks on says words, then words with calls."""
    called = {"role": "assistant", "content": "c", "tool_calls": [{"id": "1"}]}
    output = {"role": "tool", "tool_call_id": "1", "content": "d"}
    sent = [*said("u:a a:b"), called, output]
    assert in_turns(sent, "first") == [*said("u:a"), called | {"content": "b\n\nc"}, output]
    silent = called | {"content": None}
    behind = [*said("u:a"), silent, *said("a:b"), output]
    assert in_turns(behind, "first") == [*said("u:a"), called | {"content": "b"}, output]


def test_a_template_that_wants_an_assistant_behind_a_tool_gets_one() -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    sent = [*said("u:a"), called, *said("t:b u:c")]
    assert in_turns(sent, "first") == sent
    padded = [*said("u:a"), called, *said("t:b a:... u:c")]
    assert in_turns(sent, "first", pads_tool_turns=True) == padded


def test_parts_are_kept_in_order() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    sent = [{"role": "user", "content": [image]}, {"role": "user", "content": "What is it?"}]
    assert in_turns(sent, "anywhere") == [
        {"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]}
    ]
