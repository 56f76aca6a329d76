"""Tests decisions for many asks: over HTTP against a running gateway, and by the command line."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

ROOT = Path(__file__).parents[2]
LINES = [
    {"id": "small", "text": "fix the typo in the README"},
    {"id": "deep", "text": "Refactor the storage engine across the entire codebase"},
    {"id": "safe", "text": "Patch the path traversal in the download handler"},
]
BODY = "".join(f"{json.dumps(line)}\n" for line in LINES)
LANES = {"small": "interactive", "deep": "deep", "safe": "deep"}


@pytest.fixture
def http(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=60) as http:
        yield http


def test_lines_in_lines_out(http: httpx.Client) -> None:
    answer = http.post("/v1/route", content=BODY)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [(row["id"], row["lane"]) for row in rows] == [*LANES.items()]
    for row in rows:
        assert 0 <= row["p_deep"] <= 1
        assert row["out_tokens"] >= 1
        assert row["route_us"] > 0
    assert rows[2]["security"] is True


def test_nothing_runs_and_nothing_is_reserved(http: httpx.Client) -> None:
    def counters() -> list[str]:
        text = http.get("/metrics").text
        return [line for line in text.splitlines() if line.startswith("lanewise_requests_total")]

    before = counters()
    assert http.post("/v1/route", content=BODY * 200).status_code == 200
    assert counters() == before


def test_a_bad_line_costs_itself_alone(http: httpx.Client) -> None:
    rows = http.post("/v1/route", content=f"nonsense\n{BODY}").text.splitlines()
    assert len(rows) == 4
    assert json.loads(rows[0])["error"].startswith("line 1: ")


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "invalid_value"),
        (b"\n" * 50_001, 413, "message_too_large"),
        (b"x" * (17 << 20), 413, "message_too_large"),
    ],
)
def test_refusals(http: httpx.Client, content: bytes, status: int, code: str) -> None:
    answer = http.post("/v1/route", content=content)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_it_takes_a_key(http: httpx.Client) -> None:
    answer = http.post("/v1/route", content=BODY, headers={"authorization": "Bearer wrong"})
    assert answer.status_code == 401


def test_the_command_line_decides_the_same() -> None:
    command = [sys.executable, "-m", "gateway", "route", "--batch", "-"]
    done = subprocess.run(
        command, cwd=ROOT, input=BODY, capture_output=True, text=True, timeout=60, check=True
    )
    assert {row["id"]: row["lane"] for row in map(json.loads, done.stdout.splitlines())} == LANES
