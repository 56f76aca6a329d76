"""What is told of records while Redis does not answer: only a write may have been done."""

from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from gateway.access.tenant_store import Change, TenantStore
from gateway.access.tenant_view import TenantsView
from gateway.wire.errors import ProtocolError
from router.redis.audit import AuditEntry


class AwayRedis:
    """Answers nothing."""

    def register_script(self, _: str) -> Any:
        return self._fail

    async def _fail(self, *_: Any, **__: Any) -> None:
        raise RedisConnectionError("no route")

    hmget = xrevrange = _fail


async def test_only_a_write_may_have_been_done() -> None:
    redis = cast(Redis, AwayRedis())
    store = TenantStore(redis, TenantsView(), max_stale_s=1.0, on_change=lambda: None)
    audit = AuditEntry(author="ada", action="tiers.set", subject="trial")
    with pytest.raises(ProtocolError, match="It may have done it all the same, so look first"):
        await store.write([Change("tier:trial", b"", b"{}")], audit)
    for read in (store.catch_up(), store.last_used_s(["a"]), store.audit(1)):
        with pytest.raises(ProtocolError) as told:
            await read
        assert told.value.message == "Redis does not answer (ConnectionError). Try again in 1s."
