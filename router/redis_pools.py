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
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from backends.contract import BackendGroup
from router.pool_calls import (
    MAX_RENEWED,
    NUM_KEYS,
    SCRIPT,
    SHA,
    Arguments,
    adopt_call,
    balances_of,
    day_tokens_of,
    extend_call,
    grant_of,
    read_call,
    reap_call,
    renew_call,
    reserve_call,
    settle_call,
)
from router.pools import LEASE_US, Balance, Demand, Grant, Renewal, Reservation
from router.task import Tenant

BUDGET_US = 50_000  # for one attempt; two are made at most
MAX_BATCH = 64  # calls in one round trip
MAX_QUEUE = 10_000  # calls waiting for theirs; more are refused at once
MAX_SWEPT = 100  # expired leases that one call of `sweep` gives back
FIRST_PAUSE_S = 0.05  # before a settlement's second try; each further pause is twice as long
MAX_PAUSE_S = 2.0  # so that some 20 tries fit a lease


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
        call = reserve_call(tenant, reservation_id, ranked_demands, self._lease_ms)
        reply = await self._call(call)
        return grant_of(reply, tenant, reservation_id, ranked_demands)

    async def adopt(self, tenant: Tenant, reservation: Reservation) -> Grant:
        """Take what a reservation that was granted elsewhere holds, whether it fits or not.

        One that is held already is left as it is, so adopting twice is harmless.

        Raises:
            PoolsUnavailable: Redis is away. Adopt it again; if never settled, its lease expires.
        """
        reply = await self._call(adopt_call(tenant, reservation, self._lease_ms))
        return grant_of(reply, tenant, reservation.id, [reservation.demands])

    async def extend(self, reservation: Reservation) -> bool:
        """Hold what `extended` added, in debt if it does not fit; the lease runs from now again.

        Safe to repeat, and to be repeated until it has returned once; False if the reservation was
        settled, has expired or was forgotten.

        Raises:
            PoolsUnavailable: Redis is away; the reservation is under one of its two leases.
        """
        return bool(await self._call(extend_call(reservation, self._lease_ms)))

    async def settle(
        self, reservation: Reservation, actual_tokens: Mapping[BackendGroup, int]
    ) -> bool:
        """Give the places back and charge actual tokens; a group not named used none.

        A reservation that was settled or has expired is left alone (False): settling twice is
        harmless.

        Raises:
            PoolsUnavailable: Redis is away. Go on with `settle_until_expiry`.
        """
        return bool(await self._call(settle_call(reservation, actual_tokens)))

    async def settle_until_expiry(
        self, reservation: Reservation, actual_tokens: Mapping[BackendGroup, int]
    ) -> bool:
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

    async def renew(self, reservations: Iterable[Reservation]) -> Renewal:
        """Let these leases run from now again; one that was given back too early is taken anew.

        Not without the pools it was taken from: then Redis was started again, see `adopt`.

        Call it every third of a lease for all tasks in flight: one call per tenant, all batched.
        A reservation whose extension has no answer yet is extended again instead.

        Raises:
            PoolsUnavailable: Redis is away; call again before the leases run out.
        """
        leases_of: dict[str, list[str]] = defaultdict(list)
        calls: list[Arguments] = []
        for reservation in reservations:
            if reservation.former is not None:
                calls.append(extend_call(reservation, self._lease_ms))
                continue
            leases_of[reservation.tenant_id].append(reservation.lease)
        calls += (
            renew_call(tenant_id, chunk, self._lease_ms)
            for tenant_id, leases in leases_of.items()
            for chunk in _chunks(leases)
        )
        replies = await asyncio.gather(*(self._call(call) for call in calls))
        found = [reply for reply in replies if isinstance(reply, list)]
        return Renewal(sum(held for held, _ in found), sum(anew for _, anew in found))

    async def sweep(self, tenant_id: str) -> int:
        """Give back every expired lease of a tenant, `MAX_SWEPT` per call; returns how many.

        Admissions give back a few on their way; this is for tenants that ask for nothing.

        Raises:
            PoolsUnavailable: Redis is away.
        """
        num_swept, num_reaped = 0, MAX_SWEPT
        while num_reaped == MAX_SWEPT:
            num_reaped, _ = await self._call(reap_call(tenant_id, MAX_SWEPT))
            num_swept += num_reaped
        return num_swept

    async def balances(self, tenant: Tenant) -> tuple[Balance, ...]:
        """The tenant's pools as they stand.

        Raises:
            PoolsUnavailable: Redis is away.
        """
        return balances_of(await self._call(read_call(tenant)))

    async def day_tokens(self, tenant: Tenant) -> dict[BackendGroup, int]:
        """Weighted tokens charged since midnight UTC, by group.

        Raises:
            PoolsUnavailable: Redis is away.
        """
        return day_tokens_of(await self._call(read_call(tenant)))

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
            await self._redis.script_load(SCRIPT)
            replies = await self._attempt(batch)
        return replies

    async def _attempt(self, batch: list[Arguments]) -> list[Any]:
        if len(batch) == 1:
            try:
                return [await self._redis.evalsha(SHA, NUM_KEYS, *batch[0])]
            except ResponseError as error:
                return [error]
        pipeline = self._redis.pipeline(transaction=False)
        for arguments in batch:
            pipeline.evalsha(SHA, NUM_KEYS, *arguments)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies


def _chunks(leases: list[str]) -> Iterable[list[str]]:
    for start in range(0, len(leases), MAX_RENEWED):
        yield leases[start : start + MAX_RENEWED]


def _words(error: Exception) -> str:
    return f"Redis: {type(error).__name__}: {error}"
