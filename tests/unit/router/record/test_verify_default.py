"""Tests whether `verify` may be a tenant's default: by that tenant's own uncertain pairs alone."""

import msgspec
import numpy as np
import pytest

from router.learn.learning import NUM_TRAITS
from router.record.economy import Pair
from router.record.verify_default import MIN_UNCERTAIN, verify_report, worth

SEED = 3
PRICE, PRICE_RATIO = 0.28, 0.02


def made_pairs(num: int = 1_000, *, noise: float | None = None) -> list[Pair]:
    """Pairs whose prompts say nothing; with noise, the tenant's check scores the fast answers."""
    rng = np.random.default_rng(SEED)
    fast, deep = rng.random(num) < 0.5, rng.random(num) < 0.8
    scores = 2.0 * fast + (noise or 0.0) * rng.standard_normal(num)
    return [
        Pair(
            float(f),
            float(d),
            0.3,
            np.zeros(NUM_TRAITS),
            0.0,
            10,
            check=None if noise is None else float(score),
        )
        for f, d, score in zip(fast, deep, scores, strict=True)
    ]


def test_a_good_check_of_the_tenant_is_proven_and_a_blind_one_is_not() -> None:
    (good,) = worth(made_pairs(noise=0.5), PRICE, PRICE_RATIO)
    assert good.check == "your check"
    assert good.is_proven, good
    (blind,) = worth(made_pairs(noise=1_000.0), PRICE, PRICE_RATIO)
    assert not blind.is_proven, blind


def test_without_scores_checks_are_drawn_and_a_better_one_is_worth_more() -> None:
    found = worth(made_pairs(), PRICE, PRICE_RATIO)
    assert [one.check for one in found] == [f"a check of AUC {auc}" for auc in (0.65, 0.75, 0.85)]
    assert found[0].value < found[2].value


def test_the_report_ends_in_the_tenants_policy_or_leaves_one_engine() -> None:
    proven = verify_report(made_pairs(noise=0.5), "acme", PRICE, PRICE_RATIO)
    assert proven[-2:] == ["  [tenants.acme]", '  strategy = "verify"']
    blind = verify_report(made_pairs(noise=1_000.0), "acme", PRICE, PRICE_RATIO)
    assert blind[-1] == "So leave the uncertain to one engine."


@pytest.mark.parametrize(("num", "price"), [(MIN_UNCERTAIN - 1, PRICE), (500, None)])
def test_few_uncertain_pairs_prove_nothing(num: int, price: float | None) -> None:
    pairs = made_pairs(num, noise=0.5)
    certain = [msgspec.structs.replace(pair, is_uncertain=False) for pair in pairs]
    (blank, line) = verify_report([*pairs, *certain], "acme", price, PRICE_RATIO)
    assert blank == ""
    assert "not known" in line
