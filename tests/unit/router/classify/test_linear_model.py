"""Tests the trained classifier at serving time: sums, reasons, spelling, and its file."""

import math
import random

import numpy as np
import pytest

from router.classify.linear_model import (
    DEEP,
    GAIN,
    HEADS,
    OUTPUT,
    REQUEST_SHARE,
    SECURITY,
    LinearModel,
    Provenance,
    window_share,
)
from router.classify.spelling import MAX_TRIES, Spelling
from router.classify.text_features import (
    DENSE_NAMES,
    STEM_BYTES,
    Term,
    dense,
    num_terms,
    read,
    terms,
)
from router.classify.weights_file import WEIGHTS_PATH, WeightsError, load_model, pack, unpack

SEED = 5
MADE = Provenance(
    version="test", num_records=0, records_hash="", calibration_hash="", sources=(), seed=0
)
CLOSE = 1e-5  # serving sums in single precision
VOCABULARY: list[Term] = [b"refactor", b"fix", b"scheduler", (b"the", b"scheduler")]
STEMS = [b"optim"]


def made_model() -> LinearModel:
    """Weights so simple that scores can be worked out by hand; the shape counts for nothing."""
    weights = np.zeros((5, len(HEADS)))
    weights[:, DEEP] = [2.0, -1.0, 0.5, 4.0, 3.0]
    weights[1, SECURITY] = 7.0
    scales = np.tile([1.0, 0.0], (len(HEADS), 1))
    scales[DEEP] = [2.0, 0.25]
    num_dense = len(DENSE_NAMES)
    return LinearModel(
        VOCABULARY,
        STEMS,
        weights,
        np.zeros(num_dense),
        np.zeros((num_dense, len(HEADS))),
        np.array([0.1, 0.0, 0.0, 0.0]),
        scales,
        MADE,
    )


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("", 0.1),
        ("refactor", 0.1 + 2),
        ("refactor fix", 0.1 + (2 - 1) / math.sqrt(3)),  # two words and their pair
        ("fix fix fix", 0.1 + (-1) / math.sqrt(5)),  # weighs once, of three words and two pairs
        ("the scheduler", 0.1 + (0.5 + 4) / math.sqrt(3)),
        ("optimizer", 0.1 + 3),  # unknown, but its stem is known
        ("unheard", 0.1),
    ],
)
def test_score(text: str, score: float) -> None:
    model = made_model()
    assert model.score(read(text)).deep_log_odds == pytest.approx(2 * score + 0.25, abs=CLOSE)


def test_a_request_has_most_of_a_long_texts_score() -> None:
    reading = read("Fix it all now\n\n" + "refactor it, refactor that\n" * 60)
    assert reading.request is not None
    assert reading.request.words == [b"fix", b"it", b"all", b"now"]
    of_windows = [
        (2.0 - (b"fix" in words)) / math.sqrt(num_terms(words)) for words in reading.windows
    ]
    whole = sum(of_windows) * window_share(len(of_windows))
    score = 0.1 + (1 - REQUEST_SHARE) * whole + REQUEST_SHARE * -1 / math.sqrt(7)
    scores = made_model().score(reading)
    assert scores.deep_log_odds == pytest.approx(2 * score + 0.25, abs=CLOSE)


def test_security_is_that_of_the_highest_window() -> None:
    plain = "nothing here to see " * 30
    reading = read(f"{plain}\n\nfix {plain}")
    scores = made_model().score(reading)
    highest = max(7 / math.sqrt(num_terms(words)) for words in reading.windows if b"fix" in words)
    assert scores.security_log_odds == pytest.approx(highest, abs=CLOSE)
    assert scores.security_terms(3) == ['"fix"']


@pytest.mark.parametrize("slip", ["refactr", "reffactor", "refcator", "refaktor"])
def test_a_slip_of_the_pen_is_put_right(slip: str) -> None:
    model = made_model()
    right = model.score(read("refactor")).deep_log_odds
    assert model.score(read(slip)).deep_log_odds == right


@pytest.mark.parametrize(
    ("text", "named", "unnamed"),
    [
        ("fix the tpyo in the readme", '"tpyo" (read as "typo")', '"typo"'),
        ("warter", '"warter" (read as "water")', '"water"'),
        ("fix the typo, the tpyo", '"typo"', '"tpyo"'),
        ("fix the tpyo in the readme\n" + "value = compute(left)\n" * 80, '"tpyo" (', '"typo"'),
    ],
)
def test_a_word_that_was_put_right_is_named_as_it_was_written(
    text: str, named: str, unnamed: str
) -> None:
    parts, _ = load_model().score(read(text)).parts(40)
    names = [part.name for part in parts]
    assert any(name.startswith(named) for name in names), names
    assert unnamed not in names


def test_so_is_one_that_speaks_for_security() -> None:
    terms = load_model().score(read("encrypt the paswords in our databse")).security_terms(6)
    assert any(term.startswith('"paswords" (read as "') for term in terms), terms
    assert '"passwords"' not in terms


