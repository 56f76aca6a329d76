"""Keeps responses with `store: true` in Redis, for every connection and for HTTP.

A response's record holds its JSON, its own input and output items, and its ancestors' ids. A
context is read in two round trips: the record, then its ancestors in one MGET. A tenant's keys
share a hash tag, so that MGET works on a Cluster, too; tenants cannot see each other's responses.

Records expire, and each tenant's are bounded in bytes (`stored_bytes`). Under memory pressure Redis
may drop them earlier (`volatile-lru`). Continuing or reading a dropped one answers "not found", and
the official clients then resend the full context. What a failover costs is followed up on
(`recent_saves`). This is an edge.
"""

import contextlib
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from backends.contract import ContextItem
from gateway.store.recent_saves import LostReason, RecentSaves
from gateway.store.stored_bytes import StoredBytes
from gateway.store.stored_response import Context, Lineage, StoredResponse, Uncontinued
from gateway.wire.errors import ProtocolError

# A process renews its background responses' keys once a second; ten missed, and it is gone.
RUNS_TTL_S = 10

# Ids come from clients: with any other character one would name a key that stands beside a record.
_is_id = re.compile(r"[A-Za-z0-9_-]{1,256}").fullmatch


class ResponseStore:
    """Stores and loads responses, in one or two round trips per call; cancelling is safe.

    Raises `server_is_overloaded` if Redis does not answer.
    """

    def __init__(
        self,
        redis: Redis,
        ttl_s: int,
        is_reachable: Callable[[], bool] = lambda: True,
        stored_bytes: StoredBytes | None = None,
        on_lost: Callable[[LostReason, int], None] = lambda reason, num: None,
    ) -> None:
        """Keeps responses for `ttl_s`; calls fail at once while `is_reachable()` is false."""
        self._redis = redis
        self._bytes = stored_bytes or StoredBytes(redis, ttl_s)
        self._recent = RecentSaves(redis, self._bytes, _key, ttl_s, on_lost)
        self._asking = AsProtocolError(is_reachable)
        self._ttl_s = ttl_s
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(StoredResponse)

    async def save(
        self, tenant_id: str, response_id: str, stored: StoredResponse, *, only_new: bool = False
    ) -> None:
        """Stores a response and renews its ancestors; `only_new` keeps an existing record.

        One that ended, and that Redis does not take, is saved later, though this raises.
        """
        record, name = self._encoder.encode(stored), (tenant_id, response_id)
        try:
            with self._asking:
                await self._bytes.save(*name, record, stored.ancestors, only_new=only_new)
        except ProtocolError:
            if not only_new:
                self._recent.not_taken(name, record, stored.ancestors)
            raise
        self._recent.saved(name)
        if self._bytes.is_due:
            await self.share()

    async def share(self) -> None:
        """Makes room where all tenants' records are too much; to be called now and then."""
        with contextlib.suppress(ProtocolError), self._asking:  # the next save counts again
            await self._bytes.share()

    async def follow_up(self) -> None:
        """Saves what Redis did not take, and counts what it lost; to be called once a second."""
        if self._asking.is_reachable():
            await self._recent.follow_up()

    async def close(self, within_s: float = math.inf) -> None:
        """Saves what Redis did not take, for some seconds."""
        await self._recent.close(within_s)

    async def load(self, tenant_id: str, response_id: str) -> StoredResponse | None:
        """Returns the record, or None if there is none."""
        if not _is_id(response_id):
            return None
        with self._asking:
            found: Any = await self._redis.get(_key(tenant_id, response_id))
        return None if found is None else self._decoder.decode(found)

    async def note_feedback(
        self, tenant_id: str, response_id: str, feedback: bytes
    ) -> tuple[bool, bytes]:
        """Keeps the first feedback on a response; returns whether this is it, and what is kept."""
        key = f"{_key(tenant_id, response_id)}:feedback"
        with self._asking:
            pipe = self._redis.pipeline(transaction=False)
            pipe.set(key, feedback, ex=self._ttl_s, nx=True)
            pipe.get(key)
            replies: list[Any] = await pipe.execute()
        return bool(replies[0]), feedback if replies[1] is None else bytes(replies[1])

    async def beat(self, tenant_id: str, response_ids: list[str]) -> list[str]:
        """Renews the keys of responses that run here; returns those to be cancelled."""
        keys = [_key(tenant_id, response_id) for response_id in response_ids]
        with self._asking:
            pipe = self._redis.pipeline(transaction=False)
            for key in keys:
                pipe.set(f"{key}:runs", b"1", ex=RUNS_TTL_S)
            pipe.mget([f"{key}:cancel" for key in keys])
            replies: list[Any] = await pipe.execute()
        asked = zip(response_ids, replies[-1], strict=True)
        return [response_id for response_id, flag in asked if flag is not None]

    async def runs(self, tenant_id: str, response_id: str) -> bool:
        """Says whether this response runs in some process."""
        with self._asking:
            return bool(await self._redis.exists(f"{_key(tenant_id, response_id)}:runs"))

    async def ask_cancel(self, tenant_id: str, response_id: str) -> None:
        """Asks the process that runs this response to stop it."""
        with self._asking:
            key = f"{_key(tenant_id, response_id)}:cancel"
            await self._redis.set(key, b"1", ex=RUNS_TTL_S)

    async def delete(self, tenant_id: str, response_id: str) -> bool:
        """Deletes a response and returns whether it existed; its successors can still be read."""
        if not _is_id(response_id):
            return False
        self._recent.forget((tenant_id, response_id))
        with self._asking:
            existed = await self._bytes.delete(tenant_id, response_id)
            if existed:
                await self._recent.deleted((tenant_id, response_id))
            return existed

    async def erase(self, tenant_id: str) -> int:
        """Deletes a tenant's records, and what stands beside them; returns how many keys.

        If cancelled, or if Redis fails midway, some are left: erase again.
        """
        num_keys = 0
        self.forget(tenant_id)
        with self._asking:
            async for key in self._redis.scan_iter(match=_key(tenant_id, "*"), count=1_000):
                num_keys += await self._redis.unlink(key)
            await self._bytes.forget(tenant_id)
        return num_keys

    async def has_any(self, tenant_id: str) -> bool:
        """Says whether anything is stored of a tenant."""
        with self._asking:
            return await self._bytes.has_any(tenant_id)

    def forget(self, tenant_id: str) -> None:
        """Drops what waits here for Redis of a tenant."""
        self._recent.forget_all(tenant_id)

    async def context(self, tenant_id: str, response_id: str) -> Context | Uncontinued | None:
        """Loads the conversation up to a response, or says why there is none to go on with.

        None if there is no such response.
        """
        last = await self.load(tenant_id, response_id)
        if last is None:
            return None
        if not last.can_continue:
            return Uncontinued("it failed, or has not ended yet")
        records: list[StoredResponse] = []
        for ancestor, record in await self._ancestors(tenant_id, last):
            if record is None:
                gone = f"'{ancestor}', which came before it, is not stored any more"
                return Uncontinued(f"{gone}: it was deleted or has expired")
            records.append(record)
        items = tuple(
            item for record in (*records, last) for item in (*record.input, *record.output)
        )
        sizes = (last.num_prompt_tokens, last.num_input_tokens)
        lineage = Lineage((*last.ancestors, response_id), len(items), *sizes)
        return Context(items, last.backend, lineage)

    async def input_items(self, tenant_id: str, response_id: str) -> tuple[ContextItem, ...] | None:
        """Loads the input that the model saw, ancestors first; None if it is not stored.

        What an ancestor brought that was deleted since is left out; all else is there.
        """
        last = await self.load(tenant_id, response_id)
        if last is None:
            return None
        found = await self._ancestors(tenant_id, last)
        records = [record for _, record in found if record is not None]
        before = (item for record in records for item in (*record.input, *record.output))
        return (*before, *last.input)

    async def _ancestors(
        self, tenant_id: str, last: StoredResponse
    ) -> list[tuple[str, StoredResponse | None]]:
        """Loads the responses before one, oldest first, by their ids; None for those gone."""
        if not last.ancestors:
            return []
        keys = [_key(tenant_id, ancestor) for ancestor in last.ancestors]
        with self._asking:
            found: list[Any] = await self._redis.mget(keys)
        records = (None if each is None else self._decoder.decode(each) for each in found)
        return list(zip(last.ancestors, records, strict=True))


def _key(tenant_id: str, response_id: str) -> str:
    return f"lw1:{{{tenant_id}}}:r:{response_id}"


class AsProtocolError:
    """Turns an error of Redis into a protocol error; while Redis is away, nothing is asked of it.

    Made once for each store, since each task uses it.
    """

    def __init__(self, is_reachable: Callable[[], bool] = lambda: True) -> None:
        self.is_reachable = is_reachable

    def __enter__(self) -> None:
        if not self.is_reachable():
            raise _unavailable("ConnectionError")

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, RedisError):
            raise _unavailable(type(error).__name__) from error


def _unavailable(why: str) -> ProtocolError:
    message = f"The response store does not answer ({why}). Try again in 1s."
    return ProtocolError("server_is_overloaded", message, retry_after_us=1_000_000)


UNAVAILABLE = AsProtocolError()
