"""Finds budgets in money that count nothing, since a model has no price."""

from collections.abc import Collection, Iterator, Mapping

from backends.contract import BackendGroup
from router.money.prices import PriceList


def unpriced_budgets(
    prices: PriceList,
    models: Mapping[str, BackendGroup],
    budgeted: Mapping[str, Collection[BackendGroup]],
    now_s: float,
) -> Iterator[str]:
    """Says whose budgets do not count which models: those without a price at this Unix time.

    `budgeted` has the groups that each owner of a budget may use.
    """
    unpriced = {m: group for m, group in models.items() if prices.of(m, now_s) is None}
    for whose, groups in budgeted.items():
        free = sorted(model for model, group in unpriced.items() if group in groups)
        if free:
            named = ", ".join(f"'{model}'" for model in free)
            yield (
                f"{whose} has budgets in money, but no price holds for {named}: it costs nothing, "
                "and no budget counts it. Add [[prices]], or set its prices to 0."
            )
