"""Encodes calls of `pools.lua` and decodes its replies, in the format that its head describes."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Literal

import msgspec

from backends.contract import BackendGroup
from router.classify.task import TENANT_ID, Account, Tenant
from router.pools.budgets import AccountBalance, parse_hold
from router.pools.pools import (
    GROUPS,
    KEY_UNITS,
    TENANT_UNITS,
    UNITS,
    Balance,
    Demand,
    Grant,
    Reservation,
    Unit,
    balances_from,
    hold_of,
    lease_of,
    most_nusd,
)

MAX_RANKED = 8  # ranked demands in one call
MAX_RENEWED = 200  # leases in one call
MAX_CACHED = 10_000  # tenants whose keys are cached

SCRIPT = resources.files(__package__).joinpath("pools.lua").read_text()
NUM_KEYS = 5

Arguments = tuple[str | int, ...]  # the keys, then the script's ARGV

_STATE_FIELDS = 10
_STATES = tuple((index * _STATE_FIELDS, group) for index, group in enumerate(GROUPS))  # where
_REMEMBERED = "!"  # before how long a settlement is
_MONEY = "$"  # before money
_KEY = "#"  # before a key and its limits
_KEY_SIZE = 10  # of the key, its limits and the sign before them
_BUDGET = 100  # a reply's `limited_by` is higher where a budget refused
_OPERATION = NUM_KEYS  # where a call has it
_TOKENS = NUM_KEYS + 12  # where a reservation has the tokens of its ranked demands, after its id


@lru_cache(MAX_CACHED)
def tenant_keys(tenant_id: str) -> tuple[str, str, str, str, str]:
    """Returns the script's keys, whose hash tag keeps them in one slot of a Cluster."""
    if not TENANT_ID.fullmatch(tenant_id):
        # Anything else could name another tenant's keys, or leave the hash tag.
        raise ValueError(f"a tenant id matches {TENANT_ID.pattern}; got {tenant_id[:80]!r}")
    tag = f"lw1:{{{tenant_id}}}:"
    return f"{tag}lease", f"{tag}p:fast", f"{tag}p:deep", f"{tag}spend", f"{tag}runs"


def reserve_call(
    tenant: Tenant,
    reservation_id: str,
    ranked_demands: Sequence[tuple[Demand, ...]],
    lease_ms: int,
    now_ms: int = 0,
    *,
    operation: Literal["reserve", "adopt"] = "reserve",
    held_nusd: int | None = None,
) -> Arguments:
    """Encodes a reservation; `now_ms` 0 means the server's clock, here and below.

    `held_nusd` is the money of an adoption, whose demands may have changed since.
    """
    assert 1 <= len(ranked_demands) <= MAX_RANKED, f"1 to {MAX_RANKED} ranked demands"
    tokens: list[int] = []
    for demands in ranked_demands:
        fast = deep = -1
        for demand in demands:
            if demand.group == "fast":
                fast = demand.tokens
            else:
                deep = demand.tokens
        tokens += (fast, deep)
    asked: Arguments = (
        *tenant_keys(tenant.id),
        operation,
        now_ms,
        lease_ms,
        *tenant.pool_limits,
        reservation_id,
        *tokens,
    )
    if tenant.key_limits:
        asked = (*asked, _KEY, tenant.key_id, *tenant.key_pool_limits)
    if not tenant.accounts:
        return asked
    bounds = map(most_nusd, ranked_demands) if held_nusd is None else (held_nusd,)
    money: list[str | int] = [_MONEY, *bounds]
    for account in tenant.accounts:
        money += (account.name, *account.hard, *account.soft)
    return (*asked, *money)


def adopt_call(
    tenant: Tenant, reservation: Reservation, lease_ms: int, now_ms: int = 0
) -> Arguments:
    """Encodes the adoption of what was granted elsewhere."""
    ranked = [reservation.demands]
    held_nusd, _ = parse_hold(reservation.lease)
    return reserve_call(
        tenant,
        reservation.id,
        ranked,
        lease_ms,
        now_ms,
        operation="adopt",
        held_nusd=held_nusd,
    )


def extend_call(reservation: Reservation, lease_ms: int, now_ms: int = 0) -> Arguments:
    """Encodes the extension to a reservation made by `extended` or `shrunk`."""
    assert reservation.former is not None, "nothing was extended"
    head = (*tenant_keys(reservation.tenant_id), "extend", now_ms, lease_ms)
    used = dict(reservation.released)
    leases = (reservation.lease, reservation.former)
    return (*head, *leases, used.get("fast", 0), used.get("deep", 0))


