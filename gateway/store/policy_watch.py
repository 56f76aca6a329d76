"""Keeps a gateway on the policy in force: follows the store, and survives without it.

A change is taken within a moment of its announcement, or at the next poll. Whatever goes wrong (the
store is away, has lost everything, or holds a document that this gateway cannot read), the last
good policy stays in force. Each change is one assignment between two tasks: no stream notices.

An edge: it uses the event loop, the operating system and the log.
"""

import asyncio
import base64
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from router.policy.policy import Policy, PolicyError
from router.policy.store import (
    NoSuchVersion,
    PolicyStore,
    PolicyStoreUnavailable,
    State,
    read_version,
)

logger = logging.getLogger("lanewise")

POLL_S = 0.5

Source = Literal["configured", "store", "last_good"]
Reload = Literal["ok", "invalid", "unavailable"]


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """The policies that decide, and the one that only watches."""

    policy: Policy
    version: int = 0  # of the store; 0: the configured policy
    source: Source = "configured"
    shadow: Policy | None = None
    shadow_version: int = 0


class _LastGood(msgspec.Struct, frozen=True):
    """What is kept on disk."""

    version: int
    content: str  # base64: a document's bytes are signed by their hash, so they stay as they are


class PolicyWatch:
    """Follows the store while `run` runs; `current` is what is in force."""

    def __init__(
        self,
        store: PolicyStore,
        configured: Policy,
        *,
        cache: Path | None,
        on_change: Callable[[InForce], None],
        on_reload: Callable[[Reload], None],
    ) -> None:
        """`cache`: where the last good policy is kept for a start without the store."""
        self.store = store
        self.current = InForce(policy=configured)
        self.highest = 0  # version ever seen
        self.configured = configured
        self._cache = cache
        self._on_change = on_change
        self._on_reload = on_reload
        self._seen = State()
        self._complaint = ""  # logged once, not with every poll

    async def start(self) -> None:
        """Find what is in force; without an answer from the store, the last good policy."""
        if not await self.refresh() or self._seen.revision == 0:
            await self._restore()
        self._on_change(self.current)

    async def run(self) -> None:
        """Follow the store for ever; cancel it to stop."""
        async with contextlib.aclosing(self.store.changes(POLL_S)) as changes:
            async for _ in changes:
                await self.refresh()

    async def refresh(self) -> bool:
        """Take what the store says now; whether it answered with something that can be taken."""
        try:
            state = await self.store.state()
            self.highest = max(self.highest, state.last)
            # Revision 0: nobody has changed anything yet, or the store has lost what it knew.
            if state.revision and _pointers(state) != _pointers(self._seen):
                await self._take(state)
                self._seen = state
        except PolicyStoreUnavailable as error:
            self._fail("unavailable", str(error))
            return False
        except (PolicyError, NoSuchVersion) as error:
            self._fail("invalid", str(error))
            return False
        self._complaint = ""
        return True

    async def _take(self, state: State) -> None:
        """Load both versions, then put them in force together.

        They are read in a thread: a document of the largest size takes part of a second.
        """
        policy, content = self.configured, None
        if state.active:
            _, content = await self.store.load(state.active)
            policy = await asyncio.to_thread(read_version, state.active, content)
        shadow = None
        if state.shadow:
            _, shadow_content = await self.store.load(state.shadow)
            shadow = await asyncio.to_thread(read_version, state.shadow, shadow_content)
        self.current = InForce(
            policy=policy,
            version=state.active,
            source="store" if state.active else "configured",
            shadow=shadow,
            shadow_version=state.shadow,
        )
        self._on_change(self.current)
        self._on_reload("ok")
        logger.info("policy %s is in force", policy.version)
        await self._keep(state.active, content)

    def _fail(self, result: Reload, complaint: str) -> None:
        self._on_reload(result)
        if complaint != self._complaint:
            self._complaint = complaint
            version = self.current.policy.version
            logger.warning("policy %s stays in force: %s", version, complaint)

    async def _keep(self, version: int, content: bytes | None) -> None:
        """Write the last good policy down; a failure costs a start without the store."""
        if self._cache is None:
            return
        kept = None
        if content is not None:
            kept = msgspec.json.encode(_LastGood(version, base64.b64encode(content).decode()))
        try:
            await asyncio.to_thread(_write, self._cache, kept)
        except OSError as error:
            logger.warning("policy_cache %s: it is not kept: %s", self._cache, error)

    async def _restore(self) -> None:
        if self._cache is None:
            return
        try:
            kept = msgspec.json.decode(
                await asyncio.to_thread(self._cache.read_bytes), type=_LastGood
            )
            policy = read_version(kept.version, base64.b64decode(kept.content, validate=True))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:  # ValueError: not ours, or no valid policy any more
            logger.warning("policy_cache %s cannot be used: %s", self._cache, error)
            return
        self.highest = max(self.highest, kept.version)
        self.current = InForce(policy=policy, version=kept.version, source="last_good")
        logger.warning("policy %s, the last good one, is in force", policy.version)


def _pointers(state: State) -> tuple[int, int, int]:
    """What changes with what is in force; a store that forgot may count its revisions anew."""
    return state.revision, state.active, state.shadow


def _write(path: Path, content: bytes | None) -> None:
    """Replace a file whole, so that a crash leaves the old one or the new one."""
    if content is None:
        path.unlink(missing_ok=True)
        return
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    fresh.write_bytes(content)
    fresh.replace(path)
