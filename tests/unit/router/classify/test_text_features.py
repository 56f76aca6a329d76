"""Tests what the classifier sees of a text: which part is the prompt, its words, its shape."""

import pytest
from msgspec.structs import astuple

from router.classify.classify import classify, features_of_text
from router.classify.text_features import (
    DENSE_NAMES,
    MAX_KEPT_CHARS,
    MAX_READ_CHARS,
    NUM_MIDDLE,
    WHOLE_CHARS,
    WINDOW_CHARS,
    Reading,
    dense,
    forget_readings,
    once,
    read,
    terms,
)
from router.classify.words import COURTESIES, OPENERS, words_of

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
    reading = read("Hi, thank you!")
    assert reading.words == []
    assert len(dense(reading, reading.num_chars)) == len(DENSE_NAMES)


@pytest.mark.parametrize(
    ("text", "request_text"),
    [
        (f"Fix the typo in the heading\n\n{PASTE}", b"Fix the typo in the heading"),
        (f"{PASTE}\n\nRename compute to run?", b"\n\nRename compute to run?"),
        (f"Rename compute to run\n{PASTE}\n\nEnd of file.", b"Rename compute to run"),
    ],
)
def test_the_request_is_found_around_a_paste(text: str, request_text: bytes) -> None:
    found = read(text)
    assert found.request is not None
    assert found.request.prompt == request_text
    assert b"compute" in found.words, "the paste counts, too"


@pytest.mark.parametrize(
    "ask",
    [
        "What does this do?",
        "Summarize this in one line:",
        "Is this right?",
        "What language is this?",
        "TL;DR:",
        "Was macht das?",
        "¿Qué hace esto?",
        "Que fait ce code ?",
        "Что делает этот код?",
        "这段代码做什么？",
        "このコードは何をしますか？",
    ],
)
def test_an_ask_about_a_paste_is_its_request(ask: str) -> None:
    for text in (f"{ask}\n{PASTE}", f"Hi!\n\n{ask}\n\n```\n{PASTE}\n```", f"{PASTE}\n\n{ask}"):
        found = read(text)
        assert found.request is not None, text[:40]
        assert found.request.prompt.strip() == ask.encode()
        assert b"compute" in found.words, "the paste counts, too"


@pytest.mark.parametrize(
    "ask",
    [
        "Can you help me with this?",
        "How are you?",
        "Here is what the customer wants:",
        "Implement this:",
        "Fix this bug:",
        "Please solve the following problem.",
        "What should we do about this?",
        "Thanks for yesterday's help! Here is today's one:",
        "What do you think of this?",
        "请帮我处理下面的任务：",
    ],
)
def test_an_ask_that_leaves_all_to_the_paste_is_no_request(ask: str) -> None:
    for text in (f"{ask}\n\n{PASTE}", f"{PASTE}\n\n{ask}"):
        assert read(text).request is None, text[:40]


CODE = "\n".join(f"    line_{number} = compute(left, right)" for number in range(40))


@pytest.mark.parametrize(
    "ask",
    [
        "Find the race condition in this.",
        "Is it safe to call from two threads?",
        "Dlaczego ten kod się zakleszcza?",
        "Найди утечку памяти",
        "Rename left to first",
    ],
)
def test_a_line_that_asks_beside_code_is_its_request(ask: str) -> None:
    for text in (f"{ask}\n\n{CODE}", f"Hi!\n\n{ask}\n```\n{CODE}\n```", f"{CODE}\n\n{ask}"):
        found = read(text).request
        assert found is not None, text[:40]
        assert found.prompt.strip().decode() == ask


@pytest.mark.parametrize(
    "line",
    [
        "package cache",
        "# Counts what comes in.",
        "Here is what the customer wants:",
        "The log says nothing.",
    ],
)
def test_a_line_beside_code_that_asks_nothing_is_no_request(line: str) -> None:
    for text in (f"{line}\n\n{CODE}", f"{CODE}\n\n{line}"):
        assert read(text).request is None, text[:40]


def test_of_a_few_lines_of_code_all_counts() -> None:
    assert read("Dlaczego ten kod się zakleszcza?\n\n" + CODE[:360]).request is None


def test_a_short_paste_has_its_ask_too() -> None:
    code = "\n".join(f"line_{number} = compute(left, right)" for number in range(12))
    for text in (f"What does this do?\n\n{code}", f"{code}\n\nWhat does this do?"):
        assert len(text) < WHOLE_CHARS
        found = read(text)
        assert found.request is not None
        assert found.request.prompt == b"What does this do?"
        assert classify(features_of_text(text)).label == "interactive"
    choices = "\nB. none of these" * 7
    assert read(f"Which of these is a prime number?{choices}").request is None


def test_work_that_is_asked_for_beside_a_question_is_the_request() -> None:
    ask = "Rewrite this without the lock, and tell me what it does?"
    found = read(f"{ask}\n\n{PASTE}").request
    assert found is not None
    assert found.prompt == ask.encode()


@pytest.mark.parametrize(
    "text", [f"Heading of it all\n{PASTE}", "Fix the typo", PASTE[:WHOLE_CHARS]]
)
def test_other_texts_have_no_request_apart(text: str) -> None:
    assert read(text).request is None


def test_chinese_and_japanese_characters_are_words() -> None:
    assert [word.decode() for word in read("重命名 total 变量。").words] == [
        *"重命名",
        "total",
        *"变量",
    ]
    assert [word.decode() for word in read("ファイルを read して").words][-3:] == [
        "read",
        "し",
        "て",
    ]


@pytest.mark.parametrize(
    "num_chars", [1, WINDOW_CHARS, MAX_READ_CHARS, MAX_READ_CHARS + 1, 640_000]
)
def test_any_size_is_read_in_bounded_windows(num_chars: int) -> None:
    text = ("The scheduler explains. " * (num_chars // 24 + 1))[:num_chars]
    found = read(text)
    assert len(found.prompt) <= MAX_READ_CHARS
    assert [word for window in found.windows for word in window] == found.words
    assert len(found.windows) <= 2 + NUM_MIDDLE + 1
    assert all(len(b" ".join(window)) <= 2 * WINDOW_CHARS for window in found.windows)


def test_what_is_read_of_a_long_text_depends_on_its_length_alone() -> None:
    text = "a" * 100_000
    starts = []
    for at in range(0, len(text), WINDOW_CHARS // 2):
        marked = f"{text[:at]} secret {text[at + 8 :]}"
        if b"secret" in read(marked).words:
            starts.append(at)
    inside = [at for at in starts if 3_000 < at < 98_000]
    assert NUM_MIDDLE <= len(inside) <= 3 * NUM_MIDDLE


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
    values = dense(read(text), len(text))
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


@pytest.mark.parametrize(
    ("text", "num_letters"),
    [
        ("refactor", 8),
        ("größer", 8),  # in bytes, as training counts
        ("重构", 3),
        ("Переведи", 8),
        ("Ποια", 4),
        ("कविता", 5),
        ("번역해줘", 8),
        ("Что делает parse", 14 / 3),
    ],
)
def test_a_word_is_as_long_as_its_letters(text: str, num_letters: float) -> None:
    reading = read(text)
    length = dense(reading, len(text))[DENSE_NAMES.index("length of the words")]
    assert length == pytest.approx(num_letters)
