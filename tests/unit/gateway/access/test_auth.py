"""Tests keys to tenants: which headers count, and that an error never repeats a key."""

from typing import Any

import msgspec
import pytest

from gateway.access.auth import Keys
from gateway.access.key_sessions import KeySessions
from gateway.access.tenant_view import TenantsView
from gateway.config.development import DEVELOPMENT_KEY
from gateway.config.keys import KeyRecord, Peppers, digest_of, new_key
from gateway.config.sections import TenantConfig
from gateway.config.tenants import DEFAULT_TIERS, TenantRecord, Tier
from gateway.wire.errors import ProtocolError
from router.classify.task import GroupLimits, Tenant

LIMITS = GroupLimits(requests_per_min=1, tokens_per_min=2, max_concurrent=3)

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
    ({"x-api-key": "sk-beta-12"}, "beta"),
    ({"authorization": "Bearer sk-acme-old", "x-api-key": "sk-beta-12"}, "acme"),
    ({"authorization": "Bearer sk-wrong-1", "x-api-key": "sk-beta-12"}, "beta"),
    ({"authorization": "Bearer sk-acme-old", "x-api-key": "sk-wrong-1"}, "acme"),
]


@pytest.mark.parametrize(("headers", "tenant_id"), GOOD)
def test_known_keys(headers: dict[str, str], tenant_id: str) -> None:
    assert KEYS.tenant(headers, 0).id == tenant_id


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "api-key"])
def test_a_page_has_the_development_key_where_it_addresses_this_machine(header: str) -> None:
    keys = Keys([TenantConfig(id="dev", keys=(DEVELOPMENT_KEY, "sk-own"), limits={})])

    def found(key: str, host: str, **more: str) -> str:
        shown = f"Bearer {key}" if header == "authorization" else key
        return keys.tenant({header: shown, "host": host, **more}, 0).id

    for host in ("127.0.0.1:8080", "localhost", "LOCALHOST:80", "[::1]:8080", "127.8.0.1"):
        assert found(DEVELOPMENT_KEY, host, origin=f"http://{host}") == "dev"
    for host in ("rebound.example:8080", "", "[nonsense", "127.0.0.1.rebound.example", "10.0.0.1"):
        for origin in (f"http://{host}", "null", ""):
            with pytest.raises(ProtocolError, match="of your own") as refused:
                found(DEVELOPMENT_KEY, host, origin=origin)
            assert refused.value.code == "invalid_api_key"
            assert found("sk-own", host, origin=origin) == "dev"
        assert found(DEVELOPMENT_KEY, host) == "dev"  # no page, but a client behind a proxy


def test_a_configured_key_may_look_like_one_that_was_made() -> None:
    _, key = new_key("prod", bytes(range(40)))
    keys = Keys([TenantConfig(id="acme", keys=(key,), limits={})])
    assert keys.tenant({"authorization": f"Bearer {key}"}, 0).id == "acme"
    with pytest.raises(ProtocolError):
        keys.tenant({"authorization": f"Bearer {key[:-1]}z"}, 0)


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
    ({"authorization": "Bearer sk-wrong-1", "x-api-key": "sk-wrong-2"}, "Incorrect"),
]


@pytest.mark.parametrize(("headers", "words"), BAD)
def test_unknown_keys(headers: dict[str, str], words: str) -> None:
    with pytest.raises(ProtocolError, match=words) as caught:
        KEYS.tenant(headers, 0)
    assert (caught.value.code, caught.value.kind.status) == ("invalid_api_key", 401)
    assert "sk-" not in caught.value.message


def managed(**changes: Any) -> tuple[Keys, str]:
    """Returns keys with one of the view, which holds until second 100, and that key."""
    key_id, key = new_key("test", bytes(range(40)))
    peppers = Peppers({"v1": b"x" * 32}, "v1")
    fields = {"id": key_id, "tenant_id": "acme", "created_s": 0, "created_by": "ada"}
    fields |= {"digest": digest_of(key, b"x" * 32), "pepper": "v1", "not_after_s": 100}
    record = msgspec.convert(fields | changes, KeyRecord)
    tenant_view = TenantsView([TenantRecord(id="acme", tier="pro")], DEFAULT_TIERS)
    tenant_view.put({f"key:{key_id}": msgspec.json.encode(record)})
    tenant_view.is_current = True
    return Keys([], tenant_view, peppers), key


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_a_key_of_the_roster_says_whose_it_is_and_which() -> None:
    keys, key = managed()
    tenant = keys.tenant(bearer(key), 99)
    assert (tenant.id, tenant.tier, tenant.key_id) == ("acme", "pro", key.split("_")[2])
    assert set(tenant.limits) == {"fast", "deep"}
    assert keys.used_s == {tenant.key_id: 99}
    assert keys.refusal(tenant, 99) is None


