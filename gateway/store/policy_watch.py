"""Keeps a gateway on the active policy by following the policy store.

A change is loaded when it is announced, or at the next poll. If the store is away, has lost its
data, or holds a document that this gateway cannot read, the last good policy stays in force. Each
change is one assignment, which no running stream notices. This is an edge.
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
    """Holds the policy that decides and the shadow policy, with their versions."""

    policy: Policy
    version: int = 0  # of the store; 0: the configured policy
    source: Source = "configured"
    shadow: Policy | None = None
    shadow_version: int = 0


class _LastGood(msgspec.Struct, frozen=True):
    version: int
    content: str  # base64, since the document's hash is of its exact bytes


class PolicyWatch:
    """Follows the policy store; `current` holds the policies in force."""

    def __init__(
        self,
        store: PolicyStore,
        configured: Policy,
        *,
        cache: Path | None,
        on_change: Callable[[InForce], None],
        on_reload: Callable[[Reload], None],
    ) -> None:
        """Keeps the last good policy in `cache`, for a start without the store."""
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
        """Loads the policy in force or, if the store does not answer, the last good one."""
        if not await self.refresh() or self._seen.revision == 0:
            await self._restore()
        self._on_change(self.current)

    def configure(self, policy: Policy) -> None:
        """Replaces the configured policy, which is in force unless a version is."""
        self.configured = policy
        if self.current.source == "configured":
            self.current = msgspec.structs.replace(self.current, policy=policy)
            self._on_change(self.current)

    async def run(self) -> None:
        """Follows the store until cancelled."""
        async with contextlib.aclosing(self.store.changes(POLL_S)) as changes:
            async for _ in changes:
                await self.refresh()

    async def refresh(self) -> bool:
        """Loads the store's state; returns false if it does not answer or is not valid."""
        try:
            state = await self.store.state()
            self.highest = max(self.highest, state.last)
            # Revision 0: nothing was ever changed, or the store has lost its data.
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
        """Loads both versions, in a thread since parsing may take part of a second."""
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
        """Writes the last good policy to disk; a failure is logged only."""
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
        except (OSError, ValueError) as error:  # ValueError: damaged, or not a valid policy
            logger.warning("policy_cache %s cannot be used: %s", self._cache, error)
            return
        self.highest = max(self.highest, kept.version)
        self.current = InForce(policy=policy, version=kept.version, source="last_good")
        logger.warning("policy %s, the last good one, is in force", policy.version)


def _pointers(state: State) -> tuple[int, int, int]:
    """Returns what to compare: a store that lost its data restarts its revisions."""
    return state.revision, state.active, state.shadow


def _write(path: Path, content: bytes | None) -> None:
    """Replaces a file atomically; None deletes it."""
    if content is None:
        path.unlink(missing_ok=True)
        return
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    fresh.write_bytes(content)
    fresh.replace(path)
