"""Makes and takes the tickets with which pages open their sockets.

A ticket stands for a key for half a minute and for one socket, so that a page needs no key in the
handshake, or none at all where its own server asks for the ticket. Redis keeps its digest, so
that any gateway takes it. This is an edge.
"""

import hashlib
import secrets
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.wire.errors import ProtocolError
from router.classify.task import Tenant

LIFE_S = 30
MAX_PER_KEY = 1_000  # in `LIFE_S`
_SECRET_BYTES = 32
_TAG = "lw1:{socket_tickets}"


class Holder(msgspec.Struct, frozen=True):
    """Says whose ticket it is."""

    tenant_id: str
    key_id: str


class SocketTickets:
    """Makes and takes tickets that hold for all gateways on one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def make(self, tenant: Tenant) -> str:
        """Returns a new ticket; raises `ProtocolError` if there are too many, or Redis is away."""
        ticket = secrets.token_urlsafe(_SECRET_BYTES)
        holder = msgspec.json.encode(Holder(tenant.id, tenant.key_id))
        counter = f"{_TAG}:made:{tenant.id}/{tenant.key_id}"
        try:
            async with self._redis.pipeline(transaction=True) as calls:
                calls.set(counter, 0, ex=LIFE_S, nx=True)
                calls.incr(counter)
                _, num_made = await calls.execute()
            if num_made <= MAX_PER_KEY:
                await self._redis.set(_name(ticket), holder, ex=LIFE_S)
        except (RedisError, OSError) as error:
            raise _away(error) from error
        if num_made > MAX_PER_KEY:
            raise ProtocolError(
                "rate_limit_exceeded",
                f"This key made {MAX_PER_KEY} tickets within {LIFE_S} s, as many as it may. "
                f"Try again in {LIFE_S}s.",
                retry_after_us=LIFE_S * 1_000_000,
            )
        return ticket

    async def take(self, ticket: str) -> Holder:
        """Returns whose ticket it is, and ends it.

        Raises `ProtocolError` if it was used, is too old or never was, or Redis is away.
        """
        try:
            found: Any = await self._redis.getdel(_name(ticket))
        except (RedisError, OSError) as error:
            raise _away(error) from error
        if found is None:
            message = (
                f"This ticket was used, or is older than {LIFE_S} s. Each opens one socket: ask "
                "for another with POST /v1/socket_tickets."
            )
            raise ProtocolError("invalid_api_key", message)
        return msgspec.json.decode(found, type=Holder)


def _name(ticket: str) -> str:
    return f"{_TAG}:{hashlib.sha256(ticket.encode()).hexdigest()}"


def _away(error: Exception) -> ProtocolError:
    message = f"Redis does not answer ({type(error).__name__}): no tickets. Try again in 1s."
    return ProtocolError("server_is_overloaded", message, retry_after_us=1_000_000)
