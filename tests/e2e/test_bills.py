"""Every count of what was spent agrees under a mixed load; a run's budget is told, and raised."""

import asyncio
import csv
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI, RateLimitError

from gateway.cli.main import main
from router.strategies.table import STRATEGIES
from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import GatewayProcess, wait_until_at_rest
from tests.e2e.priced_gateway import RUNS_KEY, SPENDERS, Priced, key_of, priced_gateway
from tests.e2e.shell import Shell
from tests.e2e.socket_client import TERMINALS, SocketClient

SEED = 20_261_123
NUM_SOCKETS = 4
LONG = "Write a guide to sorting of 16,000 tokens."
MODELS = ("lanewise-fast", "lanewise-deep")
KINDS = ("input", "cached", "output", "reasoning")
Counted = Counter[tuple[str, str]]  # (backend, kind of tokens) -> tokens


@pytest.fixture(scope="module")
def priced() -> Iterator[Priced]:
    with priced_gateway() as running:
        yield running


@pytest.fixture
def shell(priced: Priced, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(priced.gateway, capsys)


async def test_every_count_of_a_mixed_load_is_the_same(priced: Priced, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    gateway, chance = priced.gateway, random.Random(SEED)
    tasks, first_day = mixed_load(chance), datetime.now(UTC).date().isoformat()
    ended: dict[str, Counted] = {}  # response id -> what its routing.usage says
    dollars: dict[str, float] = {}

    def note(response: dict[str, Any]) -> None:
        ended[response["id"]] = reported(response["routing"]["usage"])
        dollars[response["id"]] = response["routing"]["cost"]["amount"]

    await asyncio.gather(*(work(gateway, tasks, chance, note) for _ in range(NUM_SOCKETS)))
    await asyncio.to_thread(wait_until_at_rest, gateway)

    view = usage_rows(gateway, first_day, "tenant", "key", "model", "route")
    seen = await asyncio.to_thread(gateway.metrics)
    exported = tmp_path / "usage.csv"
    command = ["usage", "export", "--out", str(exported), "--redis", priced.redis_url]
    assert await asyncio.to_thread(main, command) == 0
    with exported.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["tenant_id"] == "dev"]
    of_tasks: dict[str, Counted] = {}
    nusd: Counter[str] = Counter()
    outcomes = {}
    for row in rows:
        of_task = of_tasks.setdefault(row["task_id"], Counter())
        for kind in KINDS:
            of_task[row["backend"], kind] += int(row[f"{kind}_tokens"])
        nusd[row["task_id"]] += int(row["cost_nusd"])
        outcomes[row["task_id"]] = row["outcome"]

    assert {task: +of_tasks[task] for task in ended} == {task: +ended[task] for task in ended}
    assert {task: round(amount * 1e9) for task, amount in dollars.items()} == {
        task: nusd[task] for task in dollars
    }
    left = set(of_tasks) - set(ended)
    # Some may end before the gateway hears that their client has left.
    assert {"cancelled"} <= {outcomes[task] for task in left} <= {"cancelled", "ok"}
    assert len(ended) >= len(STRATEGIES), "most of the load is to end"

    places = ("tenant_id", "key_id", "model", "route")
    sums: dict[tuple[str, ...], Counter[str]] = {}
    for row in rows:
        place = sums.setdefault(tuple(row[name] for name in places), Counter())
        for kind in KINDS:
            place[kind] += int(row[f"{kind}_tokens"])
        place["nusd"] += int(row["cost_nusd"])
    assert {place: +counted for place, counted in sums.items()} == {
        (row["tenant"], row["key"], row["model"], row["route"]): +Counter(
            {kind: row.get(f"{kind}_tokens", 0) for kind in KINDS}
            | {"nusd": round(row.get("cost_usd", 0) * 1e9)}
        )
        for row in view
        if row["tenant"] == "dev"
    }
    assert sum(row.get("tasks", 0) for row in view if row["tenant"] == "dev") == len(of_tasks)
    for model in MODELS:
        told = seen.total("lanewise_spend_usd_total", tenant="dev", model=model)
        counted = sum(int(row["cost_nusd"]) for row in rows if row["model"] == model)
        assert told == pytest.approx(counted / 1e9, abs=1e-9)


def mixed_load(chance: random.Random) -> list[dict[str, Any]]:
    """Runs tasks of every strategy and of both engines: each ends, is cancelled, and is left."""
    asked: list[dict[str, Any]] = [{"model": model} for model in MODELS]
    asked += [{"model": "auto", "metadata": {"strategy": name}} for name in STRATEGIES]
    ending = {"max_output_tokens": 40, "input": "Explain B-trees in 20 words."}
    tasks = [one | ending | {"end": "whole"} for one in asked for _ in range(2)]
    for end in ("cancelled", "left", "background"):
        tasks += [one | {"max_output_tokens": 16_000, "input": LONG, "end": end} for one in asked]
    tasks += [one | ending | {"generate": False, "end": "whole"} for one in asked[:2]]
    tasks.append({"model": "no-such-model", "input": "Hi.", "end": "refused"})
    chance.shuffle(tasks)
    return tasks


async def work(
    gateway: GatewayProcess,
    tasks: list[dict[str, Any]],
    chance: random.Random,
    note: Callable[[dict[str, Any]], None],
) -> None:
    """Runs tasks until none is left; `note` gets each response that ends."""
    while tasks:
        async with SocketClient.open(gateway) as client:
            while tasks:
                task = dict(tasks.pop())
                if not await run_one(client, gateway, task, chance.randrange(8), note):
                    break  # and the socket goes


async def run_one(
    client: SocketClient,
    gateway: GatewayProcess,
    task: dict[str, Any],
    num_events: int,
    note: Callable[[dict[str, Any]], None],
) -> bool:
    """Runs a task; returns whether its socket is still wanted. It is stopped after some events."""
    end = task.pop("end")
    if end == "background":
        await asyncio.to_thread(cancel_in_background, gateway, task, note)
        return True
    await client.create(**task)
    if end == "refused":
        await client.error()
        return True
    if end == "whole":
        note((await client.terminal())["response"])
        return True
    event = await client.next_type("response.created")
    response_id = event["response"]["id"]
    if "metadata" in task:
        num_events //= 4  # answers of strategies begin late
    for _ in range(num_events):
        event = await client.receive()
        if event["type"] in TERMINALS:
            note(event["response"])
            return True
    if end == "left":
        return False
    await client.send({"type": "response.cancel", "response_id": response_id})
    note((await client.terminal())["response"])
    return True


def cancel_in_background(
    gateway: GatewayProcess, task: dict[str, Any], note: Callable[[dict[str, Any]], None]
) -> None:
    """Starts a task in the background and cancels it, wherever it is by then."""
    body = task | {"background": True}
    status, begun = ask(gateway, "POST", "/v1/responses", body, key="sk-lanewise-dev")
    assert status == 200, begun
    path = f"/v1/responses/{begun['id']}/cancel"
    status, response = ask(gateway, "POST", path, {}, key="sk-lanewise-dev")
    assert status == 200, response


def reported(usage: dict[str, Any]) -> Counted:
    """Returns what a response's `routing.usage` says, as the ledger writes it."""
    counted: Counted = Counter()
    for backend, used in usage.items():
        counted[backend, "input"] = used["input_tokens"]
        counted[backend, "cached"] = used["input_tokens_details"]["cached_tokens"]
        counted[backend, "output"] = used["output_tokens"]
        counted[backend, "reasoning"] = used["output_tokens_details"]["reasoning_tokens"]
    return counted


def usage_rows(gateway: GatewayProcess, first_day: str, *by: str) -> list[dict[str, Any]]:
    """Returns the rows since a day: the load may run past midnight."""
    query = "&".join(f"by={name}" for name in by)
    status, view = ask(gateway, "GET", f"/admin/usage?first_day={first_day}&{query}")
    assert status == 200, view
    rows: list[dict[str, Any]] = view["rows"]
    return rows


def raise_by_api(gateway: GatewayProcess, run: str) -> None:
    body = {"tenant": "runs", "run": run, "hard_usd": 1}
    status, view = ask(gateway, "PUT", "/admin/budgets/run", body)
    assert (status, [use["hard_usd"] for use in view["budgets"]]) == (200, [1])


def raise_by_command(gateway: GatewayProcess, run: str) -> None:
    assert main(["budgets", "raise", "runs", run, "--to", "1", "--url", gateway.url]) == 0


@pytest.mark.parametrize("raise_run", [raise_by_api, raise_by_command])
def test_a_run_is_told_over_its_soft_budget_and_goes_on_past_its_hard_one(
    priced: Priced, raise_run: Callable[[GatewayProcess, str], None]
) -> None:
    run = raise_run.__name__
    asked: Any = {"model": "lanewise-fast", "input": "Hi.", "metadata": {"run": run}}
    with OpenAI(base_url=priced.gateway.base_url, api_key=RUNS_KEY) as client:
        raw = client.responses.with_raw_response
        first = raw.create(**asked, max_output_tokens=16)
        assert "x-lanewise-budget-warning" not in first.headers
        second = raw.create(**asked, max_output_tokens=16)  # over the soft budget, and it runs
        assert second.headers["x-lanewise-budget-warning"].startswith("run-run;used=0.0")
        routing = json.loads(second.text)["routing"]
        assert [use["over_soft"] for use in routing["budgets"]] == [True]
        notice = priced.posts.next()
        assert (notice["event"], notice["scope"]) == ("budget.soft_limit_reached", "run")
        assert (notice["tenant"], notice["name"]) == ("runs", run)
        assert notice["used_usd"] >= notice["limit_usd"] == 0.00001
        with pytest.raises(RateLimitError) as refused:  # it could cost 6 cents: the budget has 1
            client.responses.create(**asked, max_output_tokens=10_000)
        assert refused.value.code == "budget_exceeded"
        assert refused.value.response.headers["x-should-retry"] == "false"
        assert priced.posts.next()["event"] == "budget.exceeded"
        raise_run(priced.gateway, run)
        goes_on = client.responses.create(**asked, max_output_tokens=10_000)
        assert goes_on.status == "completed"


def test_a_budget_counts_from_when_it_is_set(priced: Priced, shell: Shell) -> None:
    gateway, used = priced.gateway, {}
    for tenant, before in (("begins", {}), ("goes-on", {"month": {"hard_usd": 9}})):
        made = {"id": tenant, "tier": "enterprise", "budgets": before}
        assert ask(gateway, "POST", "/admin/tenants", made)[0] == 201
        key = ask(gateway, "POST", "/admin/keys", {"tenant": tenant})[1]["key"]
        with OpenAI(base_url=gateway.base_url, api_key=key) as client:
            client.responses.create(model="lanewise-fast", input="Hi.", max_output_tokens=16)
        wait_until_at_rest(gateway)
        shell(f"tenants set {tenant} --budget day.hard=5")
        view = shell.json(f"budgets show {tenant}")
        (used[tenant],) = [use["used_usd"] for use in view["budgets"] if use["window"] == "day"]
        told = shell(f"budgets show {tenant}")
        assert "Only tasks that began while" in told
        assert "e-" not in told.partition("Only")[0]
    assert used["begins"] == 0, "what the day cost before is not counted"
    assert used["goes-on"] > 0, "the month's budget counted the day, too"


def test_the_audit_says_what_a_run_might_spend_before_and_after(priced: Priced) -> None:
    body = {"tenant": "runs", "run": "audited"}
    for limit in (5, 9, None):
        raised = body | {"hard_usd": limit}
        assert ask(priced.gateway, "PUT", "/admin/budgets/run", raised)[0] == 200
    _, entries = ask(priced.gateway, "GET", "/admin/audit?trail=tenants&limit=3")
    assert [(entry["before"], entry["after"]) for entry in reversed(entries)] == [
        ({"hard_usd": before}, {"hard_usd": after})
        for before, after in ((0.01, 5), (5, 9), (9, 0.01))
    ]


@pytest.mark.parametrize("name", SPENDERS)
async def test_a_budget_is_told_first_and_refuses_then(priced: Priced, name: str) -> None:
    scope, window = ("key", name[4:]) if name.startswith("key_") else ("tenant", name)
    gateway, said = priced.gateway, {"scope": scope, "window": window}
    asked: Any = {"model": "lanewise-fast", "input": "Hi."}

    def of_this(metric: str, **more: str) -> float:
        return gateway.metrics().total(f"lanewise_{metric}_total", **said, **more)

    before = of_this("budget_met", kind="soft"), of_this("budget_refusals")
    with OpenAI(base_url=gateway.base_url, api_key=key_of(name), max_retries=0) as client:
        raw = client.responses.with_raw_response
        assert "x-lanewise-budget-warning" not in raw.create(**asked, max_output_tokens=16).headers
        told = raw.create(**asked, max_output_tokens=16)  # over the soft budget, and it runs
        warning = told.headers["x-lanewise-budget-warning"]
        assert warning.startswith(f"{scope}-{window};used=0.0"), warning
        assert json.loads(told.text)["routing"]["budgets"][0]["over_soft"] is True
        notice = priced.posts.next()
        assert notice["event"] == "budget.soft_limit_reached"
        assert {one: notice[one] for one in said} == said
        with pytest.raises(RateLimitError) as refused:
            client.responses.create(**asked, max_output_tokens=10_000)
        error, headers = refused.value, refused.value.response.headers
        assert error.code == "budget_exceeded"
        assert "renews" in error.message
        renews_s = int(headers["retry-after"])
        assert 0 < renews_s <= (86_400 if window == "day" else 31 * 86_400)
        assert headers["x-should-retry"] == ("true" if renews_s <= 60 else "false")
        assert client.responses.create(**asked, max_output_tokens=16).error is None
    notice = priced.posts.next()
    assert (notice["event"], notice["limit_usd"]) == ("budget.exceeded", 0.01)
    assert {one: notice[one] for one in said} == said
    async with SocketClient.open(gateway, key_of(name)) as socket:
        await socket.create(**asked, max_output_tokens=10_000)
        error_event = await socket.error()
        assert (error_event["status"], error_event["error"]["code"]) == (429, "budget_exceeded")
        assert await socket.turn(**asked, max_output_tokens=16)
    with OpenAI(base_url=gateway.base_url, api_key=key_of(name, 2), max_retries=0) as other:
        is_over = False
        try:
            other.responses.create(**asked, max_output_tokens=1_655)  # 0.995 cents at most
        except RateLimitError:
            is_over = True
    assert is_over == (scope == "tenant"), "a key's budget is its own"
    after = of_this("budget_met", kind="soft"), of_this("budget_refusals")
    assert (after[0] - before[0], after[1] - before[1]) == (1, 2 + is_over)
