"""A day's counters add up to the entries they were made of, by any dimension."""

from collections import Counter

import pytest

from gateway.store.ledger_entry import DAY_S, LedgerEntry, LedgerLine
from gateway.store.usage_days import counters_of, rows_of_days, usage_key


def entry(tenant: str, day: int, *models: str, key: str = "k") -> LedgerEntry:
    lines = tuple(
        LedgerLine(
            backend=model,
            group="fast",
            model=model,
            input_tokens=10,
            cached_tokens=4,
            output_tokens=5,
            reasoning_tokens=0,
            exact=True,
            cost_units=15,
            cost_nusd=1_500_000_000,
        )
        for model in models
    )
    return LedgerEntry(
        task_id="resp_1",
        tenant_id=tenant,
        key_id=key,
        tier="pro",
        route="fast",
        outcome="ok",
        ended_s=day * DAY_S + 7,
        duration_ms=1,
        lines=lines,
    )


ENTRIES = (
    entry("a", 1, "small"),
    entry("a", 1, "small", "large", key="other"),
    entry("b", 1, "large"),
    entry("a", 2, "small"),
)
DAYS = {"1970-01-02": usage_key(DAY_S), "1970-01-03": usage_key(2 * DAY_S)}


def days() -> dict[str, Counter[str]]:
    found = counters_of(ENTRIES)
    return {day: found[key] for day, key in DAYS.items()}


@pytest.mark.parametrize(
    ("by", "tasks"),
    [
        ((), {(): 4}),
        (("tenant",), {("a",): 3, ("b",): 1}),
        (("day",), {("1970-01-02",): 3, ("1970-01-03",): 1}),
        (("model",), {("large",): 1, ("small",): 3}),
        (("tenant", "key"), {("a", "k"): 2, ("a", "other"): 1, ("b", "k"): 1}),
    ],
)
def test_tasks_are_counted_once(by: tuple[str, ...], tasks: dict[tuple[str, ...], int]) -> None:
    rows = rows_of_days(days(), by)  # type: ignore[arg-type]
    assert {tuple(getattr(row, name) for name in by): row.tasks for row in rows} == tasks
    assert sum(row.output_tokens for row in rows) == 5 * 5
    assert sum(row.cost_usd for row in rows) == 5 * 1.5


def test_one_tenant_alone() -> None:
    (row,) = rows_of_days(days(), ("tenant",), "b")
    assert (row.tenant, row.tasks, row.input_tokens, row.cached_tokens) == ("b", 1, 10, 4)


def test_what_did_not_fit_and_what_is_unknown() -> None:
    counters = {"other\x1ftasks": 3, "x\x1fnew_kind": 1, "a\x1fk\x1fm\x1ffast\x1fnew_kind": 2}
    (row,) = rows_of_days({"1970-01-02": counters}, ("tenant", "model"))
    assert (row.tenant, row.model, row.tasks) == ("other", "other", 3)
