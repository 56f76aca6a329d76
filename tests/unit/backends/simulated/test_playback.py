"""Tests dealing an answer out: every token once, cuts where they belong."""

import random

import pytest

from backends.contract import (
    CustomToolCall,
    Delta,
    DeltaKind,
    FinishReason,
    FunctionCall,
    Message,
    TextPart,
)
from backends.script.scripted_answer import (
    AnswerItem,
    ScriptedAnswer,
    call_id,
    call_item,
    message_item,
)
from backends.simulated.playback import Playback
from backends.tokenizer import count

ANSWER = ScriptedAnswer(
    (
        AnswerItem(DeltaKind.REASONING, "First think.", 5),
        message_item("Then say something of several words."),
        call_item(DeltaKind.FUNCTION_CALL, "call_1", "look_up", '{"city": "Paris"}', "maps"),
        call_item(DeltaKind.CUSTOM_CALL, "call_2", "patch", "*** Begin"),
    )
)
NUM_TOKENS = Playback(ANSWER, 10_000).num_tokens


def whole(playback: Playback) -> list[Delta]:
    return playback.take(playback.num_tokens, 7)


def test_all_at_once() -> None:
    deltas = whole(Playback(ANSWER, 10_000))
    assert [(d.index, d.kind, d.text) for d in deltas] == [
        (i, item.kind, item.text) for i, item in enumerate(ANSWER.items)
    ]
    assert [(d.call_id, d.name) for d in deltas[2:]] == [("call_1", "look_up"), ("call_2", "patch")]
    assert deltas[0].num_tokens == 5 + count("First think.")
    assert deltas[2].num_tokens == 1 + count("look_up") + count('{"city": "Paris"}')
    assert {d.at_us for d in deltas} == {7}


@pytest.mark.parametrize("seed", range(20))
def test_in_pieces_it_is_the_same(seed: int) -> None:
    chance = random.Random(seed)
    playback = Playback(ANSWER, 10_000)
    texts = ["", "", "", ""]
    left = playback.num_tokens
    while left:
        number = chance.randint(1, min(9, left))
        deltas = playback.take(number, 0)
        assert sum(d.num_tokens for d in deltas) == number, f"seed {seed}"
        for delta in deltas:
            texts[delta.index] += delta.text
        left -= number
    assert texts == [item.text for item in ANSWER.items], f"seed {seed}"
    assert playback.take(5, 0) == []


@pytest.mark.parametrize("limit", range(1, NUM_TOKENS + 3))
def test_a_limit_cuts_at_exactly_so_many_tokens(limit: int) -> None:
    playback = Playback(ANSWER, limit)
    assert playback.num_tokens == min(limit, NUM_TOKENS)
    is_cut = limit < NUM_TOKENS
    assert playback.reason is (FinishReason.LENGTH if is_cut else FinishReason.STOP)
    said = "".join(d.text for d in whole(playback))
    assert "".join(item.text for item in ANSWER.items).startswith(said)
    reasoning = 5 + count("First think.")
    assert playback.num_reasoning_tokens == min(limit, reasoning)
    assert playback.num_reasoning_taken(3) == min(3, limit)


@pytest.mark.parametrize(
    ("stop", "said", "found"),
    [
        (("several",), "Then say something of ", "several"),
        (("words", "say"), "Then ", "say"),
        (("Then",), "", "Then"),
        (("nowhere",), "Then say something of several words.", None),
        (("",), "Then say something of several words.", None),
    ],
)
def test_stop_sequences_cut_the_message_and_end_the_answer(
    stop: tuple[str, ...], said: str, found: str | None
) -> None:
    answer = ScriptedAnswer((message_item("Then say something of several words."), ANSWER.items[2]))
    playback = Playback(answer, 10_000, stop)
    deltas = whole(playback)
    assert (playback.reason, playback.stop_sequence) == (FinishReason.STOP, found)
    assert "".join(d.text for d in deltas if d.kind is DeltaKind.TEXT) == said
    stopped = said != answer.items[0].text
    assert any(d.kind is DeltaKind.FUNCTION_CALL for d in deltas) is not stopped
    assert playback.num_tokens >= 1
    assert Playback(answer, 1, stop).stop_sequence is (found if found == "Then" else None)


def test_what_the_next_prompt_will_hold() -> None:
    said = ScriptedAnswer(ANSWER.items[1:])
    assert Playback(said, 10_000).prompt_items() == [
        Message("assistant", (TextPart("Then say something of several words."),)),
        FunctionCall("call_1", "look_up", '{"city": "Paris"}', namespace="maps"),
        CustomToolCall("call_2", "patch", "*** Begin"),
    ]
    cut = Message("assistant", (TextPart("Then say somethin"),))
    assert Playback(said, 3).prompt_items() == [cut]
    # Reasoning lies between prompt and answer; a cut call is no call; nothing said is nothing.
    assert Playback(ANSWER, 10_000).prompt_items() is None
    assert Playback(said, NUM_TOKENS - 12).prompt_items() is None
    assert Playback(said, 100, ("Then",)).prompt_items() is None


def test_call_ids_differ_by_request_and_call_and_by_nothing_else() -> None:
    assert call_id("resp_1", 0) == call_id("resp_1", 0)
    ids = {call_id(request, index) for request in ("resp_1", "resp_2") for index in range(3)}
    assert len(ids) == 6
    assert all(made.startswith("call_") and len(made) == 29 for made in ids)
