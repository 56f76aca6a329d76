"""Holds one task of a simulation, from its arrival to its result."""

from backends.contract import NO_USAGE, BackendGroup, Usage
from router.backtest.arrivals import Arrival
from router.backtest.results import TaskResult
from router.backtest.run import PlayedRun
from router.classify.task import Route, Task, TaskClass
from router.decide.decision import RankedRoute, Reason
from router.money.cost import EVEN, Weights, cost_by_group, cost_tokens
from router.policy.policy import Policy
from router.pools.pools import Reservation, Unit

_ROUTE_NAMES = {route: route.value for route in Route}
_REASON_NAMES = {reason: reason.value for reason in Reason}


def _cost(by_group: list[tuple[BackendGroup, Usage]], weights: Weights) -> int:
    """Returns what all generations of a task cost; mostly there is one."""
    if len(by_group) == 1:
        ((group, usage),) = by_group
        return cost_tokens(usage, weights.get(group, EVEN))
    return sum(cost_by_group(by_group, weights).values())


class Life:
    """Holds what has become of a task so far."""

    __slots__ = (
        "arrival",
        "arrived_us",
        "ended",
        "index",
        "limited_by",
        "policy",
        "ranked",
        "reservation",
        "run",
        "task",
        "task_class",
        "waited_for",
        "waited_us",
    )

    def __init__(
        self,
        index: int,
        arrival: Arrival,
        task: Task,
        task_class: TaskClass,
        policy: Policy,
        arrived_us: int,
    ) -> None:
        self.index = index
        self.arrival = arrival
        self.task = task
        self.task_class = task_class
        self.policy = policy
        self.arrived_us = arrived_us
        self.ranked: tuple[RankedRoute, ...] = ()
        self.reservation: Reservation | None = None
        self.run: PlayedRun | None = None
        self.waited_us = 0
        self.waited_for: BackendGroup | None = None
        self.limited_by: tuple[BackendGroup, Unit] | None = None
        self.ended = False

    def result(
        self, outcome: str, now_us: int, weights: Weights, delivery_us: int, ending_us: int
    ) -> TaskResult:
        """Returns the task's result, as it has ended now."""
        run = self.run
        if run is None:
            first = self.ranked[0] if self.ranked else None
            return TaskResult(
                index=self.index,
                at_us=self.arrived_us,
                tenant=self.arrival.tenant,
                label=self.task_class.label,
                route=None,
                reason=first.reason.value if first is not None else "",
                rule=first.rule if first is not None else None,
                outcome=outcome,
                limited_by=self.limited_by,
                waited_us=self.waited_us,
                waited_for=self.waited_for,
                duration_us=now_us - self.arrived_us,
            )
        chosen = run.chosen
        used: dict[str, Usage] = {}
        by_group: list[tuple[BackendGroup, Usage]] = []
        for branch in run.all():
            usage, where = branch.usage or NO_USAGE, branch.where
            known = used.get(where.name)
            used[where.name] = usage if known is None else known + usage
            by_group.append((where.info.group, usage))
        first_branch = run.first_branch
        late_us = ending_us if outcome == "ok" else delivery_us
        return TaskResult(
            index=self.index,
            at_us=self.arrived_us,
            tenant=self.arrival.tenant,
            label=self.task_class.label,
            route=_ROUTE_NAMES[chosen.route],
            strategy=chosen.strategy,
            backends=chosen.backends,
            reason=_REASON_NAMES[chosen.reason],
            rule=chosen.rule,
            outcome=outcome,
            waited_us=self.waited_us,
            waited_for=self.waited_for,
            ttft_us=None if run.first_us < 0 else run.first_us - self.arrived_us + delivery_us,
            tpot_us=None if first_branch is None else first_branch.tpot_us,
            duration_us=now_us - self.arrived_us + late_us,
            answered_by=run.answered_by or None,
            usage=tuple(used.items()),
            cost=_cost(by_group, weights),
        )
