"""Tests sentences that hand a task over: their log-odds, what is cut at both ends, and the file."""

import math

import numpy as np
import pytest

from router.classify.framing_file import FramingError, pack, unpack
from router.classify.framing_model import (
    BEFORE,
    BEHIND,
    MAX_SENTENCES,
    MIN_LOG_ODDS,
    SHAPES,
    UNKNOWN,
    FramingModel,
    sentences,
    served_framing,
    shapes_of,
)
from router.classify.words import all_words_of

WORDS = (UNKNOWN, b"hi", b"all", b"perhaps", b"fix", b"it")
#            anywhere, first, last
WEIGHTS = ((0.0, 0.0, 0.0), (3.0, 0.5, 0), (3.0, 0, 0.25), (-0.5, 0, 0), (-4.0, 0, 0), (-4.0, 0, 0))
TASK = "Fix it"


def model(**shapes: float) -> FramingModel:
    """Weights of shape are zero unless named, on both sides."""
    of_shape = np.zeros((2, len(SHAPES)), np.float32)
    for name, weight in shapes.items():
        of_shape[:, SHAPES.index(name.replace("_", " "))] = weight
    return FramingModel(WORDS, np.array(WEIGHTS, np.float32), of_shape)


def task_in(text: str) -> str:
    start, end = model().task_in(text, before=True, behind=True)
    return text[start:end].strip()


def test_log_odds_are_those_of_words_and_shape() -> None:
    found = model(bias=-1, apart=0.5, capital_first=0.125, code=8).log_odds
    assert found("Hi all", BEFORE, gap=2) == pytest.approx(
        6 / math.sqrt(2) + 0.5 + 0.25 - 1 + 0.5 + 0.125, abs=1e-6
    )
    assert found("hi(all)", BEHIND, gap=0) == pytest.approx(
        6 / math.sqrt(2) + 0.75 - 1 + 8, abs=1e-6
    )
    assert found("?!", BEHIND, gap=0) == -1


def test_two_words_at_an_end_count_as_a_pair() -> None:
    of_shape = np.zeros((2, len(SHAPES)), np.float32)
    weights = np.array([*WEIGHTS, (0, 1.5, 0.75)], np.float32)
    found = FramingModel((*WORDS, b"hi all"), weights, of_shape).log_odds
    assert found("hi all", BEFORE, gap=0) - model().log_odds("hi all", BEFORE, gap=0) == 2.25
    assert found("hi fix all", BEFORE, gap=0) == model().log_odds("hi fix all", BEFORE, gap=0)


def test_beside_a_clear_task_less_is_needed_to_be_framing() -> None:
    doubtful = "perhaps perhaps perhaps perhaps perhaps perhaps perhaps perhaps perhaps"
    assert model().log_odds(doubtful, BEFORE, gap=0) == pytest.approx(-1.5, abs=1e-6)
    assert task_in(f"{doubtful}. Fix it. {doubtful}") == "Fix it."
    assert task_in(f"{doubtful}. {doubtful}") == f"{doubtful}. {doubtful}"


@pytest.mark.parametrize(
    "sentence", ["Hi all,", "[hi", "7 hi", "(Hi)", "HI!", "a.b(c)", "", "fix it " * 20, "嗨。"]
)
@pytest.mark.parametrize("gap", [0, 1, 2])
def test_training_sees_the_shapes_that_serving_sees(sentence: str, gap: int) -> None:
    rng = np.random.default_rng(3)
    of_shape = rng.normal(size=(2, len(SHAPES))).astype(np.float32)
    words = np.zeros((len(WORDS), 3), np.float32)
    found = FramingModel(WORDS, words, of_shape).log_odds(sentence, BEHIND, gap=gap)
    seen = shapes_of(sentence, all_words_of(sentence.encode()), gap=gap)
    assert found == pytest.approx(float(of_shape[BEHIND][seen].sum()), abs=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "Hi all. Fix it",
        "Hi all. Fix it. Hi all.",
        "Fix it\n\nhi all",
        "Fix it Hi all",
        "Hi: all\n\nFix it",
        "Hi all! Perhaps, perhaps. Hi all. Fix it",  # a doubtful one between two certain ones
    ],
)
def test_framing_is_cut_at_both_ends(text: str) -> None:
    assert task_in(text).rstrip(".") == TASK


def test_of_framing_alone_the_likeliest_task_stays() -> None:
    assert task_in("Hi all. Perhaps hi perhaps. Hi all.") == "Perhaps hi perhaps."
    assert task_in("Hi all.") == "Hi all."


def test_a_doubtful_sentence_between_framing_before_and_behind_is_the_task() -> None:
    assert task_in("Hi all. Perhaps, perhaps. Hi all.\nHi all.") == "Perhaps, perhaps."


def test_only_the_ends_are_cut_and_only_so_many_sentences() -> None:
    assert task_in("Fix it. Hi all. Fix it") == "Fix it. Hi all. Fix it"
    many = "Hi all. " * (MAX_SENTENCES + 1) + TASK
    assert task_in(many) == f"Hi all. {TASK}"


def test_a_sentence_in_another_language_than_what_is_beside_it_is_told() -> None:
    log_odds = model(other_language=1).log_odds
    english = "the build of the release is slow"
    for sentence in ("peux-tu regarder la page", "今天看一下", "könnt ihr kurz schauen"):
        assert log_odds(sentence, BEFORE, english, gap=0) == 1
        assert log_odds(sentence, BEFORE, "la page ne marche pas", gap=0) == 0
    assert log_odds("the café in the app", BEFORE, english, gap=0) == 0
    assert log_odds("rename tmp", BEFORE, english, gap=0) == 0


def test_sentences_are_all_of_a_text() -> None:
    text = "Key: a b\nVersion 1.2 of J. Smith. Do:\n1. open\n\n> then\u3002\u307e\u3064"
    found = sentences(text)
    assert "".join(found) == text
    assert found[0] == "Key: a b\n"
    assert found[1].startswith("Version 1.2 of J. Smith.")


def test_a_file_holds_a_model_of_this_version() -> None:
    served = served_framing()
    again = unpack(pack(served))
    assert again.words == served.words
    assert (again.word_weights == served.word_weights).all()
    assert (again.shape_weights == served.shape_weights).all()
    with pytest.raises(FramingError):
        unpack(b"no archive")


def test_the_weights_of_this_release_know_framing_that_they_were_not_shown() -> None:
    log_odds = served_framing().log_odds
    for sentence in ("Our supplier rang this morning.", "Kind greetings from the whole office!"):
        assert log_odds(sentence, BEHIND, gap=2) > MIN_LOG_ODDS, sentence
    for sentence in ("Rename the retry helper.", "The cache returns stale rows."):
        assert log_odds(sentence, BEFORE, gap=0) < MIN_LOG_ODDS, sentence
