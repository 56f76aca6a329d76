"""Tests what tokens cost, to the last digit."""

import datetime

import msgspec
import pytest

from backends.contract import BackendInfo, Usage
from router.money.prices import (
    Billed,
    ModelPrice,
    PriceList,
    Terms,
    bill_of,
    cost_nusd,
    in_digits,
    total_nusd,
)

FAST = BackendInfo(name="f", model="m", group="fast", window_tokens=9, max_output_tokens=9)
DEEP = BackendInfo(name="d", model="m", group="deep", window_tokens=9, max_output_tokens=9)
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
    assert prices.of(DEEP, NEW_YEAR_S - 1) is PRICE
    assert prices.of(DEEP, NEW_YEAR_S) is dearer
    assert PriceList([dearer]).of(DEEP, NEW_YEAR_S - 1) is None


TABLE = {
    "plain": ModelPrice(model="m", input=1, output=1),
    "later": ModelPrice(model="m", input=1, output=1, since=NEW_YEAR),
    "deep": ModelPrice(model="m", group="deep", input=2, output=2),
    "priority": ModelPrice(model="m", tier="fast", input=3, output=3),
    "deep flex": ModelPrice(model="m", group="deep", tier="flex", input=4, output=4),
    "window": ModelPrice(model="m", completion_window="8h", input=5, output=5),
    "other": ModelPrice(model="n", input=6, output=6),
}


@pytest.mark.parametrize(
    ("info", "served", "window", "named"),
    [
        ("fast", "", "", "later"),
        ("fast", "default", "", "later"),
        ("deep", "", "", "deep"),  # a narrower price is not replaced by a later one of all
        ("fast", "priority", "", "priority"),
        ("deep", "priority", "", "priority"),
        ("deep", "flex", "", "deep flex"),
        ("fast", "flex", "", "later"),  # without a price of its own
        ("deep", "", "8h", "window"),
        ("fast", "default", "8h", "window"),
        ("fast", "", "2h", "later"),
        ("fast", "priority", "8h", "priority"),  # windows are of the standard tier
    ],
)
def test_the_price_is_of_what_was_served(info: str, served: str, window: str, named: str) -> None:
    prices = PriceList(TABLE.values())
    found = prices.of(DEEP if info == "deep" else FAST, NEW_YEAR_S, served, window)
    assert found is TABLE[named]


def test_a_price_is_of_a_tier_or_of_a_window() -> None:
    with pytest.raises(ValueError, match="give one"):
        ModelPrice(model="m", tier="flex", completion_window="2h", input=1, output=1)


def test_writing_a_cache_has_its_own_price() -> None:
    price = ModelPrice(model="m", input=1.0, cached_input=0.1, cache_write=1.25, output=0)
    usage = Usage(num_input_tokens=10, num_cached_tokens=4, num_cache_write_tokens=5)
    assert cost_nusd(usage, price) == 1_000 + 4 * 100 + 5 * 1_250
    beyond = Usage(num_input_tokens=10, num_cached_tokens=4, num_cache_write_tokens=50)
    assert cost_nusd(beyond, price) == 4 * 100 + 6 * 1_250


@pytest.mark.parametrize(
    ("info", "asked", "dollars"),
    [
        (FAST, "priority", 1),  # that backend is never asked for it
        (msgspec.structs.replace(FAST, service_tiers=("priority",)), "priority", 3),
        (msgspec.structs.replace(FAST, service_tiers=("priority",)), "fast", 3),
        (msgspec.structs.replace(FAST, service_tiers=("priority",)), "default", 1),
        (msgspec.structs.replace(FAST, fixed_tier="priority"), "", 3),
        (msgspec.structs.replace(DEEP, service_tiers=("flex",)), "flex", 4),
    ],
)
def test_what_is_held_covers_each_tier_that_may_be_served(
    info: BackendInfo, asked: str, dollars: int
) -> None:
    most = PriceList(TABLE.values()).most_nusd([info], Usage(1_000), NEW_YEAR_S, Terms(asked))
    assert most == dollars * 1_000_000


def test_a_bill_sums_what_one_backend_served_in_one_tier() -> None:
    used = [
        ("up", Usage(10, 0, 1, service_tier="priority")),
        ("up", Usage(5, 0, 0, service_tier="default")),
        ("up", Usage(20, 0, 0, service_tier="priority")),
        ("own", Usage(7)),
    ]
    infos = {"up": FAST, "own": msgspec.structs.replace(DEEP, model="free")}
    bill = bill_of(PriceList(TABLE.values()), infos, used, NEW_YEAR_S)
    assert bill == (
        Billed("up", Usage(30, 0, 1, service_tier="priority"), 31 * 3_000),
        Billed("up", Usage(5, service_tier="default"), 5 * 1_000),
        Billed("own", Usage(7), None),
    )
    assert total_nusd(bill) == 98_000


@pytest.mark.parametrize(
    ("dollars", "written"),
    [(0, "0"), (8.5e-05, "0.000085"), (1e-9, "0.000000001"), (8.02, "8.02"), (1e6, "1000000")],
)
def test_dollars_are_written_without_an_exponent(dollars: float, written: str) -> None:
    assert in_digits(dollars) == written
