"""What does not change a prompt hardly changes its lane; and the changes are what they say."""

import numpy as np
import pytest

from router.classify.classify import features, form_opinion
from router.decide.decision import Refusal
from router.learn.stability import (
    CHANGES,
    MAX_TEXTS,
    PASTE_CHARS,
    TRIVIAL_PROMPTS,
    flips,
    pasted,
    sample,
    spaces,
    typo,
)
from router.policy.policy import DEFAULT_POLICY
from router.record.batch import Desk, lone_task, wish
from router.training.prompts import written_prompts

SEED = 4
DESK = Desk(policy=DEFAULT_POLICY)


def lane(text: str) -> str:
    task = lone_task(text, DESK)
    found = wish(task, form_opinion(features(task)), DESK)
    assert not isinstance(found, Refusal)
    return found.lane


def test_a_typo_is_one_slip_in_one_word() -> None:
    rng = np.random.default_rng(SEED)
    for _ in range(200):
        changed = typo("rename the variable everywhere", rng).split()
        differ = [
            (a, b)
            for a, b in zip(["rename", "the", "variable", "everywhere"], changed, strict=True)
            if a != b
        ]
        assert len(differ) <= 1, SEED
        for before, after in differ:
            assert abs(len(before) - len(after)) <= 1
    assert typo("a b", rng) == "a b"


def test_spaces() -> None:
    assert spaces("a b c", np.random.default_rng(SEED)) == "a  b  c"


def test_flips_are_counted() -> None:
    texts = ["plain ask here", "another ask here"]
    found = flips(texts, lambda text: str("  " in text))
    assert found.keys() == CHANGES.keys()
    assert found["double spaces"] == 2
    assert found["a typo"] == 0


def test_hardly_any_decision_flips() -> None:
    """The bound is loose: one in fifty; `lanewise eval` measures it on real texts."""
    texts = [prompt.text for prompt in written_prompts(SEED)][::6]
    for change, num_flipped in flips(texts, lane).items():
        assert num_flipped <= len(texts) / 50, (change, num_flipped, SEED)


def test_a_paste_does_not_send_a_trivial_ask_deep() -> None:
    prompts = [prompt for prompt in written_prompts(SEED) if prompt.labels.get("security") == 0]
    deep = [prompt.text for prompt in prompts if prompt.lane == "deep"]
    texts = pasted(deep)
    assert len(texts) == len(TRIVIAL_PROMPTS)
    assert all(len(text) > PASTE_CHARS for text in texts)
    assert [lane(text) for text in texts].count("deep") <= 1


@pytest.mark.parametrize("num", [0, 1, MAX_TEXTS, MAX_TEXTS + 1, 5 * MAX_TEXTS])
def test_a_sample_is_bounded_and_even(num: int) -> None:
    texts = [str(n) for n in range(num)]
    found = sample(texts)
    assert min(num, MAX_TEXTS // 2) <= len(found) <= MAX_TEXTS
    assert found[:1] == texts[:1]
