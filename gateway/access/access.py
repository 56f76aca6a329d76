"""Keeps the keys current; ends the sessions of keys that expire or are revoked. This is an edge."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import RedisError

from backends.drive.beats import beat
from gateway.access.auth import Keys
from gateway.access.key_sessions import KeySessions
from gateway.access.tenant_store import FLUSH_USED_S, TenantStore
from gateway.access.tenant_view import TenantsView
from gateway.config.config import Config, peppers
from gateway.config.first_key import pepper_file
from gateway.config.keys import Peppers
from router.redis.cancelling import cancelled

logger = logging.getLogger("lanewise")

CHECK_S = 0.5  # between two checks for expired keys
SALT_BYTES = 32


@dataclass(slots=True, frozen=True)
class Access:
    """Holds the keys, their store and their peppers, for routes and the admin API."""

    keys: Keys
    tenant_store: TenantStore
    peppers: Peppers

    def configure(self, config: Config) -> None:
        """Replaces what the configuration has; the next check ends the sessions of lost keys."""
        records = (tenant.record() for tenant in config.tenants)
        self.keys.tenant_view.configure(records, config.tiers)
        self.keys.configure(config.tenants)


@asynccontextmanager
async def follow_access(
    redis: Redis, config: Config, key_sessions: KeySessions, wall_s: Callable[[], int]
) -> AsyncIterator[Access]:
    """Follows the keys until the context ends, and ends the sessions of keys that end.

    Raises `CommandError` if the peppers' file cannot be read.
    """
    known = peppers(config, pepper_file(config.auth.peppers_path))
    records = (tenant.record() for tenant in config.tenants)
    tenant_view = TenantsView(records, config.tiers, config.server.limits_percent)
    keys = Keys(config.tenants, tenant_view, known, secrets.token_bytes(SALT_BYTES))

    def check() -> None:
        now_s = wall_s()
        num_ended = key_sessions.end_refused(lambda tenant: keys.refusal(tenant, now_s))
        if num_ended:
            logger.info("%d connections and responses ended with their keys", num_ended)

    tenant_store = TenantStore(
        redis, tenant_view, max_stale_s=config.auth.max_stale_s, on_change=check
    )
    with suppress(RedisError, OSError):  # `follow` logs it and retries
        await tenant_store.refresh()
    followers = [
        asyncio.create_task(tenant_store.follow()),
        asyncio.create_task(_check_often(check)),
        asyncio.create_task(_note_used(tenant_store, keys)),
    ]
    try:
        yield Access(keys, tenant_store, known)
    finally:
        await cancelled(*followers)
        await _store_used(tenant_store, keys)


async def _check_often(check: Callable[[], None]) -> None:
    while True:
        await beat(CHECK_S)
        check()


async def _note_used(tenant_store: TenantStore, keys: Keys) -> None:
    while True:
        await beat(FLUSH_USED_S)
        await _store_used(tenant_store, keys)


async def _store_used(tenant_store: TenantStore, keys: Keys) -> None:
    used_s, keys.used_s = keys.used_s, {}
    try:
        await tenant_store.note_used(used_s)
    except (RedisError, OSError):
        keys.used_s = used_s | keys.used_s  # retried the next time
