"""Tests addresses of gateways, as people type them."""

import pytest

from gateway.config.command_error import CommandError
from gateway.config.http_address import http_url


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("localhost:9000/", "http://localhost:9000"),
        ("gateway.example", "http://gateway.example"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("https://gateway.example/v1/", "https://gateway.example/v1"),
        ("ws://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("wss://gateway.example", "https://gateway.example"),
    ],
)
def test_a_scheme_may_be_left_out(typed: str, url: str) -> None:
    assert http_url(typed, "--url") == url


@pytest.mark.parametrize("typed", ["ftp://x", "http://", "foo bar", "host:port", "host:99999", ""])
def test_what_is_none_is_named(typed: str) -> None:
    with pytest.raises(CommandError, match=r"--url .*: expected HOST:PORT"):
        http_url(typed, "--url")
