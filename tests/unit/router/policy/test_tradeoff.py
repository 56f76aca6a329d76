"""Tests the trade-off: bands by quality, prices in a band, and what other conditions do."""

import re
from pathlib import Path

import numpy as np
import pytest

from router.policy.tradeoff import (
    MAX_MULTIPLE,
    MAX_P,
    MIN_P,
    PRESETS,
    USUAL,
    Conditions,
    Tradeoff,
    band_at,
    band_of,
    prices_of,
    scarcity,
)

DOCS = Path(__file__).parents[4] / "docs"
BANDS = ((0.5, 0.5), (0.25, 0.75), (0.15, 0.6), (0.1, 0.5))


@pytest.mark.parametrize("band", BANDS)
def test_usual_conditions_leave_a_band_where_it_is(band: tuple[float, float]) -> None:
    assert band_at(*band, 0.5, USUAL) == band
    assert band_at(*band, 0.5, Conditions(wait=1.0000001)) == pytest.approx(band, abs=1e-5)


@pytest.mark.parametrize("band", BANDS[1:])
@pytest.mark.parametrize("price_ratio", [0.1, 0.5, 1.0])
def test_the_band_is_where_both_engines_cost_least(
    band: tuple[float, float], price_ratio: float
) -> None:
    """By brute force: at every p the cheapest of the three ways is the one the band names."""
    prices = prices_of(*band, price_ratio)
    assert prices is not None
    for p in np.linspace(0.005, 0.995, 199).tolist():
        costs = {
            "fast": p + prices.fast,
            "deep": prices.wait + prices.deep,
            "parallel": p * prices.wait + prices.fast + prices.deep,
        }
        best = "fast" if p < band[0] else "deep" if p > band[1] else "parallel"
        assert costs[best] <= min(costs.values()) + 1e-9, p


def test_quality_moves_from_saving_to_care() -> None:
    lows = [band_of(quality)[0] for quality in np.linspace(0, 1, 21).tolist()]
    assert lows == sorted(lows, reverse=True)
    assert band_of(PRESETS["balanced"]) == pytest.approx((0.15, 0.6))
    assert band_of(0.0) == pytest.approx((0.5, 0.5))
    assert band_of(1.0) == pytest.approx((0.1, 0.5))


def test_quality_goes_before_a_preset_and_both_before_the_band() -> None:
    assert Tradeoff().edges(0.2, 0.4) == (0.2, 0.4)
    assert Tradeoff(preset="economy").edges(0.2, 0.4) == pytest.approx((0.25, 0.75))
    both = Tradeoff(preset="economy", quality=1.0)
    assert both.edges(0.2, 0.4) == pytest.approx((0.1, 0.5))


MOVES: tuple[tuple[str, Conditions, str, str], ...] = (
    # What a slower deep engine, dearer engines and drift do to (low, high) = (0.15, 0.6).
    ("deep queue: fewer wait for it alone", Conditions(wait=3), "up", "up"),
    ("fast queue: more go straight to deep", Conditions(wait=0.5), "down", "down"),
    ("deep pool low: only sure ones use it", Conditions(deep_price=3), "up", "same"),
    ("fast pool low: deep alone sooner", Conditions(fast_price=2), "same", "down"),
    ("drift: less is decided", Conditions(num_alarms=1), "down", "up"),
)


@pytest.mark.parametrize(("why", "conditions", "low", "high"), MOVES, ids=[m[0] for m in MOVES])
def test_conditions_move_the_edges(why: str, conditions: Conditions, low: str, high: str) -> None:
    def direction(before: float, after: float) -> str:
        return "same" if abs(after - before) < 1e-9 else "up" if after > before else "down"

    moved = band_at(0.15, 0.6, 0.5, conditions)
    assert (direction(0.15, moved[0]), direction(0.6, moved[1])) == (low, high), why


def test_nothing_moves_an_edge_out_of_bounds_or_past_the_other() -> None:
    chance = np.random.default_rng(7)
    for _ in range(2_000):
        low, high = sorted(chance.uniform(0, 1, 2).tolist())
        wait, fast, deep = chance.uniform(0, 50, 3).tolist()
        alarms = int(chance.integers(0, 9))
        conditions = Conditions(wait=wait, fast_price=fast, deep_price=deep, num_alarms=alarms)
        edges = band_at(low, high, float(chance.uniform(0.01, 1)), conditions)
        assert MIN_P <= edges[0] <= edges[1] <= MAX_P, (low, high, conditions)


def test_a_pool_is_scarce_from_its_last_quarter_on() -> None:
    shares = (1.0, 0.25, 0.125, 0.0, -0.5)
    assert [scarcity(share) for share in shares] == [1, 1, 2.5, MAX_MULTIPLE, MAX_MULTIPLE]


def test_the_documents_agree_on_what_the_default_does() -> None:
    """The trade-off's table and the classifier's are of the same records and the same band."""
    table = (DOCS / "tradeoff.md").read_text("utf-8")
    rows = re.findall(
        r"^\| (\w*) ?\| ([\d.]+) \| ([\d.]+)(?: to ([\d.]+))?"
        r" \| ([\d.]+) % \| ([\d.]+) % \| (.+) % \|$",
        table,
        re.MULTILINE,
    )
    assert {preset for preset, *_ in rows} == {"", *PRESETS}
    for preset, quality, low, high, *_ in rows:
        assert not preset or PRESETS[preset] == float(quality)
        assert Tradeoff(quality=float(quality)).edges(0, 0) == (float(low), float(high or low))
    missed, small, both = next(row[4:] for row in rows if row[0] == "balanced")
    known = (DOCS / "classifier.md").read_text("utf-8")
    assert re.search(rf"\| deep work sent to interactive \|.*?\| \*\*{missed} %\*\* \|", known)
    assert re.search(rf"\| interactive work sent to deep \|.*?\| \*\*{small} %\*\* \|", known)
    assert re.search(rf"\| uncertain \| \| {both} % \|", known)
