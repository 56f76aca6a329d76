"""Who may use the gateway, as this process knows it: tiers, tenants and keys.

Some of it stands in the configuration, the rest is a copy of the records in Redis, which
`gateway.access.tenant_store` keeps up to date. A configured tenant cannot be replaced by a record;
a tier can, so that limits change without a restart.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gateway.config.keys import KeyRecord
from gateway.config.tenants import TenantRecord, Tier, resolve
from router.classify.task import Tenant

_DECODERS: dict[str, "msgspec.json.Decoder[KeyRecord | TenantRecord | Tier]"] = {
    "key": msgspec.json.Decoder(KeyRecord),
    "tenant": msgspec.json.Decoder(TenantRecord),
    "tier": msgspec.json.Decoder(Tier),
}


class TenantsView:
    """The records by their names in Redis: `key:<id>`, `tenant:<id>`, `tier:<name>`."""

    def __init__(
        self, configured: Iterable[TenantRecord] = (), tiers: Mapping[str, Tier] | None = None
    ) -> None:
        self.configured = {record.id: record for record in configured}
        self.is_current = False  # read from Redis, and not too long ago
        self.keys: dict[str, KeyRecord] = {}
        self._configured_tiers = dict(tiers or {})
        self._tenants: dict[str, TenantRecord] = {}
        self._tiers: dict[str, Tier] = {}
        self._raw: dict[str, bytes] = {}  # as they stand in Redis, for compare-and-set
        self._resolved: dict[str, Tenant] = {}

    @property
    def tiers(self) -> dict[str, Tier]:
        """All tiers: the configured ones, replaced by records of the same name."""
        return self._configured_tiers | self._tiers

    @property
    def tenants(self) -> dict[str, TenantRecord]:
        """All tenants: records, replaced by configured ones of the same id."""
        return self._tenants | self.configured

    def tenant(self, tenant_id: str) -> Tenant | None:
        """A tenant as the router knows it; None if there is none."""
        found = self._resolved.get(tenant_id)
        if found is None:
            record = self.configured.get(tenant_id) or self._tenants.get(tenant_id)
            if record is None:
                return None
            found = self._resolved[tenant_id] = resolve(record, self.tiers)
        return found

    def is_configured_tier(self, name: str) -> bool:
        """Whether the configuration has a tier of this name, whatever a record says."""
        return name in self._configured_tiers

    def keys_of(self, tenant_id: str) -> Iterator[KeyRecord]:
        """The tenant's keys, also those that hold no longer; configured ones are not among them."""
        return (record for record in self.keys.values() if record.tenant_id == tenant_id)

    def raw(self, name: str) -> bytes:
        """A record as it stands in Redis; empty where there is none."""
        return self._raw.get(name, b"")

    def replace(self, records: Mapping[str, bytes | None]) -> list[str]:
        """Take these records instead of all; returns the names of those that make no sense."""
        self.keys, self._tenants, self._tiers, self._raw = {}, {}, {}, {}
        return self.put(records)

    def put(self, records: Mapping[str, bytes | None]) -> list[str]:
        """Take changed records; None: it is gone. Returns the names of those that make no sense."""
        self._resolved.clear()
        by_kind: dict[str, dict[str, Any]] = {
            "key": self.keys,
            "tenant": self._tenants,
            "tier": self._tiers,
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
