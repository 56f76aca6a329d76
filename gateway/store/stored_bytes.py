"""Bounds the bytes of one kind of stored record: by tenant, and of all of them together.

Redis drops what it likes once it is full, so that one tenant's records could push out another's.
So each tenant has a bound, and its own oldest records go first. Where all together come to more
than they may, the tenant that has most loses its oldest, until they fit. This is an edge.
"""

from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, Literal, NamedTuple

from redis.asyncio import Redis

SCRIPT = resources.files(__package__).joinpath("responses.lua").read_text()
# Without a `maxmemory` of Redis, which the defaults are parts of.
DEFAULT_BYTES = 4 << 30
SOON_BYTES = 4 << 20  # saved since the last look at all tenants; then the next one is due
MAX_TRIMMED = 64  # tenants in one look; the next one goes on
MAX_LOOKED_UP = 256  # tenants in one call: whether anything is left of them


class Records(NamedTuple):
    """Says what a kind of record is called in Redis, and which parts of Redis it may fill."""

    tenants: str  # a sorted set: tenants by their bytes
    order: str  # a tenant's sorted set: records by the time of their last use
    sizes: str  # a tenant's hash: records' bytes
    prefix: str  # of a tenant's records
    tenant_part: float
    whole_part: float


RESPONSES = Records("lw1:stored", "stored", "bytes", "r:", 1 / 4, 3 / 4)
ANSWERS = Records("lw1:kept", "kept", "kept_bytes", "i:", 1 / 32, 1 / 8)


class Kept(NamedTuple):
    """Says what a call of the script left."""

    num_bytes: int
    num_dropped: int
    existed: bool


class StoredBytes:
    """Saves and deletes records within the bounds."""

    def __init__(
        self,
        redis: Redis,
        ttl_s: int,
        max_tenant_bytes: int | None = None,
        max_bytes: int | None = None,
        on_dropped: Callable[[int], None] = lambda num: None,
        records: Records = RESPONSES,
    ) -> None:
        """Takes the kind's parts of Redis's `maxmemory` as bounds where none are given."""
        self._redis = redis
        self._ttl_s = ttl_s
        self._given = (max_tenant_bytes, max_bytes)
        self._bounds: tuple[int, int] | None = None  # once Redis was asked
        self._on_dropped = on_dropped
        self._records = records
        self._script: Any = redis.register_script(SCRIPT)
        self._totals: dict[str, int] = {}  # changed since the last `share`
        self._saved_bytes = 0  # since then
        self._looked_up = 0  # how far the look at who has nothing left has come

    @property
    def is_due(self) -> bool:
        """Says whether so much was saved that all tenants should be looked at now."""
        return self._saved_bytes >= SOON_BYTES

    async def save(
        self,
        tenant_id: str,
        response_id: str,
        record: bytes,
        ancestors: Sequence[str],
        *,
        only_new: bool,
    ) -> None:
        """Stores a record, renews its ancestors, and drops the tenant's oldest beyond its bound."""
        max_bytes = (await self._read_bounds())[0]
        await self._call(
            "save", tenant_id, (response_id, *ancestors), max_bytes, record, "1" if only_new else ""
        )
        self._saved_bytes += len(record)

    async def delete(self, tenant_id: str, response_id: str) -> bool:
        """Deletes a record, and returns whether there was one."""
        max_bytes = (await self._read_bounds())[0]
        return (await self._call("delete", tenant_id, (response_id,), max_bytes)).existed

    async def has_any(self, tenant_id: str) -> bool:
        """Says whether a tenant has records."""
        return bool(await self._redis.exists(f"lw1:{{{tenant_id}}}:{self._records.order}"))

    async def forget(self, tenant_id: str) -> None:
        """Drops what is known of a tenant whose records were deleted."""
        tag = f"lw1:{{{tenant_id}}}:"
        await self._redis.delete(f"{tag}{self._records.order}", f"{tag}{self._records.sizes}")
        await self._redis.zrem(self._records.tenants, tenant_id)
        self._totals.pop(tenant_id, None)

    async def share(self) -> None:
        """Says what this process's tenants have, and makes room if all have too much."""
        if not self._totals:
            return
        totals, self._totals, self._saved_bytes = self._totals, {}, 0
        tenants = self._records.tenants
        await self._redis.zadd(tenants, totals)
        max_bytes = (await self._read_bounds())[1]
        found: Any = await self._redis.zrange(tenants, 0, -1, desc=True, withscores=True)
        found, excess = await self._left(found, max_bytes)
        for name, num_bytes in found[:MAX_TRIMMED]:
            if excess <= 0:
                break
            # The largest loses what is too much, and then the next one what it could not.
            kept = await self._call("trim", name.decode(), (), max(0, int(num_bytes) - excess))
            excess -= int(num_bytes) - kept.num_bytes
        if self._totals:
            await self._redis.zadd(tenants, self._totals)
            self._totals = {}
        await self._redis.zremrangebyscore(tenants, "-inf", 0)

    async def _left(
        self, found: list[tuple[bytes, float]], max_bytes: int
    ) -> tuple[list[tuple[bytes, float]], int]:
        """Takes out tenants whose records have all expired; also returns what is too much then.

        Nobody says when the last one does. Some tenants are looked up each time, and all of them
        before anybody loses a record for what only seems too much.
        """
        excess = sum(int(num_bytes) for _, num_bytes in found) - max_bytes
        start, end = 0, len(found)
        if excess <= 0:
            start = self._looked_up if self._looked_up < len(found) else 0
            end = min(len(found), start + MAX_LOOKED_UP)
        self._looked_up = end
        gone: set[bytes] = set()
        for at in range(start, end, MAX_LOOKED_UP):
            names = [name for name, _ in found[at : at + MAX_LOOKED_UP]]
            pipe = self._redis.pipeline(transaction=False)
            for name in names:
                pipe.exists(f"lw1:{{{name.decode()}}}:{self._records.sizes}")
            exist = zip(names, await pipe.execute(), strict=True)
            gone |= {name for name, exists in exist if not exists}
        if gone:
            await self._redis.zrem(self._records.tenants, *gone)
        left = [each for each in found if each[0] not in gone]
        return left, sum(int(num_bytes) for _, num_bytes in left) - max_bytes

    async def _call(
        self,
        operation: Literal["save", "delete", "trim"],
        tenant_id: str,
        response_ids: Sequence[str],
        max_bytes: int,
        *more: bytes | str,
    ) -> Kept:
        tag, records = f"lw1:{{{tenant_id}}}:", self._records
        prefix = tag + records.prefix
        keys = [tag + records.order, tag + records.sizes, *(prefix + each for each in response_ids)]
        reply = await self._script(keys, [operation, prefix, max_bytes, self._ttl_s, *more])
        kept = Kept(int(reply[0]), int(reply[1]), bool(reply[2]))
        self._totals[tenant_id] = kept.num_bytes
        if kept.num_dropped:
            self._on_dropped(kept.num_dropped)
        return kept

    async def _read_bounds(self) -> tuple[int, int]:
        if self._bounds is None:
            info: Any = await self._redis.info("memory")
            nodes = [info] if "maxmemory" in info else list(info.values())  # a Cluster's
            whole = sum(int(node["maxmemory"]) for node in nodes) or DEFAULT_BYTES
            tenant, every = self._given
            self._bounds = (
                tenant if tenant is not None else int(whole * self._records.tenant_part),
                every if every is not None else int(whole * self._records.whole_part),
            )
        return self._bounds
