"""Joins the tiers, tenants, keys and drained backends of the configuration with those of Redis.

`gateway.access.tenant_store` keeps the records from Redis up to date. A record cannot replace a
configured tenant, but it can replace a tier, so that limits change without a restart.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gateway.config.keys import KeyRecord
from gateway.config.tenants import WHOLE_PERCENT, TenantRecord, Tier, part_of, resolve
from router.classify.task import Tenant


class Drain(msgspec.Struct, frozen=True):
    """Says of a backend that it gets no new tasks."""

    since_s: int  # Unix time
    author: str  # the admin key's name


_DECODERS: dict[str, "msgspec.json.Decoder[KeyRecord | TenantRecord | Tier | Drain]"] = {
    "key": msgspec.json.Decoder(KeyRecord),
    "tenant": msgspec.json.Decoder(TenantRecord),
    "tier": msgspec.json.Decoder(Tier),
    "drain": msgspec.json.Decoder(Drain),
}


class TenantsView:
    """Holds the records by name: `key:<id>`, `tenant:<id>`, `tier:<name>`, `drain:<backend>`."""

    def __init__(
        self,
        configured: Iterable[TenantRecord] = (),
        tiers: Mapping[str, Tier] | None = None,
        limits_percent: int = WHOLE_PERCENT,
    ) -> None:
        """Takes as `limits_percent` this site's part of what the records say."""
        self.configured = {record.id: record for record in configured}
        self.is_current = False  # read from Redis lately
        self.is_lost = False  # Redis has them no more, and these are a copy
        self.keys: dict[str, KeyRecord] = {}
        self.drains: dict[str, Drain] = {}  # by the backend's name; the same object for ever
        self._configured_tiers = dict(tiers or {})
        self._tenants: dict[str, TenantRecord] = {}
        self._tiers: dict[str, Tier] = {}
        self.limits_percent = limits_percent
        self._raw: dict[str, bytes] = {}  # for compare-and-set in Redis
        # Tenants, and tenants as a key has them (by tenant's and key's id), as they are now.
        self._resolved: dict[str, Tenant] = {}
        self.with_key: dict[tuple[str, str], Tenant] = {}

    def configure(self, configured: Iterable[TenantRecord], tiers: Mapping[str, Tier]) -> None:
        """Replaces what the configuration has; records from Redis stay."""
        self.configured = {record.id: record for record in configured}
        self._configured_tiers = dict(tiers)
        self._forget_resolved()

    def _forget_resolved(self) -> None:
        self._resolved.clear()
        self.with_key.clear()

    @property
    def tiers(self) -> dict[str, Tier]:
        """Returns all tiers; a record wins over a configured tier of the same name."""
        return self._configured_tiers | self._tiers

    @property
    def tenants(self) -> dict[str, TenantRecord]:
        """Returns all tenants; a configured tenant wins over a record of the same id."""
        return self._tenants | self.configured

    def tenant(self, tenant_id: str) -> Tenant | None:
        """Returns a tenant with this site's part of its limits; None if it is unknown."""
        found = self._resolved.get(tenant_id)
        if found is None:
            record = self.configured.get(tenant_id) or self._tenants.get(tenant_id)
            if record is None:
                return None
            found = part_of(resolve(record, self.tiers), self.limits_percent)
            self._resolved[tenant_id] = found
        return found

    def is_configured_tier(self, name: str) -> bool:
        """Says whether the configuration has a tier of this name."""
        return name in self._configured_tiers

    def keys_of(self, tenant_id: str) -> Iterator[KeyRecord]:
        """Yields a tenant's keys made at run time, also those that have ended."""
        return (record for record in self.keys.values() if record.tenant_id == tenant_id)

    def raw(self, name: str) -> bytes:
        """Returns a record's bytes in Redis; empty if there is none."""
        return self._raw.get(name, b"")

    def replace(self, records: Mapping[str, bytes | None]) -> list[str]:
        """Replaces all records; returns the names of those that cannot be decoded."""
        self.keys, self._tenants, self._tiers, self._raw = {}, {}, {}, {}
        self.drains.clear()
        return self.put(records)

    def put(self, records: Mapping[str, bytes | None]) -> list[str]:
        """Updates records, where None deletes; returns the names that cannot be decoded."""
        self._forget_resolved()
        by_kind: dict[str, dict[str, Any]] = {
            "key": self.keys,
            "tenant": self._tenants,
            "tier": self._tiers,
            "drain": self.drains,
        }
        odd: list[str] = []
        for name, content in records.items():
            kind, _, rest = name.partition(":")
            known = by_kind.get(kind, {})
            known.pop(rest, None)
            self._raw.pop(name, None)
            if content is None:
                continue
            self._raw[name] = content
            try:
                known[rest] = _DECODERS[kind].decode(content)
            except (KeyError, msgspec.DecodeError):
                odd.append(name)
        return odd
