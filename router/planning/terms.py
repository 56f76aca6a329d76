"""Says what a plan is for: objectives, kinds of servers with their prices, and what varies."""

from collections.abc import Mapping, Sequence

import msgspec

from backends.contract import BackendGroup
from router.backtest.arrivals import Arrival
from router.backtest.fleet import EngineMachine
from router.classify.task import GroupLimits, Tenant
from router.policy.policy import Policy

MAX_SERVERS = 64  # of one kind
MAX_FLEETS = 100_000
WIDE = GroupLimits(requests_per_min=10**9, tokens_per_min=10**12, max_concurrent=10**7)
PLAN_TENANT = "plan"


class Objective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds what tasks take, in milliseconds; None: not bounded."""

    ttft_p50_ms: float | None = None
    ttft_p95_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p95_ms: float | None = None
    tpot_p99_ms: float | None = None
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    latency_p99_ms: float | None = None
    max_refused: float = 0.01  # share of the tasks that got no answer

    def __post_init__(self) -> None:
        """Raises ValueError for a bound that nothing can meet, or that bounds nothing."""
        for name in Objective.__struct_fields__:
            bound = getattr(self, name)
            if name == "max_refused":
                if not 0 <= bound < 1:
                    raise ValueError(f"{name} is {bound}: expected a share from 0, below 1")
            elif bound is not None and not 0 < bound < 1e12:
                raise ValueError(f"{name} is {bound}: expected a number above 0")

    def bounds(self) -> dict[str, float]:
        """Returns the bounds on times, by the names of figures."""
        names = (name for name in Objective.__struct_fields__ if name != "max_refused")
        return {name: ms for name in names if (ms := getattr(self, name)) is not None}


class PlanSlo(Objective, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the objectives of all tasks, and of those on one group's engines."""

    fast: Objective | None = None
    deep: Objective | None = None
    growth: float = 1.0  # times the traffic of the trace
    spare_failures: int = 1  # servers of any kind that may be out, and it is still met

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.01 <= self.growth <= 1_000:
            raise ValueError(f"growth is {self.growth}: expected 0.01 to 1,000 times the traffic")
        if self.spare_failures not in (0, 1):
            raise ValueError(f"spare_failures is {self.spare_failures}: expected 0 or 1")

    def bounds(self) -> dict[str, float]:
        """Returns all bounds, as `deep.ttft_p95_ms`."""
        found = super().bounds()
        for group in ("fast", "deep"):
            objective: Objective | None = getattr(self, group)
            if objective is not None:
                found |= {f"{group}.{name}": ms for name, ms in objective.bounds().items()}
        return found


class ServerKind(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a server that can be had, how many, and what one costs."""

    name: str
    machine: EngineMachine
    per_hour: float  # in the price list's currency
    least: int = 0
    most: int = 4
    idle_power_w: float = 0.0
    busy_share: float = 1.0  # of the rated power while it computes: at part load it is less
    capacity: float = 1.0  # tokens per second at most: to rank fleets before they are simulated

    @property
    def group(self) -> BackendGroup:
        return self.machine.info.group

    @property
    def busy_power_w(self) -> float:
        return self.idle_power_w + self.busy_share * (self.machine.power_w - self.idle_power_w)


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what all cells of a sweep share: it is sent to a worker once."""

    arrivals: Sequence[Arrival]
    kinds: tuple[ServerKind, ...]
    policies: Mapping[str, Policy]
    untestable: tuple[str, ...] = ()  # what was left out of them, in words
    slo: PlanSlo
    energy_per_kwh: float = 0.0
    tenant_tiers: Mapping[str, str] = {}  # tenants of the trace, whose pools are wide

    def tenants(self) -> dict[str, Tenant]:
        """Returns the trace's tenants, with wide pools: a plan is for all the traffic."""
        limits: dict[BackendGroup, GroupLimits] = {"fast": WIDE, "deep": WIDE}
        return {
            name: Tenant(id=name, tier=tier, limits=limits)
            for name, tier in self.tenant_tiers.items()
        }


Counts = tuple[int, ...]  # of servers, in the order of the kinds


class Cell(msgspec.Struct, frozen=True, order=True):
    """Is one simulation: which policy, what traffic, which servers, and which seed."""

    policy: str
    scale: float  # times the traffic of the trace
    counts: Counts
    seed: int = 0


def all_counts(kinds: Sequence[ServerKind]) -> list[Counts]:
    """Returns every fleet, without the empty one. Raises ValueError if there are too many."""
    total = 1
    for kind in kinds:
        total *= kind.most - kind.least + 1
    if total > MAX_FLEETS:
        raise ValueError(
            f"{total:,} fleets: at most {MAX_FLEETS:,} are compared; bound the kinds by most"
        )
    found: list[Counts] = [()]
    for kind in kinds:
        found = [(*one, number) for one in found for number in range(kind.least, kind.most + 1)]
    return [one for one in found if any(one)]
