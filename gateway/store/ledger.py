"""Sends the usage ledger's entries to a Redis stream, in batches and beside the tasks.

A batch has a number and is retried until Redis has it; the script appends each number once. The
buffer is bounded: when Redis is away for so long that `MAX_WAITING` entries wait, later ones are
lost, and counted. Entries that the stream drops because nobody exported them are counted, too. So
are those that Redis took and then lost with its master: the next batch finds that they are missing.
A gateway that is killed loses the work of about `FLUSH_S`; one that stops sends it first.

Each tenant also has counters of the day, for `GET /v1/usage`, which count each batch once, too.
They are sent after it: a gateway that is killed between the two leaves it out. This is an edge.
"""

import asyncio
import logging
import math
import secrets
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from gateway.config.sections import LedgerConfig
from gateway.store.ledger_entry import DAY_S, LedgerEntry, spent_of
from gateway.store.reports import LedgerReport
from gateway.store.usage_days import MAX_FIELDS, TTL_S, counters_of, usage_key
from router.redis.cancelling import cancelled
from router.redis.connection import is_wrong_type

logger = logging.getLogger("lanewise")

STREAM = "lw1:{ledger}:entries"
FLUSH_S = 0.1
RETRY_S = 1.0
MAX_BATCH = 500
SCANNED = 1_000  # counters of a day in one look at Redis
MAX_WAITING = 50_000  # some 30 MB
WRITER_TTL_S = DAY_S
# Batches whose loss is noticed: at `FLUSH_S` the last second's. Older ones than this are not looked
# for: the writer's key, which says what Redis has, may have expired.
MAX_REMEMBERED, REMEMBERED_S = 10, 3_600.0
SPENT_TTL_S = 3 * DAY_S
CLOSE_S = 3.0  # when stopping, between two looks at whether Redis takes anything
MAX_CLOSE_WAITS = 5  # of `CLOSE_S`

_SCRIPT = resources.files(__package__).joinpath("ledger.lua").read_text()
_SPENT_SCRIPT = resources.files(__package__).joinpath("spent.lua").read_text()
_WRITER = "by:"  # before a writer's field in a tenant's counters


