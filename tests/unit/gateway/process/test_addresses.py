"""Tests what is said of an address that nobody can listen on."""

import socket

import pytest

from gateway.config.sections import Address, ConfigError
from gateway.process.addresses import listen


@pytest.mark.parametrize("host", ["[::1]", "127.0.0.1:80", "fe80::1", "192.0.2.1"])
def test_an_address_that_is_none_is_told(host: str) -> None:
    with pytest.raises(ConfigError) as refused:
        listen(Address(host, 0), "server.host, server.port")
    said = str(refused.value)
    assert said.startswith("server.host, server.port: cannot listen on ")
    assert "expected a name or an address of this machine" in said
    assert "while attempting" not in said


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(ConfigError, match="in use; stop what listens there, or take another"):
            listen(address, "server.host, server.port")
