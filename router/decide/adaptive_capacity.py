"""Moves each group's concurrency limit and its tenants' shares with the load, a step at a time."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from statistics import median

from backends.contract import BackendGroup, BackendStats
from router.decide.concurrency_limiter import ConcurrencyLimiter
from router.waiting.capacity import Capacity, Direction, Load, first_capacity, step
from router.waiting.fair_share import ShareClaim, stepped, water_fill
from router.waiting.rules import AdaptationConfig, WaitingConfig, weight_of

STEP_US = 1_000_000  # between two steps
SHARE_STEP = 0.25  # of a share, per step
SAMPLES_KEPT = 32  # times per output token, of the tasks that ended last
SAMPLE_AGE_US = 10_000_000

Wanting = Callable[[BackendGroup], Counter[tuple[str, str]]]  # waiting tasks by tenant and tier


class AdaptiveCapacity:
    """Reads the load and sets the limiter's limits; `step` once every `STEP_US`."""

    def __init__(
        self,
        config: AdaptationConfig,
        waiting: WaitingConfig,
        limiter: ConcurrencyLimiter,
        wanting: Wanting,
        stats: Sequence[BackendStats],
        now_us: int,
    ) -> None:
        """Sets the first limits at once, so that no burst comes before them."""
        self._config = config
        self._waiting = waiting
        self._limiter = limiter
        self._wanting = wanting
        self._capacities: dict[BackendGroup, Capacity] = {}
        self._shares: dict[BackendGroup, dict[str, int]] = {}
        self._token_us: dict[BackendGroup, deque[tuple[int, float]]] = {
            group: deque(maxlen=SAMPLES_KEPT) for group in config.groups
        }
        for group, bounds in config.groups.items():
            self._capacities[group] = first_capacity(bounds, self._load(group, stats, now_us))
            self._apply(group)

    def observe(self, group: BackendGroup, token_us: float | None, now_us: int) -> None:
        """Notes the time per output token of a task that ended."""
        samples = self._token_us.get(group)
        if samples is not None and token_us is not None:
            samples.append((now_us, token_us))

    def step(self, group: BackendGroup, stats: Sequence[BackendStats], now_us: int) -> Direction:
        """Moves a group's limit by at most one step, and shares it out; returns where it moved."""
        load = self._load(group, stats, now_us)
        direction = step(self._capacities[group], load, self._config.groups[group], now_us)
        self._apply(group)
        return direction

    def limit(self, group: BackendGroup) -> int:
        """Returns a group's limit."""
        return int(self._capacities[group].limit)

    def _load(self, group: BackendGroup, stats: Sequence[BackendStats], now_us: int) -> Load:
        mine = [each for each in stats if each.info.group == group and each.takes_tasks]
        fullest = max(
            (s.kv_used_tokens / s.kv_capacity_tokens for s in mine if s.kv_capacity_tokens),
            default=0.0,
        )
        oldest_us = now_us - SAMPLE_AGE_US
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
        limit = self.limit(group)
        demand = self._limiter.running_by_tenant(group) + self._wanting(group)
        claims = {
            name: ShareClaim(
                demand=count,
                weight=weight_of(self._waiting, name, tier),
                floor=self._config.floors.get(tier, 0),
                ceiling=self._config.ceilings.get(tier),
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
