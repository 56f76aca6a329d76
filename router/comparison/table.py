"""Keeps tasks' results in columns: a hundred thousand of them in some ten megabytes."""

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from backends.contract import BackendInfo, Usage
from router.backtest.log_reader import Logged
from router.backtest.results import TaskResult
from router.money.prices import PriceList, cost_nusd

NOT_KNOWN = -1
Column = NDArray[np.float64]


class ResultTable:
    """Holds one simulation's results, or what a log says of the same tasks, by arrival."""

    def __init__(self, num_tasks: int) -> None:
        self.at_us = array("q", bytes(8 * num_tasks))
        self.ttft_us = array("q", [NOT_KNOWN]) * num_tasks
        self.tpot_us = array("d", [float(NOT_KNOWN)]) * num_tasks
        self.duration_us = array("q", bytes(8 * num_tasks))
        self.waited_us = array("q", bytes(8 * num_tasks))
        self.cost = array("q", bytes(8 * num_tasks))
        self.output_tokens = array("q", bytes(8 * num_tasks))
        self.money_nusd = array("q", bytes(8 * num_tasks))
        self.outcome = array("i", [NOT_KNOWN]) * num_tasks
        self.tenant = array("i", [NOT_KNOWN]) * num_tasks
        self.way = array("i", [NOT_KNOWN]) * num_tasks  # route, strategy and backends
        self.rule = array("i", [NOT_KNOWN]) * num_tasks
        self.limited_by = array("i", [NOT_KNOWN]) * num_tasks
        self.waited_for = array("i", [NOT_KNOWN]) * num_tasks
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.at_us)

    def number(self, name: str) -> int:
        """Returns the number that stands for a name in the columns."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number

    def add(self, result: TaskResult, infos: Mapping[str, BackendInfo], prices: PriceList) -> None:
        """Takes a simulated task's result."""
        index = result.index
        self.at_us[index] = result.at_us
        self.duration_us[index] = result.duration_us
        self.waited_us[index] = result.waited_us
        self.cost[index] = result.cost
        self.output_tokens[index] = result.output_tokens
        if result.ttft_us is not None:
            self.ttft_us[index] = result.ttft_us
        if result.tpot_us is not None:
            self.tpot_us[index] = result.tpot_us
        if prices:
            self.money_nusd[index] = _money(result.usage, infos, prices, result.at_us / 1e6)
        self.outcome[index] = self.number(result.outcome)
        self.tenant[index] = self.number(result.tenant)
        self.way[index] = self.number(way_of(result.route, result.strategy))
        self.rule[index] = self.number(result.rule or result.reason)
        if result.limited_by is not None:
            self.limited_by[index] = self.number(" ".join(result.limited_by))
        if result.waited_for is not None:
            self.waited_for[index] = self.number(result.waited_for)

    @property
    def is_answered(self) -> NDArray[np.bool_]:
        """Says of each task whether it was answered."""
        return self.having("outcome", "ok")

    def having(self, column: str, name: str) -> NDArray[np.bool_]:
        """Says of each task whether it has that name in that column."""
        number = self._numbers.get(name, NOT_KNOWN - 1)
        found: NDArray[np.bool_] = np.frombuffer(getattr(self, column), dtype=np.int32) == number
        return found

    def column(self, name: str) -> Column:
        """Returns a column of numbers; what is not known is NaN."""
        values: array[int] | array[float] = getattr(self, name)
        kind = np.int64 if values.typecode == "q" else np.float64
        found = np.frombuffer(values, dtype=kind).astype(np.float64)
        if name in ("ttft_us", "tpot_us"):
            found[found == NOT_KNOWN] = np.nan
        return found

    def name_of(self, column: str, index: int) -> str:
        """Returns the name of one task in a column; empty where it has none."""
        number: int = getattr(self, column)[index]
        return "" if number < 0 else self.names[number]


def way_of(route: str | None, strategy: str | None) -> str:
    """Names the way that a task took: its route, and its strategy if it has one."""
    if route is None:
        return "refused"
    return route if strategy is None else f"{route} ({strategy})"


def _money(
    usage: Sequence[tuple[str, Usage]],
    infos: Mapping[str, BackendInfo],
    prices: PriceList,
    unix_s: float,
) -> int:
    total = 0
    for name, used in usage:
        price = prices.of(infos[name].model, unix_s)
        if price is not None:
            total += cost_nusd(used, price)
    return total


def logged_table(logged: Logged) -> ResultTable:
    """Returns what a log says of its own tasks; without money, which it does not say."""
    table = ResultTable(len(logged.arrivals))
    for index, (arrival, facts) in enumerate(zip(logged.arrivals, logged.facts, strict=True)):
        table.at_us[index] = arrival.at_us
        table.duration_us[index] = facts.duration_us
        table.waited_us[index] = facts.waited_us
        table.cost[index] = facts.cost
        table.output_tokens[index] = facts.output_tokens
        if facts.ttft_us is not None:
            table.ttft_us[index] = facts.ttft_us
        if facts.tpot_us is not None:
            table.tpot_us[index] = facts.tpot_us
        table.outcome[index] = table.number(facts.outcome)
        table.tenant[index] = table.number(arrival.tenant)
        table.way[index] = table.number(way_of(facts.route, facts.strategy))
        table.rule[index] = table.number(facts.rule or facts.reason or "")
    return table
