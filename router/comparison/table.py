"""Keeps tasks' results in columns: a hundred thousand of them in some ten megabytes."""

from array import array
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from backends.contract import BackendInfo
from router.backtest.log_reader import Logged, LoggedFacts
from router.backtest.results import TaskResult
from router.money.prices import PriceList, bill_of, total_nusd

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
        self.fill(index, result.at_us, result.tenant, result)
        if not prices.is_empty:
            bill = bill_of(prices, infos, result.usage, result.at_us / 1e6)
            self.money_nusd[index] = total_nusd(bill)
        if result.limited_by is not None:
            self.limited_by[index] = self.number(" ".join(result.limited_by))
        if result.waited_for is not None:
            self.waited_for[index] = self.number(result.waited_for)

    def fill(self, index: int, at_us: int, tenant: str, found: TaskResult | LoggedFacts) -> None:
        """Fills the columns that a simulation and a log both know."""
        self.at_us[index] = at_us
        self.duration_us[index] = found.duration_us
        self.waited_us[index] = found.waited_us
        self.cost[index] = found.cost
        self.output_tokens[index] = found.output_tokens
        if found.ttft_us is not None:
            self.ttft_us[index] = found.ttft_us
        if found.tpot_us is not None:
            self.tpot_us[index] = found.tpot_us
        self.outcome[index] = self.number(found.outcome)
        self.tenant[index] = self.number(tenant)
        self.way[index] = self.number(way_of(found.route, found.strategy))
        self.rule[index] = self.number(found.rule or found.reason or "")

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


def logged_table(logged: Logged) -> ResultTable:
    """Returns what a log says of its own tasks; money, and which pool it was, it does not say."""
    table = ResultTable(len(logged.arrivals))
    for index, (arrival, facts) in enumerate(zip(logged.arrivals, logged.facts, strict=True)):
        table.fill(index, arrival.at_us, arrival.tenant, facts)
    return table
