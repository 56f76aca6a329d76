"""Tests what stands on the screen: nothing twice, nothing lost, no word broken."""

import random
import re

import msgspec
import pytest
from rich.segment import Segment

from gateway.dialogue.answer import AnswerView
from gateway.dialogue.layout import Canvas, DialogueView, num_settled_chars
from lanewise.turn import Done, OtherEvent, Response, TextDelta

PLAIN = Canvas(colour=False)
MARKDOWN = """\
# A title

A paragraph of some words that
goes on in a second line.

1. one

   and more of it
2. two

```python
def f():

    return 1
```

The last paragraph
"""


def say(answer: AnswerView, text: str, item_id: str = "msg_1") -> None:
    answer.take(TextDelta(text, None, item_id), 0)


def aside(answer: AnswerView, text: str) -> None:
    kind = "response.reasoning_summary_text.delta"
    answer.take(OtherEvent(kind, {"item_id": "rs_1_aside", "delta": text}), 0)


def end(answer: AnswerView) -> None:
    answer.take(Done(msgspec.convert({"id": "resp_1", "status": "completed"}, Response)), 0)


def text_of(lines: list[list[Segment]]) -> str:
    return one_blank(PLAIN.text(lines))


def one_blank(text: str) -> str:
    """Makes blank lines one: a code block that is drawn alone has no padding above it."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in text.splitlines()))


@pytest.mark.parametrize(
    ("text", "settled"),
    [
        ("", ""),
        ("one", ""),
        ("one\n\n", ""),
        ("one\n\ntwo", "one\n\n"),
        ("one\n\n  in an item", ""),
        ("```\na\n\nb\n", ""),
        ("```\na\n\nb\n```\n\nc", "```\na\n\nb\n```\n\n"),
        ("````\n```\n\nb", ""),
        ("~~~\n```\n\nb\n~~~\n\nc", "~~~\n```\n\nb\n~~~\n\n"),
    ],
)
def test_only_whole_blocks_are_settled(text: str, settled: str) -> None:
    assert text[: num_settled_chars(text)] == settled


@pytest.mark.parametrize("seed", range(20))
def test_however_it_comes_it_is_printed_once_and_whole(seed: int) -> None:
    chance = random.Random(seed)
    whole = AnswerView(0)
    say(whole, MARKDOWN)
    end(whole)
    expected = text_of(DialogueView(PLAIN, [("", whole)]).settled(60))
    answer, position, printed = AnswerView(0), 0, []
    view = DialogueView(PLAIN, [("", answer)])
    while position < len(MARKDOWN):
        size = chance.randrange(1, 40)
        say(answer, MARKDOWN[position : position + size])
        position += size
        printed.append(PLAIN.text(view.settled(60)))
        assert len(view.unsettled(60, 5)) <= 5, f"seed {seed}"
    end(answer)
    printed.append(PLAIN.text(view.settled(60)))
    assert one_blank("".join(printed)) == expected, f"seed {seed}"
    assert view.unsettled(60, 5) == []
    assert view.settled(60) == []


def test_a_passage_that_begins_with_blank_lines_is_not_lost() -> None:
    answer = AnswerView(0)
    view = DialogueView(PLAIN, [("", answer)])
    say(answer, "\n")
    printed = [text_of(view.settled(60))]
    say(answer, "One. ")
    printed.append(text_of(view.settled(60)))
    say(answer, "\n", "msg_2")
    printed.append(text_of(view.settled(60)))
    say(answer, "Two.", "msg_2")
    end(answer)
    printed.append(text_of(view.settled(60)))
    assert "".join(printed).split() == ["One.", "Two."]


def test_the_end_of_what_is_not_settled_is_seen() -> None:
    answer = AnswerView(0)
    say(answer, "```\n" + "".join(f"line {n}\n" for n in range(100)))
    view = DialogueView(PLAIN, [("", answer)])
    assert view.settled(40) == []
    assert text_of(view.unsettled(40, 8)).split("\n")[-1].strip() == "line 99"


@pytest.mark.parametrize("width", [20, 47, 80, 119, 120, 200])
def test_words_are_not_broken(width: int) -> None:
    words = [f"word{number}" + "x" * (number % 7) for number in range(300)]
    answer = AnswerView(0)
    say(answer, " ".join(words))
    end(answer)
    lines = DialogueView(PLAIN, [("", answer)]).settled(width)
    assert text_of(lines).split() == words
    assert all(Segment.get_line_length(line) <= width for line in lines)


def both() -> tuple[AnswerView, AnswerView, DialogueView]:
    fast, deep = AnswerView(0), AnswerView(0)
    return fast, deep, DialogueView(PLAIN, [("fast", fast), ("deep", deep)])


def test_both_engines_stand_beside_each_other_where_there_is_room() -> None:
    fast, deep, view = both()
    say(fast, "Quick words.\n\nMore of them.")
    end(fast)
    say(deep, "Slow words.")
    assert view.settled(120) == []
    assert re.search(
        r"fast +│ deep\nQuick words\. +│ Slow words\.", text_of(view.unsettled(120, 9))
    )
    say(deep, " To the end.")
    end(deep)
    assert re.search(r"Quick words\. +│ Slow words\. To the end\.", text_of(view.settled(120)))
    assert view.settled(120) == view.unsettled(120, 9) == []


def test_on_a_narrow_terminal_they_stand_below_each_other() -> None:
    fast, deep, view = both()
    say(deep, "Slow words.")
    end(deep)
    say(fast, "Quick")
    assert text_of(view.unsettled(119, 9)) == "fast\n\nQuick"
    say(fast, " words.")
    end(fast)
    assert text_of(view.settled(119)) == "fast\n\nQuick words.\ndeep\n\nSlow words."


def test_what_is_said_beside_the_answer_stands_on_its_left() -> None:
    answer = AnswerView(0)
    view = DialogueView(PLAIN, [("", answer)])
    aside(answer, "A variation.")
    say(answer, "The answer.")
    assert view.settled(120) == []
    end(answer)
    told = text_of(view.settled(120))
    assert re.search(r"before the answer +│ answer\n +A variation\. +│ The answer\.", told)
    assert view.settled(120) == []


def test_colour_is_left_out_where_nobody_wants_it() -> None:
    answer = AnswerView(0)
    say(answer, "**bold** and `code`")
    end(answer)
    lines = DialogueView(PLAIN, [("", answer)]).settled(80)
    assert "\x1b" not in PLAIN.text(lines) + PLAIN.dim("quiet")
    assert "\x1b[" in Canvas(colour=True).text(lines)
