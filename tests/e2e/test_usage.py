"""Tests what a tenant used: each settled task has an entry, and its client sees the sum."""

import csv
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from gateway.cli.main import main
from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import GatewayProcess, wait_until_at_rest

LONG: Any = {
    "model": "lanewise-deep",
    "input": "Write an essay on locks.",
    "max_output_tokens": 100_000,
}


@pytest.fixture
def tenant_client(gateway: GatewayProcess) -> Iterator[OpenAI]:
    """Gives a client of a tenant of its own."""
    made = ask(gateway, "POST", "/admin/tenants", {"id": "ledger", "tier": "enterprise"})
    assert made[0] == 201, made
    _, key = ask(gateway, "POST", "/admin/keys", {"tenant": "ledger"})
    with OpenAI(base_url=gateway.base_url, api_key=key["key"], max_retries=0) as client:
        client.key_id = key["record"]["id"]  # type: ignore[attr-defined]
        yield client
    ask(gateway, "DELETE", "/admin/tenants/ledger")
    ask(gateway, "DELETE", "/admin/tenants/ledger/data")


def usage(client: OpenAI) -> Any:
    return client.get("/usage", cast_to=object)


def begin(connection: Any, **body: Any) -> str:
    """Start a response and return its id once it has text."""
    connection.response.create(**body)
    response_id = ""
    for event in connection:
        if event.type == "response.created":
            response_id = event.response.id
        if event.type == "response.output_text.delta":
            return response_id
    raise AssertionError("the connection ended")


def until(connection: Any, *kinds: str) -> Any:
    return next(event for event in connection if event.type in kinds)


def test_each_settled_task_has_one_entry_however_it_ended(
    tenant_client: OpenAI, gateway: GatewayProcess, redis_url: str, tmp_path: Path
) -> None:
    client = tenant_client
    expected: dict[str, tuple[str, int]] = {}  # response id -> outcome, rows
    whole = client.responses.create(model="lanewise-fast", input="Hi.")
    expected[whole.id] = ("ok", 1)
    both = client.responses.create(
        model="auto", input="Explain B-trees.", metadata={"route": "parallel"}
    )
    expected[both.id] = ("ok", 2)
    with client.responses.create(**LONG, stream=True) as stream:  # leaves in the middle
        for event in stream:
            if event.type == "response.output_text.delta":
                break
            if event.type == "response.created":
                expected[event.response.id] = ("cancelled", 1)
    with client.responses.connect() as connection:
        connection.response.create(model="lanewise-fast", input="Warm.", generate=False)
        expected[until(connection, "response.completed").response.id] = ("ok", 1)
        cancelled = begin(connection, **LONG)
        expected[cancelled] = ("cancelled", 1)
        connection.send({"type": "response.cancel", "response_id": cancelled})
        until(connection, "response.incomplete", "response.completed")
        connection.response.create(model="no-such-model", input="Hi.")
        until(connection, "error")  # refused before it was admitted: no entry
        expected[begin(connection, **LONG)] = ("cancelled", 1)  # and the socket goes
    background = client.responses.create(**LONG, background=True)
    expected[background.id] = ("cancelled", 1)
    client.responses.cancel(background.id)
    wait_until_at_rest(gateway)

    today = usage(client)["today"]
    assert today["tasks"] == len(expected)
    out = tmp_path / "usage.csv"
    assert main(["usage", "export", "--out", str(out), "--redis", redis_url]) == 0
    with out.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["tenant_id"] == "ledger"]
    counted = Counter(row["task_id"] for row in rows)
    outcomes = {row["task_id"]: row["outcome"] for row in rows}
    assert {task: (outcomes[task], counted[task]) for task in outcomes} == expected
    assert {row["key_id"] for row in rows} == {client.key_id}  # type: ignore[attr-defined]
    assert whole.usage is not None
    (row,) = [row for row in rows if row["task_id"] == whole.id]
    assert (row["backend"], row["group"]) == ("wafer", "fast")
    assert int(row["input_tokens"]) == whole.usage.input_tokens
    assert int(row["output_tokens"]) == whole.usage.output_tokens
    for kind in ("input", "cached", "output", "reasoning"):
        field = f"{kind}_tokens"
        assert today[field] == sum(int(row[field]) for row in rows), kind
    assert today["cost_units"] == sum(int(row["cost_units"]) for row in rows)
    assert today["output_tokens"] > 0


def test_a_client_sees_its_own_pools(tenant_client: OpenAI, gateway: GatewayProcess) -> None:
    before = usage(tenant_client)
    tenant_client.responses.create(model="lanewise-fast", input="Hi.")
    after = usage(tenant_client)
    assert (after["object"], after["tenant"], after["tier"]) == ("usage", "ledger", "enterprise")
    assert after["degraded"] is False
    pools = {(pool["group"], pool["unit"]): pool for pool in after["pools"]}
    assert {unit for _, unit in pools} >= {"requests", "tokens", "concurrent"}
    assert {group for group, _ in pools} == {"fast", "deep"}
    assert pools["deep", "requests"]["limit"] == 1_200
    assert after["today"]["tasks"] == before["today"]["tasks"] + 1
    assert after["today"]["groups"]["fast"]["tokens"] > before["today"]["groups"]["fast"]["tokens"]
    assert after["today"]["ends_at"] > time.time()
    status, answer = ask(gateway, "GET", "/v1/usage", key=None)
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
