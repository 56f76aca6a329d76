"""Turns a policy's trade-off of quality, speed and cost into a band of `p_deep`.

If the fast engine fails a task with probability p, the deep engine takes the extra wait w, and the
engines cost f and d, all in units of the worth of one right answer, then

    FAST costs p + f      DEEP costs w + d      PARALLEL costs p w + f + d

(PARALLEL only waits where the fast answer fails). PARALLEL is best for p between

    low = d / (1 - w)     and     high = 1 - f / w

and where low is above high, FAST and DEEP meet at w + d - f. So each band implies prices: a policy
names its band for idle engines and full pools (by `quality`, by a preset, or directly), `prices_of`
computes the prices, and `band_at` the band when waiting or an engine costs more.
"""

from bisect import bisect_right
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Preset = Literal["economy", "balanced", "careful"]

# Bands by quality, along the measured trade-off: docs/policies.md has what each of them costs.
_MEASURED_BANDS: tuple[tuple[float, float, float], ...] = (
    (0.0, 0.5, 0.5),
    (0.3, 0.25, 0.75),
    (0.6, 0.15, 0.6),
    (1.0, 0.1, 0.5),
)
PRESETS: dict[Preset, float] = {"economy": 0.3, "balanced": 0.6, "careful": 1.0}

MIN_P, MAX_P = 0.02, 0.98  # no condition moves an edge of the band beyond
MAX_MULTIPLE = 4.0  # of a wait or a price over the usual one, and its inverse
MAX_EXPLORATION = 0.1
SCARCE_SHARE = 0.25  # of a pool; with more left, nobody needs to save
_DRIFT_STEP = 0.35  # of the way to certainty that each alarm moves the band's edges
_MAX_DRIFT_STEPS = 2


class Tradeoff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sets a policy's trade-off; without `quality` and `preset` the policy's `band` applies."""

    quality: Annotated[float, Meta(ge=0, le=1)] | None = None  # 0: cheap and quick; 1: careful
    preset: Preset | None = None  # a quality by name; `quality` goes before
    # A task's price on the fast engine over its price on the deep one.
    price_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.5
    # Count waiting times, deadlines and what is left in the pools; off: the band as it stands.
    follow_load: bool = True
    follow_runs: bool = True  # move by what happens in an agent's run; off: by its asks alone
    learn: bool = True  # count what this tenant's outcomes taught
    # Leave more open while traffic is not what decisions rest on: more tasks go to both engines.
    widen_on_drift: bool = False
    # Of the uncertain tasks, the share that tries one engine alone, so that outcomes are unbiased.
    exploration: Annotated[float, Meta(ge=0, le=MAX_EXPLORATION)] = 0.0

    def edges(self, low: float, high: float) -> tuple[float, float]:
        """Returns the band under usual conditions; `low` and `high` are the policy's own."""
        if self.quality is not None:
            return band_of(self.quality)
        return (low, high) if self.preset is None else band_of(PRESETS[self.preset])


class Conditions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Holds waiting time and prices as multiples of the usual ones."""

    wait: float = 1.0  # of the deep engine's extra wait
    fast_price: float = 1.0  # rises as the tenant's pools run low
    deep_price: float = 1.0
    num_alarms: int = 0  # of drift: each widens the band


USUAL = Conditions()


class Prices(msgspec.Struct, frozen=True, gc=False):
    """Holds the prices that a band implies, in right answers."""

    wait: float  # for the deep engine rather than the fast one
    fast: float
    deep: float


def band_of(quality: float) -> tuple[float, float]:
    """Interpolates the edges of the band for a quality from 0 to 1 between measured points."""
    at = min(
        len(_MEASURED_BANDS) - 1,
        max(1, bisect_right([point[0] for point in _MEASURED_BANDS], quality)),
    )
    (start, *below), (end, *above) = _MEASURED_BANDS[at - 1], _MEASURED_BANDS[at]
    part = (quality - start) / (end - start)
    low, high = (a + part * (b - a) for a, b in zip(below, above, strict=True))
    return low, high


def prices_of(low: float, high: float, price_ratio: float) -> Prices | None:
    """Computes the prices for which this band is best; None if an edge is at 0 or 1."""
    if low <= 0 or high >= 1:
        return None
    wait = low * price_ratio / (1 - high + low * price_ratio)
    deep = low * (1 - wait)
    return Prices(wait, price_ratio * deep, deep)


def deep_price(low: float, high: float, price_ratio: float) -> float | None:
    """Returns what a deep answer costs in wait and money, in right answers, as a band implies it.

    The fast answer does not count: it is there. None if the band implies no price.
    """
    prices = prices_of(low, high, price_ratio)
    return None if prices is None else prices.wait + prices.deep


def band_at(
    low: float, high: float, price_ratio: float, conditions: Conditions = USUAL
) -> tuple[float, float]:
    """Moves the band of usual conditions to these; equal edges leave no room for PARALLEL."""
    if conditions is USUAL or conditions == USUAL:
        return low, high
    prices = prices_of(low, high, price_ratio)
    if prices is not None:
        wait = prices.wait * _bounded(conditions.wait)
        fast = prices.fast * _bounded(conditions.fast_price)
        deep = prices.deep * _bounded(conditions.deep_price)
        low = deep / (1 - wait) if wait < 1 else 1.0
        high = 1 - fast / wait
        if low > high:
            low = high = wait + deep - fast
    for _ in range(min(conditions.num_alarms, _MAX_DRIFT_STEPS)):
        low, high = low * (1 - _DRIFT_STEP), high + (1 - high) * _DRIFT_STEP
    return max(MIN_P, min(MAX_P, low)), max(MIN_P, min(MAX_P, high))


def scarcity(share_left: float) -> float:
    """Returns the multiple (1 to 4) of an engine's price for the share left in a pool."""
    return 1 + (MAX_MULTIPLE - 1) * max(0.0, 1 - max(0.0, share_left) / SCARCE_SHARE)


def _bounded(multiple: float) -> float:
    return max(1 / MAX_MULTIPLE, min(MAX_MULTIPLE, multiple))
