"""Defines a decision: the ranked routes, and the chosen one or the refusal."""

import enum
from collections.abc import Callable
from typing import Any

import msgspec

from backends.contract import BackendGroup
from router.classify.task import Route, TaskClass
from router.pools.budgets import AccountBalance
from router.pools.pools import Balance, PoolsMode, Reservation, Unit
from router.strategies.record import NO_OPTIONS, StrategyOptions, StrategyRecord
from router.strategies.table import RECORDS


class Reason(enum.StrEnum):
    """Names the kind of rule that put a route first; a closed set, for metrics."""

    MODEL = "model"  # the client's model pins a backend
    HINT = "hint"  # metadata, service_tier or reasoning.effort
    RULE = "rule"  # a rule of the policy; `RankedRoute.rule` names it
    STICKY = "sticky"  # it stays where it is: mid-task, or the KV prefix is there
    CLASS = "class"  # the classifier, and what else is known of the task
    EVIDENCE = "evidence"  # what happened: an answer did not do, a run is stuck, or goes well
    DEADLINE = "deadline"  # only there is the answer in time
    EXPLORE = "explore"  # an uncertain task that tries one engine alone, to learn from
    SECURITY = "security"  # security-sensitive work goes deep
    WINDOW = "window"  # only there does the context fit
    IMAGES = "images"  # only there are images, or files, taken
    ACCESS = "access"  # the tenant has no other
    FALLBACK = "fallback"  # better ones were full or down


class RankedRoute(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Describes one way to run a task; `backends` has one name per group, fast first."""

    route: Route
    backends: tuple[str, ...]
    strategy: str | None  # PARALLEL only
    reason: Reason
    why: str  # one sentence for people
    options: StrategyOptions = NO_OPTIONS  # of the strategy
    rule: str | None = None  # the policy's rule that asked for it, if one did
    canary: bool = False  # that rule takes a share of the conversations only
    control: bool = False  # a rule before it left the task for such a share: the canary's control
    # For each of `backends`, others of its group that can take the task too, best first.
    spares: tuple[tuple[str, ...], ...] = ()
    # Of all groups, those that may go on with an answer once it has begun, best of each first.
    stand_ins: tuple[str, ...] = ()

    def tuned(self, first_words_us: Callable[[str], float | None]) -> "RankedRoute":
        """Returns it with what its strategy measures, by backend, filled in."""
        tuned = RECORDS[self.strategy].tuned
        if tuned is None:
            return self
        options = tuned(self.options, lambda index: first_words_us(self.backends[index]))
        return msgspec.structs.replace(self, options=options)

    @property
    def record(self) -> StrategyRecord[Any]:
        """Returns the record of its strategy."""
        return RECORDS[self.strategy]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Says why a task was not admitted, as a protocol error."""

    code: str  # the protocol's: rate_limit_exceeded, context_length_exceeded, ...
    message: str
    param: str | None = None
    retry_after_us: int | None = None  # until the same request would be admitted; None: never
    limited_by: tuple[BackendGroup, Unit] | None = None  # the pool that refused, if one did


class ShadowChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the route that the shadow policy ranked first."""

    policy_version: str
    route: Route
    strategy: str | None
    rule: str  # the rule's name, else the reason


class RouteDecision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Holds a decision: either `chosen` with its reservation, or `refusal`."""

    task_id: str
    task_class: TaskClass
    ranked: tuple[RankedRoute, ...]
    policy_version: str
    chosen: RankedRoute | None = None
    reservation: Reservation | None = None
    balances: tuple[Balance, ...] = ()  # of the pools asked, after the reservation or refusal
    accounts: tuple[AccountBalance, ...] = ()  # the task's budgets, before it ran
    mode: PoolsMode = "redis"  # whose pools these are
    refusal: Refusal | None = None
    shadow: ShadowChoice | None = None
