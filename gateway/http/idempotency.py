"""Answers a request that has an `Idempotency-Key` once, and again with the same answer.

Such a request goes on when its client leaves, since that client may ask again. Asked again while it
runs, the second waits for its answer. What failed, was refused or was stopped is not kept: asked
again, it runs again. The answer of a background response that is not streamed is that it has begun;
that is kept, whatever comes of it, since its id tells. This is an edge.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Mapping
from typing import Any

from litestar.response.base import ASGIResponse
from litestar.types import Message, Receive, Scope, Send

from gateway.http.services import Post, Services
from gateway.http.streams import HttpAnswer
from gateway.store.kept_answers import MARK_TTL_S, KeptAnswer
from gateway.transport.byte_budgets import ByteBudgets
from gateway.wire.errors import ProtocolError
from router.classify.task import Tenant

HEADER = "idempotency-key"
REPLAYED = (b"idempotent-replayed", b"true")  # Stripe's header, for an answer from before
MAX_KEY_CHARS = 255  # Stripe's bound
MAX_KEPT_BYTES = 8 << 20  # of one answer
RENEW_INTERVAL_S = MARK_TTL_S / 3
MAX_RENEWALS = round(24 * 3_600 / RENEW_INTERVAL_S)  # of a day, which is more than any task takes
WAIT_S, LOOK_S = 60.0, 0.25  # for the answer of the same request, and between two looks


def answered_once(
    post: Post,
    path: str,
    services: Services,
    tenant: Tenant,
    content: bytes,
    receive: Receive,
    headers: Mapping[str, str],
) -> Awaitable[ASGIResponse]:
    """Calls `post`, or answers as before if the request's key has been answered.

    Raises `ProtocolError` if the key is not valid, has another request, or its request runs on for
    longer than a minute; and what `post` raises.
    """
    if HEADER not in headers:
        return post(services, tenant, content, receive, headers)
    return _answered_under_key(post, path, services, tenant, content, headers)


async def _answered_under_key(
    post: Post,
    path: str,
    services: Services,
    tenant: Tenant,
    content: bytes,
    headers: Mapping[str, str],
) -> ASGIResponse:
    key = headers[HEADER]
    _check(key, tenant)
    name = hashlib.sha256(key.encode()).hexdigest()
    request = hashlib.sha256(path.rstrip("/").encode() + b"\n" + content).digest()
    kept = await _claimed(services, tenant, name, request)
    if kept is not None:
        return _Replay(kept)
    run = _Run(services, tenant.id, name, request)
    try:
        answer = await post(services, tenant, content, _stays, headers)
    except BaseException:
        await run.end(None)
        raise
    return _Recorded(answer, run, services.gw.budgets.in_flight)


def _check(key: str, tenant: Tenant) -> None:
    if not 0 < len(key) <= MAX_KEY_CHARS:
        message = f"'Idempotency-Key' has to have 1 to {MAX_KEY_CHARS} characters, got {len(key)}."
        raise ProtocolError("invalid_value", message, param="Idempotency-Key")
    if tenant.store == "never":
        message = "'Idempotency-Key' needs answers to be kept, which this tenant does not allow."
        raise ProtocolError("unsupported_parameter", message, param="Idempotency-Key")


async def _claimed(
    services: Services, tenant: Tenant, name: str, request: bytes
) -> KeptAnswer | None:
    """Claims a key, or waits for the answer of the request that has it."""
    for _ in range(round(WAIT_S / LOOK_S)):
        try:
            return await services.kept_answers.claim(tenant.id, name, request)
        except ProtocolError as error:
            if error.code != "idempotency_key_in_use":
                raise
        await asyncio.sleep(LOOK_S)
    return await services.kept_answers.claim(tenant.id, name, request)


async def _stays() -> Any:
    """Stands for a client that never leaves."""
    await asyncio.Event().wait()


class _Run:
    """Is a request that runs under a key, which is marked meanwhile."""

    def __init__(self, services: Services, tenant_id: str, name: str, request: bytes) -> None:
        self.tenant_id = tenant_id
        self.request = request
        self._name = name
        self._answers = services.kept_answers
        self._renewing = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        for _ in range(MAX_RENEWALS):
            await asyncio.sleep(RENEW_INTERVAL_S)
            await self._answers.renew(self.tenant_id, self._name, self.request)

    async def end(self, answer: KeptAnswer | None) -> None:
        """Keeps the answer, unless it is None; without Redis there is nothing to keep it in."""
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)
        try:
            await self._answers.end(self.tenant_id, self._name, answer)
        except ProtocolError:  # the client has its answer; the mark falls away by itself
            return


class _Replay(HttpAnswer):
    """Sends an answer that was given before."""

    def __init__(self, kept: KeptAnswer) -> None:
        super().__init__(b"", {}, kept.body)
        self._headers = [*kept.headers, REPLAYED]


class _Recorded(HttpAnswer):
    """Records an answer while it is sent, and keeps it if it came to its end."""

    def __init__(self, answer: ASGIResponse, run: _Run, in_flight: ByteBudgets) -> None:
        super().__init__(b"", {})
        self._answer = answer
        self._run = run
        self._in_flight = in_flight
        self._recorded: list[bytes] = []
        self._num_bytes = 0
        self._status = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer to its end, even if the client leaves."""

        async def record(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._status = message["status"]
                self._headers = [
                    (name, value)
                    for name, value in message["headers"]
                    if name != b"content-length" and b"ratelimit" not in name
                ]
            elif message["type"] == "http.response.body":
                self._add(message["body"])
            await send(message)

        # Without the state there is no way around `send` to the socket.
        told: Any = {**scope, "state": {}}
        try:
            await self._answer(told, _stays, record)
        finally:
            self._in_flight.give(self._run.tenant_id, self._num_bytes)
            await self._run.end(self._kept())

    def _add(self, body: bytes) -> None:
        """Records a piece of the body, within the bounds of an answer and of the tenant."""
        if not self._status:
            return
        if self._num_bytes + len(body) > MAX_KEPT_BYTES or not self._in_flight.take(
            self._run.tenant_id, len(body)
        ):
            self._status = 0  # it is not kept
            return
        self._num_bytes += len(body)
        self._recorded.append(body)

    def _kept(self) -> KeptAnswer | None:
        if self._status != 200 or not getattr(self._answer, "is_final", True):
            return None
        return KeptAnswer(self._run.request, tuple(self._headers), b"".join(self._recorded))
