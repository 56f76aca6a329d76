"""Tests Redis URLs: every form, and what is wrong with those that are none."""

from typing import Any

import pytest

from router.redis.servers import slot_of
from router.redis.url import parse_redis_url

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("redis://localhost", {"addresses": (("localhost", 6379),), "db": 0, "tls": False}),
    ("redis://", {"addresses": (("localhost", 6379),)}),
    ("redis://h:1/2", {"addresses": (("h", 1),), "db": 2}),
    ("redis://h?db=3", {"db": 3}),
    ("redis://:p%40ss@h", {"username": None, "password": "p@ss"}),
    ("redis://me:a:b@h", {"username": "me", "password": "a:b"}),
    ("redis://h?username=me&password=x", {"username": "me", "password": "x"}),
    ("redis://[::1]:7", {"addresses": (("::1", 7),)}),
    ("redis://[::1]", {"addresses": (("::1", 6379),)}),
    ("rediss://h", {"tls": True, "tls_verified": True}),
    (
        "rediss://h?ssl_cert_reqs=none&ssl_ca_certs=/ca",
        {"tls_verified": False, "tls_ca_path": "/ca"},
    ),
    ("unix:///run/redis.sock", {"is_unix": True, "addresses": (("/run/redis.sock", 0),)}),
    ("unix:///run/redis.sock?db=1&password=x", {"db": 1, "password": "x"}),
    (
        "redis+sentinel://:x@a,b:2/main/4?sentinel_password=y",
        {
            "kind": "sentinel",
            "addresses": (("a", 26379), ("b", 2)),
            "master": "main",
            "db": 4,
            "password": "x",
            "sentinel_password": "y",
        },
    ),
    ("redis+cluster://a:1,b", {"kind": "cluster", "addresses": (("a", 1), ("b", 6379))}),
    ("rediss+cluster://a", {"kind": "cluster", "tls": True}),
]


@pytest.mark.parametrize(("url", "expected"), GOOD)
def test_what_a_url_says(url: str, expected: dict[str, Any]) -> None:
    target = parse_redis_url(url)
    assert {name: getattr(target, name) for name in expected} == expected


BAD = [
    ("banana", "scheme"),
    ("http://h", "scheme"),
    ("redis://h:port", "port"),
    ("redis://h:0", "port"),
    ("redis://h/two", "database"),
    ("redis://h/1/2", "database"),
    ("redis://h?db=-1", "database"),
    ("redis://h?socket_timeout=5", "unknown options: socket_timeout"),
    ("redis+sentinel://h", "master's name"),
    ("redis+cluster://h/1", "database 0"),
    ("unix://", "path"),
]


@pytest.mark.parametrize(("url", "words"), BAD)
def test_what_is_wrong_with_a_url(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_redis_url(url)


# Source: redis.io, CLUSTER KEYSLOT and the Cluster specification's examples, 2026.
@pytest.mark.parametrize(
    ("key", "slot"),
    [("123456789", 12_739), ("foo", 12_182), ("x{foo}y", 12_182), ("{}foo", None), ("a{b", None)],
)
def test_slots(key: str, slot: int | None) -> None:
    if slot is not None:
        assert slot_of(key) == slot
    assert 0 <= slot_of(key) < 16_384
