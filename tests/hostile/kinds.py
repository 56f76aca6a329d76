"""Lists the hostile kinds: what each sends, and how; `ask` tells what was wrong of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tests.hostile import bodies, wire
from tests.hostile.admin import ADMIN
from tests.hostile.client import (
    UNFINISHED_TIMEOUT_S,
    HostileSocket,
    Target,
    after_handshake,
    exchange,
    posted,
)
from tests.hostile.live import LIVE

Ask = Callable[[Target], Awaitable[str]]


class Kind(NamedTuple):
    """Is one thing to send; `ask` returns the fault, empty if the gateway held."""

    name: str
    ask: Ask


def as_frame(body: str) -> str:
    """Returns a create of this body; one that is no object goes as it is."""
    if not body.startswith("{") or body.startswith('{"type"'):
        return body
    return '{"type":"response.create",' + body[1:].lstrip()


def framed(name: str, text: str | bytes) -> Kind:
    """Returns a text frame on a socket of its own."""

    async def ask(target: Target) -> str:
        async with HostileSocket.open(target.port, target.key) as socket:
            return await socket.ask(text)

    return Kind(name, ask)


def sent(name: str, data: bytes, *, admin: bool = False, **how: Any) -> Kind:
    """Sends bytes on a connection of their own; `how` is that of `exchange`."""

    def ask(target: Target) -> Awaitable[str]:
        return exchange(target.port, data, target.admin_key if admin else target.key, **how)

    return Kind(name, ask)


def upgraded(name: str, data: bytes, *, half_closes: bool = False) -> Kind:
    """Sends bytes on an open socket of their own."""

    def ask(target: Target) -> Awaitable[str]:
        return after_handshake(
            target.port, wire.handshake(), data, target.key, half_closes=half_closes
        )

    return Kind(name, ask)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def kinds() -> Iterator[Kind]:
    """Yields all of them."""
    for name, text in bodies.BODIES.items():
        yield framed(f"frame, {name}", as_frame(text))
        yield sent(f"body, {name}", posted("/v1/responses", _encoded(text)))
    for name, text in bodies.FRAMES.items():
        yield framed(f"frame, {name}", text)
    for name, text in bodies.CHATS.items():
        yield sent(f"chat, {name}", posted("/v1/chat/completions", _encoded(text)))
    for name, data in wire.HTTP.items():
        yield sent(f"HTTP, {name}", data)
    for name, data in wire.UNFINISHED.items():
        yield sent(f"unfinished, {name}", data, timeout_s=UNFINISHED_TIMEOUT_S)
    for name, data in wire.HANDSHAKES.items():
        yield sent(f"handshake, {name}", data, until_answered=True)
    for name, data in wire.SOCKETS.items():
        yield upgraded(f"socket, {name}", data)
    for name, act in LIVE.items():
        yield Kind(f"live, {name}", act)
    for name, (method, path, text) in ADMIN.items():
        data = posted(path, _encoded(text), method=method)
        yield sent(f"admin, {name}", data, admin=True)


async def faults_of(
    target: Target, asked: Iterable[Kind], num_at_once: int
) -> AsyncIterator[tuple[Kind, str]]:
    """Asks each kind, a few at once; yields those that were answered wrongly, with what was."""
    waiting: set[asyncio.Task[tuple[Kind, str]]] = set()

    async def ask(kind: Kind) -> tuple[Kind, str]:
        try:
            return kind, await kind.ask(target)
        except OSError as error:
            return kind, f"refused: {error}"

    for kind in asked:
        waiting.add(asyncio.create_task(ask(kind)))
        if len(waiting) >= num_at_once:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.result()[1]:
                    yield task.result()
    for task in asyncio.as_completed(waiting):
        found = await task
        if found[1]:
            yield found