class Ledger:
    """Buffers entries (`add`, which never waits) and sends them (`run`)."""

    def __init__(self, redis: Redis, *, max_entries: int) -> None:
        """Bounds the stream to `max_entries`; beyond that the oldest are dropped."""
        self._redis = redis
        self._append: Any = redis.register_script(_SCRIPT)
        self._add_spent: Any = redis.register_script(_SPENT_SCRIPT)
        self._max_entries = max_entries
        name = secrets.token_hex(8)
        self._writer = f"lw1:{{ledger}}:w:{name}"
        self._spent_writer = f"{_WRITER}{name}"
        self._waiting: deque[LedgerEntry] = deque()
        self._batch: list[LedgerEntry] = []  # sent until Redis has it
        self._number = 1  # the batch's
        self._last_id: str | bytes = ""  # in the stream, of what Redis took last
        # Batches that Redis took: their number, how many entries, and when.
        self._taken: deque[tuple[int, int, float]] = deque(maxlen=MAX_REMEMBERED)
        # Each key of counters has what is to be added to them.
        self._spent: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._spent_batch: dict[str, Counter[str]] = {}  # sent until Redis has it
        self._spent_number = 0  # that batch's
        self._added = asyncio.Event()
        self._sending = asyncio.Lock()
        self._num_entries = self._num_appended = self._num_lost = 0
        self._num_dropped = self._num_forgotten = 0
        self._complained = False

    @property
    def report(self) -> LedgerReport:
        """Returns the counts for metrics."""
        return LedgerReport(
            len(self._waiting) + len(self._batch),
            self._num_entries,
            self._num_appended,
            self._num_lost,
            self._num_dropped,
            self._num_forgotten,
            self._max_entries,
        )

    def add(self, entry: LedgerEntry) -> None:
        """Buffers an entry; counts it as lost if the buffer is full."""
        if len(self._waiting) >= MAX_WAITING:
            self._num_lost += 1
            return
        if not self._waiting:  # else `run` knows
            self._added.set()
        self._waiting.append(entry)

    async def run(self) -> None:
        """Sends until cancelled; call `close` afterwards."""
        while True:
            await self._added.wait()
            await asyncio.sleep(FLUSH_S)
            self._added.clear()
            if not await self.flush():
                self._added.set()
                await asyncio.sleep(RETRY_S)

    async def flush(self) -> bool:
        """Sends what is buffered; returns whether Redis took it all. Cancelling loses nothing."""
        async with self._sending:
            try:
                while self._waiting or self._batch:
                    await self._send_batch()
                await self._send_spent()
            except (RedisError, OSError) as error:
                if not self._complained:
                    self._complained = True
                    logger.warning(
                        "the usage ledger waits for Redis (%s); it has room for %d entries",
                        type(error).__name__,
                        MAX_WAITING,
                    )
                return False
        if self._complained:
            self._complained = False
            logger.info("the usage ledger goes on; %d entries were lost so far", self._num_lost)
        return True

    async def close(self, within_s: float = math.inf) -> None:
        """Sends the rest for as long as Redis takes some of it; logs what is lost.

        It has to take the first of it in time.
        """
        sending = asyncio.create_task(self._send_rest())
        for each in range(MAX_CLOSE_WAITS):
            number = self._number
            await self._give_time(sending, CLOSE_S if each else min(CLOSE_S, within_s))
            if sending.done() or self._number == number:
                break
        await cancelled(sending)
        num_left = self.report.num_waiting
        if num_left:
            self._num_lost += num_left
            logger.error("Redis takes no more: %d entries of the usage ledger are lost", num_left)

    async def _give_time(self, sending: "asyncio.Task[None]", time_s: float) -> None:
        await asyncio.wait((sending,), timeout=time_s)

    async def _send_rest(self) -> None:
        while not await self.flush():  # noqa: ASYNC110 - Redis does not say when it is back
            await asyncio.sleep(FLUSH_S)

    async def _send_batch(self) -> None:
        if not self._batch:
            num = min(MAX_BATCH, len(self._waiting))
            self._batch = [self._waiting.popleft() for _ in range(num)]
            self._note_spent(self._batch)
        days = counters_of(self._batch)
        arguments: list[int | str | bytes] = [
            *(self._number, self._max_entries, WRITER_TTL_S, TTL_S, MAX_FIELDS, self._last_id),
            len(self._batch),
            *map(msgspec.json.encode, self._batch),
        ]
        for place, counters in enumerate(days.values(), start=3):
            for field, amount in counters.items():
                arguments += (place, field, amount)
        keys = [STREAM, self._writer, *days]
        answer = await self._append(keys=keys, args=arguments)
        dropped, self._num_entries, last, self._last_id = answer
        self._note_forgotten(last)
        if dropped and not self._num_dropped:
            logger.warning(
                "the usage ledger is full: its oldest entries are dropped; export them "
                "(lanewise usage export), or raise ledger.max_entries"
            )
        self._num_dropped += dropped
        self._num_appended += len(self._batch)
        self._taken.append((self._number, len(self._batch), time.monotonic()))
        self._number += 1
        self._batch = []

    def _note_spent(self, entries: list[LedgerEntry]) -> None:
        """Adds entries to their tenants' counters, once."""
        by_key: defaultdict[str, list[LedgerEntry]] = defaultdict(list)
        for entry in entries:
            by_key[spent_key(entry.tenant_id, entry.ended_s)].append(entry)
        for key, own in by_key.items():
            self._spent[key].update(spent_of(own))

    def _note_forgotten(self, last: int) -> None:
        """Counts entries that Redis took after the last batch that it knows: they died with it."""
        since_s = time.monotonic() - REMEMBERED_S
        num = sum(size for number, size, at_s in self._taken if number > last and at_s > since_s)
        if num:
            self._num_forgotten += num
            self._taken.clear()
            logger.error("Redis lost up to %d entries of the usage ledger that it had taken", num)

    async def _send_spent(self) -> None:
        while self._spent or self._spent_batch:
            if not self._spent_batch:
                self._spent_batch, self._spent = self._spent, defaultdict(Counter)
                self._spent_number += 1
            for key, counters in list(self._spent_batch.items()):
                arguments: list[int | str] = [self._spent_writer, self._spent_number, SPENT_TTL_S]
                for field, amount in counters.items():
                    arguments += (field, amount)
                try:
                    await self._add_spent(keys=[key], args=arguments)
                except ResponseError as error:
                    if not is_wrong_type(error):
                        raise
                    # It would keep all others back. The ledger has these tasks.
                    logger.error("tasks are left out of a tenant's counters, %s: %s", key, error)
                del self._spent_batch[key]

    async def spent(self, tenant_id: str, now_s: int) -> dict[str, int]:
        """Returns a tenant's counters of this UTC day, or raises Redis's error."""
        found: Any = await self._redis.hgetall(spent_key(tenant_id, now_s))
        counters = {field.decode(): amount for field, amount in found.items()}
        return {name: int(n) for name, n in counters.items() if not name.startswith(_WRITER)}

    async def used(self, first_s: int, last_s: int) -> dict[str, dict[str, int]]:
        """Returns the counters of the UTC days of two Unix times and between, by YYYY-MM-DD.

        Raises Redis's error.
        """
        days: dict[str, dict[str, int]] = {}
        for day_s in range(first_s - first_s % DAY_S, last_s + 1, DAY_S):
            counters: dict[str, int] = {}
            async for field, amount in self._redis.hscan_iter(usage_key(day_s), count=SCANNED):
                counters[field.decode()] = int(amount)
            if counters:
                days[datetime.fromtimestamp(day_s, UTC).strftime("%Y-%m-%d")] = counters
        return days


@asynccontextmanager
async def open_ledger(
    redis: Redis, config: LedgerConfig, last_calls_s: Callable[[], float] = lambda: math.inf
) -> AsyncIterator[Ledger]:
    """Opens a ledger whose sender runs until the context ends; then sends the rest in time."""
    ledger = Ledger(redis, max_entries=config.max_entries)
    sender = asyncio.create_task(ledger.run())
    try:
        yield ledger
    finally:
        await cancelled(sender)
        await ledger.close(last_calls_s())


def spent_key(tenant_id: str, now_s: int) -> str:
    """Returns the Redis key of a tenant's counters of a UTC day."""
    return f"lw1:{{{tenant_id}}}:spent:{now_s // DAY_S}"
