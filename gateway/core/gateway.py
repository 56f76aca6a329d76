"""The gateway's parts as every task sees them; made once by the composition root.

An edge: it uses the event loop and the clock.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from backends.contract import Backend, BackendGroup, BackendInfo, BackendStats
from gateway.access.key_sessions import KeySessions
from gateway.config.keys import Peppers
from gateway.core.adaptation import Adaptation
from gateway.core.job import Job
from gateway.core.waiting_room import WaitingRoom
from gateway.metrics.metrics import Metrics
from gateway.store.decision_log import Recorder
from gateway.store.ledger_entry import LedgerEntry
from gateway.store.response_store import ResponseStore
from gateway.transport.flush_timer import FlushTimer
from gateway.transport.gc_freeze import SocketAges
from gateway.transport.outbox import Outbox
from gateway.wire.sealing import Seals, make_seals
from router.decide.concurrency_limiter import ConcurrencyLimiter
from router.learn.experience import Experience
from router.policy.policy import Policy
from router.pools.capped_pools import TaskPools
from router.pools.cost import Weights
from router.pools.pools import Reservation


@dataclass(slots=True)
class GatewayState:
    """What changes while a gateway runs: all else is as it was made."""

    policy: Policy  # in force; a task reads it once
    shadow: Policy | None = None  # decides too, without effect
    draining: bool = False  # takes nothing new
    num_tasks: int = 0  # between arrival and terminal event


class DetachedCalls:
    """Calls that must end even if whoever made them is cancelled."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run one to its end."""
        call = asyncio.create_task(coroutine)
        self._under_way.add(call)
        call.add_done_callback(self._under_way.discard)
        return call

    async def settled(self) -> None:
        """Wait until all have ended."""
        while self._under_way:
            await asyncio.wait(self._under_way)


@dataclass(slots=True)
class Gateway:
    """What every task needs."""

    backends: Mapping[str, Backend]
    pools: TaskPools
    waiting: WaitingRoom
    store: ResponseStore
    state: GatewayState
    metrics: Metrics
    clock_us: Callable[[], int]  # monotonic: the engines' clock
    wall_s: Callable[[], int]  # Unix time, for the protocol's objects
    unix_s: Callable[[], float] = time.time  # the same with its fractions: when a task came
    key_sessions: KeySessions = field(default_factory=KeySessions)  # who works under which key
    experience: Experience = field(default_factory=Experience)
    record_usage: Callable[[LedgerEntry], None] = lambda _: None  # into the usage ledger
    weights: Weights = field(default_factory=dict)  # what tokens cost, by group
    max_compactions: int = 2  # automatic ones, of one conversation
    # What compactions are sealed with; without the fleet's peppers a secret of this process.
    seals: Seals = field(default_factory=lambda: make_seals(Peppers(), [secrets.token_hex(32)]))
    live: dict[str, "Live"] = field(default_factory=dict)  # reservation id -> its holder
    flush_timer: FlushTimer = field(default_factory=FlushTimer)  # when gathered text goes out
    # Those that may stand still, and how to cut each.
    outboxes: dict[Outbox, Callable[[], None]] = field(default_factory=dict)
    socket_ages: SocketAges = field(default_factory=SocketAges)
    adaptation: Adaptation | None = None  # where any group's capacity follows demand
    recorder: Recorder | None = None  # the decision log
    warm_up_timeout_s: float = 10.0  # then a warm-up ends with what it has; 0: none does anything
    detached: DetachedCalls = field(default_factory=DetachedCalls)

    @property
    def infos(self) -> Mapping[str, BackendInfo]:
        """What each backend is now."""
        return _Infos(self.backends)

    @property
    def max_context_tokens(self) -> int:
        """The largest window of any backend."""
        return max(backend.info.window_tokens for backend in self.backends.values())

    def backend_stats(self) -> list[BackendStats]:
        """One snapshot of all backends."""
        return [backend.stats() for backend in self.backends.values()]

    @property
    def limiter(self) -> ConcurrencyLimiter:
        """How many tasks run on each group, and who may start one more."""
        return self.waiting.limiter

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run something that must end even if who asked for it is cancelled."""
        return self.detached.spawn(coroutine)


class _Infos(Mapping[str, BackendInfo]):
    """Read from the backends when asked: over a link it may change."""

    __slots__ = ("_backends",)

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = backends

    def __getitem__(self, name: str) -> BackendInfo:
        return self._backends[name].info

    def __iter__(self) -> Iterator[str]:
        return iter(self._backends)

    def __len__(self) -> int:
        return len(self._backends)


@dataclass(slots=True)
class Live:
    """A reservation in use: extended while it lives, and its client kept awake."""

    reservation: Reservation  # as the latest extension left it
    job: Job
    used: Callable[[], Mapping[BackendGroup, int]]  # weighted tokens so far, by group
    # Groups that have done their part, and what was used of them: to be released now.
    over: dict[BackendGroup, int] = field(default_factory=dict)
    is_changing: bool = False  # a call about it is under way
    num_events: int = 0  # the writer's, at the last heartbeat
