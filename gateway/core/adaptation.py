"""Adapts each group's concurrency limit and its tenants' shares to the load, once a second.

It is off unless the configuration names a group. Each process adapts by itself, from its own tasks
and from the total load that the engines report. This is an edge.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from statistics import median

from backends.contract import BackendGroup, BackendStats
from gateway.core.waiting_room import WaitingRoom
from gateway.metrics.counters import Counters
from router.waiting.capacity import Capacity, Load, first_capacity, step
from router.waiting.fair_share import ShareClaim, stepped, water_fill
from router.waiting.rules import AdaptationConfig, weight_of

SHARE_STEP = 0.25  # of a share, per second
SAMPLES_KEPT = 32  # times per output token, of the tasks that ended last
SAMPLE_AGE_US = 10_000_000


@dataclass(eq=False)
class Adaptation:
    """Reads the load and moves the limiter's limits; `tick` once a second."""

    config: AdaptationConfig
    _: KW_ONLY
    waiting: WaitingRoom
    stats: Callable[[], Sequence[BackendStats]]
    clock_us: Callable[[], int]
    metrics: Counters

    def __post_init__(self) -> None:
        """Sets the first limits at once, so that no burst comes before them."""
        self._limiter = self.waiting.limiter
        self._capacities: dict[BackendGroup, Capacity] = {}
        self._shares: dict[BackendGroup, dict[str, int]] = {}
        self._token_us: dict[BackendGroup, deque[tuple[int, float]]] = {
            group: deque(maxlen=SAMPLES_KEPT) for group in self.config.groups
        }
        for group, bounds in self.config.groups.items():
            self._capacities[group] = first_capacity(bounds, self._load(group))
            self._apply(group)

    def observe(self, group: BackendGroup, token_us: float | None) -> None:
        """Notes the time per output token of a task that ended."""
        samples = self._token_us.get(group)
        if samples is not None and token_us is not None:
            samples.append((self.clock_us(), token_us))

    async def tick(self) -> None:
        """Moves every adaptive group by at most one step."""
        for group, bounds in self.config.groups.items():
            direction = step(self._capacities[group], self._load(group), bounds, self.clock_us())
            if direction != "none":
                self.metrics.counts["lanewise_capacity_steps_total"][group, direction].inc()
            self._apply(group)
            self.waiting.look_again(group)

    def _load(self, group: BackendGroup) -> Load:
        mine = [stats for stats in self.stats() if stats.info.group == group and stats.healthy]
        fullest = max(
            (s.kv_used_tokens / s.kv_capacity_tokens for s in mine if s.kv_capacity_tokens),
            default=0.0,
        )
        oldest_us = self.clock_us() - SAMPLE_AGE_US
        recent = [us for at_us, us in self._token_us.get(group, ()) if at_us >= oldest_us]
        return Load(
            num_in_flight=self._limiter.num_running(group),
            num_running=sum(stats.num_running for stats in mine),
            num_waiting=sum(stats.num_waiting for stats in mine),
            max_num_seqs=sum(stats.max_num_seqs for stats in mine),
            kv_usage=fullest,
            reports=any(stats.kv_capacity_tokens for stats in mine),
            token_us=median(recent) if recent else None,
        )

    def _apply(self, group: BackendGroup) -> None:
        """Shares the group's limit between the tenants that have demand."""
        limit = int(self._capacities[group].limit)
        demand = self._limiter.running_by_tenant(group) + self.waiting.wanting(group)
        claims = {
            name: ShareClaim(
                demand=count,
                weight=weight_of(self.waiting.config, name, tier),
                floor=self.config.floors.get(tier, 0),
                ceiling=self.config.ceilings.get(tier),
            )
            for (name, tier), count in demand.items()
        }
        before = self._shares.get(group, {})
        shares = {
            name: stepped(before.get(name), share, SHARE_STEP)
            for name, share in water_fill(limit, claims).items()
        }
        self._shares[group] = shares
        self._limiter.set_limit(group, limit, shares)
        num_running = self._limiter.num_running(group)
        self.metrics.counts["lanewise_capacity_limit"][(group,)].set(limit)
        self.metrics.counts["lanewise_capacity_inflight"][(group,)].set(num_running)
