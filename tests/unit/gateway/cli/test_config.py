"""Tests `lanewise config check`: the exit status, what is wrong, and what a file holds."""

import json
from pathlib import Path

import pytest

from gateway.cli.admin.tenants import parse_budgets
from gateway.cli.main import main

# file, arguments, what the message holds; None: it is valid
FILES: list[tuple[str, tuple[str, ...], str | None]] = [
    ("", (), None),
    ("", ("--host", "0.0.0.0"), "development key"),
    ("[server]\nprot = 1", (), "prot"),
    ("[sever]\nport = 1", (), "sever"),
    ("policy_path = 'none.toml'", (), "No such file"),
    ("policy_path = 'policy.toml'", (), "'lanewise-fast' is an engine's own model"),
    ("[server]\ntls_cert_path = 'a'\ntls_key_path = 'a'", (), "tls_cert_path"),
    ("[auth]\npeppers_path = 'none'", (), "auth.peppers_path 'none'"),
    (
        "[recording]\npath = 'none/d.jsonl'",
        (),
        "recording.path 'none/d.jsonl' cannot be written: No such file or directory (none)",
    ),
    ("[recording]\npath = '.'", (), "recording.path '.' cannot be written: Is a directory"),
    ("[recording]\npath = 'policy.toml'", (), None),
    ("[recording]\npath = 'd.jsonl'", (), None),
]


