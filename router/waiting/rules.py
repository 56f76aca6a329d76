"""Configures which tasks wait for a full pool, how long, and by what weight."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from backends.contract import BackendGroup
from router.classify.task import Task
from router.pools.pools import KEY_UNITS, Grant
from router.waiting.capacity import CapacityBounds
from router.waiting.fair_queue import Block

MAX_WAIT_MS = 60_000  # HTTP clients and balancers give up on silence soon after

WaitMs = Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)]
Weight = Annotated[int, Meta(ge=1, le=1_000)]
Slots = Annotated[int, Meta(ge=1, le=1_000)]  # tasks at once
Waits = dict[BackendGroup, WaitMs]


class WaitingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configures waiting, which is off by default, as clients of OpenAI expect a refusal at once.

    The longest wait for a group is the tenant's, else its tier's, else the policy's `wait_ms`, else
    this one's.
    """

    wait_ms: Waits = {}  # the longest wait for each group
    tiers: dict[str, Waits] = {}
    tenants: dict[str, Waits] = {}
    weights: dict[str, Weight] = {}  # tier -> share while others wait; 1 where nothing is said
    tenant_weights: dict[str, Weight] = {}
    max_waiting: Annotated[int, Meta(ge=1, le=10_000)] = 256  # tasks per group and process
    max_waiting_per_tenant: Annotated[int, Meta(ge=1, le=10_000)] = 64


class AdaptationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configures which groups adapt, and tenants' bounds; weights are those of waiting."""

    groups: dict[BackendGroup, CapacityBounds] = {}  # others have no limit of their own
    floors: dict[str, Slots] = {}  # tier -> that each of its tenants can have
    ceilings: dict[str, Slots] = {}  # tier -> that each can have at most while others wait


def longest_wait_us(
    config: WaitingConfig,
    policy_wait_ms: Mapping[BackendGroup, int],
    task: Task,
    group: BackendGroup,
    now_us: int,
) -> int:
    """Returns how long a task may wait from now (0: not at all); its own bounds only shorten it."""
    if not task.generate:
        return 0  # a warm-up is of no use later
    tenant = task.tenant
    waits = (
        config.tenants.get(tenant.id, {}),
        config.tiers.get(tenant.tier, {}),
        policy_wait_ms,
        config.wait_ms,
    )
    wait_us = next((each[group] for each in waits if group in each), 0) * 1_000
    for bound_us in (task.hints.deadline_us, task.hints.max_wait_us):
        if bound_us is not None:
            wait_us = min(wait_us, task.arrived_us + bound_us - now_us)
    return max(0, wait_us)


def weight_of(config: WaitingConfig, tenant_id: str, tier: str, own: float = 1.0) -> int:
    """Returns a tenant's weight: as configured for waiting, else its `own`, rounded."""
    configured = config.tenant_weights.get(tenant_id) or config.weights.get(tier)
    return configured or max(1, round(own))


def is_of_key(grant: Grant) -> bool:
    """Says whether a key's own limits refused; for those nobody waits in its tenant's line."""
    return grant.limited_by is not None and grant.limited_by[1] in KEY_UNITS


def block_of(grant: Grant) -> Block:
    """Returns why a grant was refused, and the refill of the pool that refused it."""
    assert grant.limited_by is not None, "a refused grant names its pool"
    group, unit = grant.limited_by
    limits = (b.limit for b in grant.balances if (b.group, b.unit) == (group, unit))
    per_min = next(limits, 0) if unit in ("requests", "tokens") else 0
    return Block(wait_us=grant.wait_us, unit=unit, per_min=per_min)
