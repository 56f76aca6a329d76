"""What an upstream says that it served is told and billed, whatever was asked for."""

import asyncio
import csv
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.cli.main import main
from tests.e2e.admin_api import ADMIN_KEY, ask
from tests.e2e.gateway_process import GatewayProcess, redis_server, wait_until_at_rest
from tests.e2e.lying_tasks import KEY, PROTOCOLS, client_of, lied_to
from tests.e2e.socket_client import SocketClient

NUM_LOOKS, LOOK_S = 200, 0.05
NUM_TOKENS = 37  # of each answer, input and output
PRICES = {"": 1.0, "priority": 2.0, "flex": 0.5}  # dollars for a million tokens
WINDOW_PRICE = 0.6
SELLS = 'service_tiers = ["flex", "priority"]\n'
ROW = """
[[prices]]
model = "{model}"
input = {price}
output = {price}
"""
# asked by the client, asked of the upstream, said by it -> told to the client, charged
CASES = {
    "a ramp": ("priority", "priority", "default", "default", ""),
    "as asked": ("priority", "priority", "priority", "priority", "priority"),
    "by its newer name": ("priority", "priority", "fast", "priority", "priority"),
    "asked for by its newer name": ("fast", "priority", "priority", "priority", "priority"),
    "cheaper": ("flex", "flex", "flex", "flex", "flex"),
    "no flex here": ("flex", "flex", "default", "default", ""),
    "a setting of the project": ("auto", "", "priority", "priority", "priority"),
    "not said": ("flex", "flex", None, "flex", "flex"),
    "not known": ("priority", "priority", "hyper", "priority", "priority"),
    "not sold": ("ultrafast", "", None, "ultrafast", ""),
    "nothing asked": (None, "", "default", "default", ""),
}
Said = dict[str, Any]


def prices() -> str:
    rows = [
        ROW.format(model=model, price=price) + (f'tier = "{tier}"\n' if tier else "")
        for model in PROTOCOLS
        for tier, price in PRICES.items()
    ]
    window = ROW.format(model="chat", price=WINDOW_PRICE) + 'completion_window = "8h"\n'
    return "".join((*rows, window))


async def whole(gateway: GatewayProcess, client: httpx.AsyncClient, body: Said) -> Said:
    answer = await client.post("/responses", json=body)
    assert answer.status_code == 200, answer.text
    said: Said = answer.json()
    return said


async def over_sse(gateway: GatewayProcess, client: httpx.AsyncClient, body: Said) -> Said:
    answer = await client.post("/responses", json={**body, "stream": True})
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line[:6] == "data: "]
    said: Said = events[-1]["response"]
    return said


async def over_a_socket(gateway: GatewayProcess, client: httpx.AsyncClient, body: Said) -> Said:
    async with SocketClient.open(gateway, KEY) as socket:
        await socket.create(**body)
        said: Said = (await socket.terminal())["response"]
        return said


def chat_body(body: Said) -> Said:
    said = {**body, "messages": [{"role": "user", "content": body["input"]}]}
    del said["input"], said["store"]
    return said


async def by_chat(gateway: GatewayProcess, client: httpx.AsyncClient, body: Said) -> Said:
    answer = await client.post("/chat/completions", json=chat_body(body))
    assert answer.status_code == 200, answer.text
    said: Said = answer.json()
    return said


async def by_streamed_chat(gateway: GatewayProcess, client: httpx.AsyncClient, body: Said) -> Said:
    """Asks by a streamed chat, whose last chunk has no `routing`: only the ledger has the cost."""
    answer = await client.post("/chat/completions", json={**chat_body(body), "stream": True})
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    said: Said = json.loads(lines[-1])
    return said


WAYS = (whole, over_sse, over_a_socket, by_chat, by_streamed_chat)


@pytest.fixture
def own_redis_url() -> Iterator[str]:
    """Gives one of its own: what others use would be in the sums."""
    with tempfile.TemporaryDirectory(prefix="lw-tiers-") as name, redis_server(Path(name)) as url:
        yield url


