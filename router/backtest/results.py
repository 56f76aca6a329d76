"""Holds what a back-test found: a row of every task, and totals of every engine and pool."""

from collections.abc import Callable

import msgspec

from backends.contract import BackendGroup, Usage
from router.pools.pools import Unit


class TaskResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Says what became of one task; times are in microseconds, from its arrival."""

    index: int  # of the arrival
    at_us: int
    tenant: str
    label: str
    route: str | None  # None: refused
    strategy: str | None = None
    backends: tuple[str, ...] = ()
    reason: str
    rule: str | None = None
    outcome: str  # as in the decision log
    limited_by: tuple[BackendGroup, Unit] | None = None  # the pool that refused it
    waited_us: int = 0  # for its pools
    waited_for: BackendGroup | None = None
    ttft_us: int | None = None
    tpot_us: float | None = None
    duration_us: int
    answered_by: str | None = None
    usage: tuple[tuple[str, Usage], ...] = ()  # by backend
    cost: int = 0  # weighted tokens

    @property
    def output_tokens(self) -> int:
        """Returns the tokens that all engines generated for it."""
        return sum(usage.num_output_tokens for _, usage in self.usage)


class EngineTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Says what one engine did."""

    name: str
    model: str
    group: BackendGroup
    busy_us: int
    power_w: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int

    @property
    def energy_j(self) -> float:
        """Returns the energy of its busy time, at its rated power."""
        return self.busy_us / 1e6 * self.power_w


class PoolSample(msgspec.Struct, frozen=True, gc=False):
    """Says how a group's pools stood during one minute."""

    minute: int  # of Unix time
    group: BackendGroup
    least_left: float  # share that was left in the tightest pool of any tenant
    most_waiting: int  # tasks in the group's queue
    num_refused: int


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the totals of a simulation."""

    num_tasks: int
    first_us: int  # the first arrival
    last_us: int  # the last end
    engines: tuple[EngineTotal, ...]
    pools: tuple[PoolSample, ...]

    @property
    def energy_j(self) -> float:
        """Returns the energy of all engines' busy time."""
        return sum(engine.energy_j for engine in self.engines)


OnResult = Callable[[TaskResult], None]
