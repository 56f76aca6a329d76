"""Tests what a gateway's log says of a task, and of what happens to it."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, OpenAI

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, served
from tests.e2e.relayed_server import relayed_server

SECRET = "xylophone-marmalade"
BROKEN = """
[[backends]]
kind = "upstream"
name = "broken"
options.model = "broken"
options.upstream_model = "broken"
options.group = "fast"
options.base_url = "http://127.0.0.1:{port}/v1"
options.protocol = "chat"
"""


def lines_of(gateway: GatewayProcess, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in gateway.log.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def test_every_task_has_a_line_and_no_word_of_its_prompt(gateway: GatewayProcess) -> None:
    with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY) as client:
        create = client.responses.create
        for model in ("auto", "no-such-model"):
            with pytest.raises(APIStatusError):
                create(model=model, input=SECRET, previous_response_id="resp_missing")
        response = create(model="auto", input=f"Say {SECRET}.", max_output_tokens=16)
    while not (lines := [each for each in lines_of(gateway, "task") if each["id"] == response.id]):
        time.sleep(0.02)  # the test's own limit bounds it
    line = lines[0]
    assert line["outcome"] == "ok"
    assert line["tenant"] == "dev"
    assert line["route"] in ("fast", "deep", "parallel")
    assert line["reason"]
    assert line["output_tokens"] >= 1
    assert line["duration_ms"] > 0
    assert SECRET not in gateway.log
    ended = [each for each in lines_of(gateway, "task") if each["outcome"] == "invalid"]
    assert ended
    assert all(each["error"] for each in ended)


def test_text_where_it_is_asked_for(tmp_path: Path, redis_url: str) -> None:
    config = tmp_path / "lanewise.toml"
    config.write_text('[logs]\nformat = "text"\ntasks = false\n')
    with (
        served(tmp_path, "--config", str(config), "--redis", redis_url) as gateway,
        OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY) as client,
    ):
        client.responses.create(model="lanewise-fast", input="Hi", max_output_tokens=16)
    assert not [line for line in gateway.log.splitlines() if line.startswith("{")]
    assert "task resp_" not in gateway.log


@pytest.fixture
def broken_port() -> Iterator[int]:
    """Returns the port of an engine that is up and fails whatever it is asked."""
    with relayed_server() as server:
        server.status, server.message = 500, "No wafer is left. " + "x" * 900
        yield server.server_port


def test_why_tasks_fail_is_told_once_and_not_for_each(
    tmp_path: Path, redis_url: str, broken_port: int
) -> None:
    config = tmp_path / "lanewise.toml"
    config.write_text(BROKEN.format(port=broken_port))
    with served(tmp_path, "--config", str(config), "--redis", redis_url) as gateway:
        with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
            for _ in range(3):
                with pytest.raises(APIStatusError):
                    client.responses.create(model="broken", input=SECRET)
        while len(lines_of(gateway, "task")) < 3:  # the test's own limit bounds it
            time.sleep(0.02)
        outcomes = {line["outcome"] for line in lines_of(gateway, "task")}
        assert "error" in outcomes
        assert outcomes <= {"error", "shed"}  # after some failures it is left alone
        assert all(line["error"] for line in lines_of(gateway, "task"))
        why = [line["message"] for line in lines_of(gateway, "log")]
        why = [message for message in why if "No wafer is left." in message]
    told = [message for message in why if message.startswith("upstream broken failed: ")]
    assert len(told) == 1
    assert len(told[0]) < 400
    assert SECRET not in gateway.log
