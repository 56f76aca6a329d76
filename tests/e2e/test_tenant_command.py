"""Tests `lanewise tenants`, `tiers` and `keys` against a real gateway."""

import subprocess

import openai
import pytest
from openai import OpenAI

from gateway.cli.main import main
from tests.e2e.gateway_process import LANEWISE, GatewayProcess
from tests.e2e.shell import Shell


@pytest.fixture
def shell(gateway: GatewayProcess, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(gateway, capsys)


def test_from_a_tier_to_a_revoked_key(shell: Shell, gateway: GatewayProcess) -> None:
    limit = "--limit fast.requests_per_min=60 --limit fast.tokens_per_min=9000"
    shell(f"tiers set trial {limit} --limit fast.max_concurrent=2 --weight 0.5")
    assert "trial" in shell("tiers list")
    assert "keys create shop" in shell("tenants create shop --tier trial")
    shell("tenants set shop --limit fast.max_concurrent=1 --weight 3")
    row = next(row for row in shell("tenants list").splitlines() if row.startswith("shop"))
    assert "max_concurrent 1" in row
    old = shell("keys create shop --name till --expires 30d").split()[-1]
    old_id = shell.json("keys list shop")[0]["id"]
    new = shell.json(f"keys rotate {old_id} --overlap 1h")
    for key in (old, new["key"]):
        with OpenAI(base_url=gateway.base_url, api_key=key, max_retries=0) as client:
            assert client.responses.create(model="auto", input="Hi.").output_text
    assert "revoked" in shell(f"keys revoke {old_id}")
    with (
        OpenAI(base_url=gateway.base_url, api_key=old, max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()
    states = [row.split()[3] for row in shell("keys list shop").splitlines()[1:]]
    assert sorted(states) == ["active", "revoked"]
    assert "in the configuration" in shell.refused("tenants delete small")
    assert "2 keys" in shell("tenants delete shop")
    shell("tiers delete trial")


def test_a_tenant_without_a_task_has_no_usage(shell: Shell) -> None:
    limits = "--limit fast.requests_per_min=60 --limit fast.tokens_per_min=9000"
    shell(f"tiers set quiet {limits} --limit fast.max_concurrent=2")
    shell("tenants create idle --tier quiet")
    assert "No task of tenant idle ended on " in shell("usage show --tenant idle")
    shell("tenants delete idle")
    shell("tiers delete quiet")


REFUSED = [
    ("tenants create x --tier gold", "expected one of"),
    ("tenants set small", "nothing to change"),
    ("tenants create x --tier pro --limit fast=3", "expected GROUP.LIMIT=N"),
    ("tenants create x --tier pro --weight much", "expected a number"),
    ("keys create nobody", "Create it first"),
    ("keys revoke nothing", "`lanewise keys list` has their ids"),
    ("policy show 99", "no policy version 99. `lanewise policy list`"),
    ("tenants create x --tier pro --weight nan", "expected a number above 0"),
    ("tenants create x --tier pro --limit dep.max_concurrent=1", "no group 'dep', but fast and"),
    ("tenants create x --tier pro --limit deep.concurrent=1", "no limit 'concurrent', but"),
    ("tenants create x --tier pro --limit fast.max_concurrent=none", "cannot be none"),
    ("tenants create x --tier pro --budget week.hard=1", "no budget 'week', but day"),
    ("tenants set x --limit fast=tier --limit fast.max_concurrent=1", "not both"),
    ("tenants set x --limit fast.max_concurrent=1 --limit fast=tier", "not both"),
    ("tenants set x --budget day=tier --budget day.hard=1", "not both"),
    ("tenants set x --key-limit fast.max_concurrent=tier", "or GROUP=tier"),
    ("tiers set x --limit fast=tier", "expected GROUP.LIMIT=N, such as"),
    ("tiers set x --limit fast.max_concurrent=1 --budget day=tier", "nothing to give it back"),
    ("tiers set x --weight 2", "--limit is missing"),
    ("tiers set pro --limit deep.max_concurrent=1 --weight inf", "expected a number above 0"),
    ("keys list narow", "No tenant 'narow'; did you mean 'narrow'? Known tenants: dev"),
    ("keys list nobody", "Known tenants: dev"),
    ("usage show --tenant nobody", "Known tenants: dev"),
    ("decisions --tenant nobody", "Known tenants: dev"),
    ("tenants set nobody --tier pro", "Known tenants: dev"),
    ("budgets show nobody", "Known tenants: dev"),
    ("budgets show dev --key nothing", "has no key 'nothing'"),
    ("budgets show dev --key config-2", "has no key 'config-2'"),
    ("budgets raise dev a-run --to 5", "no budget to raise"),
    ("keys list --admin-key wrong-admin-key", "Incorrect admin key"),
]


@pytest.mark.parametrize(("words", "answer"), REFUSED)
def test_what_is_refused(shell: Shell, words: str, answer: str) -> None:
    assert answer in shell.refused(words)


@pytest.mark.parametrize("amount", ["nan", "inf", "-1", "much", "1e99"])
def test_an_amount_that_is_none_takes_no_limit_away(shell: Shell, amount: str) -> None:
    with pytest.raises(SystemExit):
        shell(f"budgets raise dev a-run --to {amount}")


def test_one_limit_is_given_back_alone(shell: Shell) -> None:
    shell("tenants create alone --tier pro --limit fast.max_concurrent=1")
    shell("tenants set alone --limit fast.requests_per_min=7 --budget day.hard=10")
    assert [each["id"] for each in shell.json("tenants list alon")] == ["alone"]
    shell("tenants set alone --limit fast.max_concurrent=tier --limit deep.max_concurrent=3")
    own = {"fast": {"requests_per_min": 7}, "deep": {"max_concurrent": 3}}
    assert _tenant(shell, "alone")["own_limits"] == own
    told = shell("tenants set alone --limit fast.requests_per_min=tier --budget day.soft=8")
    assert "Its budgets now: day: soft 8 USD" in told, "a budget is set as a whole"
    assert _tenant(shell, "alone")["own_limits"] == {"deep": {"max_concurrent": 3}}
    assert "Its API keys hold as before" in shell("tenants erase alone")
    shell("tenants delete alone")


def test_a_budget_that_counts_nothing_is_warned_of(
    shell: Shell, capsys: pytest.CaptureFixture[str], gateway: GatewayProcess
) -> None:
    for words in (
        "tenants create idle --tier pro --budget day.hard=1",
        "tenants set idle --budget day.hard=2",
        "budgets show idle",
    ):
        assert main([*words.split(), "--url", gateway.url]) == 0
        assert "no price holds for 'lanewise-deep'" in capsys.readouterr().err
    made = shell.json("keys create idle")["record"]["id"]
    assert f"The old one, {made}, holds until " in shell(f"keys rotate {made} --overlap 1h")
    shell(f"keys revoke {made}")
    assert "It is revoked" in shell(f"keys set {made} --limit fast.max_concurrent=1")
    assert "lanewise tenants erase idle" in shell("tenants delete idle")


def _tenant(shell: Shell, name: str) -> dict[str, object]:
    found: dict[str, object] = next(
        each for each in shell.json("tenants list") if each["id"] == name
    )
    return found


NOTHING = [
    ("tenants list none-such", "No tenant's id contains 'none-such'."),
    ("keys list fast-only", "No key was made at run time for tenant fast-only"),
    ("decisions --rule none-such", "No decision here fits"),
    ("budgets show dev --key config-1", "Tenant dev has no budget for this"),
]


@pytest.mark.parametrize(("words", "answer"), NOTHING)
def test_where_there_is_nothing_it_says_so(shell: Shell, words: str, answer: str) -> None:
    assert answer in shell(words)


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "list", "--url", "http://127.0.0.1:9"]) == 2
    assert "no gateway answers" in capsys.readouterr().err


def test_help_has_examples_and_no_key() -> None:
    shown = subprocess.run(
        [LANEWISE, "keys", "create", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "example: lanewise keys create" in shown
    assert "sk-lanewise" not in shown
