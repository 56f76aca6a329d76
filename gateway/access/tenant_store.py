"""Stores keys, tenants, tiers and drained backends in Redis, and keeps this process's copy.

Every gateway has all records in memory (`TenantsView`, at most `MAX_RECORDS`), so that no request
waits for Redis to check its key. Changes are published, and the version is polled twice a second in
case a message was lost.

While Redis is away the copy is used for `max_stale_s`. After that, keys made at run time get 503
and never 401, on which clients give up for good. If Redis comes back without records, they were
lost and not revoked, so the copy is used for as long. The next record that is written begins a new
epoch, which replaces the copy. This is an edge.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.access.redis_fault import redis_fault
from gateway.access.tenant_view import TenantsView
from gateway.wire.errors import ProtocolError
from router.redis.announcements import announcements
from router.redis.audit import AuditEntry, read_entry

logger = logging.getLogger("lanewise")

POLL_S = 0.5
MAX_RECORDS = 200_000
MAX_AUDIT = 10_000
MAX_ENTRY_BYTES = 32_768  # of the audit; in a larger one the records are left out
FLUSH_USED_S = 60.0  # the resolution of "last used"

CHANGED = "Somebody else changed it in between. Look at it and try again."
LOST = (
    "Redis has lost the records of keys, tenants and tiers; this gateway shows and uses its copy. "
    "Restore Redis to change them, or make them anew: the first one that is made ends the copy."
)
_TAG = "lw1:{directory}:"
_KEYS = [f"{_TAG}{name}" for name in ("records", "changed", "head", "audit", "used")]
_RECORDS, _CHANGED, _HEAD, _AUDIT, _USED = _KEYS
_CHANNEL = f"{_TAG}changes"
_SECRET = ("digest", "pepper")  # fields of a key's record

_SCRIPT = resources.files(__package__).joinpath("tenant_store.lua").read_text()


class Change(msgspec.Struct, frozen=True):
    """Replaces a record if it still is `before`; empty bytes mean that there is none."""

    name: str
    before: bytes
    after: bytes


class TenantStore:
    """Keeps a view of the tenants up to date (`follow`), and writes records."""

    def __init__(
        self,
        redis: Redis,
        tenant_view: TenantsView,
        *,
        max_stale_s: float,
        on_change: Callable[[], None],
    ) -> None:
        """Calls `on_change` whenever the view may have changed."""
        self._redis = redis
        self._write: Any = redis.register_script(_SCRIPT)
        self._tenant_view = tenant_view
        self._max_stale_s = max_stale_s
        self._on_change = on_change
        self._epoch = b""
        self._version = 0
        self._read_at_s: float | None = None
        self._complained = False
        self._reading = asyncio.Lock()

    async def refresh(self) -> None:
        """Loads what changed, or raises Redis's error; cancelling leaves the copy as it was."""
        async with self._reading:  # two at once could apply changes in the wrong order
            await self._refresh()

    async def _refresh(self) -> None:
        """Reads the head first, so that changes made meanwhile are read again the next time."""
        head: Any = await self._redis.hmget(_HEAD, "epoch", "v")
        epoch, version = head[0] or b"", int(head[1] or 0)
        self._tenant_view.is_lost = not epoch and bool(self._epoch)
        if self._tenant_view.is_lost:
            self._complain("Redis has lost the records of keys, tenants and tiers")
            self._age()
            return
        if epoch != self._epoch or version < self._version:
            found: Any = await self._redis.hgetall(_RECORDS)
            self._take(self._tenant_view.replace(_records(list(found), list(found.values()))))
        elif version > self._version:
            changed: Any = await self._redis.zrangebyscore(_CHANGED, f"({self._version}", "+inf")
            if changed:
                found = await self._redis.hmget(_RECORDS, changed)
                self._take(self._tenant_view.put(_records(changed, found)))
        self._epoch, self._version = epoch, version
        self._read_at_s = asyncio.get_running_loop().time()
        self._tenant_view.is_current = True
        if self._complained:
            self._complained = False
            logger.info("keys, tenants and tiers are read again")

    def _take(self, odd: list[str]) -> None:
        for name in odd[:10]:
            logger.warning("the record %s makes no sense to this release and is left out", name)
        self._on_change()

    def _complain(self, words: str) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("%s; this process's copy holds for %g s", words, self._max_stale_s)

    def _age(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._read_at_s is not None and now_s - self._read_at_s > self._max_stale_s:
            self._tenant_view.is_current = False

    async def follow(self) -> None:
        """Keeps the copy up to date until cancelled."""
        async with contextlib.aclosing(announcements(self._redis, _CHANNEL, POLL_S)) as changes:
            async for _ in changes:
                await self._try_refresh()

    async def _try_refresh(self) -> None:
        try:
            await self.refresh()
        except (RedisError, OSError) as error:
            self._complain(f"keys cannot be read ({type(error).__name__})")
            self._age()
        except Exception:  # keys must be followed in any case
            logger.exception("following the keys failed")
            self._age()

    async def write(self, changes: Sequence[Change], audit: AuditEntry) -> None:
        """Writes all changes or none, and loads them here. If cancelled, either may happen.

        Refuses if another admin changed a record meanwhile, there are too many records, or Redis
        does not answer, which may have done it all the same: the same call again succeeds then.
        """
        arguments: list[str | bytes | int] = [secrets.token_hex(8), MAX_RECORDS, _CHANNEL]
        arguments += [MAX_AUDIT, _audited(audit, changes)]
        for change in changes:
            arguments += [change.name, change.before, change.after]
        with _as_protocol_error(writes=True):
            version: int = await self._write(keys=_KEYS, args=arguments)
            if version > 0:
                await self.refresh()
        if version == 0:
            with _as_protocol_error():
                await self.refresh()
            raise ProtocolError("conflict", LOST if self._tenant_view.is_lost else CHANGED)
        if version < 0:
            message = f"There are {MAX_RECORDS} records, and no more may be. Delete some first."
            raise ProtocolError("conflict", message)
        logger.info("%s %s by %s", audit.action, audit.subject, audit.author)

    async def catch_up(self) -> None:
        """Refreshes the copy for an admin's change, or raises `ProtocolError` if Redis is away."""
        with _as_protocol_error():
            await self.refresh()

    async def note_used(self, used_s: Mapping[str, int]) -> None:
        """Stores when keys with a record were last used, or raises Redis's error."""
        known = self._tenant_view.keys
        times: dict[Any, Any] = {key: at_s for key, at_s in used_s.items() if key in known}
        if times:
            await self._redis.hset(_USED, mapping=times)

    async def last_used_s(self, key_ids: Sequence[str]) -> dict[str, int]:
        """Returns when these keys were last used, to about a minute; absent means never.

        Raises `ProtocolError` if Redis does not answer.
        """
        if not key_ids:
            return {}
        with _as_protocol_error():
            found = await self._redis.hmget(_USED, list(key_ids))
        times = zip(key_ids, found, strict=True)
        return {key_id: int(used) for key_id, used in times if used is not None}

    async def audit(self, count: int) -> list[AuditEntry]:
        """Returns the latest changes, newest first; raises `ProtocolError` if Redis is away."""
        with _as_protocol_error():
            found: Any = await self._redis.xrevrange(_AUDIT, count=count)
        return [
            read_entry(entry_id, msgspec.json.decode(fields[b"entry"], type=AuditEntry))
            for entry_id, fields in found
        ]


def _audited(audit: AuditEntry, changes: Sequence[Change]) -> bytes:
    """Encodes an entry; the records that change are added, as they were and as they will be."""
    changed = [change for change in changes if change.before != change.after]
    encoded = msgspec.json.encode(
        msgspec.structs.replace(
            audit,
            before=audit.before | {change.name: _shown(change.before) for change in changed},
            after=audit.after | {change.name: _shown(change.after) for change in changed},
        )
    )
    if len(encoded) <= MAX_ENTRY_BYTES:
        return encoded
    left_out = {"left_out": f"{len(changed)} records"}
    return msgspec.json.encode(msgspec.structs.replace(audit, before=left_out, after=left_out))


def _shown(content: bytes) -> dict[str, Any] | None:
    """Decodes a record without what a key is known by; None for no record."""
    if not content:
        return None
    record: dict[str, Any] = msgspec.json.decode(content)
    return {name: value for name, value in record.items() if name not in _SECRET}


def _records(names: Sequence[bytes], found: Sequence[bytes | None]) -> dict[str, bytes | None]:
    return {name.decode(): content for name, content in zip(names, found, strict=True)}


@contextlib.contextmanager
def _as_protocol_error(*, writes: bool = False) -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:
        raise redis_fault(error, writes=writes) from error
