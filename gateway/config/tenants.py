"""Defines tiers and tenants, and resolves a tenant's limits from its tier's and its own."""

import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from backends.contract import BackendGroup
from gateway.config.budgets import Budgets, with_budgets
from router.classify.task import TENANT_ID, Account, GroupLimits, StorePolicy, Tenant

MAX_LIMIT = 1_000_000_000_000  # per minute the pools count to 1e9, per day further
MAX_WEIGHT = 1_000
MAX_LISTED = 1_000  # tenants, or their keys, that the admin API lists at once
WHOLE_PERCENT = 100  # of the limits: there is one site

TIER_NAME = re.compile(r"[a-z0-9_-]{1,32}")  # a metric label

Weight = Annotated[float, Meta(gt=0, le=MAX_WEIGHT)]
Limit = Annotated[int, Meta(ge=0, le=MAX_LIMIT)]


class KeyLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits what one key may use of a group; None: as much as its tenant."""

    requests_per_min: Limit | None = None
    tokens_per_min: Limit | None = None
    max_concurrent: Limit | None = None
    tokens_per_day: Limit | None = None  # of the UTC day


LimitsOfKey = dict[BackendGroup, KeyLimits]


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """Sets limits and weight of its tenants, which may not use a group without limits."""

    limits: dict[BackendGroup, GroupLimits] = {}
    weight: Weight = 1.0  # share when tenants wait for the same engines
    budgets: Budgets = {}  # in money
    key_limits: LimitsOfKey = {}  # of each key of its tenants


class TierConfig(Tier, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Is a tier as people write it, where a wrong name fails; a stored tier may have more."""


class TenantTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Is what a tenant has of its own beside its limits, however it is written down."""

    access: tuple[BackendGroup, ...] | None = None  # only these groups; None: all of the limits'
    weight: Weight | None = None  # None: the tier's
    store: StorePolicy = "asked"  # never: its responses are stored nowhere, whatever it asks
    budgets: Budgets = {}  # in money, each instead of the tier's
    key_limits: LimitsOfKey = {}  # of each of its keys, by group instead of the tier's


class TenantRecord(TenantTerms, frozen=True, kw_only=True, omit_defaults=True):
    """Names a tenant's tier, and what it has of its own where that differs."""

    id: str
    tier: str
    # Instead of the tier's.
    limits: dict[BackendGroup, dict[str, Limit | None]] = msgspec.field(default_factory=dict)
    created_s: int = 0


def _limits(requests_per_min: int, tokens_per_min: int, max_concurrent: int) -> GroupLimits:
    return GroupLimits(
        requests_per_min=requests_per_min,
        tokens_per_min=tokens_per_min,
        max_concurrent=max_concurrent,
    )


# The tiers of a configuration that names none; the fast engine begins at `pro`.
DEFAULT_TIERS: dict[str, TierConfig] = {
    "free": TierConfig(limits={"deep": _limits(20, 40_000, 2)}),
    "pro": TierConfig(
        limits={"fast": _limits(600, 2_000_000, 32), "deep": _limits(120, 400_000, 8)}, weight=4.0
    ),
    "enterprise": TierConfig(
        limits={"fast": _limits(6_000, 20_000_000, 256), "deep": _limits(1_200, 4_000_000, 64)},
        weight=16.0,
    ),
}


def resolve(record: TenantRecord, tiers: Mapping[str, Tier]) -> Tenant:
    """Resolves a tenant's limits; a group with incomplete limits is not allowed."""
    tier = tiers.get(record.tier, Tier())
    limits: dict[BackendGroup, GroupLimits] = {}
    for group in (*tier.limits, *(g for g in record.limits if g not in tier.limits)):
        if record.access is not None and group not in record.access:
            continue
        merged = _merged(tier.limits.get(group), record.limits.get(group, {}))
        if isinstance(merged, GroupLimits):
            limits[group] = merged
    weight = tier.weight if record.weight is None else record.weight
    tenant = Tenant(
        id=record.id,
        tier=record.tier,
        limits=limits,
        weight=weight,
        store=record.store,
        limits_per_key=_within({**tier.key_limits, **record.key_limits}, limits),
    )
    budgets = {**tier.budgets, **record.budgets}
    return with_budgets(tenant, budgets) if budgets else tenant


def part_of(tenant: Tenant, percent: int) -> Tenant:
    """Returns a tenant with one site's part of its limits and budgets."""
    if percent == WHOLE_PERCENT:
        return tenant
    limits = {group: _part_of_limits(whole, percent) for group, whole in tenant.limits.items()}
    return msgspec.structs.replace(
        tenant,
        limits=limits,
        limits_per_key={
            group: _part_of_limits(each, percent) for group, each in tenant.limits_per_key.items()
        },
        accounts=tuple(_part_of_account(account, percent) for account in tenant.accounts),
        key_account=tenant.key_account and _part_of_account(tenant.key_account, percent),
        run_account=tenant.run_account and _part_of_account(tenant.run_account, percent),
    )


