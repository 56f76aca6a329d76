"""Tests echo and replay: answers that are given, not made."""

import msgspec
import pytest

from backends.contract import DeltaKind, FunctionCall, FunctionCallOutput, TextPart
from backends.script.replay import MAX_TOKENS, echo_script, replay_script
from backends.script.scripted_answer import Script
from backends.tokenizer import count
from tests.unit.backends.script.requests import assistant, request, user

RECORDING = b"""
{"ask": "What is a heron?", "text": "A bird."}
{"ask": "What is a heron?", "text": "Still a bird."}
{"text": "First."}
{"text": "Second."}

{"ask": "weather", "reasoning": "Look it up.", "text": "One moment.",
 "calls": [{"name": "get_weather", "arguments": "{}"}]}
"""
RECORDING = RECORDING.replace(b",\n ", b", ")


def conversation(script: Script, *prompts: str) -> list[str]:
    """Returns what the script answers to one prompt after the other."""
    items, answers = [], []
    for prompt in prompts:
        items.append(user(prompt))
        answers.append(script(request(*items)).items[-1].text)
        items.append(assistant(answers[-1]))
    return answers


def test_recorded_answers_by_prompt_and_in_order() -> None:
    script = replay_script(RECORDING)
    prompts = ("What is a heron?", "hm", " What is a heron? ", "What is a heron?", "so?")
    # Unknown prompts get what stands at their place in the conversation.
    expected = ["A bird.", "Second.", "Still a bird.", "A bird.", "First."]
    assert conversation(script, *prompts) == expected
    assert conversation(script, *prompts) == expected


def test_recorded_calls_are_made_once_in_a_turn() -> None:
    script = replay_script(RECORDING)
    items = script(request("weather")).items
    assert [item.kind for item in items] == [
        DeltaKind.REASONING,
        DeltaKind.TEXT,
        DeltaKind.FUNCTION_CALL,
    ]
    call = FunctionCall(items[2].call_id, items[2].name, items[2].text)
    output = FunctionCallOutput(call.call_id, (TextPart("18"),))
    later = script(request("weather", call, output)).items
    assert DeltaKind.FUNCTION_CALL not in {item.kind for item in later}


def test_a_recording_without_a_fitting_answer_says_so() -> None:
    script = replay_script(b'{"ask": "a", "text": "b"}')
    assert script(request("c")).items[0].text == "The recording has no answer to this."


@pytest.mark.parametrize(
    ("recording", "message"),
    [
        (b"", "no answers"),
        (b'{"text": "a"}\n{"text": 3}', "line 2: Expected `str`, got `int`"),
        (b'{"txt": "a"}', "line 1: Object contains unknown field `txt`"),
        (b"{", "line 1: Input data was truncated"),
        (b'{"ask": "a"}', "line 1: neither text, reasoning nor calls"),
        (b'{"text": "\xff"}', "line 1: "),
    ],
)
def test_bad_recordings_are_refused(recording: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replay_script(recording)


@pytest.mark.parametrize(
    ("prompt", "text"), [("a b c", "a b c"), ("", "(nothing to echo)"), ("  x\n", "  x\n")]
)
def test_echo(prompt: str, text: str) -> None:
    assert echo_script(request(prompt)).items[0].text == text


@pytest.mark.parametrize("number", [10, 4_000, 9_999_999])
def test_echo_to_length(number: int) -> None:
    text = echo_script(request(f"say {number} tokens")).items[0].text
    wanted = min(number, MAX_TOKENS)
    assert wanted - 1 <= count(text) < wanted + 10
    assert set(text.split("\n")) == {f"say {number} tokens"}


def test_recordings_are_json_lines() -> None:
    line = msgspec.json.encode({"text": "one\ntwo \u2028 three"})
    assert replay_script(line)(request("x")).items[0].text == "one\ntwo \u2028 three"
