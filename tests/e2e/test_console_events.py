"""Tests `/admin/events`: a snapshot, then what changes."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.admin_api import ADMIN_KEY, ask, run_task
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, lone_gateway

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with lone_gateway() as process:
        yield process


def opened(gateway: GatewayProcess, key: str = ADMIN_KEY) -> Any:
    headers = {"authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{gateway.admin_url}/admin/events", headers=headers)
    return urllib.request.urlopen(request, timeout=TIMEOUT_S)


def told(answer: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in answer:
        word, _, rest = line.decode().rstrip("\n").partition(": ")
        if word == "event":
            name = rest
        elif word == "data":
            yield name, json.loads(rest)


def watch_one(gateway: GatewayProcess) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the snapshot, and the change that tells of a task that ran meanwhile."""
    with closing(opened(gateway)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = told(answer)
        name, snapshot = next(events)
        assert name == "snapshot"
        made = run_task(gateway)
        while True:
            name, change = next(events)
            assert name == "change"
            if any(record["id"] == made for record in change.get("decisions", ())):
                return snapshot, change


def test_a_snapshot_and_then_what_changes(gateway: GatewayProcess) -> None:
    run_task(gateway)
    snapshot, change = watch_one(gateway)
    assert {each["name"] for each in snapshot["backends"]} == {"wafer", "gpu"}
    assert snapshot["gateway"]["workers"] == 1
    assert snapshot["problems"] == []
    assert snapshot["history"], "the charts begin empty"
    assert snapshot["history"] == sorted(snapshot["history"], key=lambda point: point["at"])
    (pools,) = [each for each in snapshot["pools"] if each["tenant"] == "dev"]
    assert {"group", "unit", "limit", "remaining", "reset_s"} == pools["pools"][0].keys()
    assert "history" not in change


def test_who_may_watch(gateway: GatewayProcess) -> None:
    for key in ("sk-nobody", DEVELOPMENT_KEY):
        with pytest.raises(urllib.error.HTTPError) as refused:
            opened(gateway, key)
        with refused.value as error:
            assert error.code == 401


def test_all_workers_together(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path, "--workers", "2")
    try:
        gateway.wait_until_ready()
        with closing(opened(gateway)) as answer:  # the second worker may still be starting
            for _, sections in told(answer):
                if sections.get("gateway", {}).get("workers") == 2:
                    break
        watch_one(gateway)
    finally:
        assert gateway.stop() == 0, gateway.log


def test_where_the_wafers_model_lies(gateway: GatewayProcess) -> None:
    _, (placement,) = ask(gateway, "GET", "/admin/placements")
    assert placement["backend"] == "wafer"
    assert {region["wafer"] for region in placement["regions"]} == set(range(placement["wafers"]))
    for region in placement["regions"]:
        assert 0 <= region["x"] <= region["x"] + region["width"] <= placement["width"]
        assert 0 < region["fill"] <= 1
