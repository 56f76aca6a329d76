"""What the classifier sees of a text: which part is the prompt, its words, its shape."""

import pytest
from msgspec.structs import astuple

from router.classify.text_features import (
    COURTESIES,
    DENSE_NAMES,
    HEAD_CHARS,
    MAX_KEPT_CHARS,
    OPENERS,
    PROMPT_CHARS,
    TAIL_CHARS,
    Reading,
    dense,
    forget_readings,
    once,
    read,
    terms,
    words_of,
)

PASTE = "The log says nothing.\n\n" + "value = compute(left, right)\n" * 300


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Fix the typo", [b"fix", b"the", b"typo"]),
        ("rename max_items to maxItems!", [b"rename", b"max", b"items", b"to", b"maxitems"]),
        ("don't\tdo  that\n", [b"don", b"t", b"do", b"that"]),
        ("Größe von x²", ["größe".encode(), b"von", "x²".encode()]),
        ("", []),
        ("?!", []),
    ],
)
def test_words(text: str, words: list[bytes]) -> None:
    assert read(text).words == words


@pytest.mark.parametrize(
    "polite",
    [
        "Please fix the typo",
        "please could you fix the typo",
        "Hi, fix the typo",
        "Hey, please fix the typo",
        "fix the typo\nThanks!",
        "fix the typo\n\nThank you in advance",
        "fix the typo, thanks a lot!",
        "Could you fix the typo please?",
        "Would you kindly fix the typo?",
        "Hello,\nfix  the  typo\nThanks!",
        "  fix the typo \n",
    ],
)
def test_politeness_changes_nothing(polite: str) -> None:
    assert astuple(read(polite)) == astuple(read("fix the typo"))


@pytest.mark.parametrize("polite", ["Please {}", "Hello,\n{}\n\nThank you in advance", "{}  "])
def test_politeness_moves_no_cut_of_a_long_text(polite: str) -> None:
    text = f"Fix the typo in the heading\n\n{PASTE[:2000]}".strip()
    assert astuple(read(polite.format(text))) == astuple(read(text))


def test_a_text_of_courtesies_alone_has_no_words() -> None:
    assert read("Hi, thank you!").words == []
    assert len(dense(read("Hi, thank you!"))) == len(DENSE_NAMES)


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        (f"Fix the typo in the heading\n\n{PASTE}", b"Fix the typo in the heading"),
        (f"{PASTE}\n\nWhat does compute return?", b"\n\nWhat does compute return?"),
        (f"Rename compute to run\n{PASTE}\n\nEnd of file.", b"Rename compute to run"),
    ],
)
def test_the_ask_is_found_around_a_paste(text: str, prompt: bytes) -> None:
    found = read(text)
    assert found.prompt == prompt
    assert found.context_words == []  # known to be the context, it counts for nothing
    assert found.num_chars == len(prompt)


def test_without_an_opening_verb_both_ends_count() -> None:
    found = read(f"Heading of it all\n{PASTE}\n\nNothing more.")
    assert found.words == [b"heading", b"of", b"it", b"all", b"nothing", b"more"]
    assert b"compute" in found.context_words


READ_CHARS = HEAD_CHARS + TAIL_CHARS


@pytest.mark.parametrize(
    "num_chars", [PROMPT_CHARS, PROMPT_CHARS + 1, READ_CHARS, READ_CHARS + 1, 640_000]
)
def test_any_size_is_read_like_its_head_and_tail(num_chars: int) -> None:
    text = ("The scheduler explains. " * (num_chars // 24 + 1))[: num_chars - 1] + "."
    found = read(text)
    assert found.num_chars == num_chars
    assert len(found.prompt) <= PROMPT_CHARS
    assert len(found.words) + len(found.context_words) <= READ_CHARS
    if num_chars > READ_CHARS:
        same_ends = text[:HEAD_CHARS] + "middle " * 5_000 + text[-TAIL_CHARS:]
        assert read(same_ends).words == found.words
        assert read(same_ends).context_words == found.context_words


@pytest.mark.parametrize(
    "text",
    [
        "\ud800 lone surrogate",
        "\x00\x01",
        "a" * 5_000,
        "\n" * 5_000,
        "😀" * 3_000,
        " " * 900,
        "ß" * 899,
    ],
)
def test_odd_texts_have_features(text: str) -> None:
    values = dense(read(text))
    assert len(values) == len(DENSE_NAMES)
    assert all(0 <= value <= 16 for value in values)


def test_terms_are_distinct_and_words_come_first() -> None:
    assert terms([b"a", b"b", b"a", b"b"]) == [b"a", b"b", (b"a", b"b"), (b"b", b"a")]


def test_lists_can_be_matched() -> None:
    """A courtesy or an opener that is not one word in lower case would be a silent typo."""
    for word in COURTESIES | OPENERS:
        assert word.translate(None, b"abcdefghijklmnopqrstuvwxyz") == b""
    assert not COURTESIES & OPENERS
    assert words_of(b"Please " + b" ".join(sorted(OPENERS))) == sorted(OPENERS)


def test_what_is_found_out_about_an_ask_is_found_out_once() -> None:
    calls: list[Reading] = []

    @once
    def num_words(reading: Reading) -> int:
        calls.append(reading)
        return len(reading.words)

    prompt = "Fix the typo in the heading"
    first = read(prompt)
    assert num_words(first) == num_words(read(prompt[:4] + prompt[4:])) == 6
    assert calls == [first], "the same prompt again"
    forget_readings()
    again = read(prompt)
    assert again is not first
    assert astuple(again) == astuple(first)
    assert num_words(again) == 6
    assert len(calls) == 2


def test_readings_of_long_texts_are_not_kept() -> None:
    text = f"Fix the typo. {PASTE}"[: MAX_KEPT_CHARS + 1]
    assert len(text) > MAX_KEPT_CHARS
    assert read(text) is not read(text)
