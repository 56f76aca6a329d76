"""What tokens cost in money: a price for each model, and from which day it holds.

Sums are in nano-dollars (1e-9 USD), whole numbers, so that bills add up to the last digit. A price
of 0.35 dollars for a million tokens is 350 nano-dollars a token.
"""

import datetime
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from backends.contract import Usage

MAX_PRICES = 1_000
NUSD = 10**9  # nano-dollars in a dollar
_NANO_PER_MICRO = 1_000
_DAY_S = 86_400

# US dollars for a million tokens, to three decimals.
Dollars = Annotated[float, Meta(ge=0, le=100_000)]


class ModelPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The price of a model, in US dollars for a million tokens."""

    model: str  # as `/v1/models` lists it
    input: Dollars
    cached_input: Dollars | None = None  # input that a KV cache held; None: as other input
    output: Dollars
    since: datetime.date | None = None  # the first day (UTC) that it holds; None: always


class PriceList:
    """The prices of all models, by day."""

    def __init__(self, prices: Iterable[ModelPrice] = ()) -> None:
        self._by_model: dict[str, list[tuple[int, ModelPrice]]] = {}
        self.configure(prices)

    def configure(self, prices: Iterable[ModelPrice]) -> None:
        """Goes on with other prices; of several of one model the latest that has begun holds."""
        by_model: dict[str, list[tuple[int, ModelPrice]]] = {}
        for price in prices:
            began_s = 0 if price.since is None else (price.since - _EPOCH).days * _DAY_S
            by_model.setdefault(price.model, []).append((began_s, price))
        for of_model in by_model.values():
            of_model.sort(key=lambda begun: begun[0], reverse=True)
        self._by_model = by_model

    def __bool__(self) -> bool:
        return bool(self._by_model)

    def of(self, model: str, unix_s: float) -> ModelPrice | None:
        """Returns the price of a model at a Unix time; None if it has none."""
        for began_s, price in self._by_model.get(model, ()):
            if began_s <= unix_s:
                return price
        return None

    def most_nusd(self, models: Iterable[str], usage: Usage, unix_s: float) -> int:
        """Returns what a usage costs at most on these models; one without a price costs nothing."""
        prices = (self.of(model, unix_s) for model in models)
        return max((cost_nusd(usage, price) for price in prices if price is not None), default=0)


_EPOCH = datetime.date(1970, 1, 1)


def cost_nusd(usage: Usage, price: ModelPrice) -> int:
    """Returns what a usage costs, in nano-dollars."""
    cached = min(usage.num_cached_tokens, usage.num_input_tokens)
    cached_price = price.input if price.cached_input is None else price.cached_input
    return (
        (usage.num_input_tokens - cached) * _per_token(price.input)
        + cached * _per_token(cached_price)
        + usage.num_output_tokens * _per_token(price.output)
    )


def _per_token(dollars: float) -> int:
    """Returns nano-dollars for one token."""
    return round(dollars * _NANO_PER_MICRO)
