"""Pools in Redis: `MemoryPools`' methods, awaited, each one atomic call of `pools.lua`.

When Redis is away, admission fails closed: every call raises `PoolsUnavailable`, and a task that
cannot be counted is not admitted. A settlement that fails is worth trying again for as long as its
lease stands (`settle_until_expiry`). After that the lease has given everything back by itself, and
what such a task used is charged to nobody.

Calls that arrive together travel together: while one batch is under way the next one gathers, so
the client's cost per call falls as the load rises, and an outage fails all who wait at once instead
of one after the other. Every operation is safe to repeat (`reserve` replays, `settle` and `renew`
are idempotent), so a batch that got no answer within its budget, or whose connection broke, is
sent once more on a fresh connection: a failover, or an event loop so busy that it mistook itself
for a slow Redis, costs no task.
"""

import asyncio
import contextlib
import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from backends.contract import BackendGroup
from router.bucket import BucketState
from router.pools import (
    GROUPS,
    LEASE_US,
    UNITS,
    Balance,
    Demand,
    Grant,
    Reservation,
    Unit,
    group_balances,
    lease_of,
)
from router.task import GroupLimits, Tenant

BUDGET_US = 50_000  # for one attempt; two are made at most
MAX_BATCH = 64  # calls in one round trip
MAX_QUEUE = 10_000  # calls waiting for theirs; more are refused at once
MAX_RANKED = 8  # ranked demands in one call
MAX_RENEWED = 500  # leases in one call
FIRST_PAUSE_S = 0.05  # before a settlement's second try; each further pause is twice as long
MAX_PAUSE_S = 2.0  # so that some 20 tries fit a lease

_SCRIPT = resources.files("router").joinpath("pools.lua").read_bytes()
_SHA = hashlib.sha1(_SCRIPT, usedforsecurity=False).hexdigest()
_TENANT_ID = re.compile(r"[a-z0-9-]{1,64}")
_NUM_KEYS = 3
_STATE_FIELDS = 6

Arguments = list[str | int]


class PoolsUnavailable(Exception):  # noqa: N818 - says what is the case, as TimeoutError does
    """Redis gave no answer in time, or an error; nothing is known about the call's effect."""


