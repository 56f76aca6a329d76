"""Defines one shape for all audit trails: who changed what, when, from what and to what."""

from typing import Any

import msgspec


class Author(msgspec.Struct, frozen=True):
    """Says who makes a change, and by which request."""

    name: str  # the admin key's
    key: str = ""  # tells two keys of one name apart: the first digits of its SHA-256
    request_id: str = ""  # as the answer's header `x-request-id` says


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Records one change."""

    id: str = ""  # the entry's own, in its trail
    at: float = 0.0  # Unix time, by Redis's clock
    author: str
    key: str = ""
    request_id: str = ""
    action: str  # such as `keys.create` or `policies.activate`
    subject: str  # what was changed: a tenant, a key, a version
    before: dict[str, Any] = {}  # what was there, by name; null: nothing
    after: dict[str, Any] = {}  # what is there now
    comment: str = ""


def read_entry(entry_id: bytes, entry: AuditEntry) -> AuditEntry:
    """Gives an entry its id in the stream, and the time that the id holds."""
    at = int(entry_id.partition(b"-")[0]) / 1e3
    return msgspec.structs.replace(entry, id=entry_id.decode(), at=at)
