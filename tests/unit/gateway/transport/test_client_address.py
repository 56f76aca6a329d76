"""Tests the client's address behind a proxy."""

import ipaddress
from ipaddress import ip_network

import pytest

from gateway.transport.client_address import (
    SIGNATURE,
    ProxyHeader,
    ProxyHeaderError,
    forwarded_address,
    is_trusted,
    parse_proxy_header,
)

TRUSTED = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
V4 = ipaddress.ip_address("203.0.113.7").packed
V6 = ipaddress.ip_address("2001:db8::7").packed


def binary(command: int, family: int, addresses: bytes, extensions: bytes = b"") -> bytes:
    """Returns a header of version 2."""
    length = len(addresses) + len(extensions)
    return SIGNATURE + bytes([command, family]) + length.to_bytes(2, "big") + addresses + extensions


TCP4 = binary(0x21, 0x11, V4 + bytes(4) + b"\x00\x50\x01\xbb")
TCP6 = binary(0x21, 0x21, V6 + bytes(16) + bytes(4), b"\x04\x00\x01x")


@pytest.mark.parametrize(
    ("begin", "header"),
    [
        (b"PROXY TCP4 203.0.113.7 10.0.0.1 80 443\r\nGET", ProxyHeader(40, "203.0.113.7")),
        (b"PROXY TCP6 2001:db8::7 ::1 80 443\r\n", ProxyHeader(35, "2001:db8::7")),
        (b"PROXY UNKNOWN\r\n", ProxyHeader(15, None)),
        (TCP4 + b"GET", ProxyHeader(28, "203.0.113.7")),
        (TCP6, ProxyHeader(len(TCP6), "2001:db8::7")),
        (binary(0x20, 0x00, b""), ProxyHeader(16, None)),  # the proxy's own health check
        (binary(0x21, 0x31, bytes(216)), ProxyHeader(232, None)),  # a unix socket's
        (b"GET / HTTP/1.1\r\n", ProxyHeader(0, None)),
        (b"\x16\x03\x01", ProxyHeader(0, None)),  # TLS
        (b"PRO", None),
        (b"PROXY TCP4 203.0.113.7", None),
        (TCP4[:5], None),
        (TCP4[:20], None),
    ],
)
def test_a_header_of_proxy_protocol(begin: bytes, header: ProxyHeader | None) -> None:
    assert parse_proxy_header(begin) == header


@pytest.mark.parametrize(
    "begin",
    [
        b"PROXY TCP4 not-an-address 10.0.0.1 80 443\r\n",
        b"PROXY TCP4 203.0.113.7\r\n",
        b"PROXY " + b"x" * 200,
        binary(0x31, 0x11, V4 * 3),
        binary(0x22, 0x11, V4 * 3),
        binary(0x21, 0x11, V4),
        binary(0x21, 0x11, V4 * 3, bytes(4_000)),
    ],
)
def test_a_broken_header_of_proxy_protocol(begin: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        parse_proxy_header(begin)


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        ({"forwarded": "for=203.0.113.7"}, "203.0.113.7"),
        ({"forwarded": 'For="[2001:db8::7]:4711";proto=https'}, "2001:db8::7"),
        (
            {"forwarded": 'for=1.1.1.1, proto=http;for="203.0.113.7:80", for=10.1.1.1'},
            "203.0.113.7",
        ),
        ({"forwarded": "for=203.0.113.7, for=_hidden"}, None),
        ({"x-forwarded-for": "1.1.1.1, 203.0.113.7"}, "203.0.113.7"),
        ({"x-forwarded-for": "203.0.113.7:4711, 10.2.2.2"}, "203.0.113.7"),
        ({"x-forwarded-for": "1.1.1.1", "forwarded": "for=203.0.113.7"}, "203.0.113.7"),
        ({"x-forwarded-for": "2001:db8::7"}, "2001:db8::7"),
        ({"x-forwarded-for": "::ffff:203.0.113.7"}, "203.0.113.7"),
        ({"x-forwarded-for": "10.1.1.1"}, None),
        ({"x-forwarded-for": "nobody"}, None),
        ({}, None),
    ],
)
def test_the_last_address_that_is_no_proxys_counts(
    headers: dict[str, str], address: str | None
) -> None:
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert forwarded_address(sent, TRUSTED) == address


def test_networks_that_are_trusted() -> None:
    assert is_trusted("10.3.2.1", TRUSTED)
    assert is_trusted("::ffff:10.3.2.1", TRUSTED)
    assert not is_trusted("11.0.0.1", TRUSTED)
    assert not is_trusted("no address", TRUSTED)
