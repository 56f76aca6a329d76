"""Tests `lanewise backtest` on files: which it reads, and what it calls what it writes."""

import json
from pathlib import Path

import pytest

from gateway.cli.main import main
from tests.unit.gateway.log_lines import WAFER, line


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "d.jsonl"
    path.with_name("d.jsonl.1").write_bytes(line(0, (WAFER,)) + line(1, (WAFER,)))
    path.write_bytes(line(2, (WAFER,)))
    return path


def test_a_rotated_file_that_is_named_beside_its_log_counts_once(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backtest", "--log", str(log), "--log", f"{log}.1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_tasks"] == 3


def test_policies_of_one_file_name_are_told_apart(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [log.parent / folder / "policy.toml" for folder in ("old", "new")]
    for path in paths:
        path.parent.mkdir()
        path.write_text("")
    given = [part for path in paths for part in ("--policy", str(path))]
    assert main(["backtest", "--log", str(log), "--json", *given]) == 0
    tested = json.loads(capsys.readouterr().out)["policies"]
    assert [each["name"] for each in tested] == [str(path) for path in paths]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["policy.toml"], "policy.toml: none of its 2 lines is one of a decision log"),
        (["policy.toml", "--last", "15m"], "policy.toml: no line of a decision log in it"),
        (["d.jsonl", "--log", "policy.toml"], "policy.toml: none of its 2 lines"),
        (["d.jsonl", "--log", "missing.jsonl"], "missing.jsonl: no such file"),
        (["d.jsonl", "--base", "missing.toml"], "--base missing.toml: No such file"),
    ],
)
def test_a_wrong_file_is_named(
    given: list[str],
    said: str,
    log: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(log.parent)
    Path("policy.toml").write_text('[[rules]]\nname = "a"\n')
    assert main(["backtest", "--log", *given]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--policy", "binary"], "--policy binary: not UTF-8"),
        (["--base", "policy.toml"], "--base goes with --log"),
        (["--config", "lanewise.toml"], "--config goes with --log"),
        (["check", "--log", "d.jsonl"], "it takes no --log or --policy"),
    ],
)
def test_what_no_gateway_is_to_be_asked_is_refused_first(
    given: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("binary").write_bytes(b"\x80\x81")
    assert main(["backtest", *given]) == 2
    assert said in capsys.readouterr().err


def test_a_speed_that_is_no_number_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["backtest", "--slow", "gpu=x"])
    assert "'gpu=x': expected BACKEND=SPEED" in capsys.readouterr().err


@pytest.mark.parametrize("bound", ["-5", "nan", "inf"])
def test_a_bound_that_nothing_can_meet_or_miss_is_refused(
    bound: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backtest", "--log", str(log), f"--slo-latency={bound}"]) == 2
    assert f"the SLO's latency_ms {bound}: expected a number from 0" in capsys.readouterr().err


def test_the_ceilings_of_a_configuration_hold(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = log.parent / "lanewise.toml"
    tenants = "[[tenants]]\nid = 'studio'\nkeys = ['sk-studio']\nlimits.fast = "
    tenants += "{ requests_per_min = 60, tokens_per_min = 100000, max_concurrent = 9 }\n"
    config.write_text(f"[ceilings]\nfast = 1\n{tenants}")
    log.write_bytes(line(0, at=1_000.0, asked_route="fast") + line(2, asked_route="fast"))
    log.with_name("d.jsonl.1").write_bytes(line(1, (WAFER,), at=1_000.0, asked_route="fast"))
    assert main(["backtest", "--log", str(log), "--config", str(config), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["before"]["limits"] == {"fast concurrent": 1}


@pytest.mark.parametrize("name", ["report", "2026.11", "report.json"])
def test_a_reports_name_may_have_dots(
    name: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = log.parent / "out" / name
    assert main(["backtest", "--log", str(log), "--out", str(out)]) == 0
    stem = name.removesuffix(".json")
    written = {path.name for path in out.parent.iterdir()}
    assert written == {f"{stem}.html", f"{stem}.json", f"{stem}.csv"}
    assert f"Written: {out.with_name(f'{stem}.html')}" in capsys.readouterr().out
