"""Tests `lanewise eval` and `lanewise route --batch`, from arguments to what is printed."""

import json
from pathlib import Path

import pytest

from gateway.cli.main import main

DEEP = "Refactor the storage engine across the entire codebase"


def write(path: Path, *records: dict[str, object]) -> str:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return str(path)


def test_eval_runs_on_records_with_few_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(
        tmp_path / "records.jsonl",
        {"text": "fix the typo", "labels": {"lane": "interactive", "security": 0}},
        {"text": DEEP, "labels": {"lane": "deep"}},
        {"text": "Fix the sql injection", "source": "own", "labels": {"security": 1, "lane": None}},
        {"text": ""},
    )
    assert main(["eval", "--data", data]) == 0
    printed = capsys.readouterr().out
    assert "AUC pooled                       1.000" in printed
    assert "recall                           1.000" in printed
    assert "too few measured outcomes" in printed
    assert "double spaces" in printed
    assert "decoys" not in printed, "there are none"
    assert "nan" not in printed


def test_a_mark_before_the_first_record_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "records.jsonl"
    data.write_text('{"text": "fix the typo"}\n', encoding="utf-8-sig")
    assert main(["eval", "--data", str(data)]) == 0
    assert "judged on 1" in capsys.readouterr().out


def test_eval_without_any_label_or_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--data", write(tmp_path / "a.jsonl", {"text": ""})]) == 0
    assert "Lanes: no record has one." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"id": "1"}\n', "data.jsonl:1: Object missing required field `text`"),
        ('{"text": "a"}\n{', "data.jsonl:2: "),
        ("", "no records found"),
        (None, "No such file"),
    ],
)
def test_eval_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, complaint: str
) -> None:
    data = tmp_path / "data.jsonl"
    if content is not None:
        data.write_text(content)
    assert main(["eval", "--data", str(data)]) == 2
    assert complaint in capsys.readouterr().err


def test_curves_stand_beside_random_and_published_routers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records: list[dict[str, object]] = [
        {
            "source": "routellm_mmlu",
            "text": f"question {number}",
            "labels": {"small_ok": number % 2, "large_ok": 1},
        }
        for number in range(120)
    ]
    assert main(["eval", "--data", write(tmp_path / "a.jsonl", *records)]) == 0
    printed = capsys.readouterr().out
    assert "RouteLLM weighted Elo" in printed
    assert "2406.18665" in printed
    row = next(line for line in printed.splitlines() if line.startswith("  routellm_mmlu"))
    assert row.split()[1:4] == ["120", "0.500", "1.000"]
    assert row.split()[-1] == "0.500"


def test_cost_stands_against_quality(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records: list[dict[str, object]] = [
        {
            "source": "own",
            "text": f"question {number}",
            "labels": {"small_ok": number % 2, "large_ok": int(number % 4 > 0)},
        }
        for number in range(120)
    ]
    data = write(tmp_path / "a.jsonl", *records)
    assert main(["eval", "--data", data, "--price-ratio", "0.2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if line.startswith("  source") and "verify 0.75" in line)
    assert "LiteLLM's rules" in header
    assert "oracle" in header
    row = next(line for line in lines if line.startswith("  own") and "-" in line)
    assert row.split()[1:4] == ["120", "0.500", "0.750"]
    assert any(line.split()[:3] == ["all", "fast", "0.20"] for line in lines)


@pytest.mark.parametrize("share", ["1", "-0.1", "nan", "much"])
def test_a_price_ratio_is_a_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], share: str
) -> None:
    data = write(tmp_path / "a.jsonl", {"text": "a"})
    with pytest.raises(SystemExit):
        main(["eval", "--data", data, f"--price-ratio={share}"])
    assert "expected a number from 0 to below 1" in capsys.readouterr().err


def test_a_batch_follows_the_configured_policy(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    asks = write(tmp_path / "asks.jsonl", {"id": "a", "text": "fix the typo"})
    assert main(["route", "--batch", asks]) == 0
    assert json.loads(capfdbinary.readouterr().out)["lane"] == "interactive"
    policy = tmp_path / "policy.toml"
    policy.write_text('interactive = { route = "deep" }')
    config = tmp_path / "lanewise.toml"
    config.write_text(f'policy_path = "{policy}"')
    assert main(["route", "--batch", asks, "--config", str(config)]) == 0
    assert json.loads(capfdbinary.readouterr().out)["lane"] == "deep"


def test_a_batch_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", "--batch", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        ('[[rules]]\nname = "a"\n', 1, "2 of 2 lines got an error"),
        ('{"id": "a", "text": "Hi."}\n{"id": "b"}\n', 0, "1 of 2 lines got an error"),
        ('{"id": "a", "text": "Say \\",\\"error\\":\\" aloud."}\n', 0, ""),
        ("", 0, "no line"),
    ],
)
def test_a_batch_says_how_many_lines_were_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str, status: int, said: str
) -> None:
    path = tmp_path / "asks.jsonl"
    path.write_text(content)
    assert main(["route", "--batch", str(path)]) == status
    told = capfd.readouterr().err
    assert told == (f"--batch {path}: {said}\n" if said else "")