@pytest.mark.parametrize(
    ("changes", "now_s", "words"),
    [
        ({}, 100, "expired"),
        ({"revoked_s": 5}, 5, "revoked"),
        ({"tenant_id": "gone"}, 5, "Incorrect"),
        ({"digest": "0" * 64}, 5, "Incorrect"),
        ({"pepper": "v0"}, 5, "Incorrect"),
    ],
)
def test_keys_that_do_not_hold(changes: dict[str, Any], now_s: int, words: str) -> None:
    keys, key = managed(**changes)
    with pytest.raises(ProtocolError, match=words) as caught:
        keys.tenant(bearer(key), now_s)
    assert caught.value.code == "invalid_api_key"
    assert key not in caught.value.message


@pytest.mark.parametrize("place", [-1, 20, -10])
def test_one_other_character_is_another_key(place: int) -> None:
    keys, key = managed()
    other = list(key)
    other[place] = "a" if other[place] != "a" else "b"
    with pytest.raises(ProtocolError, match="Incorrect"):
        keys.tenant(bearer("".join(other)), 5)


def test_while_keys_cannot_be_read_clients_are_told_to_try_again() -> None:
    keys, key = managed()
    keys.tenant_view.is_current = False
    tenant = Tenant(id="acme", tier="pro", limits={}, key_id=key.split("_")[2])
    unknown = new_key("test", bytes(40))[1]
    for shown in (key, unknown):
        with pytest.raises(ProtocolError) as caught:
            keys.tenant(bearer(shown), 5)
        assert caught.value.code == "server_is_overloaded"
    assert keys.refusal(tenant, 5) is None  # nobody is put out for it


def test_who_works_is_put_out_with_the_key_and_limits_follow_the_tier() -> None:
    keys, key = managed()
    tenant = keys.tenant(bearer(key), 5)
    tier = Tier(limits={"deep": LIMITS})
    keys.tenant_view.put({"tier:pro": msgspec.json.encode(tier)})
    assert keys.latest(tenant).limits == {"deep": LIMITS}
    assert keys.latest(tenant).key_id == tenant.key_id
    keys.tenant_view.put({f"key:{tenant.key_id}": None})
    refusal = keys.refusal(tenant, 5)
    assert refusal is not None
    assert refusal.code == "invalid_api_key"
    assert keys.refusal(msgspec.structs.replace(tenant, key_id=""), 5) is None, "it has no key"


def test_a_configured_key_keeps_its_name_until_it_is_removed() -> None:
    def configured(*given: str) -> TenantConfig:
        return TenantConfig(id="acme", keys=given, limits={"fast": LIMITS})

    keys = Keys([configured("sk-first-1", "sk-second-2")])
    first, second = (keys.tenant(bearer(key), 5) for key in ("sk-first-1", "sk-second-2"))
    keys.configure([configured("sk-third-3", "sk-second-2")])
    third = keys.tenant(bearer("sk-third-3"), 5)
    assert keys.tenant(bearer("sk-second-2"), 5).key_id == second.key_id
    assert len({tenant.key_id for tenant in (first, second, third)}) == 3
    refusals = [keys.refusal(tenant, 5) for tenant in (first, second, third)]
    assert [refusal and refusal.code for refusal in refusals] == ["invalid_api_key", None, None]


def test_holders_end_once_and_let_go() -> None:
    keys, key = managed()
    tenant = keys.tenant(bearer(key), 5)
    holders, ended = KeySessions(), []
    holders.add(tenant, lambda error: ended.append(("first", error.code)))
    let_go = holders.add(tenant, lambda error: ended.append(("second", error.code)))
    let_go()
    for now_s in (99, 100, 101):
        holders.end_refused(lambda who, now_s=now_s: keys.refusal(who, now_s))
    assert ended == [("first", "invalid_api_key")]


@pytest.mark.parametrize("first", ["acme", "beta"])
def test_a_configured_key_that_goes_ends_no_other_tenants_sessions(first: str) -> None:
    acme = TenantConfig(id="acme", keys=("sk-acme-old",), limits={})
    beta = TenantConfig(id="beta", keys=("sk-beta-12",), limits={})
    keys = Keys([acme, beta])
    sent = {"acme": bearer("sk-acme-old"), "beta": bearer("sk-beta-12")}
    holders, ended = KeySessions(), []
    for name in sorted(sent, key=lambda each: each != first):
        holders.add(keys.tenant(sent[name], 0), lambda _, name=name: ended.append(name))
    keys.configure([msgspec.structs.replace(acme, keys=("sk-acme-new",)), beta])
    assert holders.end_refused(lambda who: keys.refusal(who, 0)) == 1
    assert ended == ["acme"]


def test_keys_that_are_missing_or_wrong_are_counted() -> None:
    keys = Keys([TenantConfig(id="acme", keys=("sk-acme-old",), limits={})])
    for headers in ({}, {"authorization": "Bearer sk-wrong-1"}):
        with pytest.raises(ProtocolError):
            keys.tenant(headers, 0)
    keys.tenant({"authorization": "Bearer sk-wrong-1", "x-api-key": "sk-acme-old"}, 0)
    assert keys.num_refused == 2
