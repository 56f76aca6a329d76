"""Tests the decision log of a real gateway: every task has its line, whatever became of it."""

import json
from pathlib import Path

import pytest
from openai import BadRequestError, OpenAI, RateLimitError

from router.record.recording import DecisionRecord, decode_line
from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    wait_until_at_rest,
)

SECRET = "canary-51d2"
TIGHT_KEY = "sk-tight-tenant"
TIGHT = f"""
[[tenants]]
id = "tight"
keys = ["{TIGHT_KEY}"]
limits.fast = {{ requests_per_min = 1, tokens_per_min = 100000, max_concurrent = 8 }}
"""


def test_every_task_has_its_line(tmp_path: Path, redis_url: str) -> None:
    path = tmp_path / "decisions.jsonl"
    config = tmp_path / "lanewise.toml"
    config.write_text(f'recording.path = "{path}"\n{CONFIG}{TIGHT}')
    gateway = GatewayProcess(tmp_path, "--config", str(config), "--redis", redis_url)
    try:
        gateway.wait_until_ready()
        with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
            first = client.responses.create(model="auto", input=f"Rename {SECRET}.")
            second = client.responses.create(
                model="auto", input="And back.", previous_response_id=first.id
            )
            with pytest.raises(BadRequestError):
                client.responses.create(model="auto", input="x " * 600_000)
        with OpenAI(base_url=gateway.base_url, api_key=TIGHT_KEY, max_retries=0) as client:
            client.responses.create(model="lanewise-fast", input="Hi.")
            with pytest.raises(RateLimitError):
                client.responses.create(model="lanewise-fast", input="Hi.")
        wait_until_at_rest(gateway)
        _, recent = ask(gateway, "GET", "/admin/decisions?tenant=dev&limit=1")
        assert [record["id"] for record in recent] == [second.id]
        other = GatewayProcess(tmp_path, "--config", str(config), "--redis", redis_url)
        assert other.process.wait(60) == 2, "two processes never share a file"
        assert "another process writes" in other.log
    finally:
        assert gateway.stop() == 0, gateway.log
    content = path.read_bytes()
    assert SECRET.encode() not in content
    records = {record.id: record for record in map(decode_line, content.splitlines())}
    assert path.stat().st_mode & 0o777 == 0o600
    assert any(record.at % 1 for record in records.values()), "arrivals have fractions"
    kept = records[first.id]
    assert (kept.outcome, kept.kind, kept.tenant) == ("ok", "refactor", "dev")
    assert kept.output_tokens == sum(entry.output_tokens for entry in kept.usage) > 0
    assert kept.ttft_ms is not None
    assert kept.ttft_ms <= kept.duration_ms
    assert kept.answered_by in kept.backends
    assert kept.conversation == records[second.id].conversation
    refused = [record for record in records.values() if record.outcome == "rate_limited"]
    assert [(record.tenant, record.error, record.route) for record in refused] == [
        ("tight", "rate_limit_exceeded", None)
    ]
    assert refused[0].label is not None, "it was classified before it was refused"
    columns = {tuple(json.loads(line)) for line in content.splitlines()}
    assert columns == {DecisionRecord.__struct_fields__}
