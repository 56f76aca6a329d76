"""Makes and checks API keys, and defines the record that is kept of each.

A key is `lanewise_<environment>_<id>_<secret>`. The id is public: it finds the record, and names
the key in logs, lists and the usage ledger. Only an HMAC of the key under a pepper is kept; peppers
have versions, so that they can be rotated. A fast HMAC suffices, unlike for passwords: nobody
guesses 256 random bits, and a slow hash would let anybody spend our CPU.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from gateway.config.tenants import LimitsOfKey

ID_BYTES = 8  # random, in an id
SECRET_BYTES = 32
MIN_PEPPER_CHARS = 32
MAX_NAME_CHARS = 100

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_CHARS, _SECRET_CHARS = 11, 43  # of those bytes in base 62
_KEY = re.compile(
    rf"lanewise_[a-z0-9]{{1,16}}_([0-9A-Za-z]{{{_ID_CHARS}}})_[0-9A-Za-z]{{{_SECRET_CHARS}}}"
)
_PEPPER = re.compile(r"([a-z0-9]{1,16}):(\S+)")

# For an embedded Redis, and for setups with the development key; both are on loopback only.
DEVELOPMENT_PEPPERS = "dev:lanewise-development-pepper-not-for-production"

KeyState = Literal["active", "expired", "revoked"]


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Is the record of a key; times are Unix seconds."""

    id: str
    tenant_id: str
    digest: str  # hex HMAC-SHA256 of the whole key
    pepper: str  # version of the pepper
    created_s: int
    created_by: str  # the admin key's name
    name: str = ""
    not_after_s: int | None = None  # it expires at this second
    revoked_s: int | None = None
    limits: LimitsOfKey = {}  # its own, by group instead of those of each key of its tenant
    replaces: str | None = None  # the id it was rotated from

    def state(self, now_s: int) -> KeyState:
        """Returns the key's state at this Unix time."""
        if self.revoked_s is not None:
            return "revoked"
        if self.not_after_s is not None and now_s >= self.not_after_s:
            return "expired"
        return "active"


class Peppers(msgspec.Struct, frozen=True):
    """Holds the peppers by version; new keys use the current one, and need one."""

    by_version: Mapping[str, bytes] = {}
    current: str | None = None


def parse_peppers(text: str) -> Peppers:
    """Parses `version:secret`, separated by white space or commas, the current one first.

    The message of its `ValueError` never repeats a secret.
    """
    by_version: dict[str, bytes] = {}
    for position, word in enumerate(re.split(r"[\s,]+", text.strip()), start=1):
        found = _PEPPER.fullmatch(word)
        if found is None or len(found[2]) < MIN_PEPPER_CHARS:
            raise ValueError(
                f"pepper {position}: expected version:secret, the version of a-z, 0-9, the secret "
                f"at least {MIN_PEPPER_CHARS} characters"
            )
        if found[1] in by_version:
            raise ValueError(f"pepper {position}: version {found[1]!r} is there twice")
        by_version[found[1]] = found[2].encode()
    return Peppers(by_version, next(iter(by_version)))


def new_key(environment: str, chance: bytes) -> tuple[str, str]:
    """Makes a key's id and the key from `ID_BYTES + SECRET_BYTES` random bytes."""
    assert len(chance) == ID_BYTES + SECRET_BYTES
    key_id = _base62(chance[:ID_BYTES], _ID_CHARS)
    secret = _base62(chance[ID_BYTES:], _SECRET_CHARS)
    return key_id, f"lanewise_{environment}_{key_id}_{secret}"


def key_id_of(key: str) -> str | None:
    """Returns the id in a key; None if the text is not a key."""
    found = _KEY.fullmatch(key)
    return None if found is None else found[1]


def digest_of(key: str, pepper: bytes) -> str:
    """Returns the HMAC that is kept of a key."""
    return hmac.new(pepper, key.encode(), hashlib.sha256).hexdigest()


def is_key_of(record: KeyRecord | None, key: str, peppers: Peppers) -> bool:
    """Says whether a presented key is the recorded one.

    It takes the same time without a record, so that timing does not reveal which ids exist.
    """
    pepper = None if record is None else peppers.by_version.get(record.pepper)
    digest = digest_of(key, pepper or b"nobody's")
    same = hmac.compare_digest(digest, "" if record is None else record.digest)
    return same and pepper is not None


def _base62(chance: bytes, num_chars: int) -> str:
    number = int.from_bytes(chance, "big")
    digits = []
    for _ in range(num_chars):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
