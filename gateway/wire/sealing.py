"""Seals the content of a compaction item, which stands for an earlier part of a conversation, and
signs the state of a turn, which names the backend that began it.

A client keeps it as an opaque text and sends it back, to any gateway with the same secrets. It is
compressed and authenticated for its tenant; it is not encrypted, since it is the client's own
conversation. It has the form `lw2.VERSION.CONTENT`, where the version names the secret.
"""

import base64
import hashlib
import hmac
import zlib
from collections.abc import Iterable, Mapping

import msgspec

from backends.contract import Item
from gateway.config.keys import Peppers

# A context of the largest message there may be, with room to spare; what we sealed is smaller.
MAX_OPENED_BYTES = 64 << 20

MAX_FORMER = 4  # changes of the configured keys without a restart, each with a secret to try

_PREFIX = "lw2."
_TURN_PREFIX = "lt1."
_PURPOSE = b"lanewise compaction"  # so that a pepper's MACs of keys are none of compactions
_MAC_BYTES = hashlib.sha256().digest_size
CONFIGURED = "-"  # version of the secret that follows from configured keys; no pepper's name


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an earlier part of a conversation, as a compaction left it: pinned, summary, tail."""

    number: int  # how many automatic compactions the conversation has had
    summary: str
    covers_all: bool  # it stands for everything before it; else what a client sends with it stays
    pinned: tuple[Item, ...] = ()  # word for word, before the summary
    tail: tuple[Item, ...] = ()  # the latest, word for word, after the summary


class SealError(ValueError):
    """The content was changed, is another tenant's, or was sealed under an unknown secret."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Folded)


class Seals(msgspec.Struct, frozen=True):
    """Holds the secrets by version; the current one seals."""

    by_version: Mapping[str, bytes]
    current: str
    former: tuple[bytes, ...] = ()  # of configured keys that were changed since the start

    def after(self, before: "Seals") -> "Seals":
        """Returns these seals, which also open what was sealed before."""
        known = (before.by_version[CONFIGURED], *before.former)
        others = tuple(secret for secret in known if secret != self.by_version[CONFIGURED])
        return Seals(self.by_version, self.current, others[:MAX_FORMER])

    def seal(self, tenant_id: str, folded: Folded) -> str:
        """Seals a folded part as the content of a compaction item."""
        packed = zlib.compress(_encoder.encode(folded))
        mac = _mac(self.by_version[self.current], tenant_id, packed)
        return f"{_PREFIX}{self.current}.{base64.urlsafe_b64encode(mac + packed).decode()}"

    def unseal(self, tenant_id: str, content: str, max_bytes: int = MAX_OPENED_BYTES) -> bytes:
        """Returns what `folded_from` decodes, of so many bytes at most, or raises `SealError`."""
        secrets, mac, packed = self._split(content.removeprefix(_PREFIX))
        if not secrets:
            raise SealError("it was sealed under a secret that is not known here")
        if not any(hmac.compare_digest(mac, _mac(each, tenant_id, packed)) for each in secrets):
            raise SealError("it was changed, or sealed for another tenant")
        # Bounded all the same: a secret may be known to whoever configured it.
        unpacking = zlib.decompressobj()
        opened = unpacking.decompress(packed, max(1, max_bytes))
        if not unpacking.eof:
            raise SealError(f"a request's compactions may hold {MAX_OPENED_BYTES >> 20} MiB")
        return opened

    def sign_turn(self, tenant_id: str, backend: str) -> str:
        """Signs the state of a turn that a backend of the tenant began."""
        mac = _turn_mac(self.by_version[self.current], tenant_id, backend.encode())
        content = base64.urlsafe_b64encode(mac + backend.encode()).decode()
        return f"{_TURN_PREFIX}{self.current}.{content}"

    def mac_of_request(self, request: bytes) -> bytes:
        """Returns a keyed hash that stands for a request among the gateways."""
        secret = self.by_version[self.current]
        return hmac.digest(secret, b"\0request\0" + request, "sha256")

    def turn_backend(self, tenant_id: str, state: str) -> str | None:
        """Returns the backend that a turn's state names; None if we did not sign it for them."""
        if not state.startswith(_TURN_PREFIX):
            return None
        secrets, mac, backend = self._split(state.removeprefix(_TURN_PREFIX))
        macs = (_turn_mac(each, tenant_id, backend) for each in secrets)
        is_ours = any(hmac.compare_digest(mac, each) for each in macs)
        return backend.decode() if is_ours else None

    def _split(self, signed: str) -> tuple[tuple[bytes, ...], bytes, bytes]:
        """Splits `VERSION.CONTENT` into the secrets that may have signed it, its MAC, and the rest.

        There are no secrets if the version is unknown.
        """
        version, _, content = signed.partition(".")
        secret = self.by_version.get(version)
        if secret is None:
            return (), b"", b""
        try:
            whole = base64.urlsafe_b64decode(content.encode())
        except ValueError:
            whole = b""
        secrets = (secret, *(self.former if version == CONFIGURED else ()))
        return secrets, whole[:_MAC_BYTES], whole[_MAC_BYTES:]


def folded_from(opened: bytes) -> Folded:
    """Decodes what was unsealed."""
    return _decoder.decode(opened)


def is_sealed_here(content: str) -> bool:
    """Says whether a gateway of ours sealed it."""
    return content.startswith(_PREFIX)


def make_seals(peppers: Peppers, configured_keys: Iterable[str]) -> Seals:
    """Derives the secrets that all gateways share, from peppers or else configured keys.

    Seals made before there were peppers still open, while those keys are the same.
    """
    by_version = {name: _derived(pepper) for name, pepper in peppers.by_version.items()}
    by_version[CONFIGURED] = _derived("\n".join(sorted(configured_keys)).encode())
    return Seals(by_version, peppers.current or CONFIGURED)


def _derived(secret: bytes) -> bytes:
    return hmac.digest(secret, _PURPOSE, "sha256")


def _mac(secret: bytes, tenant_id: str, packed: bytes) -> bytes:
    return hmac.digest(secret, tenant_id.encode() + b"\0" + packed, "sha256")


def _turn_mac(secret: bytes, tenant_id: str, backend: bytes) -> bytes:
    # No tenant's id begins with a zero, so that no compaction has such a MAC.
    return hmac.digest(secret, b"\0turn\0" + tenant_id.encode() + b"\0" + backend, "sha256")
