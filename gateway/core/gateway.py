"""Holds a gateway's parts, which all tasks share; the composition root makes them once.

This is an edge.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from backends.contract import Backend, BackendGroup, BackendInfo, BackendStats
from gateway.access.key_sessions import KeySessions
from gateway.config.keys import Peppers
from gateway.core.adaptation import Adaptation
from gateway.core.backends import marked
from gateway.core.budget_posts import BudgetNotice
from gateway.core.job import Job
from gateway.core.turn_end import Steps, at_once
from gateway.core.waiting_room import WaitingRoom
from gateway.logs.task_line import TaskLog
from gateway.metrics.metrics import Metrics
from gateway.store.decision_log import Recorder
from gateway.store.ledger_entry import LedgerEntry
from gateway.store.response_store import ResponseStore
from gateway.tracing.tracer import Tracer
from gateway.transport.byte_budgets import Budgets
from gateway.transport.flush_timer import FlushTimer
from gateway.transport.gc_freeze import SocketAges
from gateway.transport.outbox import Outbox
from gateway.wire.sealing import Seals, make_seals
from router.learn.experience import Experience
from router.money.cost import Weights
from router.money.prices import PriceList
from router.policy.policy import Policy
from router.pools.capped_pools import TaskPools
from router.pools.pools import Reservation


@dataclass(slots=True)
class GatewayState:
    """Holds what changes of a gateway while it runs."""

    policy: Policy  # in force; a task reads it once
    shadow: Policy | None = None  # decides too, without effect
    draining: bool = False  # takes nothing new
    num_tasks: int = 0  # between arrival and terminal event
    drained: Collection[str] = ()  # backends that an admin lets have no new tasks


class DetachedCalls:
    """Runs calls to their end, even if their caller is cancelled."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Starts a call that runs to its end."""
        call = asyncio.get_running_loop().create_task(coroutine)  # in C, as every task makes one
        self._under_way.add(call)
        call.add_done_callback(self._under_way.discard)
        return call

    async def settled(self) -> None:
        """Waits until all calls have ended."""
        while self._under_way:
            await asyncio.wait(self._under_way)


@dataclass(slots=True)
class Gateway:
    """Holds the parts and settings that every task uses."""

    backends: Mapping[str, Backend]
    pools: TaskPools
    waiting: WaitingRoom
    store: ResponseStore
    state: GatewayState
    metrics: Metrics
    clock_us: Callable[[], int]  # monotonic: the engines' clock
    wall_s: Callable[[], int]  # Unix time, for response objects
    unix_s: Callable[[], float] = time.time  # with fractions, for arrivals
    key_sessions: KeySessions = field(default_factory=KeySessions)  # the open sessions of each key
    experience: Experience = field(default_factory=Experience)
    record_usage: Callable[[LedgerEntry], None] = lambda _: None  # into the usage ledger
    weights: Weights = field(default_factory=dict)  # of tokens, by group
    prices: PriceList = field(default_factory=PriceList)  # of tokens, by model
    tell_budget: Callable[[BudgetNotice], None] = lambda _: None  # that a budget was met
    max_compactions: int = 2  # automatic ones, of one conversation
    # For compactions; without shared peppers the secret is this process's.
    seals: Seals = field(default_factory=lambda: make_seals(Peppers(), [secrets.token_hex(32)]))
    in_use: dict[str, "ReservationInUse"] = field(default_factory=dict)  # by reservation id
    flush_timer: FlushTimer = field(default_factory=FlushTimer)  # flushes buffered text
    max_unread_bytes: int = 1 << 20  # of text that a client leaves unread
    # Outboxes with a pending write, and how to close each connection.
    outboxes: dict[Outbox, Callable[[], object]] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)  # bytes in memory, by tenant
    socket_ages: SocketAges = field(default_factory=SocketAges)
    adaptation: Adaptation | None = None  # if any group's capacity adapts
    recorder: Recorder | None = None  # the decision log
    task_log: TaskLog | None = None  # takes a line of every task for the process's log
    tracer: Tracer | None = None  # if traces are sent
    warm_up_timeout_s: float = 10.0  # of each warm-up; 0: warm-ups do nothing
    detached: DetachedCalls = field(default_factory=DetachedCalls)
    put_off: Callable[[Steps], None] = at_once  # takes what is noted of a task that has ended
    infos: Mapping[str, BackendInfo] = field(init=False)  # what each backend is now, by name
    # Runs a coroutine to its end, even if the caller is cancelled.
    spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"] = field(init=False)

    def __post_init__(self) -> None:
        self.infos = _Infos(self)
        self.spawn = self.detached.spawn

    @property
    def max_context_tokens(self) -> int:
        """Returns the largest window of any backend."""
        return max([backend.info.window_tokens for backend in self.backends.values()])

    def reseal(self, seals: Seals) -> None:
        """Seals compactions otherwise from now on; those sealed before still open here."""
        self.seals = seals.after(self.seals)

    def backend_stats(self) -> list[BackendStats]:
        """Returns the current stats of all backends."""
        stats, drained = [each.stats() for each in self.backends.values()], self.state.drained
        return marked(stats, drained) if drained else stats


class _Infos(Mapping[str, BackendInfo]):
    """Reads from the backends at each access, since a link's info may change."""

    __slots__ = ("_gateway",)

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def __getitem__(self, name: str) -> BackendInfo:
        return self._gateway.backends[name].info

    def __iter__(self) -> Iterator[str]:
        return iter(self._gateway.backends)

    def __len__(self) -> int:
        return len(self._gateway.backends)


class ReservationInUse(msgspec.Struct):
    """Holds a reservation, to be extended as its task grows, and what its job's heartbeat needs."""

    reservation: Reservation  # as the latest extension left it
    job: Job
    used: Callable[[], Mapping[BackendGroup, int]]  # weighted tokens so far, by group
    # Groups to be released, and the tokens used of each.
    over: dict[BackendGroup, int] = {}
    is_changing: bool = False  # a call to the pools is pending
    num_events: int = 0  # the writer's, at the last heartbeat
