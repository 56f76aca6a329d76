"""Tests that the response, the log, the ledger and the admin API say the same cost."""

import csv
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from gateway.cli.main import main
from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, redis_server, served

FAST, DEEP = (1.5, 0.15, 6.0), (3.0, None, 15.0)  # dollars: input, cached, output
CONFIG = f"""
[[prices]]
model = "lanewise-fast"
input = {FAST[0]}
cached_input = {FAST[1]}
output = {FAST[2]}

[[prices]]
model = "lanewise-deep"
input = {DEEP[0]}
output = {DEEP[2]}
"""


@pytest.fixture
def own_redis_url() -> Iterator[str]:
    """Gives one of its own: what others use would be in the sums."""
    with tempfile.TemporaryDirectory(prefix="lw-money-") as name, redis_server(Path(name)) as url:
        yield url


def test_every_bill_says_the_same(tmp_path: Path, own_redis_url: str) -> None:
    config = tmp_path / "lanewise.toml"
    config.write_text(CONFIG)
    with (
        served(tmp_path, "--config", str(config), "--redis", own_redis_url) as gateway,
        OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY) as client,
    ):
        total = joules = 0.0
        for route in ("fast", "deep", "parallel"):
            made = client.responses.create(
                model="auto", input="Name a prime.", max_output_tokens=64, metadata={"route": route}
            )
            routing = made.model_extra["routing"]  # type: ignore[index]
            dollars = 0.0
            for backend, used in routing["usage"].items():
                price = FAST if backend == "wafer" else DEEP
                cached = used["input_tokens_details"]["cached_tokens"]
                cached_price = price[0] if price[1] is None else price[1]
                dollars += (used["input_tokens"] - cached) * price[0] / 1e6
                dollars += cached * cached_price / 1e6 + used["output_tokens"] * price[2] / 1e6
            assert routing["cost"]["currency"] == "USD"
            assert abs(routing["cost"]["amount"] - dollars) < 1e-9
            total += dollars
            assert routing["energy_joules"] > 0
            joules += routing["energy_joules"]
        today = client.get("/usage", cast_to=object)["today"]  # type: ignore[index]
        assert abs(today["cost_usd"] - total) < 1e-9
        assert abs(today["energy_joules"] - joules) < 0.01
        status, view = ask(gateway, "GET", "/admin/usage?by=tenant&by=route")
        assert status == 200
        assert [row["route"] for row in view["rows"]] == ["deep", "fast", "parallel"]
        assert abs(sum(row["cost_usd"] for row in view["rows"]) - total) < 1e-9
        assert abs(sum(row["energy_joules"] for row in view["rows"]) - joules) < 0.01
        while gateway.log.count('"event":"task"') < 3:  # the test's own limit bounds it
            time.sleep(0.02)
        lines = [json.loads(line) for line in gateway.log.splitlines() if line.startswith("{")]
        told = sum(line["cost_usd"] for line in lines if line["event"] == "task")
        assert abs(told - total) < 1e-9
        told = sum(line["energy_joules"] for line in lines if line["event"] == "task")
        assert abs(told - joules) < 0.01
        out = tmp_path / "usage.csv"
        assert main(["usage", "export", "--out", str(out), "--redis", own_redis_url]) == 0
        with out.open() as file:
            exported = sum(int(row["cost_nusd"]) for row in csv.DictReader(file))
        assert abs(exported / 1e9 - total) < 1e-9
        bill = tmp_path / "bill.csv"
        lines = [
            f"{today['date']},{row['model']},{row['input_tokens']}" for row in by_model(gateway)
        ]
        bill.write_text("\n".join(["day,model,input_tokens", *lines]))
        sources = [["--url", gateway.url], ["--ledger", str(out)]]
        assert [main(["usage", "reconcile", str(bill), *each]) for each in sources] == [0, 0]
        bill.write_text("\n".join(["day,model,input_tokens", *lines, lines[0]]))
        assert [main(["usage", "reconcile", str(bill), *each]) for each in sources] == [1, 1]
        status, again = ask(gateway, "GET", "/admin/usage?by=tenant&by=route")
        assert again["rows"] == view["rows"]  # an export consumes nothing of it
        status, refused = ask(gateway, "GET", "/admin/usage?first_day=2020-01-01")
        assert (status, refused["error"]["param"]) == (400, "first_day")


def by_model(gateway: GatewayProcess) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ask(gateway, "GET", "/admin/usage?by=model")[1]["rows"]
    return rows


def test_without_prices_nothing_has_a_cost(gateway: GatewayProcess) -> None:
    with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY) as client:
        made = client.responses.create(model="lanewise-fast", input="Hi.", max_output_tokens=16)
    assert "cost" not in made.model_extra["routing"]  # type: ignore[index]
