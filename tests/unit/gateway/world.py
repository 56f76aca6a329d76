"""Runs whole tasks by a gateway over doubles, and checks what holds after each."""

import itertools
from collections.abc import Callable
from typing import Any

from backends.contract import (
    BackendError,
    BackendGroup,
)
from gateway.core.gateway import DetachedCalls, Gateway, GatewayState
from gateway.core.job import Ended, Job
from gateway.core.waiting_room import WaitingRoom
from gateway.metrics.metrics import Metrics
from gateway.store.ledger_entry import LedgerEntry
from gateway.store.stored_response import Lineage
from gateway.task.pipeline import handle_task
from gateway.wire.errors import ProtocolError
from gateway.wire.response import ResponseStream
from router.classify.task import Tenant
from router.policy.policy import DEFAULT_POLICY
from router.pools.failover_pools import FailoverPools
from router.waiting.rules import WaitingConfig
from tests.e2e.events import TERMINALS, check_event
from tests.unit.gateway.doubles import (
    TENANT,
    AwaitedPools,
    DictStore,
    Transcript,
    parsed_create,
)
from tests.unit.gateway.playing_backend import ANSWER, PlayingBackend, Script

FULL = BackendError("wafer", "server_is_overloaded", "full", retryable=True)


class World:
    """Is a gateway over doubles, and the checks that hold after every task, however it went."""

    def __init__(
        self,
        fast: Script = ANSWER,
        deep: Script = ANSWER,
        *,
        fast_refuses: Exception | None = None,
        deep_refuses: Exception | None = None,
        tenant: Tenant = TENANT,
        waiting: WaitingConfig = WaitingConfig(),  # noqa: B008 - frozen
        pools: AwaitedPools | None = None,
        clock_us: Callable[[], int] | None = None,
    ) -> None:
        self.fast = PlayingBackend("wafer", "fast", fast, refusing=fast_refuses)
        self.deep = PlayingBackend("gpu", "deep", deep, refusing=deep_refuses)
        self.pools = pools or AwaitedPools()
        self.store = DictStore()
        self.tenant = tenant
        clock = itertools.count(1_000_000, 10)
        clock_us = clock_us or (lambda: next(clock))
        self.clock_us = clock_us
        metrics = Metrics(version="", backends=tuple)
        state, detached = GatewayState(DEFAULT_POLICY), DetachedCalls()
        waiting_room = WaitingRoom(
            waiting,
            clock_us=clock_us,
            policy_wait_ms=lambda: state.policy.wait_ms,
            spawn=detached.spawn,
            metrics=metrics,
        )
        self.failover = FailoverPools(
            self.pools,
            clock_us=clock_us,
            on_call=metrics.pools_call,
            on_report=metrics.pools_stand,
            on_settled=waiting_room.settled,
        )
        self.gw = Gateway(
            backends={"wafer": self.fast, "gpu": self.deep},
            pools=self.failover,
            waiting=waiting_room,
            store=self.store,
            state=state,
            metrics=metrics,
            clock_us=clock_us,
            wall_s=lambda: 100,
            record_usage=lambda entry: self.entries.append(entry),
            detached=detached,
        )
        self.entries: list[LedgerEntry] = []
        self.heard = Transcript()
        self.refusals: list[ProtocolError] = []
        self._ids = itertools.count(1)

    def job(self, *, parent: Ended | None = None, **fields: Any) -> Job:
        parsed = parsed_create(f"resp_{next(self._ids):048x}", **fields)
        return Job(
            parsed,
            ResponseStream(parsed, self.heard.emit),
            self.tenant,
            arrived_us=self.clock_us(),
            refuse=self.refusals.append,
            parent=parent.items if parent else None,
            last_backend=parent.backend if parent else None,
            lineage=parent.lineage if parent else Lineage(),
        )

    async def run(self, route: str = "fast", **fields: Any) -> Ended | None:
        """Runs one whole task; metadata names its route."""
        metadata = {"route": route} | fields.pop("metadata", {})
        ended = await handle_task(self.gw, self.job(metadata=metadata, **fields))
        await self.check()
        return ended

    async def check(self) -> None:
        """Checks that nothing is left over, and that everything that began has ended once."""
        await self.gw.detached.settled()
        granted = [reservation.id for reservation in self.pools.granted]
        if self.pools.available:
            settled = sorted(name for name, _ in self.pools.settled)
            assert sorted(granted + self.pools.adopted) == settled, "each once"
        assert len(set(granted)) == len(granted)
        assert self.pools.held(self.tenant) == 0
        self.check_entries()
        assert self.gw.in_use == {}
        assert self.gw.state.num_tasks == 0
        assert self.sample("lanewise_tasks_running") == 0
        for group in ("fast", "deep"):
            assert self.sample("lanewise_ratelimit_leases", group=group) == 0
            assert self.sample("lanewise_ratelimit_reserved_tokens", group=group) == 0
        for generation in self.fast.generations + self.deep.generations:
            assert generation.num_cancels <= 1
        for event in self.heard.events:
            check_event(event)

    def check_entries(self) -> None:
        """Checks that the usage ledger has what was charged, in one entry for each task."""
        costs: dict[str, dict[str, int]] = {}
        for entry in self.entries:
            assert entry.task_id not in costs, "one entry for each task"
            cost = costs.setdefault(entry.task_id, {})
            for line in entry.lines:
                cost[line.group] = cost.get(line.group, 0) + line.cost_units
        charged: dict[str, dict[str, int]] = {}
        for name, tokens in self.pools.settled:
            total = charged.setdefault(name.partition("-")[0], {})  # sub-tasks are named after it
            for group, count in tokens.items():
                total[group] = total.get(group, 0) + count
        for name, total in charged.items():
            if any(total.values()):
                entered = {group: cost for group, cost in costs[name].items() if cost}
                assert entered == {group: count for group, count in total.items() if count}

    def sample(self, name: str, **labels: str) -> float:
        self.gw.metrics.count_observed()
        return self.gw.metrics.registry.get_sample_value(name, labels) or 0.0

    def outcomes(self) -> dict[tuple[str, str], float]:
        """Counts by (route, outcome) the tasks that ended so."""
        self.gw.metrics.count_observed()
        return {
            (sample.labels["route"], sample.labels["outcome"]): sample.value
            for family in self.gw.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "lanewise_requests_total" and sample.value
        }

    @property
    def charged(self) -> list[dict[BackendGroup, int]]:
        return [tokens for _, tokens in self.pools.settled]

    @property
    def charged_in_all(self) -> dict[BackendGroup, int]:
        """Returns the tokens by group, over all settlements."""
        total: dict[BackendGroup, int] = {}
        for tokens in self.charged:
            for group, count in tokens.items():
                total[group] = total.get(group, 0) + count
        return total

    @property
    def refusal(self) -> ProtocolError:
        (error,) = self.refusals
        return error

    @property
    def terminal(self) -> dict[str, Any]:
        (event,) = (event for event in self.heard.events if event["type"] in TERMINALS)
        found: dict[str, Any] = event["response"]
        return found
