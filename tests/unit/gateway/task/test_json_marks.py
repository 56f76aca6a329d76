"""What stands outside a document's strings is counted, in pieces, and bounded."""

import json
import random
import re

import pytest

from gateway.task.json_marks import MAX_MARKS, MAX_QUOTES, MarkCount
from gateway.wire.errors import ProtocolError

LONG = "x" * (MAX_MARKS + 1)  # shorter documents cannot have too many


def counted(text: str) -> int:
    """Counts a document; returns in how many pieces."""
    count, num_pieces = MarkCount(text), 1
    while count.read_piece():
        num_pieces += 1
    return num_pieces


@pytest.mark.parametrize(
    "text",
    [
        "[" + "[]," * MAX_MARKS + "1]",
        '{"a":[' + "{}," * MAX_MARKS + "1]}",
        "[" + "1," * MAX_MARKS + "1]",
        "[" + '"",' * (MAX_MARKS // 2 + 1) + "1]",
        "[" * (15 << 20),
        '"' * (15 << 20),
        '"' + '\\"' * (MAX_QUOTES + 1) + '"',
    ],
)
def test_too_many_values_are_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="message_too_large"):
        counted(text)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(LONG),
        json.dumps(",[{" * MAX_MARKS),
        json.dumps('"' * MAX_MARKS),
        json.dumps("\\" * MAX_MARKS),
        json.dumps(json.dumps([{"a": "b,c"}] * 40_000)),
        json.dumps([{"type": "message", "role": "user", "content": "Hi, you."}] * 10_000),
        json.dumps(["𝕏✓é,[" * 50_000], ensure_ascii=False),
    ],
)
def test_what_stands_in_strings_does_not_count(text: str) -> None:
    counted(text)


def test_a_long_document_is_read_in_pieces() -> None:
    assert counted(json.dumps("x" * (15 << 20))) >= 15
    assert counted(json.dumps(json.dumps(["a"] * 200_000))) > 50


def test_the_count_is_that_of_a_plain_scan() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    for _ in range(30):  # of texts so long that their strings are visited
        tokens = ['"a,b"', '"\\""', '"\\\\"', *",[{}:", " 1 "]
        text = "".join(chance.choices(tokens, k=3_000)) + json.dumps(
            "," * MAX_MARKS
        )  # so that the strings are visited
        count = MarkCount(text)
        while count.read_piece():
            pass
        plain, num_strings = re.subn(r'"(?:[^"\\]|\\.)*"', "", text)
        assert count._num_marks == len(re.findall(r"[,\[{]", plain)) + num_strings, f"seed {seed}"
