"""API key -> tenant."""

import hashlib
from collections.abc import Iterable, Mapping

from gateway.config import TenantConfig
from gateway.errors import ProtocolError
from router.task import Tenant


class Keys:
    """The known keys, held as digests: a lookup takes as long for a wrong key as for another."""

    def __init__(self, tenants: Iterable[TenantConfig]) -> None:
        self._tenants: dict[bytes, Tenant] = {
            _digest(key): config.tenant() for config in tenants for key in config.keys
        }

    def tenant(self, headers: Mapping[str, str]) -> Tenant:
        """Who sends these headers (names in lower case).

        Raises:
            ProtocolError: `invalid_api_key`; the message never repeats the key.
        """
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            key = headers.get("api-key", "")  # Azure's clients
        if not key.strip():
            message = "No API key given. Send it as 'Authorization: Bearer <key>'."
            raise ProtocolError("invalid_api_key", message)
        tenant = self._tenants.get(_digest(key.strip()))
        if tenant is None:
            raise ProtocolError("invalid_api_key", "Incorrect API key. Ask who runs this gateway.")
        return tenant


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
