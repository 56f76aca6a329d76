"""What an earlier release wrote to Redis is what this one reads."""

from pathlib import Path

import pytest

from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import wait_until_at_rest
from tests.integration.recorded_release import (
    TENANT,
    gateway_on,
    put,
    read,
    recordings,
    respond,
    spent_usd,
)
from tests.integration.redis_fleet import Server, eventually, running


@pytest.mark.parametrize("path", recordings(), ids=lambda path: path.stem)
def test_what_a_release_wrote_is_read(path: Path, tmp_path: Path) -> None:
    recorded = read(path)
    server = Server(tmp_path)
    with running(server):
        server.ask("PING")
        put(recorded, server)
        with gateway_on(tmp_path, server) as gateway:
            key, stored = recorded.key, recorded.response
            assert ask(gateway, "GET", f"/v1/responses/{stored}", key=key)[0] == 200
            status, made = respond(gateway, key, stored)  # the key, the tenant, and its pools
            assert status == 200, made
            assert made["previous_response_id"] == stored
            status, policies = ask(gateway, "GET", "/admin/policies")
            assert (status, policies["active"]) == (200, recorded.policy)
            wait_until_at_rest(gateway)
            eventually(lambda: spent_usd(gateway) > recorded.spent_usd > 0)
            eventually(lambda: server.ask("XLEN", "lw1:{ledger}:entries") == 2)
            assert int(server.ask("HGET", f"lw1:{{{TENANT}}}:p:fast", "n")) == 0
        assert "Traceback" not in gateway.log
