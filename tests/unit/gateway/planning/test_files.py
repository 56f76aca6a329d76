"""Tests a plan's files, as the command line takes them, and errors that name the field."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import main
from gateway.planning.files import PlanError, read_trace
from router.record.recording import DecisionRecord, encode_line

SLO = "ttft_p95_ms = 2000\nspare_failures = 0\n"
PRICES = """
energy_per_kwh = 0.2

[[servers]]
name = "h200"
kind = "gpu"
per_hour = 7.0
most = 2
options = { shape = "Llama-3.1-8B", gpu = "H200", tp = 1, overhead_us = 0 }
"""
TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(
    f"{number / 4},{100 + number},{20 + number}\n" for number in range(30)
)


def plan(folder: Path, *more: str, slo: str = SLO, prices: str = PRICES, trace: str = TRACE) -> int:
    for name, text in (("slo.toml", slo), ("prices.toml", prices), ("trace.csv", trace)):
        (folder / name).write_text(text)
    files = [("--trace", "trace.csv"), ("--slo", "slo.toml"), ("--prices", "prices.toml")]
    given = [part for flag, name in files for part in (flag, str(folder / name))]
    return main(["plan", *given, *more])


def test_a_plan_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(tmp_path) == 0
    text = capsys.readouterr().out
    assert "1 x h200" in text
    assert "holds" in text
    assert plan(tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["plan"]["cheapest"]["meets"]
    assert plan(tmp_path, slo="ttft_p95_ms = 0.001\n") == 1
    assert "no fleet" in capsys.readouterr().out


def test_policies_of_one_file_name_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / folder / "policy.toml" for folder in ("old", "new")]
    for path in paths:
        path.parent.mkdir()
        path.write_text("")
    given = [part for path in paths for part in ("--policy", str(path))]
    assert plan(tmp_path, "--sweep", "--out", str(tmp_path / "out"), *given) == 0
    rows = (tmp_path / "out" / "sweep.csv").read_text()
    assert all(str(path) in rows for path in paths), capsys.readouterr().out


def test_rules_that_a_trace_cannot_test_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rules]]\nname = "w"\nwhen = { words = ["locks"] }\nroute = "fast"\n')
    assert plan(tmp_path, "--policy", str(policy)) == 0
    assert "rule 'w' is left out: it goes by words" in capsys.readouterr().out


def test_what_no_fleet_could_answer_is_not_planned_for(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    given: dict[str, Any] = {
        "tenant": "studio",
        "tier": "x",
        "prompt_tokens": 10,
        "duration_ms": 5.0,
    }
    answered = DecisionRecord(id="resp_0", at=1.0, model="auto", outcome="ok", **given)
    wrong = DecisionRecord(
        id="resp_1",
        at=2.0,
        model="lanewise-fast",
        asked_route="deep",
        outcome="invalid",
        error="invalid_value",
        **given,
    )
    path.write_bytes(encode_line(answered) + encode_line(wrong))
    assert [one.id for one in read_trace(path)[0]] == ["resp_0"]
    path.write_bytes(encode_line(wrong))
    with pytest.raises(PlanError, match="no task with a size in this log"):
        read_trace(path)


def test_a_queue_of_a_stream_is_not_the_fleets(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    queued = DecisionRecord(
        id="resp_0",
        at=1.0,
        tenant="studio",
        tier="x",
        model="auto",
        prompt_tokens=10,
        outcome="ok",
        queued_ms=4_000.0,
        duration_ms=4_005.0,
    )
    path.write_bytes(encode_line(queued))
    (one,), _ = read_trace(path)
    assert (one.at_us, one.queued_us) == (5_000_000, 0), "its times count from its start"


def test_a_traces_prompts_find_what_they_share(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "arrival_s,input_tokens,output_tokens,hash_ids\n0,1024,5,0-1\n10,1500,5,0-1 7\n20,100,5,\n"
    )
    arrivals, _ = read_trace(path)
    assert [one.prefix for one in arrivals] == [
        ((0, 512), (1, 1_024)),
        ((0, 512), (1, 1_024), (7, 1_500)),
        (),
    ]
    path.write_text("arrival_s,input_tokens,output_tokens,hash_ids\n0,1024,5,x\n")
    with pytest.raises(PlanError, match="line 2: hash_ids has 'x'"):
        read_trace(path)


@pytest.mark.parametrize(
    ("header", "arrived"),
    [
        ("arrival_s,input_tokens,output_tokens", ("0", "0.25")),
        ("timestamp,input_length,output_length", ("0", "250")),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            ("2023-11-16 18:17:03.9799600", "2023-11-16 18:17:04.2299600"),
        ),
    ],
    ids=["seconds", "Mooncake", "Azure"],
)
def test_each_traces_times_are_in_its_own_unit(
    tmp_path: Path, header: str, arrived: tuple[str, str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(header + "".join(f"\n{each},10,5" for each in arrived))
    first, second = read_trace(path)[0]
    assert second.at_us - first.at_us == 250_000


def test_a_plan_says_whether_a_server_was_to_be_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(tmp_path, slo="ttft_p95_ms = 0.001\nspare_failures = 0\n") == 1
    assert "meets the objectives\n" in capsys.readouterr().out
    assert plan(tmp_path, slo="ttft_p95_ms = 0.001\n") == 1
    assert "meets the objectives, with one server out\n" in capsys.readouterr().out


def test_a_sweep_writes_the_same_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert plan(tmp_path, "--sweep", "--out", str(out), "--scale", "1", "3") == 0
    first = [(out / name).read_bytes() for name in ("sweep.json", "sweep.csv")]
    assert len(first[1].splitlines()) == 5
    assert plan(tmp_path, "--sweep", "--out", str(out), "--scale", "1", "3") == 0
    assert [(out / name).read_bytes() for name in ("sweep.json", "sweep.csv")] == first


@pytest.mark.parametrize("scale", ["0", "-1", "nan", "1e9"])
def test_a_sweep_of_no_traffic_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scale: str
) -> None:
    out = tmp_path / "out"
    assert plan(tmp_path, "--sweep", "--out", str(out), "--scale", "1", scale) == 2
    assert "expected 0.01 to 1,000 times" in capsys.readouterr().err
    assert not out.exists()


def test_a_packed_trace_that_was_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(TRACE.encode())[:40])
    with pytest.raises(PlanError, match=r"trace\.csv\.gz: Compressed file ended"):
        read_trace(path)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"slo": "ttft_p59_ms = 1"}, "ttft_p59_ms"),
        ({"slo": "growth = 0"}, "growth is 0"),
        ({"slo": "ttft_p95_ms = 0"}, "ttft_p95_ms is 0"),
        ({"slo": "max_refused = -0.1"}, "expected a share from 0"),
        ({"slo": "spare_failures = 3"}, "spare_failures is 3"),
        ({"prices": PRICES.replace('"gpu"\nper', '"tpu"\nper')}, "kind 'tpu'"),
        ({"prices": PRICES.replace("H200", "H900")}, "unknown GPU 'H900'"),
        ({"prices": PRICES.replace("most = 2", "most = 999")}, "least and most"),
        ({"prices": "servers = []"}, "at least one is needed"),
        ({"prices": PRICES.replace("most = 2", "most = 0")}, "at least one is needed"),
        ({"prices": PRICES.replace("0.2", "nan")}, "energy_per_kwh: expected a price"),
        ({"trace": "a,b\n1,2\n"}, "no arrival_s"),
        ({"trace": TRACE.replace("0.25,101", "-1,101")}, "line 3: arrival_s is '-1'"),
        ({"trace": "TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n"}, "TIMESTAMP is 'x'"),
    ],
)
def test_a_wrong_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, str], reason: str
) -> None:
    assert plan(tmp_path, **files) == 2
    assert reason in capsys.readouterr().err
