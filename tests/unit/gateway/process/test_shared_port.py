"""The port that all workers share is held by their supervisor."""

import socket
from contextlib import closing

import pytest

from gateway.config.sections import Address, ConfigError
from gateway.process.addresses import listen
from gateway.process.fleet_member import SharedPort


def test_a_port_is_taken_whose_last_connections_are_still_ending() -> None:
    with listen(Address("127.0.0.1", 0), "server.port") as alone:
        address = Address(*alone.getsockname())
        with socket.create_connection(address) as client:
            served, _ = alone.accept()
            served.close()  # first, so that its address is kept for a minute
            assert client.recv(1) == b""
    with closing(SharedPort(address, "server.port")) as port:
        assert port.number == address.port
        with (
            listen(address, "server.port", is_shared=True),
            listen(address, "server.port", is_shared=True),
        ):
            pass  # two workers


def test_a_port_that_is_held_is_not_taken_by_another_gateway() -> None:
    with (
        closing(SharedPort(Address("127.0.0.1", 0), "server.port")) as held,
        pytest.raises(ConfigError, match=r"server\.port: cannot listen"),
    ):
        SharedPort(Address("127.0.0.1", held.number), "server.port")