async def test_the_served_tier_is_told_and_billed(
    folder: Path, own_redis_url: str, tmp_path: Path
) -> None:
    admin = f'[[admin.keys]]\nname = "ops"\nkey = "{ADMIN_KEY}"\n'
    more = {"of_backend": SELLS, "of_gateway": prices() + admin}
    async with lied_to(folder, own_redis_url, **more) as (gateway, upstream):
        due: dict[str, int] = {}  # tier -> tokens
        async with client_of(gateway) as client:
            for number, (asked, passed_on, served, told, charged) in enumerate(CASES.values()):
                for protocol in PROTOCOLS:
                    body = {"model": protocol, "input": "lie=none", "store": False}
                    body |= {} if asked is None else {"service_tier": asked}
                    body["input"] += "" if served is None else f", tier={served}"
                    for way in WAYS if protocol == PROTOCOLS[number % 3] else (whole,):
                        said = await way(gateway, client, body)
                        place = (asked, served, protocol, way.__name__)
                        assert said["service_tier"] == told, place
                        assert upstream.asked_tiers.pop() == passed_on, place
                        if "routing" in said:
                            amount = said["routing"]["cost"]["amount"]
                            assert amount == pytest.approx(NUM_TOKENS * PRICES[charged] / 1e6), (
                                place
                            )
                        due[charged] = due.get(charged, 0) + NUM_TOKENS
            late = await in_the_background(client)
            assert late["routing"]["cost"]["amount"] == pytest.approx(
                NUM_TOKENS * WINDOW_PRICE / 1e6
            )
        assert gateway.log.count("which is not known") == len(PROTOCOLS), "once for each backend"

        dollars = NUM_TOKENS * WINDOW_PRICE + sum(due[tier] * PRICES[tier] for tier in due)
        await asyncio.to_thread(wait_until_at_rest, gateway)
        status, view = ask(gateway, "GET", "/admin/usage?by=service_tier&tenant=told")
        assert status == 200
        assert sum(row["cost_usd"] for row in view["rows"]) == pytest.approx(dollars / 1e6)
        by_tier = {
            row["service_tier"]: row["input_tokens"] + row["output_tokens"] for row in view["rows"]
        }
        assert by_tier["priority"] == due["priority"]
        assert by_tier["flex"] == due["flex"]
        assert by_tier[""] + by_tier["default"] == due[""] + NUM_TOKENS
        out = tmp_path / "usage.csv"
        command = ["usage", "export", "--out", str(out), "--redis", own_redis_url]
        assert await asyncio.to_thread(main, command) == 0
        with out.open() as file:
            rows = [row for row in csv.DictReader(file) if row["tenant_id"] == "told"]
        assert sum(int(row["cost_nusd"]) for row in rows) == round(dollars * 1_000)
        for _ in range(NUM_LOOKS):  # the log is written a little later
            told = [line for line in gateway.log.splitlines() if '"event":"task"' in line]
            if sum('"tenant":"told"' in line for line in told) == len(rows):
                break
            await asyncio.sleep(LOOK_S)
        tasks = [json.loads(line) for line in told]
        assert sum(task["cost_usd"] for task in tasks) == pytest.approx(dollars / 1e6)
        assert sum(task.get("service_tier") == "flex" for task in tasks) * NUM_TOKENS == due["flex"]


async def in_the_background(client: httpx.AsyncClient) -> Said:
    body: Said = {"model": "chat", "input": "lie=none, tier=default"}
    body["background_options"] = {"completion_window": "8h"}
    refused = await client.post("/responses", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "background_options.completion_window"
    said: Said = (await client.post("/responses", json={**body, "background": True})).json()
    while said["status"] in ("queued", "in_progress"):  # the test's own limit bounds it
        await asyncio.sleep(0.02)
        said = (await client.get(f"/responses/{said['id']}")).json()
    return said
