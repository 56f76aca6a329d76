"""Tests TLS in the gateway itself, with a certificate that a client has reason to trust."""

import ssl
from pathlib import Path

import httpx
import pytest
import trustme
import websockets
from openai import OpenAI

from tests.e2e.gateway_command import lanewise
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess
from tests.e2e.socket_client import SocketClient


async def test_https_and_wss_are_served(tmp_path: Path, redis_url: str) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    config = tmp_path / "lanewise.toml"
    config.write_text("[server]\ntls_cert_path = 'server.pem'\ntls_key_path = 'server.key'\n")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    gateway = GatewayProcess(
        tmp_path, "--config", str(config), "--redis", redis_url, trusting=trusting
    )
    try:
        gateway.wait_until_ready()
        assert f"https://127.0.0.1:{gateway.port}" in gateway.log
        http = httpx.Client(verify=trusting)
        with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, http_client=http) as client:
            assert client.responses.create(model="auto", input="Say hello.").output_text
        async with SocketClient.open(gateway) as connection:
            assert (await connection.turn("Say hello."))["output"]
        with pytest.raises((websockets.InvalidMessage, OSError, EOFError)):
            async with websockets.connect(gateway.socket_url.replace("wss:", "ws:")):
                pass
    finally:
        assert gateway.stop() == 0, gateway.log
    assert "Traceback" not in gateway.log, gateway.log


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("[server]\ntls_cert_path = 'a.pem'", "both"),
        ("[server]\ntls_cert_path = 'a.pem'\ntls_key_path = 'a.key'", "No such file"),
        ("[server]\ntls_cert_path = 'bad.pem'\ntls_key_path = 'bad.pem'", "tls_cert_path"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, config: str, complaint: str) -> None:
    (tmp_path / "bad.pem").write_text("no certificate")
    refused = lanewise("serve", "--port", "0", config=config, folder=tmp_path)
    assert refused.returncode == 2
    assert complaint in refused.stderr
    assert "Traceback" not in refused.stderr
