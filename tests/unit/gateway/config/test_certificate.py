"""When a certificate ends is read whether or not it has ended; one of no use is named."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from gateway.config.certificate import expires_s, tls_context
from gateway.config.sections import ConfigError, ServerConfig


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


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), ("no certificate", "PEM")])
def test_a_certificate_that_cannot_be_used_is_named(
    tmp_path: Path, content: str | None, why: str
) -> None:
    path = tmp_path / "server.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError) as refused:
        tls_context(ServerConfig(tls_cert_path=str(path), tls_key_path=str(path)))
    assert str(path) in str(refused.value)
    assert why in str(refused.value)
    assert "expected a PEM file with the certificate" in str(refused.value)