def test_spelling_is_bounded_and_leaves_short_and_odd_words_alone() -> None:
    spelling = Spelling([b"scheduler", b"the", b"schedule"])
    assert spelling.slips([b"schedulr", b"shceduler"]) == {
        b"schedulr": b"scheduler",
        b"shceduler": b"scheduler",
    }
    assert spelling.slips([b"teh", b"schedulers1", b"unlike"]) == {}
    many = [b"scheduler" + bytes([letter]) for letter in range(97, 123)]
    assert len(spelling.slips(many)) == MAX_TRIES


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (b"frim", b"from"),  # far more frequent than what a swap would give
        (b"bith", b"both"),  # the first letter is seldom wrong
        (b"wuth", b"with"),
        (b"enginer", b"engineer"),  # one of a double letter lost, against a letter added
        (b"rstes", b"rates"),  # keys that touch, against keys that do not
    ],
)
def test_the_likeliest_word_is_meant(written: bytes, meant: bytes) -> None:
    usual, rare = [b"with", b"from", b"both"], [b"engine", b"engineer", b"rites", b"rates", b"firm"]
    assert Spelling([*usual, *rare]).slips([written]) == {written: meant}


def test_parts_are_of_the_calibrated_sum_and_named() -> None:
    scores = made_model().score(read("refactor the scheduler, fix"))
    parts, sum_of_sizes = scores.parts(3)
    assert [part.name for part in parts] == ['"the scheduler"', '"refactor"', '"fix"']
    size = parts[0].log_odds
    assert size == pytest.approx(2 * 4 / math.sqrt(7), abs=CLOSE)
    assert sum_of_sizes == pytest.approx(size * (4 + 2 + 1 + 0.5) / 4, abs=CLOSE)
    assert made_model().score(read("refactor, fix")).security_terms(3) == ['"fix"']


def test_a_packed_model_comes_back() -> None:
    model = unpack(pack(made_model()))
    assert model.vocabulary == tuple(VOCABULARY)
    assert model.stems == tuple(STEMS)
    assert model.provenance == MADE
    assert len(model.content_hash) == 16
    assert pack(model) == pack(made_model())
    text = read("refactor the scheduler")
    found, same = model.score(text), made_model().score(text)
    assert found.deep_log_odds == pytest.approx(same.deep_log_odds, abs=CLOSE)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(WeightsError):
        unpack(b"not a file of weights")
    with pytest.raises(WeightsError, match=r"no classifier weights at .*missing"):
        load_model(WEIGHTS_PATH.with_name("missing"))
    content = pack(made_model())
    with pytest.raises(WeightsError):
        unpack(content[: len(content) // 2])
    other = content.replace(b"length in words", b"length in bytes")
    with pytest.raises(WeightsError):
        unpack(other)


def test_the_shipped_weights() -> None:
    content = WEIGHTS_PATH.read_bytes()
    model = load_model()
    assert len(content) < 2_000_000
    assert pack(model) == content
    assert model.provenance.num_records > 20_000
    assert np.isfinite(model.term_weights).all()
    assert len(set(model.vocabulary)) == len(model.vocabulary)
    assert all(len(stem) == STEM_BYTES for stem in model.stems)


def test_scores_are_sums_of_their_definition() -> None:
    """The served sum equals the formula of docs/classifier.md, term by term."""
    model = load_model()
    row: dict[Term, int] = {term: at for at, term in enumerate(model.vocabulary)}
    rng = random.Random(SEED)
    words = [term.decode() for term in model.vocabulary if isinstance(term, bytes)]
    for _ in range(200):
        text = " ".join(rng.choices([*words, "zzyzx12", "42"], k=rng.choice([1, 5, 40])))
        reading = read(text)
        found = terms(reading.words)
        shape = np.array(dense(reading, reading.num_chars)) - model.dense_means
        expected = model.biases + shape @ model.dense_weights
        for term in found:
            if term in row:
                expected = expected + model.term_weights[row[term]] / math.sqrt(
                    num_terms(reading.words)
                )
        scores = model.score(reading)
        log_odds = model.scales[:, 0] * expected + model.scales[:, 1]
        close = 1e-4  # of sums of up to some 50
        assert scores.deep_log_odds == pytest.approx(log_odds[DEEP], abs=close), (SEED, text)
        assert scores.security_log_odds == pytest.approx(log_odds[SECURITY], abs=close)
        assert scores.gain_log_odds == pytest.approx(log_odds[GAIN], abs=close)
        length = min(15.0, max(0.0, log_odds[OUTPUT]))
        assert math.log2(scores.output_tokens) == pytest.approx(length, abs=close)


def test_scores_of_odd_texts_are_finite() -> None:
    model = load_model()
    for text in ("", "\x00", "😀" * 5_000, "\ud800", "a" * 640_000, "\n\n" * 3_000):
        scores = model.score(read(text))
        numbers = (scores.deep_log_odds, scores.security_log_odds, scores.gain_log_odds)
        assert all(map(math.isfinite, (*numbers, scores.output_tokens))), text[:9]


def test_a_corrected_slip_leaves_the_mean_length_of_words() -> None:
    model = load_model()
    right, long, short = (
        model.score(read(f"ci: pin {word} actions")).deep_log_odds
        for word in ("github", "gitthub", "gthub")
    )
    assert max(abs(long - right), abs(short - right)) < 0.01
