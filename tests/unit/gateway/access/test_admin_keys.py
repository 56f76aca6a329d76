"""Tests admin keys: who gets in, who may write, and that the public key is local."""

import pytest

from gateway.access.admin_keys import AdminKeys
from gateway.config.config import admin_keys, load_config
from gateway.config.development import DEVELOPMENT_ADMIN_KEY
from gateway.config.sections import AdminKeyConfig
from gateway.wire.errors import ProtocolError

KEYS = AdminKeys(
    [
        AdminKeyConfig(name="alice", key="sk-admin-alice"),
        AdminKeyConfig(name="grafana", key="sk-admin-reader", read_only=True),
        AdminKeyConfig(name="development", key=DEVELOPMENT_ADMIN_KEY),
    ]
)


def headers(key: str, host: str = "gateway.example") -> dict[str, str]:
    return {"authorization": f"Bearer {key}", "host": host}


def test_a_key_signs_with_its_name() -> None:
    assert KEYS.admin(headers("sk-admin-alice"), writes=True).name == "alice"
    assert KEYS.admin(headers("sk-admin-reader"), writes=False).name == "grafana"


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:8080"])
def test_the_development_key_works_on_this_machine(host: str) -> None:
    found = KEYS.admin(headers(DEVELOPMENT_ADMIN_KEY, host), writes=True)
    assert found.name == "development"


REFUSED: list[tuple[dict[str, str], bool, int]] = [
    ({}, False, 401),
    ({"authorization": "Bearer "}, False, 401),
    ({"authorization": "Basic sk-admin-alice"}, False, 401),
    ({"api-key": "sk-admin-alice"}, False, 401),
    (headers("sk-admin-alicf"), False, 401),
    (headers("sk-lanewise-dev"), False, 401),
    (headers("sk-admin-reader"), True, 403),
    (headers(DEVELOPMENT_ADMIN_KEY, "rebound.example:8080"), False, 401),
    (headers(DEVELOPMENT_ADMIN_KEY, ""), False, 401),
    (headers(DEVELOPMENT_ADMIN_KEY, "[nonsense"), False, 401),
]


@pytest.mark.parametrize(("sent", "writes", "status"), REFUSED)
def test_others_stay_out(sent: dict[str, str], writes: bool, status: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        KEYS.admin(sent, writes=writes)
    assert caught.value.kind.status == status
    assert "sk-" not in caught.value.message


def test_without_keys_there_is_no_admin_api() -> None:
    with pytest.raises(ProtocolError, match="off") as caught:
        AdminKeys([]).admin(headers("anything"), writes=False)
    assert caught.value.kind.status == 404


PRODUCTION = b'[[tenants]]\nid="acme"\nkeys=["sk-acme-1234"]\nlimits={}\n'

# configuration, environment, the names of the keys that work
CONFIGURED: list[tuple[bytes, dict[str, str], list[str]]] = [
    (b"", {}, ["development"]),
    (b"[admin]\nkeys = []", {}, []),
    (b"", {"LANEWISE_ADMIN_KEY": "sk-from-environ"}, ["environment"]),
    (PRODUCTION, {}, []),
    (PRODUCTION, {"LANEWISE_ADMIN_KEY": "sk-from-environ"}, ["environment"]),
    (
        PRODUCTION + b'[[admin.keys]]\nname="bob"\nkey="sk-of-bob"',
        {"LANEWISE_ADMIN_KEY": "sk-of-bob"},
        ["bob"],
    ),
    (
        PRODUCTION + b'[[admin.keys]]\nname="bob"\nkey="sk-of-bob"',
        {"LANEWISE_ADMIN_KEY": "sk-from-environ"},
        ["bob", "environment"],
    ),
]


@pytest.mark.parametrize(("toml", "environ", "names"), CONFIGURED)
def test_which_keys_are_configured(toml: bytes, environ: dict[str, str], names: list[str]) -> None:
    assert [key.name for key in admin_keys(load_config(toml, environ))] == names