def late_leases(call: Arguments, reply: object) -> tuple[str, ...]:
    """Decodes the leases that a late attempt of a call took, or without a reply may have taken.

    Settlements take none. A late extension does if a late renewal took its former lease anew.
    """
    if call[_OPERATION] == "extend":
        return (str(call[_OPERATION + 3]),) if reply in (None, 1) else ()
    if call[_OPERATION] == "renew":
        return tuple(map(str, call[_OPERATION + 3 :]))
    if call[_OPERATION] not in ("reserve", "adopt"):
        return ()
    tokens, key, holds = call[_TOKENS:], "", [""] * MAX_RANKED
    if _KEY in tokens:
        at = tokens.index(_KEY)
        key = f"#{tokens[at + 1]}"
        tokens = tokens[:at] + tokens[at + _KEY_SIZE :]
    if _MONEY in tokens:
        end = tokens.index(_MONEY)
        start = end + 1 + end // 2
        names = ",".join(map(str, tokens[start::7]))
        holds = [f"${nusd};{names}" for nusd in tokens[end + 1 : start]]
        tokens = tokens[:end]
    leases = tuple(
        f"2:{call[_TOKENS - 1]}{key}{hold}|{fast}|{deep}"
        for fast, deep, hold in zip(tokens[::2], tokens[1::2], holds, strict=False)
    )
    if not isinstance(reply, list):
        return leases
    status, index = reply[:2]
    return (leases[index],) if status else ()


