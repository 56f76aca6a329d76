"""When a certificate ends is read whether or not it has ended."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from gateway.config.certificate import expires_s
from gateway.config.sections import ServerConfig


@pytest.mark.parametrize("days", [90, 3, -3])
def test_it_is_said_when_a_certificate_ends(days: int, tmp_path: Path) -> None:
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    issued = trustme.CA().issue_cert("gateway.example", not_after=ends)
    path = tmp_path / "server.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(path)
    server = ServerConfig(tls_cert_path=str(path), tls_key_path=str(path))
    assert expires_s(server) == ends.timestamp()


def test_without_a_certificate_there_is_no_end() -> None:
    assert expires_s(ServerConfig()) == 0.0
