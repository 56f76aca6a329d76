"""Keys to tenants: which headers count, and that an error never repeats a key."""

import pytest

from gateway.auth import Keys
from gateway.config import TenantConfig
from gateway.errors import ProtocolError

KEYS = Keys(
    [
        TenantConfig(id="acme", keys=("sk-acme-old", "sk-acme-new"), limits={}),
        TenantConfig(id="beta", keys=("sk-beta-12",), limits={}),
    ]
)

GOOD: list[tuple[dict[str, str], str]] = [
    ({"authorization": "Bearer sk-acme-old"}, "acme"),
    ({"authorization": "Bearer sk-acme-new"}, "acme"),
    ({"authorization": "bearer  sk-beta-12 "}, "beta"),
    ({"api-key": "sk-beta-12"}, "beta"),
    ({"authorization": "Basic abc", "api-key": "sk-beta-12"}, "beta"),
    ({"authorization": "Bearer ", "api-key": "sk-beta-12"}, "beta"),
]


@pytest.mark.parametrize(("headers", "tenant_id"), GOOD)
def test_known_keys(headers: dict[str, str], tenant_id: str) -> None:
    assert KEYS.tenant(headers).id == tenant_id


BAD: list[tuple[dict[str, str], str]] = [
    ({}, "No API key"),
    ({"authorization": ""}, "No API key"),
    ({"authorization": "Bearer"}, "No API key"),
    ({"authorization": "sk-acme-old"}, "No API key"),
    ({"authorization": "Basic sk-acme-old"}, "No API key"),
    ({"api-key": "  "}, "No API key"),
    ({"authorization": "Bearer sk-acme-ol"}, "Incorrect"),
    ({"authorization": "Bearer SK-ACME-OLD"}, "Incorrect"),
    ({"authorization": "Bearer sk-secret-ü"}, "Incorrect"),
    ({"authorization": "Bearer sk-wrong-1", "api-key": "sk-beta-12"}, "Incorrect"),
]


@pytest.mark.parametrize(("headers", "words"), BAD)
def test_unknown_keys(headers: dict[str, str], words: str) -> None:
    with pytest.raises(ProtocolError, match=words) as caught:
        KEYS.tenant(headers)
    assert (caught.value.code, caught.value.kind.status) == ("invalid_api_key", 401)
    assert "sk-" not in caught.value.message
