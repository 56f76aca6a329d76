"""Stores policy versions in Redis: immutable documents, which one is active, and an audit log.

Versions are numbered from 1; version 0 stands for each gateway's configured policy. The active
version is set by compare-and-set, so that two admins never undo each other's change unseen. Every
change is logged and announced. This is an edge.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Iterator
from importlib import resources
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from router.policy.document import Problem
from router.policy.policy import Policy, PolicyError, parse_policy
from router.redis.announcements import announcements
from router.redis.audit import AuditEntry, Author, read_entry

MAX_VERSIONS = 100  # older ones are deleted, except the active and the shadow version
MAX_LISTED = 1_000  # audit entries in one response: all that are kept
MAX_VERSION = (1 << 53) - 1  # what Lua counts exactly
MAX_COMMENT_CHARS = 500
PUT_ATTEMPTS = 5  # when others store at the same time

_SCRIPT = resources.files(__package__).joinpath("store.lua").read_text()
_STATE, _PAST, _AUDIT = "lw1:{policy}:state", "lw1:{policy}:past", "lw1:{policy}:audit"
_CHANNEL = "lw1:{policy}:changes"


class PolicyStoreUnavailable(Exception):  # noqa: N818 - says what is the case
    """Redis does not answer; the call may or may not have taken effect."""


class PolicyConflict(Exception):  # noqa: N818
    """Somebody else activated another version (`active`) since the caller looked."""

    def __init__(self, active: int, expected: int) -> None:
        super().__init__(
            f"version {active} is in force, not {expected} as expected: somebody changed it; "
            "look at the history, then try again"
        )
        self.active = active


class NoSuchVersion(Exception):  # noqa: N818
    """The version never existed, or was deleted because it was old."""

    def __init__(self, version: int) -> None:
        super().__init__(f"there is no policy version {version}")


class NothingBefore(NoSuchVersion):
    """No policy was in force before the one that is, as far as that is known."""

    def __init__(self) -> None:
        Exception.__init__(self, "no policy was in force before the one that is")


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one version, without its content."""

    version: int
    sha256: str
    label: str  # what the document calls its version
    author: str
    comment: str
    at: int  # Unix time


_FIELDS = Stored.__struct_fields__[1:]  # of a version's hash, which has the content besides


class State(msgspec.Struct, frozen=True):
    """Says which versions are in force."""

    last: int = 0  # the highest version there is
    active: int = 0  # 0: each gateway's configured policy
    shadow: int = 0  # 0: none
    revision: int = 0  # grows with every change of the two; 0: never changed, or all was lost


PREDICTION_TTL_S = 30 * 86_400  # after which nobody asks any more whether it came

# Action -> what of the state it changes.
_CHANGES = {"store": "last", "activate": "active", "rollback": "active", "shadow": "shadow"}


