"""Tests what a ledger's entry says of a usage."""

from backends.contract import BackendInfo, Usage
from gateway.store.ledger_entry import COLUMNS, entry_of, rows_of
from router.classify.task import Route, Tenant
from router.decide.decision import RankedRoute, Reason
from router.money.prices import Bill, Billed

INFO = BackendInfo(name="up", model="m", group="fast", window_tokens=9, max_output_tokens=9)
ROUTE = RankedRoute(route=Route.FAST, backends=("up",), strategy=None, reason=Reason.MODEL, why="")


def rows(bill: Bill) -> list[dict[str, str | int | bool]]:
    entry = entry_of(
        "resp_1",
        Tenant(id="t", key_id="k", tier="free", limits={}),
        ROUTE,
        bill,
        {"up": INFO, "spare": INFO},
        {},
        outcome="ok",
        ended_s=1,
        duration_us=1,
    )
    return rows_of(entry)


def test_an_entry_says_whether_a_usage_was_bounded() -> None:
    for usage in (Usage(3, 0, 4, energy_uj=7), Usage(3, 0, 4, bounded=True)):
        (row,) = rows((Billed("up", usage, 12_500),))
        assert list(row) == list(COLUMNS)
        assert row["bounded"] is usage.bounded
        assert row["cost_nusd"] == 12_500
        assert row["energy_uj"] == usage.energy_uj


def test_each_served_tier_has_a_line_behind_an_idle_engine_of_the_route() -> None:
    said = rows(
        (
            Billed("spare", Usage(5, 0, 1, service_tier="flex"), 7),
            Billed("spare", Usage(5, 0, 1, service_tier="default", num_cache_write_tokens=2), 9),
        )
    )
    assert [(row["backend"], row["service_tier"], row["cost_nusd"]) for row in said] == [
        ("up", "", 0),
        ("spare", "flex", 7),
        ("spare", "default", 9),
    ]
    assert [row["cache_write_tokens"] for row in said] == [0, 0, 2]
