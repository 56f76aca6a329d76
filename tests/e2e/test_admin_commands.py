"""Tests `lanewise audit`, `decisions`, `pools` and `learning` against a real gateway."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI, RateLimitError

from tests.e2e.admin_api import ask, run_task
from tests.e2e.gateway_process import GatewayProcess
from tests.e2e.shell import Shell

NONE_ELSE = dict.fromkeys(("tokens_per_min", "max_concurrent", "tokens_per_day"))


@pytest.fixture
def shell(gateway: GatewayProcess, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(gateway, capsys)


def test_both_trails_say_what_was_before_and_after(
    shell: Shell, gateway: GatewayProcess, tmp_path: Path
) -> None:
    shell("tenants create trail --tier pro")
    shell("tenants set trail --tier enterprise")
    made = shell.json("keys create trail --name till")
    policy = tmp_path / "policy.toml"
    policy.write_text('version = "trail"\n')
    version = shell.json(f"policy apply {policy} --comment why --force")["version"]
    shell("policy activate 0")
    entries: list[dict[str, Any]] = shell.json("audit --limit 6")
    back, activated, stored, key, changed, created = entries
    assert [entry["action"] for entry in entries] == [
        *("policies.activate", "policies.activate", "policies.store"),
        *("keys.create", "tenants.set", "tenants.create"),
    ]
    assert activated["after"] == back["before"] == {"active": version}
    assert (back["after"], stored["after"]) == ({"active": 0}, {"last": version})
    assert (stored["comment"], stored["subject"]) == ("why", f"v{version}")
    assert created["before"] == {"tenant:trail": None}
    assert changed["before"]["tenant:trail"]["tier"] == "pro"
    assert changed["after"]["tenant:trail"]["tier"] == "enterprise"
    assert key["after"][f"key:{made['record']['id']}"]["name"] == "till"
    assert "digest" not in json.dumps(key)
    assert {entry["author"] for entry in entries} == {"development"}
    assert len({entry["key"] for entry in entries}) == 1
    assert len({entry["request_id"] for entry in entries}) == 6
    assert {frozenset(entry) for entry in entries} == {frozenset(back)}, "one shape"
    assert all(entry["request_id"].startswith("req_") for entry in entries)
    text = shell("audit --limit 6")
    assert 'tenant:trail.tier: "pro" -> "enterprise"' in text
    assert [entry["action"] for entry in shell.json("audit --trail tenants --limit 1")] == [
        "keys.create"
    ]
    assert shell.json("audit --trail policies --limit 1")[0]["action"] == "policies.activate"


def test_an_entry_names_the_request_that_its_client_saw(gateway: GatewayProcess) -> None:
    request = urllib.request.Request(
        f"{gateway.url}/admin/tiers/seen",
        b"{}",
        {"authorization": "Bearer sk-lanewise-admin-dev", "content-type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request) as answer:
        told = answer.headers["x-request-id"]
    _, entries = ask(gateway, "GET", "/admin/audit?limit=1")
    assert entries[0]["request_id"] == told


def test_decisions_are_found(shell: Shell, gateway: GatewayProcess) -> None:
    made = run_task(gateway)
    other = run_task(gateway)
    assert [row["id"] for row in shell.json(f"decisions --id {made}")] == [made]
    story = shell(f"decisions --id {made}")
    assert made in story
    assert "duration_ms" in story
    found = [row["id"] for row in shell.json("decisions --outcome ok --since 10m --tenant dev")]
    assert {made, other} <= set(found)
    assert shell.json("decisions --rule nobody") == []
    assert "Invalid 'outcome'" in shell.refused("decisions --outcome oke")
    assert shell.json("decisions --before 2020-01-01") == []
    assert made in shell("decisions")
    with pytest.raises(SystemExit):
        shell("decisions --since yesterday")


def test_pools_and_what_was_learned(shell: Shell, gateway: GatewayProcess) -> None:
    run_task(gateway)
    assert {row["group"] for row in shell.json("pools dev")} == {"fast", "deep"}
    assert "tokens" in shell("pools dev")
    assert "No tenant" in shell.refused("pools nobody")
    assert "dev" in [row["tenant"] for row in shell.json("learning list")]
    assert "dev" in shell("learning list dev")
    shell("learning reset dev")
    shell("learning restore dev")
    assert "no reset" in shell.refused("learning restore dev")
    actions = [entry["action"] for entry in shell.json("audit --trail tenants --limit 2")]
    assert actions == ["learning.restore", "learning.reset"]


def test_use_is_summed_by_what_is_asked(shell: Shell, gateway: GatewayProcess) -> None:
    run_task(gateway, "lanewise-deep")
    view = shell.json("usage show --by tenant --by model --days 2")
    assert view["by"] == ["tenant", "model"]
    rows = {(row["tenant"], row["model"]): row for row in view["rows"]}
    row = rows["dev", "lanewise-deep"]
    assert len(rows) == len(view["rows"])
    assert (row["tasks"] >= 1, row["output_tokens"] > 0) == (True, True)
    text = shell("usage show --tenant dev --by model --by service_tier")
    assert text.split("\n")[0].split()[:3] == ["MODEL", "SERVICE_TIER", "TASKS"]
    assert "lanewise-deep" in text
    assert "--days: expected 1 to 40, got 99" in shell.refused("usage show --days 99")
    status, refused = ask(gateway, "GET", "/admin/usage?by=colour")
    assert (status, refused["error"]["param"]) == (400, "by")


def test_a_key_has_limits_of_its_own(shell: Shell, gateway: GatewayProcess) -> None:
    shell("tenants create shared --tier pro --key-limit fast.requests_per_min=2")
    ordinary = shell.json("keys create shared")["key"]
    made = shell.json("keys create shared --limit fast.requests_per_min=1")
    assert made["record"]["limits"] == {"fast": {"requests_per_min": 1} | NONE_ELSE}
    for key, num_allowed in ((ordinary, 2), (made["key"], 1)):
        with OpenAI(base_url=gateway.base_url, api_key=key, max_retries=0) as client:
            for number in range(num_allowed):
                answer = client.responses.with_raw_response.create(
                    model="lanewise-fast", input="Hi.", max_output_tokens=16
                )
                assert answer.headers["x-ratelimit-limit-requests"] == str(num_allowed)
                left = answer.headers["x-ratelimit-remaining-requests"]
                assert left == str(num_allowed - number - 1)
            limits = [
                (row["key"], row["limit"], row["used"], row["remaining"])
                for row in shell.json(f"pools shared --key {key.split('_')[2]}")
                if row["unit"] == "key_requests"
            ]
            assert limits == [(key.split("_")[2], num_allowed, num_allowed, 0)]
            with pytest.raises(RateLimitError, match="this key's requests per min: Limit"):
                client.responses.create(model="lanewise-fast", input="Hi.", max_output_tokens=16)
    assert shell("pools shared").count("key_requests") == 2
    assert "no valid key 'nobody'" in shell.refused("pools shared --key nobody")
    assert "requests_per_min 3" in shell(
        f"keys set {made['record']['id']} --limit fast.requests_per_min=3"
    )
    shell(f"keys set {made['record']['id']} --limit fast=tenant")
    listed = {row["id"]: row["limits"] for row in shell.json("keys list shared")}
    assert listed[made["record"]["id"]] == {}


def test_a_tier_tells_what_its_keys_and_budgets_are(shell: Shell) -> None:
    limits = "--limit fast.requests_per_min=9 --limit fast.tokens_per_min=90000"
    given = f"{limits} --limit fast.max_concurrent=2 --key-limit fast.requests_per_min=3"
    said = shell(f"tiers set told {given} --budget day.hard=5")
    assert "each key: fast: requests_per_min 3" in said
    assert "budgets: day" in said
    row = next(row for row in shell.json("tiers list") if row["name"] == "told")
    assert row["key_limits"]["fast"]["requests_per_min"] == 3
    assert row["budgets"] == {"day": {"soft_usd": None, "hard_usd": 5.0}}
    listed = shell("tiers list")
    assert "requests_per_min 3" in listed
    assert "day: hard 5 USD" in listed
    shell("tiers delete told")
