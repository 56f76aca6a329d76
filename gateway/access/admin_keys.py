"""Finds the admin of an admin key; tenants' keys are not accepted."""

import hashlib
import hmac
from collections.abc import Iterable, Mapping

import msgspec

from gateway.access.auth import bearer_of, is_local
from gateway.config.development import DEVELOPMENT_ADMIN_KEY
from gateway.config.sections import AdminKeyConfig
from gateway.wire.errors import ProtocolError

KEY_CHARS = 12  # of a digest: enough to tell keys apart, and of no use to find one


class Admin(msgspec.Struct, frozen=True):
    """Names an admin as the author of the changes made with the key."""

    name: str
    read_only: bool
    key: str = ""  # the first digits of its SHA-256, for the audit


class AdminKeys:
    """Holds the known keys' digests, and compares a key with all of them in constant time."""

    def __init__(self, keys: Iterable[AdminKeyConfig]) -> None:
        self.num_refused = 0  # keys that were missing or wrong, since start
        self.configure(keys)

    def configure(self, keys: Iterable[AdminKeyConfig]) -> None:
        """Replaces the known keys."""
        self._admins = [_known(key) for key in keys]

    def admin(self, headers: Mapping[str, str], *, writes: bool) -> Admin:
        """Returns the admin who sent these headers (names in lower case).

        Raises 404 if no key is configured, 401 for a wrong key, and 403 for a read-only key that
        `writes`; the message never repeats the key.
        """
        if not self._admins:
            message = "The admin API is off. Configure `admin.keys`, or set LANEWISE_ADMIN_KEY."
            raise ProtocolError("not_found", message)
        key = bearer_of(headers)
        if not key:
            self.num_refused += 1
            message = "No admin key given. Send it as 'Authorization: Bearer <key>'."
            raise ProtocolError("invalid_api_key", message)
        admin = self._find(_digest(key), headers.get("host", ""))
        if admin is None:
            self.num_refused += 1
            message = (
                "Incorrect admin key. The right ones are in `admin.keys` or LANEWISE_ADMIN_KEY."
            )
            raise ProtocolError("invalid_api_key", message)
        if writes and admin.read_only:
            message = f"The admin key {admin.name!r} may only read. Use another key to change."
            raise ProtocolError("insufficient_permissions", message)
        return admin

    def _find(self, digest: bytes, host: str) -> Admin | None:
        found: Admin | None = None
        for known, admin, is_public in self._admins:
            if hmac.compare_digest(known, digest) and not (is_public and not is_local(host)):
                found = admin
        return found


def _known(key: AdminKeyConfig) -> tuple[bytes, Admin, bool]:
    """Returns a key's digest, whose it is, and whether everybody knows the key."""
    digest = _digest(key.key)
    admin = Admin(key.name, key.read_only, digest.hex()[:KEY_CHARS])
    return digest, admin, key.key == DEVELOPMENT_ADMIN_KEY


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