class RedisPools:
    """All tenants' pools in Redis. Cancelling a call does not undo it: settle or let it expire."""

    def __init__(self, url: str, *, lease_us: int = LEASE_US, budget_us: int = BUDGET_US) -> None:
        """Connects at the first call. `url`: redis://, rediss:// or unix://."""
        self._redis = Redis.from_url(
            url,
            socket_timeout=budget_us / 1e6,
            socket_connect_timeout=budget_us / 1e6,
            retry=Retry(NoBackoff(), 0),  # redis-py's default retries take minutes
            health_check_interval=0,
            protocol=2,
        )
        self._lease_ms = lease_us // 1_000
        self._queue: deque[tuple[Arguments, asyncio.Future[Any]]] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._hurried = asyncio.Event()

    async def reserve_first(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> Grant:
        """Reserve the first of the ranked demands that fits, whole, or nothing.

        The same reservation id with the same demands gets the same reservation again.

        Raises:
            PoolsUnavailable: Redis is away. What it may have reserved expires with its lease.
        """
        arguments = reserve_arguments(tenant, reservation_id, ranked_demands, self._lease_ms, 0)
        reply = await self._call(arguments)
        return grant_of(reply, tenant, reservation_id, ranked_demands)

    async def adopt(self, tenant: Tenant, reservation: Reservation) -> Grant:
        """Take what a reservation that was granted elsewhere holds, whether it fits or not.

        One that is held already is left as it is, so adopting twice is harmless.

        Raises:
            PoolsUnavailable: Redis is away. Adopt it again; if never settled, its lease expires.
        """
        ranked = [reservation.demands]
        arguments = adopt_arguments(tenant, reservation, self._lease_ms, 0)
        return grant_of(await self._call(arguments), tenant, reservation.id, ranked)

    async def settle(
        self, reservation: Reservation, actual_tokens: Mapping[BackendGroup, int]
    ) -> tuple[Balance, ...]:
        """Give the places back and charge actual tokens; a group not named used none.

        A reservation that was settled or has expired is left alone: settling twice is harmless.

        Raises:
            PoolsUnavailable: Redis is away. Go on with `settle_until_expiry`.
        """
        reply = await self._call(settle_arguments(reservation, actual_tokens, 0))
        return balances_of(reply[1:])

    async def settle_until_expiry(
        self, reservation: Reservation, actual_tokens: Mapping[BackendGroup, int]
    ) -> tuple[Balance, ...]:
        """`settle`, at once and again after growing pauses, until the lease must have run out.

        It may take a whole lease, so let nobody wait for it; stop renewing the lease first. It ends
        early when cancelled, or after `stop_retrying`.

        Raises:
            PoolsUnavailable: Redis was away all the time; the lease's expiry gives everything back.
        """
        loop = asyncio.get_running_loop()
        expired_s = loop.time() + self._lease_ms / 1e3  # at the latest: renewed before this call
        pause_s = FIRST_PAUSE_S
        while True:
            is_last = self._hurried.is_set()
            try:
                return await self.settle(reservation, actual_tokens)
            except PoolsUnavailable:
                if is_last or loop.time() + pause_s >= expired_s:
                    raise
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurried.wait(), pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def stop_retrying(self) -> None:
        """Let each settlement try once more, now, then give up: the gateway is stopping."""
        self._hurried.set()

    async def renew(self, reservations: Iterable[Reservation]) -> None:
        """Let these leases run from now again; one that was settled or reaped stays gone.

        Call it every third of a lease for all tasks in flight: one call per tenant, all batched.

        Raises:
            PoolsUnavailable: Redis is away; call again before the leases run out.
        """
        leases: dict[str, list[str]] = defaultdict(list)
        for reservation in reservations:
            leases[reservation.tenant_id].append(reservation.lease)
        await asyncio.gather(
            *(
                self._call(renew_arguments(tenant_id, chunk, self._lease_ms, 0))
                for tenant_id, held in leases.items()
                for chunk in _chunks(held)
            )
        )

    async def balances(self, tenant: Tenant) -> tuple[Balance, ...]:
        """The tenant's pools as they stand.

        Raises:
            PoolsUnavailable: Redis is away.
        """
        reply = await self._call([*_head("read", tenant.id, 0), *_limits(tenant)])
        return balances_of(reply[1:])

    async def ping(self) -> None:
        """Returns if Redis answers within the budget.

        Raises:
            PoolsUnavailable: It does not.
        """
        try:
            await self._redis.ping()
        except (RedisError, OSError) as error:
            raise PoolsUnavailable(_words(error)) from error

    async def close(self) -> None:
        """Fail what still waits and close the connections."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        self._fail(PoolsUnavailable("the pools are closed"))
        await self._redis.aclose()

    async def _call(self, arguments: Arguments) -> Any:
        if len(self._queue) >= MAX_QUEUE:
            raise PoolsUnavailable(f"more than {MAX_QUEUE} calls are waiting for Redis")
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((arguments, reply))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._send_queue())
        return await reply

    async def _send_queue(self) -> None:
        """Send what waits, batch after batch, until nothing does."""
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(MAX_BATCH, len(self._queue)))]
            try:
                replies = await self._send([arguments for arguments, _ in batch])
            except Exception as error:  # whatever it is, nobody may wait for ever
                self._queue.extendleft(reversed(batch))
                self._fail(PoolsUnavailable(_words(error)))
                return
            except asyncio.CancelledError:
                self._queue.extendleft(reversed(batch))
                raise
            for (_, waiting), reply in zip(batch, replies, strict=True):
                if waiting.done():
                    continue  # its caller was cancelled
                if isinstance(reply, Exception):
                    waiting.set_exception(PoolsUnavailable(_words(reply)))
                else:
                    waiting.set_result(reply)

    def _fail(self, error: PoolsUnavailable) -> None:
        """Tell everyone who waits; they have waited for the same Redis."""
        while self._queue:
            _, waiting = self._queue.popleft()
            if not waiting.done():
                waiting.set_exception(error)

    async def _send(self, batch: list[Arguments]) -> list[Any]:
        try:
            replies = await self._attempt(batch)
        except (RedisTimeoutError, RedisConnectionError):
            replies = await self._attempt(batch)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            await self._redis.script_load(script())
            replies = await self._attempt(batch)
        return replies

    async def _attempt(self, batch: list[Arguments]) -> list[Any]:
        if len(batch) == 1:
            try:
                return [await self._redis.evalsha(_SHA, _NUM_KEYS, *batch[0])]
            except ResponseError as error:
                return [error]
        pipeline = self._redis.pipeline(transaction=False)
        for arguments in batch:
            pipeline.evalsha(_SHA, _NUM_KEYS, *arguments)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies


def script() -> str:
    """The source of `pools.lua`."""
    return _SCRIPT.decode()


def reserve_arguments(
    tenant: Tenant,
    reservation_id: str,
    ranked_demands: Sequence[tuple[Demand, ...]],
    lease_ms: int,
    now_ms: int,
) -> Arguments:
    """A `reserve` call for the script; `now_ms` 0 means the server's clock."""
    assert 1 <= len(ranked_demands) <= MAX_RANKED, f"1 to {MAX_RANKED} ranked demands"
    arguments = [*_head("reserve", tenant.id, now_ms), lease_ms, *_limits(tenant)]
    for demands in ranked_demands:
        lease = lease_of(reservation_id, demands)
        arguments += [lease, *lease.rsplit("|", 2)[1:]]
    return arguments


def adopt_arguments(
    tenant: Tenant, reservation: Reservation, lease_ms: int, now_ms: int
) -> Arguments:
    """An `adopt` call for the script."""
    assert reservation.lease == lease_of(reservation.id, reservation.demands), "one lease format"
    arguments = [*_head("adopt", tenant.id, now_ms), lease_ms, *_limits(tenant)]
    return [*arguments, reservation.lease, *reservation.lease.rsplit("|", 2)[1:]]


def settle_arguments(
    reservation: Reservation, actual_tokens: Mapping[BackendGroup, int], now_ms: int
) -> Arguments:
    """A `settle` call for the script."""
    used = [actual_tokens.get(group, 0) for group in GROUPS]
    return [*_head("settle", reservation.tenant_id, now_ms), reservation.lease, *used]


def renew_arguments(tenant_id: str, leases: Sequence[str], lease_ms: int, now_ms: int) -> Arguments:
    """A `renew` call for the script."""
    return [*_head("renew", tenant_id, now_ms), lease_ms, *leases]


def grant_of(
    reply: Sequence[int],
    tenant: Tenant,
    reservation_id: str,
    ranked_demands: Sequence[tuple[Demand, ...]],
) -> Grant:
    """What the script's answer to `reserve` means."""
    status, place, wait_ms, limited_by, expires_ms, num_reaped = reply[:6]
    balances = balances_of(reply[6:])
    if status == 0:
        group, unit = divmod(limited_by, 10)
        pool: tuple[BackendGroup, Unit] = (GROUPS[group - 1], UNITS[unit - 1])
        return Grant(
            index=None,
            reservation=None,
            balances=balances,
            wait_us=wait_ms * 1_000,
            limited_by=pool,
            num_reaped=num_reaped,
        )
    reservation = Reservation(
        id=reservation_id,
        tenant_id=tenant.id,
        demands=ranked_demands[place],
        lease=lease_of(reservation_id, ranked_demands[place]),
        expires_us=expires_ms * 1_000,
    )
    return Grant(index=place, reservation=reservation, balances=balances, num_reaped=num_reaped)


def balances_of(state: Sequence[int]) -> tuple[Balance, ...]:
    """What the script's state of a tenant's pools means."""
    balances: list[Balance] = []
    for place, group in enumerate(GROUPS):
        start = place * _STATE_FIELDS
        requests_level, tokens_level, num_held, *limits = state[start : start + _STATE_FIELDS]
        if num_held < 0:
            continue
        bucket_state = BucketState(requests_level, tokens_level, 0, num_held)
        group_limits = GroupLimits(
            requests_per_min=limits[0], tokens_per_min=limits[1], max_concurrent=limits[2]
        )
        balances += group_balances(group, bucket_state, group_limits)
    return tuple(balances)


def _head(operation: str, tenant_id: str, now_ms: int) -> Arguments:
    """Keys, operation and clock. The tenant's hash tag keeps its keys in one slot of a Cluster."""
    if not _TENANT_ID.fullmatch(tenant_id):
        # Anything else could name another tenant's keys, or leave the hash tag.
        raise ValueError(f"a tenant id matches [a-z0-9-]{{1,64}}; got {tenant_id[:80]!r}")
    tag = f"lw1:{{{tenant_id}}}:"
    return [f"{tag}lease", f"{tag}p:fast", f"{tag}p:deep", operation, now_ms]


def _limits(tenant: Tenant) -> list[int]:
    numbers: list[int] = []
    for group in GROUPS:
        limits = tenant.limits.get(group)
        if limits is None:
            numbers += [-1, -1, -1]
        else:
            numbers += [limits.requests_per_min, limits.tokens_per_min, limits.max_concurrent]
    return numbers


def _chunks(leases: list[str]) -> Iterable[list[str]]:
    for start in range(0, len(leases), MAX_RENEWED):
        yield leases[start : start + MAX_RENEWED]


def _words(error: Exception) -> str:
    return f"Redis: {type(error).__name__}: {error}"
