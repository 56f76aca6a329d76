"""Stored responses in Redis: what `store: true` keeps, for any socket and for HTTP.

One record per response holds its JSON, its own input and output items, and the ids of the stored
responses it continues. A context is read back in two round trips, however long the chain: the
record, then its ancestors in one MGET. Keys of one tenant share a hash tag, so that works on a
Cluster too; a tenant never finds another's responses, since its id is part of the key.

Records expire; under memory pressure Redis may drop them earlier (`volatile-lru`). Continuing or
reading a dropped one answers "not found", and the official clients then resend the full context.

An edge: it uses Redis.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from backends.contract import ContextItem
from gateway.wire.errors import ProtocolError
from gateway.wire.stored_response import Context, Lineage, StoredResponse

# A process says once a second that a background response runs there: ten missed, and it is gone.
RUNS_TTL_S = 10


class ResponseStore:
    """Each method is one or two round trips with the client's timeout.

    Raises:
        ProtocolError: `server_is_overloaded` where Redis does not answer; cancelling is safe.
    """

    def __init__(
        self, redis: Redis, ttl_s: int, is_reachable: Callable[[], bool] = lambda: True
    ) -> None:
        """`is_reachable`: false while it is known that asking would be waiting in vain."""
        self._client = redis
        self._is_reachable = is_reachable
        self._ttl_s = ttl_s
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(StoredResponse)

    @property
    def _redis(self) -> Redis:
        if not self._is_reachable():
            raise RedisConnectionError("Redis is away")
        return self._client

    async def save(
        self, tenant_id: str, response_id: str, stored: StoredResponse, *, only_new: bool = False
    ) -> None:
        """Keep it, and its ancestors as long; `only_new` leaves an existing record alone."""
        record = self._encoder.encode(stored)
        with _UNAVAILABLE:
            pipe = self._redis.pipeline(transaction=False)
            pipe.set(_key(tenant_id, response_id), record, ex=self._ttl_s, nx=only_new)
            for ancestor in stored.ancestors:
                pipe.expire(_key(tenant_id, ancestor), self._ttl_s)
            await pipe.execute()

    async def load(self, tenant_id: str, response_id: str) -> StoredResponse | None:
        """The record, or None."""
        with _UNAVAILABLE:
            found: Any = await self._redis.get(_key(tenant_id, response_id))
        return None if found is None else self._decoder.decode(found)

    async def note_feedback(
        self, tenant_id: str, response_id: str, feedback: bytes
    ) -> tuple[bool, bytes]:
        """Keep what a client said of a response, as long as responses are kept.

        The first word stays: returns whether this is it, and what it is.
        """
        key = f"{_key(tenant_id, response_id)}:feedback"
        with _UNAVAILABLE:
            pipe = self._redis.pipeline(transaction=False)
            pipe.set(key, feedback, ex=self._ttl_s, nx=True)
            pipe.get(key)
            replies: list[Any] = await pipe.execute()
        return bool(replies[0]), feedback if replies[1] is None else bytes(replies[1])

    async def beat(self, tenant_id: str, response_ids: list[str]) -> list[str]:
        """Say that these responses run in this process; returns those asked to be cancelled."""
        keys = [_key(tenant_id, response_id) for response_id in response_ids]
        with _UNAVAILABLE:
            pipe = self._redis.pipeline(transaction=False)
            for key in keys:
                pipe.set(f"{key}:runs", b"1", ex=RUNS_TTL_S)
            pipe.mget([f"{key}:cancel" for key in keys])
            replies: list[Any] = await pipe.execute()
        asked = zip(response_ids, replies[-1], strict=True)
        return [response_id for response_id, flag in asked if flag is not None]

    async def runs(self, tenant_id: str, response_id: str) -> bool:
        """Whether some process has lately said that this response runs there."""
        with _UNAVAILABLE:
            return bool(await self._redis.exists(f"{_key(tenant_id, response_id)}:runs"))

    async def ask_cancel(self, tenant_id: str, response_id: str) -> None:
        """Ask whichever process runs this response to stop it."""
        with _UNAVAILABLE:
            key = f"{_key(tenant_id, response_id)}:cancel"
            await self._redis.set(key, b"1", ex=RUNS_TTL_S)

    async def delete(self, tenant_id: str, response_id: str) -> bool:
        """Forget it: whether there was one. What continues it can be read, not continued."""
        with _UNAVAILABLE:
            return bool(await self._redis.delete(_key(tenant_id, response_id)))

    async def context(self, tenant_id: str, response_id: str) -> Context | None:
        """The whole conversation up to and including a response; None if any of it is gone."""
        last = await self.load(tenant_id, response_id)
        if last is None or not last.can_continue:
            return None
        records = await self._ancestors(tenant_id, last)
        if records is None:
            return None
        items = tuple(
            item for record in (*records, last) for item in (*record.input, *record.output)
        )
        lineage = Lineage((*last.ancestors, response_id), len(items))
        return Context(items, last.backend, lineage)

    async def input_items(self, tenant_id: str, response_id: str) -> tuple[ContextItem, ...] | None:
        """What the model saw as input: ancestors' items, then its own; None if it is not stored."""
        last = await self.load(tenant_id, response_id)
        if last is None:
            return None
        records = await self._ancestors(tenant_id, last) or []
        before = (item for record in records for item in (*record.input, *record.output))
        return (*before, *last.input)

    async def _ancestors(self, tenant_id: str, last: StoredResponse) -> list[StoredResponse] | None:
        if not last.ancestors:
            return []
        keys = [_key(tenant_id, ancestor) for ancestor in last.ancestors]
        with _UNAVAILABLE:
            found: list[Any] = await self._redis.mget(keys)
        if any(record is None for record in found):
            return None
        return [self._decoder.decode(record) for record in found]


def _key(tenant_id: str, response_id: str) -> str:
    return f"lw1:{{{tenant_id}}}:r:{response_id}"


class _AsProtocolError:
    """Turns an error of Redis into one that clients know. Made once: each task passes through."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, RedisError):
            raise ProtocolError(
                "server_is_overloaded",
                f"The response store does not answer ({type(error).__name__}). Try again in 1s.",
                retry_after_us=1_000_000,
            ) from error


_UNAVAILABLE = _AsProtocolError()
