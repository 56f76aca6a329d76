"""Says whether `verify` is worth being a tenant's default, by that tenant's own pairs: pure.

It is compared with the best single way to treat the same uncertain tasks: fast alone, deep alone,
or one engine by the prompt. Each is worth the right answers that it gives, less what it costs in
deep answers times the price of one. The answer is yes where the 95 % interval of the difference,
over pairs, lies above nothing.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from router.record.economy import CHECK_AUCS, DEEP_PRICES, Floats, Pair, Ways, by_check, by_evidence

MIN_UNCERTAIN = 100  # pairs; the interval of fewer says little
_Z = 1.96  # of a 95 % interval


class Worth(msgspec.Struct, frozen=True):
    """Holds what `verify` with one check brings a task over the best single way, right answers."""

    check: str
    instead_of: str
    value: float
    low: float
    high: float

    @property
    def is_proven(self) -> bool:
        """Returns whether the whole interval is a gain."""
        return self.low > 0


def worth(pairs: Sequence[Pair], price: float, price_ratio: float) -> list[Worth]:
    """Judges the tenant's own check where all pairs have its score, else drawn ones of each AUC."""
    uncertain = np.array([pair.is_uncertain for pair in pairs])
    gains = np.array([pair.deep - pair.fast for pair in pairs])
    by_prompt = np.array([pair.p_gain >= price for pair in pairs], float)
    singly = {
        name: (up * gains - price * (price_ratio + (1 - price_ratio) * up))[uncertain]
        for name, up in (
            ("fast alone", np.zeros(len(pairs))),
            ("deep alone", np.ones(len(pairs))),
            ("one engine by the prompt", by_prompt),
        )
    }
    best = max(singly, key=lambda name: float(singly[name].mean()))
    row = int(np.argmin(np.abs(np.array(DEEP_PRICES) - price)))
    return [
        _worth(name, best, _net(way, row, price)[uncertain] - singly[best])
        for name, way in _ways(pairs, price_ratio).items()
    ]


def _ways(pairs: Sequence[Pair], price_ratio: float) -> dict[str, Ways]:
    scores = [pair.check for pair in pairs if pair.check is not None]
    if len(scores) == len(pairs):
        return {"your check": by_evidence(pairs, np.array(scores, float), price_ratio)}
    return {f"a check of AUC {auc:g}": by_check(pairs, auc, price_ratio) for auc in CHECK_AUCS}


def _net(way: Ways, row: int, price: float) -> Floats:
    net: Floats = way.gains[row] - price * way.costs[row]
    return net


def _worth(check: str, instead_of: str, found: Floats) -> Worth:
    value = float(found.mean())
    margin = _Z * float(found.std(ddof=1)) / len(found) ** 0.5
    return Worth(check, instead_of, value, value - margin, value + margin)


def verify_report(
    pairs: Sequence[Pair], tenant_id: str, price: float | None, price_ratio: float
) -> list[str]:
    """Reports the worth of `verify` for a tenant, and the policy that makes it the default."""
    num_uncertain = sum([pair.is_uncertain for pair in pairs])
    question = f"Whether verify should be the default of tenant {tenant_id}: "
    if price is None or num_uncertain < MIN_UNCERTAIN:
        needed = f"It takes a band that implies a price, and {MIN_UNCERTAIN} uncertain pairs"
        return ["", f"{question}not known. {needed}; these are {num_uncertain}."]
    found = worth(pairs, price, price_ratio)
    lines = [
        "",
        f"{question}{num_uncertain} uncertain of {len(pairs)} pairs,",
        f"right answers a task over {found[0].instead_of}, at {price:.2f} for a deep answer",
    ]
    for one in found:
        interval = f"{one.low:+.3f} to {one.high:+.3f}"
        answer = "yes" if one.is_proven else "no"
        lines.append(f"  {one.check:<22}{one.value:+.3f}  95 %: {interval}  {answer}")
    proven = [one.check for one in found if one.is_proven]
    if proven:
        lines += [f"So with {proven[0]} the policy may say:", "", f"  [tenants.{tenant_id}]"]
        return [*lines, '  strategy = "verify"']
    return [*lines, "So leave the uncertain to one engine."]