def part(limit: int, percent: int) -> int:
    """Returns one site's part of a limit, rounded down; of at least one it is at least one."""
    return limit if limit <= 0 else max(1, limit * percent // WHOLE_PERCENT)


def _part_of_limits(whole: GroupLimits, percent: int) -> GroupLimits:
    fields = msgspec.structs.asdict(whole).items()
    parts = {name: None if limit is None else part(limit, percent) for name, limit in fields}
    return msgspec.structs.replace(whole, **parts)


def _part_of_account(account: Account, percent: int) -> Account:
    hard, soft = (
        (part(day, percent), part(month, percent), part(ever, percent))
        for day, month, ever in (account.hard, account.soft)
    )
    return msgspec.structs.replace(account, hard=hard, soft=soft)


def for_key(
    tenant: Tenant, key_id: str, own: LimitsOfKey | None = None, percent: int = WHOLE_PERCENT
) -> Tenant:
    """Returns a tenant as one of its keys has it.

    Args:
        own: The key's own limits, which replace by group what each key of the tenant gets.
        percent: This site's part of `own`; `tenant` has its part already.
    """
    limits = tenant.limits_per_key
    if own:
        limits = limits | _within(own, tenant.limits, percent)
    if tenant.key_account is None:
        return msgspec.structs.replace(tenant, key_id=key_id, key_limits=limits)
    account = msgspec.structs.replace(tenant.key_account, name=f"k.{key_id}")
    accounts = (*tenant.accounts, account)
    return msgspec.structs.replace(tenant, key_id=key_id, key_limits=limits, accounts=accounts)


def _within(
    own: LimitsOfKey, limits: Mapping[BackendGroup, GroupLimits], percent: int = WHOLE_PERCENT
) -> dict[BackendGroup, GroupLimits]:
    """Fills in a key's limits from its tenant's, in groups that this may use."""
    return {
        group: GroupLimits(
            requests_per_min=_first(
                of_key.requests_per_min, limits[group].requests_per_min, percent
            ),
            tokens_per_min=_first(of_key.tokens_per_min, limits[group].tokens_per_min, percent),
            max_concurrent=_first(of_key.max_concurrent, limits[group].max_concurrent, percent),
            tokens_per_day=None
            if of_key.tokens_per_day is None
            else part(of_key.tokens_per_day, percent),
        )
        for group, of_key in own.items()
        if group in limits and of_key != KeyLimits()
    }


def _first(limit: int | None, otherwise: int, percent: int) -> int:
    return otherwise if limit is None else part(limit, percent)


class FieldFault(NamedTuple):
    """Says what is wrong with a tenant or a tier, and what to do."""

    field: str | None  # its path; None: the name of a tier, which is no field of it
    says: str


def fault_of(record: TenantRecord, tiers: Mapping[str, Tier]) -> FieldFault | None:
    """Returns what is wrong with a tenant; None if it is valid."""
    if not TENANT_ID.fullmatch(record.id):
        return FieldFault("id", f"tenant id {record.id[:80]!r} must be 1 to 64 of a-z, 0-9 and '-'")
    tier = tiers.get(record.tier)
    if tier is None:
        known = ", ".join(sorted(tiers))
        return FieldFault("tier", f"no tier {record.tier[:80]!r}: expected one of {known}")
    for group, changes in record.limits.items():
        merged = _merged(tier.limits.get(group), changes)
        if isinstance(merged, str):
            return FieldFault(f"limits.{group}", f"limits.{group}: {merged}")
    return None


def fault_of_tier(name: str, tier: Tier) -> FieldFault | None:
    """Returns what is wrong with a tier; None if it is valid."""
    if not TIER_NAME.fullmatch(name):
        return FieldFault(None, f"tier {name[:80]!r} must be 1 to 32 of a-z, 0-9, '_' and '-'")
    return fault_of_limits(tier.limits)


def fault_of_limits(limits: Mapping[BackendGroup, GroupLimits]) -> FieldFault | None:
    """Returns which limit the pools cannot count, and why; None if they can count all."""
    for group, of_group in limits.items():
        for field, value in msgspec.structs.asdict(of_group).items():
            if isinstance(value, int) and not 0 <= value <= MAX_LIMIT:
                at = f"limits.{group}.{field}"
                return FieldFault(at, f"{at}: expected 0 to {MAX_LIMIT}, got {value}")
    return None


def _merged(base: GroupLimits | None, changes: Mapping[str, int | None]) -> GroupLimits | str:
    """Merges a tenant's limits into its tier's, or returns why that fails."""
    unknown = sorted(set(changes) - set(GroupLimits.__struct_fields__))
    if unknown:
        known = ", ".join(GroupLimits.__struct_fields__)
        return f"no limit {unknown[0][:80]!r}: expected some of {known}"
    if base is not None:
        for name, limit in changes.items():
            if limit is None and name != "tokens_per_day":
                return f"{name} cannot be none, as tokens_per_day alone can: give a number"
    fields = {} if base is None else msgspec.structs.asdict(base)
    try:
        return msgspec.convert({**fields, **changes}, GroupLimits)
    except msgspec.ValidationError as error:
        return f"the tier has none for this group, so all must be given ({error})"
