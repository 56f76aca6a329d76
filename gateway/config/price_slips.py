"""Finds what is valid in prices but surely not meant: missing, of no model, twice, too fine."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from backends.contract import BackendGroup, BackendInfo
from router.money.prices import ModelPrice, PriceList, counted
from router.policy.document import suggestion

_EXACT = 1e-9  # dollars: what floats are off by is less


def unpriced_budgets(
    prices: PriceList,
    infos: Collection[BackendInfo],
    budgeted: Mapping[str, Collection[BackendGroup]],
    now_s: float,
) -> Iterator[str]:
    """Says whose budgets do not count which models: those without a price at this Unix time.

    `budgeted` has the groups that each owner of a budget may use.
    """
    unpriced = [info for info in infos if prices.of(info, now_s) is None]
    for whose, groups in budgeted.items():
        free = sorted({info.model for info in unpriced if info.group in groups})
        if free:
            named = ", ".join(f"'{model}'" for model in free)
            yield (
                f"{whose} has budgets in money, but no price holds for {named}: it costs nothing, "
                "and no budget counts it. Add [[prices]], or set its prices to 0."
            )


def odd_prices(prices: Iterable[ModelPrice], models: Collection[str]) -> Iterator[str]:
    """Says which prices are of no model of `models`, replaced by an equal one, or rounded."""
    seen: set[tuple[object, ...]] = set()
    for price in prices:
        if price.model not in models:
            hint = suggestion(price.model, models)
            yield f"[[prices]]: no backend or relay has the model '{price.model}'{hint}"
        place = (price.model, price.group, price.tier, price.completion_window, price.since)
        if place in seen:
            yield (
                f"[[prices]]: '{price.model}' has two prices of the same kind that hold from the "
                "same day: the first one counts. Give the later one a `since`."
            )
        seen.add(place)
        for name in ("input", "cached_input", "cache_write", "output"):
            dollars = getattr(price, name)
            if dollars is not None and abs(counted(dollars) - dollars) > _EXACT:
                yield (
                    f"[[prices]]: '{price.model}' has {name} = {dollars:.9g}, which counts as "
                    f"{counted(dollars):g}: a price for a million tokens has three decimals."
                )