@pytest.mark.parametrize(("content", "arguments", "complaint"), FILES)
def test_check(
    content: str,
    arguments: tuple[str, ...],
    complaint: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.toml").write_text('[aliases.lanewise-fast]\nroute = "deep"\n')
    (tmp_path / "lanewise.toml").write_text(content)
    status = main(["config", "check", "lanewise.toml", *arguments])
    assert not (tmp_path / "d.jsonl").exists()
    told = capsys.readouterr()
    if complaint is None:
        assert (status, told.err) == (0, "")
        assert "lanewise.toml is valid." in told.out
        assert "backends: wafer (lanewise-fast), gpu (lanewise-deep)" in told.out
    else:
        assert (status, told.out) == (2, "")
        assert complaint in told.err


def test_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lanewise.toml"
    path.write_text("[server]\nport = 9000\nworkers = 2\n")
    assert main(["config", "check", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["address"], found["workers"], found["tls"]) == ("127.0.0.1:9000", 2, False)


def test_slips_of_the_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, path = tmp_path / "policy.toml", tmp_path / "lanewise.toml"
    policy.write_text('[aliases.careful]\nroute = "deep"\nbackends = ["wafer"]\n')
    path.write_text(f"policy_path = '{policy}'\n")
    assert main(["config", "check", str(path)]) == 0
    told = capsys.readouterr().err
    assert f"{policy}:3:13: aliases.careful.backends[0]: 'wafer' is of the group 'fast'" in told
    assert main(["config", "check", str(path), "--json"]) == 0
    (slip,) = json.loads(capsys.readouterr().out)["warnings"]
    assert (slip["path"], slip["line"]) == ("aliases.careful.backends[0]", 3)


IDLE = """
[server]
allowed_origins = ["*", "https://app.example", "https://app.example/", "app.example"]
[waiting]
tiers.pro = { fast = 500 }
weights = { prro = 4 }
[[tenants]]
id = "acme"
tier = "free"
access = ["fast"]
"""


def test_settings_without_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lanewise.toml"
    path.write_text(IDLE)
    assert main(["config", "check", str(path)]) == 0
    told = capsys.readouterr().err.replace(f"warning: {path}: ", "")
    assert [line.partition(":")[0] for line in told.splitlines()] == [
        *("server.allowed_origins", "server.allowed_origins", "waiting.weights", "tenants")
    ]
    assert "no browser sends 'https://app.example/'" in told
    assert "no tier is called 'prro'; did you mean 'pro'?" in told
    assert "'acme' may use no group" in told


TENANT = """
[[tenants]]
id = "acme"
tier = "pro"
keys = ["sk-acme-0123456789abcdef0123456789"]
budgets.day = { hard_usd = 10 }
"""
PRICE = """
[[prices]]
model = "lanewise-%s"
input = 1
output = 2
"""


def test_a_budget_in_money_of_models_without_a_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lanewise.toml"
    for prices, named in (
        ("", "'lanewise-deep', 'lanewise-fast'"),
        (PRICE % "fast", "'lanewise-deep'"),
        (PRICE % "fast" + (PRICE + "since = 2999-01-01") % "deep", "'lanewise-deep'"),
        (PRICE % "fast" + PRICE % "deep", None),
    ):
        path.write_text(TENANT + prices)
        assert main(["config", "check", str(path)]) == 0
        told = capsys.readouterr().err
        if named is None:
            assert told == ""
        else:
            assert f"tenant 'acme' has budgets in money, but no price holds for {named}:" in told


def test_a_soft_budget_above_its_hard_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lanewise.toml"
    prices = PRICE % "fast" + PRICE % "deep"
    for soft, is_idle in ((9, False), (10, False), (10.5, True)):
        own = TENANT.replace("hard_usd = 10", f"soft_usd = {soft}, hard_usd = 10")
        path.write_text(own + prices)
        assert main(["config", "check", str(path)]) == 0
        told = capsys.readouterr().err
        assert ("tenant 'acme': budget 'day' has soft = 10.5 above hard = 10" in told) is is_idle
        parse_budgets([f"day.soft={soft}", "day.hard=10"])
        assert ("budget 'day' has soft = 10.5" in capsys.readouterr().err) is is_idle


def test_prices_of_no_model_and_given_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lanewise.toml"
    later, flex = PRICE + "since = 2026-01-01", PRICE + "tier = 'flex'"
    path.write_text("".join(one % "fast" for one in (PRICE, later, flex, PRICE)) + PRICE % "deeper")
    assert main(["config", "check", str(path)]) == 0
    told = capsys.readouterr().err
    assert (
        "no backend or relay has the model 'lanewise-deeper'; did you mean 'lanewise-deep'" in told
    )
    assert told.count("'lanewise-fast' has two prices of the same kind") == 1


def test_prices_that_are_rounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lanewise.toml"
    path.write_text(PRICE % "fast" + "cached_input = 0.0375\ncache_write = 0.035\n")
    assert main(["config", "check", str(path)]) == 0
    told = capsys.readouterr().err
    assert "'lanewise-fast' has cached_input = 0.0375, which counts as 0.038" in told
    assert told.count("three decimals") == 1


def test_a_model_of_both_groups_has_a_price_in_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lanewise.toml"
    upstream = """
[[backends]]
kind = "upstream"
name = "{group}"
[backends.options]
group = "{group}"
model = "lanewise-fast"
upstream_model = "m"
base_url = "http://h/v1"
"""
    both = upstream.format(group="fast") + upstream.format(group="deep")
    path.write_text(both + TENANT + PRICE % "fast" + "group = 'deep'")
    assert main(["config", "check", str(path)]) == 0
    assert "no price holds for 'lanewise-fast'" in capsys.readouterr().err


def test_a_link_that_several_tenants_may_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lanewise.toml"
    tenants = [
        f'[[tenants]]\nid = "{name}"\ntier = "pro"\nkeys = ["sk-a-{name}"]\naccess = ["{group}"]\n'
        for name, group in (("site", "fast"), ("shop", "fast"), ("deep", "deep"))
    ]
    for num_tenants, is_told in ((1, False), (3, True)):
        path.write_text("server.serves_link = true\n" + "".join(tenants[:num_tenants]))
        assert main(["config", "check", str(path)]) == 0
        told = capsys.readouterr().err
        assert ("each key of site, shop may use the fast engine" in told) is is_told, told
