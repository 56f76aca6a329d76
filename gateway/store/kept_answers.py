"""Keeps answers by their request's `Idempotency-Key` in Redis, where every gateway finds them.

While a request runs, its key has a mark that falls away soon after its process does. The answer is
saved before the mark is taken away, so whoever gets the mark sees an answer that there is. A
tenant's answers are bounded in bytes as its responses are: the oldest go first. This is an edge.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.store.response_store import AsProtocolError
from gateway.store.stored_bytes import StoredBytes
from gateway.wire.errors import ProtocolError

TTL_S = 24 * 3_600  # as Stripe keeps them, and as OpenAI's SDKs expect nothing longer
MARK_TTL_S = 10  # of a request that runs, unless it is renewed


class KeptAnswer(msgspec.Struct, frozen=True):
    """Holds an answer that was given, and to what."""

    request: bytes  # the request's digest
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class KeptAnswers:
    """Claims keys and keeps answers; raises `server_is_overloaded` if Redis does not answer.

    A key is given as a name without a colon, such as its digest. Cancelling is safe.
    """

    def __init__(
        self, redis: Redis, is_reachable: Callable[[], bool], stored_bytes: StoredBytes
    ) -> None:
        """Calls fail at once while `is_reachable()` is false."""
        self._redis = redis
        self._asking = AsProtocolError(is_reachable)
        self._bytes = stored_bytes

    async def claim(self, tenant_id: str, name: str, request: bytes) -> KeptAnswer | None:
        """Returns the answer that is kept; None says that the caller is to run the request.

        Raises `ProtocolError` if another request has the key, or the same one runs already.
        """
        mark, record = _mark(tenant_id, name), _record(tenant_id, name)
        with self._asking:
            pipe = self._redis.pipeline(transaction=False)
            pipe.set(mark, request, ex=MARK_TTL_S, nx=True)
            pipe.get(mark)
            pipe.get(record)
            taken, holder, kept = await pipe.execute()
            if taken and kept is not None:
                await self._redis.delete(mark)
        if kept is not None:
            answer = msgspec.msgpack.decode(kept, type=KeptAnswer)
            _check_same(request, answer.request)
            return answer
        if taken:
            return None
        _check_same(request, request if holder is None else holder)  # None: it has just ended
        raise ProtocolError(
            "idempotency_key_in_use",
            "A request with this 'Idempotency-Key' is still running. Try again in 1s.",
            retry_after_us=1_000_000,
        )

    async def renew(self, tenant_id: str, name: str, request: bytes) -> None:
        """Goes on marking the key of a request that runs."""
        with contextlib.suppress(RedisError):  # the next time will do
            await self._redis.set(_mark(tenant_id, name), request, ex=MARK_TTL_S)

    async def end(self, tenant_id: str, name: str, answer: KeptAnswer | None) -> None:
        """Keeps the answer, if there is one to keep, and takes the mark away."""
        with self._asking:
            if answer is not None:
                record = msgspec.msgpack.encode(answer)
                await self._bytes.save(tenant_id, name, record, (), only_new=True)
            await self._redis.delete(_mark(tenant_id, name))

    async def share(self) -> None:
        """Makes room where all tenants' answers are too much; to be called now and then."""
        with contextlib.suppress(ProtocolError), self._asking:  # the next save counts again
            await self._bytes.share()

    async def has_any(self, tenant_id: str) -> bool:
        """Says whether any answer is kept of a tenant."""
        with self._asking:
            return await self._bytes.has_any(tenant_id)

    async def erase(self, tenant_id: str) -> int:
        """Deletes a tenant's answers; returns how many keys. If it fails midway, erase again."""
        num_keys = 0
        with self._asking:
            found: Any = self._redis.scan_iter(match=_record(tenant_id, "*"), count=1_000)
            async for key in found:
                num_keys += await self._redis.unlink(key)
            await self._bytes.forget(tenant_id)
        return num_keys


def _check_same(request: bytes, other: bytes) -> None:
    if request != other:
        message = (
            "This 'Idempotency-Key' came with another request before. Send that one unchanged, or "
            "another key."
        )
        raise ProtocolError("idempotency_key_reused", message, param="Idempotency-Key")


def _record(tenant_id: str, name: str) -> str:
    return f"lw1:{{{tenant_id}}}:i:{name}"


def _mark(tenant_id: str, name: str) -> str:
    return f"{_record(tenant_id, name)}:runs"
