"""Finds the tenant of an API key."""

import hashlib
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from gateway.access.tenant_view import TenantsView
from gateway.config.development import DEVELOPMENT_KEY
from gateway.config.keys import KeyRecord, Peppers, is_key_of, key_id_of
from gateway.config.sections import TenantConfig, is_loopback
from gateway.config.tenants import for_key
from gateway.wire.errors import ProtocolError
from router.classify.task import Tenant

MAX_MADE = 10_000  # tenants as their keys have them, that are remembered

_WORDS = {
    "revoked": "This API key has been revoked. Use another one.",
    "expired": "This API key has expired. Use another one.",
}
_NONE_GIVEN = "No API key given. Send it as 'Authorization: Bearer <key>' or 'x-api-key'."
_INCORRECT = "Incorrect API key. Ask who runs this gateway."
_NOT_LOCAL = (
    "Pages may use the development key only where they address the gateway as this machine, such "
    "as 127.0.0.1 or localhost. Configure a key of your own to reach it by another name."
)


def bearer_of(headers: Mapping[str, str]) -> str:
    """Returns the key of `Authorization: Bearer <key>`, or an empty string."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def is_local(host: str) -> bool:
    """Says whether a Host header names this machine, which a DNS-rebinding page's does not."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


class Keys:
    """Finds and checks the keys of the configuration and those made at run time.

    A configured key is found by its BLAKE2b hash under a salt of this process, so that the time of
    a lookup reveals nothing.
    """

    def __init__(
        self,
        tenants: Iterable[TenantConfig],
        tenant_view: TenantsView | None = None,
        peppers: Peppers = Peppers(),  # noqa: B008 - frozen
        salt: bytes = b"",
    ) -> None:
        """Takes random bytes as `salt`; without a view only configured tenants exist."""
        tenants = tuple(tenants)
        self.tenant_view = tenant_view or TenantsView(config.record() for config in tenants)
        self.num_refused = 0  # keys that were missing or wrong, since start
        self.used_s: dict[str, int] = {}  # key id -> last use; cleared when stored
        self._peppers = peppers
        self._salt = salt
        self._configured: dict[bytes, tuple[str, str]] = {}  # digest -> tenant's and key's id
        self._num_named: dict[str, int] = {}  # tenant id -> configured keys that it ever had
        self.configure(tenants)

    def configure(self, tenants: Iterable[TenantConfig]) -> None:
        """Replaces the configured keys. One that stays keeps its id; no id is used again."""
        before, self._configured = self._configured, {}
        for config in tenants:
            for key in config.keys:
                digest = self._digest(key)
                named = before.get(digest)
                if named is None or named[0] != config.id:
                    number = self._num_named[config.id] = self._num_named.get(config.id, 0) + 1
                    named = (config.id, f"config-{number}")
                self._configured[digest] = named
        self._configured_ids = frozenset(self._configured.values())

    def is_configured_key(self, tenant_id: str, key_id: str) -> bool:
        """Says whether the configuration has or had a key of this id, since the start."""
        number = key_id.removeprefix("config-")
        named = number != key_id and number.isdecimal() and str(int(number)) == number
        return named and 0 < int(number) <= self._num_named.get(tenant_id, 0)

    def tenant(self, headers: Mapping[str, str], now_s: int) -> Tenant:
        """Returns the tenant who sent these headers (names in lower case) at this Unix time.

        Raises `invalid_api_key`, or `server_is_overloaded` while keys in Redis cannot be read; the
        message never repeats the key.
        """
        # Anthropic's clients name it by "x-api-key", and Azure's by "api-key".
        key = bearer_of(headers)
        key = key or headers.get("x-api-key", "").strip() or headers.get("api-key", "").strip()
        try:
            if not key:
                raise ProtocolError("invalid_api_key", _NONE_GIVEN)
            try:
                return self._tenant_of(key, headers, now_s)
            except ProtocolError:
                named = headers.get("x-api-key", "").strip()
                if named in ("", key):
                    raise
                # Claude Code may send two that differ.
                return self._tenant_of(named, headers, now_s)
        except ProtocolError as error:
            self.num_refused += error.code == "invalid_api_key"
            raise

    def _tenant_of(self, key: str, headers: Mapping[str, str], now_s: int) -> Tenant:
        # A page of any site knows this one, and may have its name lead to this machine.
        is_of_page = key == DEVELOPMENT_KEY and headers.get("origin") is not None
        if is_of_page and not is_local(headers.get("host", "")):
            raise ProtocolError("invalid_api_key", _NOT_LOCAL)
        key_id = key_id_of(key)
        if key_id is None:
            configured = self._configured.get(self._digest(key))
            if configured is None:
                raise ProtocolError("invalid_api_key", _INCORRECT)
            return self._named(*configured)
        record = self.tenant_view.keys.get(key_id)
        if not is_key_of(record, key, self._peppers):
            configured = self._configured.get(self._digest(key))
            if configured is not None:  # made by another gateway, and written down here
                return self._named(*configured)
            if record is None and not self.tenant_view.is_current:
                raise _unreadable()
            raise ProtocolError("invalid_api_key", _INCORRECT)
        assert record is not None  # it matched the key
        refusal = self._refusal(record, now_s)
        if refusal is not None:
            raise refusal
        if not self.tenant_view.is_current:
            raise _unreadable()
        self.used_s[key_id] = now_s
        return self._named(record.tenant_id, key_id)

    def refusal(self, tenant: Tenant, now_s: int) -> ProtocolError | None:
        """Returns why a tenant admitted earlier is refused now; None while its key is valid.

        While Redis is away nobody is refused, since keys are revoked only through it.
        """
        record = self.tenant_view.keys.get(tenant.key_id)
        if record is None:
            is_known = not tenant.key_id or (tenant.id, tenant.key_id) in self._configured_ids
            return None if is_known else ProtocolError("invalid_api_key", _WORDS["revoked"])
        return self._refusal(record, now_s)

    def holder(self, tenant_id: str, key_id: str, now_s: int) -> Tenant:
        """Returns the tenant of a key that was valid a moment ago, here or at another gateway.

        Raises `invalid_api_key` if it has ended since. After a reload, configured keys of one
        tenant may have other ids here than there; the tenant is the same.
        """
        if self.tenant_view.tenant(tenant_id) is None:
            raise ProtocolError("invalid_api_key", _INCORRECT)
        tenant = self._named(tenant_id, key_id)
        refusal = self.refusal(tenant, now_s)
        if refusal is not None:
            raise refusal
        return tenant

    def limited_keys(self, tenant_id: str, now_s: int) -> list[Tenant]:
        """Returns a tenant as each of its valid keys has it that has limits of its own."""
        configured = [
            key_id for owner, key_id in sorted(self._configured_ids) if owner == tenant_id
        ]
        records = self.tenant_view.keys_of(tenant_id)
        made = [record.id for record in records if record.state(now_s) == "active"]
        keys = [self._named(tenant_id, key_id) for key_id in (*configured, *made)]
        return [key for key in keys if key.key_limits]

    def latest(self, tenant: Tenant) -> Tenant:
        """Returns the tenant with its current limits."""
        known = self.tenant_view.with_key.get((tenant.id, tenant.key_id))
        if known is not None:
            return known
        if self.tenant_view.tenant(tenant.id) is None:
            return tenant
        return self._named(tenant.id, tenant.key_id)

    def _refusal(self, record: KeyRecord, now_s: int) -> ProtocolError | None:
        state = record.state(now_s)
        if state != "active":
            return ProtocolError("invalid_api_key", _WORDS[state])
        if self.tenant_view.tenant(record.tenant_id) is None:
            return ProtocolError("invalid_api_key", _INCORRECT)
        return None

    def _named(self, tenant_id: str, key_id: str) -> Tenant:
        view = self.tenant_view
        known = view.with_key.get((tenant_id, key_id))
        if known is not None:
            return known
        tenant, record = view.tenant(tenant_id), view.keys.get(key_id)
        assert tenant is not None  # checked by the callers
        own = None if record is None else record.limits
        named = for_key(tenant, key_id, own, view.limits_percent)
        if len(view.with_key) >= MAX_MADE:
            view.with_key.clear()
        view.with_key[tenant_id, key_id] = named
        return named

    def _digest(self, key: str) -> bytes:
        return hashlib.blake2b(key.encode(), key=self._salt, digest_size=32).digest()


def _unreadable() -> ProtocolError:
    message = "API keys cannot be checked at the moment. Try again in 1s."
    return ProtocolError("server_is_overloaded", message, retry_after_us=1_000_000)
