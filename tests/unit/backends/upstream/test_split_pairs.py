"""A character that is cut in two comes whole, and half of one spoils nothing."""

import msgspec
import pytest

from backends.upstream.answer.chat_chunks import decode_chunk
from backends.upstream.answer.responses_events import decode_sse_event
from backends.upstream.answer.split_pairs import PairJoiner

# Texts as they are within JSON -> what they say.
TEXTS: list[tuple[list[str], list[str]]] = [
    (["a\\ud83d", "\\ude00b"], ["a", "😀b"]),
    (["\\uD83D", "\\uDE00\\ud83d", "\\ude01"], ["", "😀", "😁"]),
    (["\\ud83d\\ude00"], ["😀"]),
    (["\\ud83d", "b", "\\ude00"], ["", "b", "\ufffd"]),
    (["a\\ud83db", "\\ude00"], ["a\ufffdb", "\ufffd"]),
    (["\\\\ud83d"], ["\\ud83d"]),
    (["\\\\\\ud83d", "\\ude00"], ["\\", "😀"]),
]


@pytest.mark.parametrize(("texts", "expected"), TEXTS)
def test_halves(texts: list[str], expected: list[str]) -> None:
    chat, responses = PairJoiner(decode_chunk), PairJoiner(decode_sse_event)
    told = []
    for text in texts:
        chunk = chat.decode(b'{"choices":[{"delta":{"content":"%b"}}]}' % text.encode())
        event = responses.decode(
            b'{"type":"response.output_text.delta","delta":"%b"}' % text.encode()
        )
        assert event.delta == chunk.choices[0].delta.content
        told.append(event.delta)
    assert told == expected


@pytest.mark.parametrize("junk", [b"{", b'{"a":"\\ud83d', b'{"a":"\\x"}', b"\\ud83d"])
def test_junk_stays_junk(junk: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        PairJoiner(decode_chunk).decode(junk)
