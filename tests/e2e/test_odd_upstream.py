"""Tests an upstream whose events have odd fields, and whose end has more than its events."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.gateway_process import served_beside
from tests.e2e.lying_tasks import text_of
from tests.e2e.lying_upstream import Answer, LyingUpstream
from tests.e2e.socket_client import SocketClient

BACKEND = """
[[backends]]
kind = "upstream"
name = "odd"
options = {{ base_url = "{base_url}", protocol = "{protocol}", upstream_model = "odd", \
model = "odd", group = "fast" }}
"""
MESSAGE = {"type": "message", "id": "m"}
SEARCH = {"type": "web_search_call", "id": "w", "arguments": {"query": ["odd"]}, "summary": 7}
CALL = {"type": "function_call", "id": "f", "call_id": "call_1", "name": "add"}
PLACE = {"item_id": "m", "output_index": 1.0, "content_index": None}
TEXT = "One, \N{GRINNING FACE} two."
OUTPUT = [SEARCH, MESSAGE | {"content": [{"text": TEXT}]}, CALL | {"arguments": {"n": 1}}]
EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": {"id": "resp_odd", "output": 0}},
    {"type": "response.output_item.done", "output_index": 0, "item": SEARCH},
    {"type": "response.audio.delta", "delta": {"data": ""}, "item": "w", "response": "resp_odd"},
    {"type": "response.output_item.added", "output_index": 1, "item": MESSAGE},
    {"type": "response.output_text.delta", "delta": "One, \ud83d", **PLACE},  # cut in two
    {"type": "response.output_text.delta", "delta": "\ude00", **PLACE},
    {
        "type": "response.completed",
        "response": {"id": "resp_odd", "status": "completed", "output": OUTPUT},
    },
]


class OddUpstream(LyingUpstream):
    """Says the same to everybody."""

    async def _lie(self, body: bytes, answer: Answer) -> None:
        for event in EVENTS:
            await answer.event(event)


@pytest.mark.parametrize("protocol", ["responses", "responses-ws"])
async def test_an_answer_is_whole(tmp_path: Path, redis_url: str, protocol: str) -> None:
    async with OddUpstream.running() as upstream:
        toml = BACKEND.format(base_url=upstream.base_url, protocol=protocol)
        async with (
            served_beside(tmp_path, toml, "--redis", redis_url) as gateway,
            SocketClient.open(gateway) as client,
        ):
            await client.create("Count.", model="odd")
            response = (await client.terminal())["response"]
    assert response["status"] == "completed", response["error"]
    assert text_of(response) == TEXT
    call = response["output"][-1]
    assert [call[name] for name in ("type", "call_id", "arguments")] == [
        *("function_call", "call_1", '{"n":1}')
    ]
