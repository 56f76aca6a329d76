"""Defines the `routing` field of a response, which says where it ran and why.

A key with a default is left out of the JSON where it has that. The comment of each field is what
the SDKs and docs/protocol.md say of it: `make sdk` writes both.
"""

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from backends.contract import BackendGroup
from gateway.wire.output_items import ResponseUsage
from router.classify.task import Label, Route
from router.decide.decision import Reason
from router.pools.budget_use import BudgetUse
from router.pools.pools import GROUPS, Balance, PoolsMode, Unit

Band = Literal["sharp", "drift", "compaction_likely", "compaction_certain"]
CompactionState = Literal["running", "done", "failed", "limit_reached", "nothing_to_fold"]
WarmUpState = Literal["warming", "held", "opened", "declined", "limited", "cut", "failed"]


class RoutedBackend(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Describes a backend that works on the response."""

    name: str  # its name in the gateway's configuration
    group: BackendGroup  # the group of engines that it belongs to
    model: str  # the model id that pins this backend
    simulated: bool  # whether a simulated engine answers, and no real one
    # of a simulated engine: whose speed it has if it was not measured, and how far off that may be
    speed_basis: str = ""


class RoutedClass(msgspec.Struct, frozen=True, gc=False):
    """Says how the task was classified."""

    label: Label  # the kind of engine that it needs by its words, as `p_deep` says
    p_deep: float  # probability, from 0 to 1, that the deep engine is needed, by its words
    p_security: float  # probability that the task is security-sensitive
    signals: tuple[str, ...]  # the signals that counted, strongest first


class PoolBalance(msgspec.Struct, frozen=True, gc=False):
    """Says what is left in one of the tenant's pools."""

    group: BackendGroup  # the group of engines that the pool limits
    unit: Unit  # what the pool counts
    limit: int  # the most per minute or day; of `concurrent`, the most at once
    remaining: int  # how much may still be taken
    reset_s: float  # seconds until the pool is full again


def pool_balances(
    balances: Iterable[Balance], groups: Collection[BackendGroup] = GROUPS
) -> tuple[PoolBalance, ...]:
    """Lists what is left in the pools of these groups."""
    return tuple(
        [
            PoolBalance(each.group, each.unit, each.limit, each.remaining, each.reset_us / 1e6)
            for each in balances
            if each.group in groups
        ]
    )


class ContextUse(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Says how full the context window is."""

    used_tokens: int  # tokens of prompt and output together
    window_tokens: int  # the smallest window of the route
    used_percent: float  # used share of the window
    band: Band  # what to expect: below 30 %, 60 %, 80 % of the window, or beyond
    crossed_from: Band | None = None  # the band before, where this turn led into another


class RoutedFailover(msgspec.Struct, frozen=True, gc=False):
    """Tells that a backend failed before its first word, and that another began again."""

    from_backend: str = msgspec.field(name="from")  # the backend that failed
    to: str  # the backend that took over
    error: str  # what was wrong with the first


class RoutedContinuation(msgspec.Struct, frozen=True, gc=False):
    """Tells that a backend broke off or fell silent amid its answer, and that another went on."""

    from_backend: str = msgspec.field(name="from")  # the backend that broke off
    to: str  # the backend that went on
    at_chars: int  # characters of the answer that had been said
    at_tokens: int  # tokens that had been generated, reasoning included
    reason: Literal["broke", "stalled"]  # whether it ended, or was silent for too long
    error: str  # what was wrong, for people


class RoutedDelegation(msgspec.Struct, frozen=True, gc=False):
    """Describes a sub-task of the strategy `delegate`."""

    id: str  # steer or cancel the sub-task by it
    task: str  # what the deep engine was asked
    state: str  # `running`, `finished`, `failed` or `cancelled`


class RoutedCompaction(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Says what became of the compaction before the answer."""

    state: CompactionState  # how far the compaction is; docs/context.md explains each
    number: int  # which automatic compaction of the conversation it is, from 1
    max_per_conversation: int  # the most automatic compactions of a conversation
    threshold_tokens: int  # a longer prompt is compacted
    tokens_before: int  # tokens of the prompt as it came
    tokens_after: int | None = None  # tokens of the compacted prompt
    error: str | None = None  # why there is no summary
    usage: dict[str, ResponseUsage] | None = None  # what the summary took, by backend


class RoutedGeneration(msgspec.Struct, frozen=True, gc=False):
    """Describes one generation of a strategy."""

    backend: str  # the backend that generated
    part: str  # its part in the strategy; docs/strategies.md names them
    state: str  # `finished`, `cancelled` or `failed`
    input_tokens: int  # tokens of its prompt
    cached_tokens: int  # those of them that a KV cache held
    output_tokens: int  # tokens that it generated, reasoning included
    reasoning_tokens: int  # those of them that were reasoning


class RoutedCost(msgspec.Struct, frozen=True, gc=False):
    """Says what a response costs."""

    amount: float  # by the prices of the day that it ended on
    currency: str  # `USD`


class RoutedVariations(msgspec.Struct, frozen=True, gc=False):
    """Counts the variations that `breadth` made."""

    asked: int  # variations that were begun
    whole: int  # variations that came to their end


class RoutedWarmUp(msgspec.Struct, frozen=True, gc=False):
    """Says how far one backend is ready after a warm-up."""

    backend: str  # the backend's name
    state: WarmUpState  # how ready it is; explained under warm-ups
    held_tokens: int  # tokens of the context that its KV cache holds now
    cached_tokens: int  # those of them that it held before


class RoutedRejoin(msgspec.Struct, frozen=True, gc=False):
    """Tells that a client came back to the response after its connection was lost."""

    times: int  # how often it came back
    held_items: int  # finished items of the output that it held, and was not sent again
    away_ms: int  # how long nobody listened, the last time


class Routing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Says where a response ran and why."""

    route: Route  # where the task went
    strategy: str | None  # how both engines work together; null with one engine
    backends: tuple[RoutedBackend, ...]  # those that work on it, as failovers have left them
    task_class: RoutedClass = msgspec.field(name="class")  # how the task was classified
    reason: Reason  # the kind of rule that put this route first
    why: str  # the same in one sentence, for people
    policy_version: str  # the policy that decided
    pools: tuple[PoolBalance, ...]  # what is left in the tenant's pools of this route
    ratelimit_mode: PoolsMode  # `degraded` while Redis is away and the gateway limits by itself
    context: ContextUse  # how full the context window is
    budgets: tuple[BudgetUse, ...] = ()  # what is left of the task's budgets in money
    moved_from: str | None = None  # the backend that held the conversation, where this is another
    failovers: tuple[RoutedFailover, ...] = ()  # backends that others stood in for
    # answers that broke off, and that others went on with
    continued: tuple[RoutedContinuation, ...] = ()
    # the sub-tasks of `delegate`; `response.in_progress` comes again when one changes
    delegations: tuple[RoutedDelegation, ...] | None = None
    compaction: RoutedCompaction | None = None  # where `context_management` applied
    # at the end: what each backend used, over all generations; this is what is charged
    usage: dict[str, ResponseUsage] | None = None
    cost: RoutedCost | None = None  # at the end: of that usage; missing where a model has no price
    # at the end: of that usage, in engines alone; missing where one's power is not known
    energy_joules: float | None = None
    answered_by: str | None = None  # at the end: the backend whose answer this is
    errors: tuple[str, ...] = ()  # at the end: what failed, although there is an answer
    generations: tuple[RoutedGeneration, ...] | None = None  # at the end: those of a strategy
    variations: RoutedVariations | None = None  # at the end: how many `breadth` made
    rejoined: RoutedRejoin | None = None  # where the client lost its connection and came back
    warm: tuple[RoutedWarmUp, ...] | None = None  # after a warm-up: how ready each backend is


class Unrouted(msgspec.Struct, frozen=True, gc=False):
    """Is `routing` of a response that ended by a fault of the gateway: nothing is said."""