def late_accounts(call: Arguments, reply: object) -> tuple[AccountBalance, ...]:
    """Decodes the accounts in a late reply to a reservation that have something to tell."""
    if call[_OPERATION] != "reserve" or not isinstance(reply, list) or _MONEY not in call[_TOKENS:]:
        return ()
    tokens = call[_TOKENS:]
    money, num_tokens = tokens.index(_MONEY), tokens.index(_MONEY)
    if _KEY in tokens[:money]:
        num_tokens = tokens.index(_KEY)
    names = tokens[money + 1 + num_tokens // 2 :]
    accounts: list[Account] = []
    for at in range(0, len(names), 7):
        name, *limits = names[at : at + 7]
        day, month, ever, soft_day, soft_month, soft_ever = map(int, limits)
        accounts.append(Account(str(name), (day, month, ever), (soft_day, soft_month, soft_ever)))
    found = account_balances(reply[-8 * len(accounts) :], accounts)
    return tuple(each for each in found if any(each.soft_told) or any(each.hard_told))


def settle_call(
    reservation: Reservation,
    actual_tokens: Mapping[BackendGroup, int],
    now_ms: int = 0,
    *,
    nusd: int = 0,
    kept_ms: int = 0,
) -> Arguments:
    """Encodes a settlement; a group not named used none.

    It is remembered for `kept_ms`, if its reservation may still arrive.
    """
    fast, deep = actual_tokens.get("fast", 0), actual_tokens.get("deep", 0)
    keys = tenant_keys(reservation.tenant_id)
    head: Arguments = (*keys, "settle", now_ms, fast, deep, reservation.lease)
    if reservation.former is not None:
        head = (*head, reservation.former)
    if kept_ms:
        head = (*head, _REMEMBERED, kept_ms)
    return (*head, _MONEY, nusd) if nusd else head


def renew_call(tenant_id: str, leases: Sequence[str], lease_ms: int, now_ms: int = 0) -> Arguments:
    """Encodes the renewal of at most `MAX_RENEWED` leases of one tenant."""
    return (*tenant_keys(tenant_id), "renew", now_ms, lease_ms, *leases)


def reap_call(tenant_id: str, most: int, now_ms: int = 0) -> Arguments:
    """Encodes the release of at most `most` expired leases."""
    return (*tenant_keys(tenant_id), "reap", now_ms, most)


def read_call(tenant: Tenant, now_ms: int = 0) -> Arguments:
    """Encodes a read of the tenant's pools, and of its key's; `read_of` decodes the reply."""
    call: Arguments = (*tenant_keys(tenant.id), "read", now_ms, *tenant.pool_limits)
    return (*call, tenant.key_id, *tenant.key_pool_limits) if tenant.key_limits else call


def read_of(reply: Sequence[int], tenant: Tenant) -> tuple[Balance, ...]:
    """Decodes the state of a tenant's pools, and of those of its key if that has limits."""
    balances = _balances_of(reply)
    if not tenant.key_limits:
        return balances
    return balances + _balances_of(reply[2 * _STATE_FIELDS :], KEY_UNITS)


def grant_of(
    reply: Sequence[int],
    tenant: Tenant,
    reservation_id: str,
    ranked_demands: Sequence[tuple[Demand, ...]],
) -> Grant:
    """Decodes the reply to a reservation."""
    status, index, wait_ms, limited_by, expires_ms, num_reaped = reply[:6]
    balances = read_of(reply[6:], tenant)
    accounts: tuple[AccountBalance, ...] = ()
    if tenant.accounts:
        end = 6 + (4 if tenant.key_limits else 2) * _STATE_FIELDS
        accounts = account_balances(reply[end:], tenant.accounts)
    if limited_by > _BUDGET:
        over = limited_by % _BUDGET // 10 - 1, limited_by % 10 - 1
        wait_us = wait_ms * 1_000
        return Grant(
            *(None, None, balances, wait_us),
            num_reaped=num_reaped,
            accounts=accounts,
            over_budget=over,
        )
    if status == 0:
        group, unit = divmod(limited_by, 10)
        pool: tuple[BackendGroup, Unit] = (GROUPS[group - 1], UNITS[unit - 1])
        return Grant(*(None, None, balances, wait_ms * 1_000, pool, num_reaped), accounts=accounts)
    demands = ranked_demands[index]
    hold = hold_of(tenant, demands)
    lease = lease_of(reservation_id, demands, hold)
    expires_us = expires_ms * 1_000
    reservation = Reservation(reservation_id, tenant.id, demands, lease, expires_us, hold=hold)
    return Grant(index, reservation, balances, num_reaped=num_reaped, accounts=accounts)


def adopted_of(reply: Sequence[int], tenant: Tenant, reservation: Reservation) -> Grant:
    """Decodes the reply to an adoption, whose lease may hold money of groups that are released."""
    grant = grant_of(reply, tenant, reservation.id, [reservation.demands])
    assert grant.reservation is not None, "an adoption is always granted"
    held = msgspec.structs.replace(reservation, expires_us=grant.reservation.expires_us)
    return msgspec.structs.replace(grant, reservation=held)


def raise_call(tenant_id: str, account: str, limit_nusd: int, now_ms: int = 0) -> Arguments:
    """Encodes that a run gets a limit of its own; -1: as configured again."""
    return (*tenant_keys(tenant_id), "raise", now_ms, account, limit_nusd)


def forget_call(tenant_id: str, key_ids: Iterable[str]) -> Arguments:
    """Encodes that what is kept of keys is deleted."""
    return (*tenant_keys(tenant_id), "forget", 0, *key_ids)


def spent_call(tenant_id: str, accounts: Sequence[Account], now_ms: int = 0) -> Arguments:
    """Encodes a look at accounts; `account_balances` decodes the reply."""
    return (*tenant_keys(tenant_id), "spent", now_ms, *(account.name for account in accounts))


def account_balances(
    state: Sequence[int], accounts: Sequence[Account]
) -> tuple[AccountBalance, ...]:
    """Decodes the script's state of a task's accounts."""
    found: list[AccountBalance] = []
    for index, account in enumerate(accounts):
        held, day, month, whole, raised, day_ms, month_ms, tell = state[8 * index : 8 * index + 8]
        found.append(
            AccountBalance(
                *(account, held, (day, month, whole), raised, (day_ms, month_ms)),
                (bool(tell & 1), bool(tell & 2), bool(tell & 4)),
                (bool(tell & 8), bool(tell & 16), bool(tell & 32)),
            )
        )
    return tuple(found)


def _balances_of(state: Sequence[int], units: Sequence[Unit] = TENANT_UNITS) -> tuple[Balance, ...]:
    """Decodes the script's state of a tenant's pools, or of a key's."""
    balances: tuple[Balance, ...] = ()
    for start, group in _STATES:
        if state[start + 2] >= 0:
            balances += balances_from(group, state[start : start + _STATE_FIELDS], units)
    return balances
