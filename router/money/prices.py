"""Prices tokens in money: by model, group, served tier and completion window, from a day on.

Sums are in nano-dollars (1e-9 USD), whole numbers, so that bills add up to the last digit. A price
of 0.35 dollars for a million tokens is 350 nano-dollars a token.
"""

import datetime
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from backends.contract import BackendGroup, BackendInfo, Usage
from backends.service_tiers import as_served

MAX_PRICES = 1_000
NUSD = 10**9  # nano-dollars in a dollar
_NANO_PER_MICRO = 1_000
_DAY_S = 86_400

# US dollars for a million tokens, to three decimals.
Dollars = Annotated[float, Meta(ge=0, le=100_000)]
PricedTier = Literal["flex", "scale", "priority", "fast", "ultrafast", "batch"]
CompletionWindow = Literal["2h", "8h"]  # until when background work is to be done (OpenAI, 2026-11)


class ModelPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Holds the price of a model, in US dollars for a million tokens.

    Of several that fit, the one that names most counts: a tier or a window before a group.
    """

    model: str  # as `/v1/models` lists it
    group: BackendGroup | None = None  # of the backend that served; None: either
    tier: PricedTier | None = None  # that the upstream says that it served; None: any other
    completion_window: CompletionWindow | None = None  # of background work; None: any other
    input: Dollars
    cached_input: Dollars | None = None  # input that a cache held; None: as other input
    cache_write: Dollars | None = None  # input that was written to a cache; None: as other input
    output: Dollars
    since: datetime.date | None = None  # the first day (UTC) that it holds; None: always

    def __post_init__(self) -> None:
        if self.tier is not None and self.completion_window is not None:
            raise ValueError("tier, completion_window: windows are of the standard tier; give one")


class Terms(msgspec.Struct, frozen=True, gc=False):
    """Holds what a task asked for that its price depends on."""

    tier: str = ""  # as its client named it
    completion_window: str = ""


STANDARD = Terms()


class PriceList:
    """Holds the prices of all models, by day."""

    def __init__(self, prices: Iterable[ModelPrice] = ()) -> None:
        self._by_model: dict[str, list[tuple[int, ModelPrice]]] = {}
        self.configure(prices)

    def configure(self, prices: Iterable[ModelPrice]) -> None:
        """Goes on with other prices; of several of one kind the latest that has begun holds."""
        by_model: dict[str, list[tuple[int, ModelPrice]]] = {}
        for price in prices:
            began_s = 0 if price.since is None else (price.since - _EPOCH).days * _DAY_S
            by_model.setdefault(price.model, []).append((began_s, price))
        for of_model in by_model.values():
            of_model.sort(key=_narrow_and_late_first)
        self._by_model = by_model
        self.is_empty = not by_model

    def of(
        self, info: BackendInfo, unix_s: float, tier: str = "", completion_window: str = ""
    ) -> ModelPrice | None:
        """Returns the price of what a backend served at a Unix time; None if it has none."""
        if tier == "default":
            tier = ""
        for began_s, price in self._by_model.get(info.model, ()):
            if (
                began_s <= unix_s
                and price.group in (None, info.group)
                and (price.tier is None or as_served(price.tier) == tier)
                and price.completion_window in (None, "" if tier else completion_window)
            ):
                return price
        return None

    def most_nusd(
        self, infos: Iterable[BackendInfo], usage: Usage, now_s: float, terms: Terms
    ) -> int:
        """Returns what a usage costs at most on these backends; one without a price costs nothing.

        All of its input may have to be written to a cache, and each backend may serve the standard
        tier, or the one that it is asked for.
        """
        written = msgspec.structs.replace(usage, num_cache_write_tokens=usage.num_input_tokens)
        return max(
            (
                max(cost_nusd(usage, price), cost_nusd(written, price))
                for info in infos
                for tier in _possible_tiers(info, terms)
                if (price := self.of(info, now_s, tier, terms.completion_window)) is not None
            ),
            default=0,
        )


_EPOCH = datetime.date(1970, 1, 1)


def _narrow_and_late_first(begun: tuple[int, ModelPrice]) -> tuple[bool, bool, int]:
    began_s, price = begun
    is_plain = price.tier is None and price.completion_window is None
    return is_plain, price.group is None, -began_s


def _possible_tiers(info: BackendInfo, terms: Terms) -> set[str]:
    asked = as_served(terms.tier)
    return {"", info.fixed_tier, asked if asked in info.service_tiers else ""}


def cost_nusd(usage: Usage, price: ModelPrice) -> int:
    """Returns what a usage costs, in nano-dollars."""
    cached = min(usage.num_cached_tokens, usage.num_input_tokens)
    cached_price = price.input if price.cached_input is None else price.cached_input
    cost = (usage.num_input_tokens - cached) * _per_token(price.input)
    if price.cache_write is not None and usage.num_cache_write_tokens:
        written = min(usage.num_cache_write_tokens, usage.num_input_tokens - cached)
        cost += written * (_per_token(price.cache_write) - _per_token(price.input))
    return (
        cost
        + cached * _per_token(cached_price)
        + usage.num_output_tokens * _per_token(price.output)
    )


def in_digits(dollars: float) -> str:
    """Writes dollars to the nano-dollar, without an exponent: 0.000085, where `:g` has 8.5e-05."""
    return f"{dollars:.9f}".rstrip("0").rstrip(".")


def counted(dollars: float) -> float:
    """Returns what a price for a million tokens counts as: whole nano-dollars for each."""
    return _per_token(dollars) / _NANO_PER_MICRO


def _per_token(dollars: float) -> int:
    """Returns nano-dollars for one token."""
    return round(dollars * _NANO_PER_MICRO)


class Billed(msgspec.Struct, frozen=True, gc=False):
    """Says what one backend did for a task in one tier, and what that costs."""

    backend: str
    usage: Usage  # its `service_tier` is the one that was served
    nusd: int | None  # None: its model has no price


Bill = tuple[Billed, ...]


def bill_of(
    prices: PriceList,
    infos: Mapping[str, BackendInfo],
    used: Iterable[tuple[str, Usage]],
    now_s: float,
    terms: Terms = STANDARD,
) -> Bill:
    """Prices what generations used, each with its backend; sums those of one backend and tier."""
    bill: list[Billed] = []
    for each in unpriced(used):
        usage, window = each.usage, terms.completion_window
        price = prices.of(infos[each.backend], now_s, usage.service_tier, window)
        bill.append(Billed(each.backend, usage, None if price is None else cost_nusd(usage, price)))
    return tuple(bill)


def unpriced(used: Iterable[tuple[str, Usage]]) -> Bill:
    """Sums what generations of one backend and tier used, without prices."""
    bill: dict[tuple[str, str], Billed] = {}
    for backend, usage in used:
        place = (backend, usage.service_tier)
        total = bill[place].usage + usage if place in bill else usage
        bill[place] = Billed(backend, total, None)
    return tuple(bill.values())


def total_nusd(bill: Bill) -> int:
    """Returns a bill's sum; a model without a price costs nothing."""
    return sum([billed.nusd or 0 for billed in bill])
