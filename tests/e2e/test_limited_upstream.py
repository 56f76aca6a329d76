"""Tests a lone upstream at its own rate limit: clients are told so, and when to come again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI, RateLimitError

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess
from tests.e2e.relayed_server import KEY, relayed_server

LIMITED = """
[[backends]]
kind = "upstream"
name = "limited"
options.model = "limited"
options.upstream_model = "theirs"
options.group = "fast"
options.base_url = "http://127.0.0.1:{port}/v1"
options.protocol = "chat"
options.key_env = "LIMITED_KEY"
options.probe_path = "/models"
"""

ASKS: dict[str, Callable[[OpenAI, bool], Any]] = {
    "responses": lambda client, stream: client.responses.create(
        model="limited", input="Hi.", stream=stream
    ),
    "chat": lambda client, stream: client.chat.completions.create(
        model="limited", messages=[{"role": "user", "content": "Hi."}], stream=stream
    ),
}


def test_it_is_a_rate_limit_for_as_long_as_it_lasts(tmp_path: Path, redis_url: str) -> None:
    with relayed_server() as server:
        server.status, server.message = 429, "Limit reached. Please try again in 40s."
        config = tmp_path / "limited.toml"
        config.write_text(LIMITED.format(port=server.server_address[1]))
        arguments = ("--config", str(config), "--redis", redis_url)
        gateway = GatewayProcess(tmp_path, *arguments, environ={"LIMITED_KEY": KEY})
        try:
            gateway.wait_until_ready()
            with OpenAI(
                base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0
            ) as client:
                with pytest.raises(RateLimitError):
                    client.responses.create(model="limited", input="Hi.")
                for name, ask in ASKS.items():
                    for stream in (False, True):
                        with pytest.raises(RateLimitError) as refused:
                            ask(client, stream)
                        error = refused.value
                        assert error.code == "rate_limit_exceeded", name
                        assert 30 < int(error.response.headers["retry-after"]) <= 40
                        assert "model 'limited' is at its server's rate limit" in error.message
            assert len(server.bodies) == 1, "it is left alone meanwhile"
        finally:
            assert gateway.stop() == 0
