"""Reports cost against quality on recorded outcomes as text; `economy` has the arithmetic."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from router.classify.classify import features_of_text
from router.learn.learning import traits
from router.policy.policy import Policy
from router.policy.tradeoff import deep_price
from router.record.economy import (
    CHECK_AUCS,
    DEEP_PRICES,
    SEED,
    Pair,
    ResampledFigure,
    Ways,
    apgr_of,
    by_check,
    by_score,
)
from router.record.labelled import outcomes
from router.record.report import MIN_CURVE_RECORDS, Judged
from router.record.rule_router import SIMPLE_BELOW, rule_score
from router.record.verify_default import verify_report

PRICE_RATIO = 0.1  # of a fast answer over a deep one, where nobody says; docs/classifier.md: why
ALL = "all"


def pairs_by_source(judged: Sequence[Judged]) -> dict[str, list[Pair]]:
    """Returns the records with outcomes, by source and all together, where there are enough."""
    found: dict[str, list[Pair]] = defaultdict(list)
    for one in judged:
        measured = outcomes(one.record)
        if measured is None:
            continue
        text = one.record.text
        seen = traits(features_of_text(text).reading, one.said)
        pair = Pair(
            *measured,
            one.said.p_gain,
            seen,
            rule_score(text),
            len(text),
            is_uncertain=one.said.label == "uncertain",
            check=one.record.number("check"),
        )
        found[one.record.group].append(pair)
        found[ALL].append(pair)
    return {
        source: pairs
        for source, pairs in sorted(found.items())
        if len(pairs) >= MIN_CURVE_RECORDS and sum(p.deep - p.fast for p in pairs) > 0
    }


def economy_report(
    judged: Sequence[Judged], policy: Policy, price_ratio: float, tenant_id: str | None = None
) -> list[str]:
    """Reports APGR per source, then what the default thresholds cost over all sources.

    For a tenant, whose own pairs these are, it also says whether `verify` should be its default.
    """
    sources = pairs_by_source(judged)
    if not sources:
        return ["", "Cost against quality: too few measured outcomes."]
    ways = {source: _ways(pairs, price_ratio) for source, pairs in sources.items()}
    names = list(next(iter(ways.values())))
    lines = [
        "",
        f"Cost against quality: APGR and 95 % interval; a fast answer costs {price_ratio:g} of a "
        "deep one, all",
        f"generations charged; checks drawn with seed {SEED}. All fast: 0; all deep: 1; random "
        "mix: 0.500",
        f"  {'source':<22}{'n':>6}{'fast':>6}{'deep':>6}" + "".join(f"{n:>17}" for n in names),
    ]
    for source, pairs in sources.items():
        found = [apgr_of(ways[source][name], pairs, price_ratio) for name in names]
        lines.append(
            f"  {source:<22}{len(pairs):>6}{_mean(pairs, 'fast'):>6.3f}{_mean(pairs, 'deep'):>6.3f}"
            + "".join(f"{_in_words(estimate):>17}" for estimate in found)
        )
    lines += _default_lines(sources[ALL], ways[ALL], policy, price_ratio)
    if tenant_id is not None:
        lines += verify_report(sources[ALL], tenant_id, price_of(policy), price_ratio)
    return lines


def price_of(policy: Policy) -> float | None:
    """Returns a deep answer's price in right answers, if the policy's band implies one."""
    tradeoff = policy.tradeoff
    return deep_price(*tradeoff.edges(policy.band.low, policy.band.high), tradeoff.price_ratio)


def _ways(pairs: Sequence[Pair], price_ratio: float) -> dict[str, Ways]:
    scores = {
        "prompt": [pair.p_gain for pair in pairs],
        "length": [float(pair.num_chars) for pair in pairs],
        "LiteLLM's rules": [pair.rule_score for pair in pairs],
        "oracle": [pair.deep - pair.fast for pair in pairs],
    }
    checked = {f"verify {auc:g}": by_check(pairs, auc, price_ratio) for auc in CHECK_AUCS}
    return {name: by_score(pairs, of, price_ratio) for name, of in scores.items()} | checked


def _default_lines(
    pairs: Sequence[Pair], ways: dict[str, Ways], policy: Policy, price_ratio: float
) -> list[str]:
    """Reports cost and quality by the policy's price of a deep answer, and by LiteLLM's tiers."""
    price = price_of(policy)
    fast, deep = _mean(pairs, "fast"), _mean(pairs, "deep")
    if price is None:
        return []
    row = int(np.argmin(np.abs(np.array(DEEP_PRICES) - price)))
    chosen: dict[str, tuple[float, float]] = {"all fast": (price_ratio, fast)}
    for name, goes_up in (
        ("LiteLLM's rules, above SIMPLE", [pair.rule_score >= SIMPLE_BELOW for pair in pairs]),
        ("prompt", [pair.p_gain >= price for pair in pairs]),
    ):
        results = [pair.deep if up else pair.fast for pair, up in zip(pairs, goes_up, strict=True)]
        share = float(np.mean(goes_up))
        chosen[name] = price_ratio + (1 - price_ratio) * share, float(np.mean(results))
    for name, way in ways.items():
        if name.startswith("verify"):
            chosen[name] = float(way.costs[row].mean()), fast + float(way.gains[row].mean())
    chosen["all deep"] = 1.0, deep
    best = float(np.mean([max(pair.fast, pair.deep) for pair in pairs]))
    share_up = float(np.mean([pair.deep > pair.fast for pair in pairs]))
    chosen["oracle"] = price_ratio + (1 - price_ratio) * share_up, best
    lines = [
        "",
        f"At the policy's price of a deep answer ({price:.2f} right answers), all sources",
        f"  {'':<32}{'cost':>8}{'right':>8}{'random mix of that cost':>26}",
    ]
    for name, (cost, right) in chosen.items():
        mixed = fast + (deep - fast) * min(1.0, (cost - price_ratio) / (1 - price_ratio))
        lines.append(f"  {name:<32}{cost:>8.2f}{right:>8.3f}{mixed:>26.3f}")
    return lines


def _mean(pairs: Sequence[Pair], name: str) -> float:
    return float(np.mean([getattr(pair, name) for pair in pairs]))


def _in_words(estimate: ResampledFigure) -> str:
    return f"{estimate.value:.3f} {estimate.low:.2f}-{estimate.high:.2f}"
