"""Tests what docs/classifier.md promises, on small sets of unseen texts (`promises.toml`).

The bounds are those of the document, rounded to what so few texts can show.
"""

import tomllib
from pathlib import Path

import pytest

from router.classify.classify import classify, features_of_text
from router.classify.task import TaskClass
from router.record.evaluation import auc

TEXTS = tomllib.loads(Path(__file__).with_name("promises.toml").read_text("utf-8"))
LANGUAGES = ("de", "fr", "es", "pt", "zh", "ja")


def _framings(name: str) -> list[str]:
    return [line.replace("\\n", "\n") for line in TEXTS[name].strip().splitlines()]


FRAMINGS = _framings("framings")
LATER_FRAMINGS, ODD_FRAMINGS = _framings("later_framings"), _framings("odd_framings")
EVERYDAY = TEXTS["everyday"].strip().splitlines()


def opinion(text: str) -> TaskClass:
    return classify(features_of_text(text))


def lines(language: str, kind: str) -> list[str]:
    found: list[str] = TEXTS[language][kind].strip().splitlines()
    return found


@pytest.mark.parametrize("ask", ["Say hello.", "Write unit tests for the add function.", "Thanks!"])
def test_small_work_is_certain(ask: str) -> None:
    assert opinion(ask).label == "interactive"


@pytest.mark.parametrize(
    "ask", ["Optimise this SQL query that takes 40 s on 2 billion rows with five joins"]
)
def test_large_work_is_certain(ask: str) -> None:
    assert opinion(ask).label == "deep"


def test_short_asks_are_told_from_small_ones_with_the_same_nouns() -> None:
    small = [(opinion(ask), ask) for ask in lines("short", "interactive")]
    large = [(opinion(ask), ask) for ask in lines("short", "deep")]
    missed = [ask for found, ask in large if found.label == "interactive"]
    assert len(missed) <= 0.05 * len(large), missed
    unsure = [ask for found, ask in large if found.label == "uncertain"]
    assert len(unsure) <= 0.25 * len(large), unsure
    wrong = [ask for found, ask in small if found.label != "interactive"]
    assert len(wrong) <= 0.05 * len(small), wrong
    assert not any(found.security_sensitive for found, _ in (*small, *large))


@pytest.mark.parametrize(
    ("framings", "share", "recall"),
    [(FRAMINGS, 0.01, 0.8), (LATER_FRAMINGS, 0.03, 0.6), (ODD_FRAMINGS, 0.06, 0.6)],
)
def test_framing_changes_few_lanes_and_hides_no_report(
    framings: list[str], share: float, recall: float
) -> None:
    asks = [*lines("en", "interactive"), *lines("en", "deep")]
    reports = lines("en", "security")
    changed = [
        (framing, ask)
        for framing in framings
        for ask in asks
        if opinion(framing.replace("{}", ask)).label != opinion(ask).label
    ]
    assert len(changed) <= share * len(asks) * len(framings), changed
    for framing in ("{}", *framings):
        found = [opinion(framing.replace("{}", text)).security_sensitive for text in reports]
        assert sum(found) >= recall * len(reports), framing


def test_everyday_asks_are_no_security() -> None:
    flagged = [ask for ask in EVERYDAY if opinion(ask).security_sensitive]
    assert len(flagged) <= 0.01 * len(EVERYDAY), flagged


@pytest.mark.parametrize("language", ["en", *LANGUAGES])
def test_lanes_are_told_apart_in_each_language(language: str) -> None:
    small, large = (lines(language, kind) for kind in ("interactive", "deep"))
    scores = [opinion(text).p_deep for text in (*small, *large)]
    assert auc([False] * len(small) + [True] * len(large), scores) >= 0.95


@pytest.mark.parametrize(("language", "least_auc"), [("ru", 0.95), ("ko", 0.9)])
def test_an_alphabet_with_few_lines_in_training_makes_no_ask_deep(
    language: str, least_auc: float
) -> None:
    small = [opinion(text) for text in lines(language, "interactive")]
    large = [opinion(text) for text in lines(language, "deep")]
    scores = [found.p_deep for found in (*small, *large)]
    assert auc([False] * len(small) + [True] * len(large), scores) >= least_auc
    assert "deep" not in [found.label for found in small]
    assert sum(found.label == "interactive" for found in small) >= 0.7 * len(small)
    assert sum(found.label == "interactive" for found in large) <= 0.25 * len(large)


@pytest.mark.parametrize("language", sorted(TEXTS["security"]))
def test_security_is_told_in_other_languages(language: str) -> None:
    asks = lines("security", language)
    missed = [ask for ask in asks if not opinion(ask).security_sensitive]
    assert len(missed) <= (0.4 if language == "it" else 0.25) * len(asks), missed


def test_what_only_sounds_like_security_in_other_languages_is_none() -> None:
    asks = [ask for language in TEXTS["harmless"] for ask in lines("harmless", language)]
    flagged = [ask for ask in asks if opinion(ask).security_sensitive]
    assert len(flagged) <= 0.02 * len(asks), flagged
