"""Finds budgets in money that count nothing, since a model has no price."""

from collections.abc import Collection, Iterator, Mapping

from backends.contract import BackendGroup, BackendInfo
from router.money.prices import PriceList


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
