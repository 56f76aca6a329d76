"""Tests an upstream that ends every response twice, on a socket that two tenants use in turns."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.gateway_process import served_beside
from tests.e2e.lying_tasks import text_of
from tests.e2e.lying_upstream import Answer, LyingUpstream
from tests.e2e.socket_client import SocketClient

NUM_TURNS = 6
TENANT = """
[[tenants]]
id = "{tenant}"
keys = ["sk-of-{tenant}-tenant"]
limits.fast = {{ requests_per_min = 600, tokens_per_min = 200000, max_concurrent = 4 }}
"""
BACKEND = """
[[backends]]
kind = "upstream"
name = "twice"
options = {{ base_url = "{base_url}", protocol = "responses-ws", upstream_model = "twice", \
model = "twice", group = "fast" }}
"""


class EndsTwice(LyingUpstream):
    """Says back a request's `secret-N`; the end comes again at once, or when the next one asks."""

    waits = False

    def __init__(self) -> None:
        super().__init__()
        self.sockets: set[Any] = set()
        self._again: dict[str, Any] | None = None

    async def _lie(self, body: bytes, answer: Answer) -> None:
        self.sockets.add(answer._send)  # type: ignore[attr-defined]  # the socket's own
        self.num_requests += 1
        if self.waits and self._again is not None:
            await answer.event(self._again)
        response = {"id": f"resp_{self.num_requests}"}
        await answer.event({"type": "response.created", "response": response})
        await answer.say(re.findall(rb"secret-\d+", body)[-1].decode())
        response["status"] = "completed"
        self._again = {"type": "response.completed", "response": response}
        await answer.event(self._again)
        if not self.waits:
            await answer.event(self._again)


@pytest.mark.parametrize("waits", [False, True])
async def test_no_tenant_gets_an_answer_of_another(
    tmp_path: Path, redis_url: str, waits: bool
) -> None:
    async with EndsTwice.running() as upstream:
        upstream.waits = waits
        tenants = ("one", "other")
        lines = [TENANT.format(tenant=tenant) for tenant in tenants]
        toml = "".join(lines) + BACKEND.format(base_url=upstream.base_url)
        async with served_beside(tmp_path, toml, "--redis", redis_url) as gateway:
            for turn in range(NUM_TURNS):
                key = f"sk-of-{tenants[turn % 2]}-tenant"
                async with SocketClient.open(gateway, key) as client:
                    await client.create(f"Say secret-{turn}.", model="twice")
                    ended = await client.terminal()
                assert text_of(ended["response"]) == f"secret-{turn}", ended
        assert upstream.num_requests == NUM_TURNS
        assert not waits or len(upstream.sockets) == 1, "or none was used again"
