"""What tokens cost, to the last digit."""

import datetime

import pytest

from backends.contract import Usage
from router.money.prices import ModelPrice, PriceList, cost_nusd

PRICE = ModelPrice(model="m", input=0.35, cached_input=0.035, output=0.75)
DAY_S = 86_400
NEW_YEAR = datetime.date(2026, 1, 1)
NEW_YEAR_S = 1_767_225_600


@pytest.mark.parametrize(
    ("usage", "nusd"),
    [
        (Usage(), 0),
        (Usage(num_input_tokens=1_000_000), 350_000_000),
        (Usage(num_input_tokens=1_000_000, num_cached_tokens=1_000_000), 35_000_000),
        (
            Usage(num_input_tokens=10, num_cached_tokens=4, num_output_tokens=3),
            6 * 350 + 4 * 35 + 2250,
        ),
        (Usage(num_input_tokens=1, num_cached_tokens=5), 35),  # no more is cached than was read
    ],
)
def test_a_token_costs_a_millionth_of_the_price(usage: Usage, nusd: int) -> None:
    assert cost_nusd(usage, PRICE) == nusd


def test_cached_input_without_a_price_of_its_own_costs_as_other_input() -> None:
    price = ModelPrice(model="m", input=1.0, output=2.0)
    assert cost_nusd(Usage(num_input_tokens=5, num_cached_tokens=5), price) == 5_000


def test_a_price_holds_from_its_day_on() -> None:
    dearer = ModelPrice(model="m", input=9.0, output=9.0, since=NEW_YEAR)
    prices = PriceList([dearer, PRICE])
    assert prices.of("m", NEW_YEAR_S - 1) is PRICE
    assert prices.of("m", NEW_YEAR_S) is dearer
    assert PriceList([dearer]).of("m", NEW_YEAR_S - 1) is None