class PolicyStore:
    """Reads and changes the stored policies in one or two round trips per call.

    Cancelling a call is safe, but may not undo it. Every method raises `PolicyStoreUnavailable`
    if Redis does not answer, and `NoSuchVersion` for a version that does not exist.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._script: Any = redis.register_script(_SCRIPT)  # loads itself where it is missing

    async def state(self) -> State:
        """Reads which versions are in force."""
        with _as_unavailable():
            found: Any = await self._redis.hmget(_STATE, list(State.__struct_fields__))
        return State(*(int(value or 0) for value in found))

    async def put(
        self, content: bytes, *, author: Author, comment: str = "", floor: int = 0
    ) -> tuple[int, bool]:
        """Stores a document as the next version, above `floor` even if Redis lost all others.

        Returns its number and whether it is new: content equal to the latest version's is not.
        Raises `PolicyError` if the document is not valid.
        """
        label = (await asyncio.to_thread(parse_policy, content)).version
        digest = hashlib.sha256(content).hexdigest()
        with _as_unavailable():
            for _ in range(PUT_ATTEMPTS):
                last = (await self.state()).last
                # Not by its hash, which outlives a document that was damaged or lost.
                known: Any = await self._redis.hget(_key(last), "content") if last else None
                if known == content:
                    return last, False
                version = max(last, floor) + 1
                drop = max(0, version - MAX_VERSIONS)
                arguments = [version, drop, content, digest, label]
                reply = await self._call("put", author, comment, version, drop, *arguments)
                if reply[0] == 1:
                    return version, True
        raise PolicyStoreUnavailable("others store policies at the same time; try again")

    async def load(self, version: int) -> tuple[Stored, bytes]:
        """Reads a version and its content; `PolicyError` if that is lost."""
        with _as_unavailable():
            found: Any = await self._redis.hgetall(_key(version))
        if not found:
            raise NoSuchVersion(version)
        if b"content" not in found:  # an empty document would be the default policy
            problem = Problem("Redis has lost its document: apply your own copy of it")
            raise PolicyError((problem,), f"v{version}")
        stored = _stored(version, [found.get(name.encode()) for name in _FIELDS])
        return stored, found[b"content"]

    async def versions(self) -> list[Stored]:
        """Lists all versions, the latest first."""
        state = await self.state()
        numbers = set(range(max(1, state.last - MAX_VERSIONS + 1), state.last + 1))
        numbers |= {state.active, state.shadow} - {0}
        listed = sorted(numbers, reverse=True)
        with _as_unavailable():
            pipe = self._redis.pipeline(transaction=False)
            for number in listed:
                pipe.hmget(_key(number), _FIELDS)
            rows = await pipe.execute()
        found = zip(listed, rows, strict=True)
        return [_stored(number, row) for number, row in found if row[0] is not None]

    async def activate(
        self, version: int, *, expected: int, author: Author, comment: str = ""
    ) -> None:
        """Activates a version (0: the configured one), or raises `PolicyConflict`."""
        await self._activate(version, expected, author, comment, "activate")

    async def rollback(self, *, expected: int, author: Author, comment: str = "") -> int:
        """Activates the previous version as `activate` does; returns its number."""
        version = await self.before(expected)
        await self._activate(version, expected, author, comment, "rollback")
        return version

    async def before(self, expected: int) -> int:
        """Reads which version a rollback puts in force; raises `PolicyConflict` as it does."""
        active = (await self.state()).active
        if active != expected:
            raise PolicyConflict(active, expected)
        with _as_unavailable():
            past = await self._redis.lindex(_PAST, 0)
        if past is None:
            raise NothingBefore
        return int(past)

    async def _activate(
        self, version: int, expected: int, author: Author, comment: str, action: str
    ) -> None:
        if not 0 <= version <= MAX_VERSION:
            raise NoSuchVersion(version)
        arguments = [version, expected, action, MAX_VERSIONS]
        with _as_unavailable():
            reply = await self._call("activate", author, comment, version, expected, *arguments)
        if reply == [0, -1]:
            raise NoSuchVersion(version)
        if reply != [1]:
            raise PolicyConflict(reply[1], expected)

    async def shadow(self, version: int, *, author: Author, comment: str = "") -> None:
        """Lets a version (0: none) decide beside the active one, without effect."""
        if not 0 <= version <= MAX_VERSION:
            raise NoSuchVersion(version)
        with _as_unavailable():
            reply = await self._call("shadow", author, comment, version, 0, version)
        if reply[0] != 1:
            raise NoSuchVersion(version)

    async def keep_prediction(self, version: int, prediction: bytes) -> None:
        """Keeps what a back-test said of a version, for `PREDICTION_TTL_S`."""
        with _as_unavailable():
            await self._redis.set(_prediction_key(version), prediction, ex=PREDICTION_TTL_S)

    async def prediction(self, version: int) -> bytes | None:
        """Reads what was kept of a version; None if nothing was, or it is too old."""
        with _as_unavailable():
            found: Any = await self._redis.get(_prediction_key(version))
        return bytes(found) if found is not None else None

    async def audit(self, limit: int = MAX_LISTED) -> list[AuditEntry]:
        """Reads the latest changes, the last one first."""
        with _as_unavailable():
            entries: Any = await self._redis.xrevrange(_AUDIT, count=min(limit, MAX_LISTED))
        return [_audit_entry(entry_id, fields) for entry_id, fields in entries]

    def changes(self, poll_s: float) -> AsyncGenerator[None]:
        """Yields at once, at every announced change, and every `poll_s` in between."""
        return announcements(self._redis, _CHANNEL, poll_s)

    async def _call(
        self,
        operation: str,
        author: Author,
        comment: str,
        version: int,
        other: int,
        *arguments: Any,
    ) -> list[int]:
        keys = [_STATE, _PAST, _AUDIT, _key(version), _key(other)]
        origin = (author.name, comment[:MAX_COMMENT_CHARS], author.key, author.request_id)
        args = [operation, *origin, *arguments]
        reply: list[int] = await self._script(keys=keys, args=args)
        return reply


def read_version(version: int, content: bytes) -> Policy:
    """Parses a stored policy, named by its number; `PolicyError` if it needs a newer gateway."""
    return parse_policy(content, f"v{version}").named(f"v{version}")


@contextlib.contextmanager
def _as_unavailable() -> Iterator[None]:
    try:
        yield
    except (TimeoutError, RedisError, OSError) as error:
        raise PolicyStoreUnavailable(f"Redis: {type(error).__name__}: {error}") from error


def _prediction_key(version: int) -> str:
    return f"lw1:{{policy}}:prediction:{version}"


def _key(version: int) -> str:
    return f"lw1:{{policy}}:v:{version}"


def _stored(version: int, values: list[bytes | None]) -> Stored:
    """Makes a version's description of whatever is there: a damaged one must be shown, too."""
    *texts, at = ((value or b"").decode(errors="replace") for value in values)
    named = dict(zip(_FIELDS, texts, strict=False))
    return Stored(version=version, at=int(at) if at.isdecimal() else 0, **named)


def _audit_entry(entry_id: bytes, fields: dict[bytes, bytes]) -> AuditEntry:
    texts = {name.decode(): value.decode() for name, value in fields.items()}
    changed = _CHANGES.get(texts["action"], texts["action"])
    entry = AuditEntry(
        author=texts["author"],
        key=texts.get("key", ""),
        request_id=texts.get("request_id", ""),
        action=f"policies.{texts['action']}",
        subject=f"v{texts['to']}",
        before={changed: int(texts["from"])},
        after={changed: int(texts["to"])},
        comment=texts["comment"],
    )
    return read_entry(entry_id, entry)
