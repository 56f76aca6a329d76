"""What a ledger's entry says of a usage."""

from backends.contract import BackendInfo, Usage
from gateway.store.ledger_entry import COLUMNS, entry_of, rows_of
from router.classify.task import Route, Tenant
from router.decide.decision import RankedRoute, Reason
from router.money.prices import ModelPrice, PriceList

INFO = BackendInfo(name="up", model="m", group="fast", window_tokens=9, max_output_tokens=9)
ROUTE = RankedRoute(route=Route.FAST, backends=("up",), strategy=None, reason=Reason.MODEL, why="")


def test_an_entry_says_whether_a_usage_was_bounded() -> None:
    for usage in (Usage(3, 0, 4, energy_uj=7), Usage(3, 0, 4, bounded=True)):
        entry = entry_of(
            "resp_1",
            Tenant(id="t", key_id="k", tier="free", limits={}),
            ROUTE,
            {"up": usage},
            {"up": INFO},
            {},
            PriceList([ModelPrice(model="m", input=1.5, output=2.0)]),
            outcome="ok",
            ended_s=1,
            duration_us=1,
        )
        (row,) = rows_of(entry)
        assert list(row) == list(COLUMNS)
        assert row["bounded"] is usage.bounded
        assert row["cost_nusd"] == 3 * 1_500 + 4 * 2_000
        assert row["energy_uj"] == usage.energy_uj
