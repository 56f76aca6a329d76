"""Pools: what limits a tenant, what a task asks of them, and what it was granted."""

from typing import Literal

import msgspec

from backends.contract import BackendGroup

Unit = Literal["requests", "tokens", "concurrent"]


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What one route asks of one group's pools: one request, one place, and these tokens."""

    group: BackendGroup
    tokens: int  # prompt plus expected output


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """What was granted, and must be settled exactly once; `lease` is opaque to callers."""

    id: str
    tenant_id: str
    demands: tuple[Demand, ...]
    lease: str
    expires_us: int  # Redis server time; renewed while the task lives


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """One pool as it stands: what a client is told in headers."""

    group: BackendGroup
    unit: Unit
    limit: int  # per minute; for `concurrent`, at once
    remaining: int  # never negative
    reset_us: int  # until it is full again; 0 for `concurrent`


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `reserve_first`: which of the ranked demands was taken, or how long to wait."""

    index: int | None  # into the ranked demands; None: none fits now
    reservation: Reservation | None
    balances: tuple[Balance, ...]
    wait_us: int = 0  # refused: until the first route would fit
    limited_by: tuple[BackendGroup, Unit] | None = None  # refused: the first route's tightest pool
    num_reaped: int = 0  # expired leases this call gave back: their gateways crashed
