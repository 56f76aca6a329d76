"""Tests the rest of an answer whose first words another engine has said."""

import pytest

from backends.contract import DeltaKind
from backends.script.continuing import rest_of
from backends.script.scripted_answer import AnswerItem, ScriptedAnswer, message_item

THOUGHT = AnswerItem(DeltaKind.REASONING, "Hm.", 3)
CALL = AnswerItem(DeltaKind.FUNCTION_CALL, "{}", 2, "call_1", "look")


@pytest.mark.parametrize(
    ("text", "prefill", "rest"),
    [
        ("One, two, three.", "", "One, two, three."),
        ("One, two, three.", "One, t", "wo, three."),
        ("One, two, three.", "One, two, three.", ""),
        ("One, two, three.", "Uno, d", " three."),  # another's words: from the next one on
        ("One.", "Uno, dos, tres.", ""),
    ],
)
def test_it_goes_on_behind_the_words(text: str, prefill: str, rest: str) -> None:
    answer = ScriptedAnswer((THOUGHT, message_item(text), CALL))
    assert rest_of(answer, prefill).items == (message_item(rest), CALL)


def test_there_is_always_an_item() -> None:
    assert rest_of(ScriptedAnswer((THOUGHT,)), "One").items == (message_item(""),)
