"""Tests back-tests over the admin API and from the command line, on what a gateway has recorded."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.e2e.admin_api import ADMIN_KEY, ask
from tests.e2e.gateway_process import CONFIG, DEVELOPMENT_KEY, GatewayProcess, wait_until_at_rest

NUM_TASKS = 60
READ_ONLY_KEY = "sk-5d0c93b7a1e64f28"
ALL_FAST = 'version = "fast"\ndeep = { route = "fast" }\nuncertain = { route = "fast" }'


@pytest.fixture(scope="module")
def recording(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[GatewayProcess, Path]]:
    folder = tmp_path_factory.mktemp("backtest")
    path, config = folder / "decisions.jsonl", folder / "lanewise.toml"
    viewer = f'[[admin.keys]]\nname = "viewer"\nkey = "{READ_ONLY_KEY}"\nread_only = true\n'
    admin = f'[[admin.keys]]\nname = "admin"\nkey = "{ADMIN_KEY}"\n'
    config.write_text(f'recording.path = "{path}"\n{viewer}{admin}{CONFIG}')
    gateway = GatewayProcess(folder, "--config", str(config))  # with a Redis of its own
    try:
        gateway.wait_until_ready()
        with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
            for number in range(NUM_TASKS):
                text = "Prove that it never blocks" if number % 3 == 0 else "Say hello"
                client.responses.create(
                    model="auto", input=f"{text}, {number}.", max_output_tokens=24
                )
        wait_until_at_rest(gateway)
        yield gateway, path
    finally:
        assert gateway.stop() == 0, gateway.log


def lanewise(*arguments: str, gateway: GatewayProcess | None = None) -> tuple[int, str]:
    more = [] if gateway is None else ["--url", gateway.url]
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *arguments, *more],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_log_is_back_tested_and_its_report_opens_offline(
    recording: tuple[GatewayProcess, Path], tmp_path: Path
) -> None:
    _, log = recording
    policy = tmp_path / "fast.toml"
    policy.write_text(ALL_FAST)
    out = tmp_path / "report"
    status, text = lanewise(
        "backtest", "--log", str(log), "--policy", str(policy), "--out", str(out)
    )
    assert status in (0, 1), text
    assert text.startswith("Replay under 'default', which made the log: 100.0% of")
    assert "deep -> fast, by class" in text
    html = out.with_suffix(".html").read_text()
    assert "<script" not in html
    assert "http" not in html.replace("http-equiv", ""), "it asks for nothing"
    report = json.loads(out.with_suffix(".json").read_bytes())
    assert report["num_tasks"] == NUM_TASKS
    assert out.with_suffix(".csv").read_text().startswith("policy,of,name,when,num_tasks")


def test_a_gateway_answers_what_if(recording: tuple[GatewayProcess, Path]) -> None:
    gateway, _ = recording
    status, text = lanewise(
        "backtest", "--last", "15m", "--scale", "2", "--slow", "gpu=0.5", gateway=gateway
    )
    assert status in (0, 1), text
    assert "2 times the traffic, gpu at 0.5 of its speed" in text
    body = {"last_s": 900, "without": ["wafer"]}
    code, report = ask(gateway, "POST", "/admin/backtest", body)
    assert code == 200, report
    (alone,) = report["policies"]
    assert [engine["name"] for engine in alone["engines"]] == ["gpu"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"scale": 100}, "scale"),
    ({"without": ["tpu"]}, "no backend tpu"),
    ({"policies": {"x": "rulez = 1"}}, "rulez"),
    ({"last_s": 0}, "last_s"),
]


@pytest.mark.parametrize(("body", "named"), REFUSED, ids=[named for _, named in REFUSED])
def test_what_cannot_be_asked(
    recording: tuple[GatewayProcess, Path], body: dict[str, Any], named: str
) -> None:
    gateway, _ = recording
    code, answer = ask(gateway, "POST", "/admin/backtest", body)
    assert code == 400
    assert named in json.dumps(answer)


def test_a_read_only_key_keeps_no_prediction(recording: tuple[GatewayProcess, Path]) -> None:
    gateway, _ = recording
    code, stored = ask(gateway, "POST", "/admin/policies", {"document": ALL_FAST})
    assert code == 200, stored
    body = {"policies": {"fast": ALL_FAST}}
    assert ask(gateway, "POST", "/admin/backtest", body, key=READ_ONLY_KEY)[0] == 200
    kept = body | {"keep_for": stored["version"]}
    code, answer = ask(gateway, "POST", "/admin/backtest", kept, key=READ_ONLY_KEY)
    assert (code, answer["error"]["code"]) == (403, "insufficient_permissions")


def test_no_prediction_is_kept_for_a_version_that_there_is_not(
    recording: tuple[GatewayProcess, Path],
) -> None:
    gateway, _ = recording
    body = {"policies": {"fast": ALL_FAST}, "keep_for": 4711}
    code, answer = ask(gateway, "POST", "/admin/backtest", body)
    assert code == 404, answer
    assert "4711" in answer["error"]["message"]


@pytest.mark.parametrize(
    "other",
    [{"policies": {}}, {"policies": {"fast": 'version = "other"'}}, {"scale": 2.0}],
    ids=["no document", "another document", "more traffic"],
)
def test_a_prediction_is_kept_of_what_is_put_in_force(
    recording: tuple[GatewayProcess, Path], other: dict[str, Any]
) -> None:
    gateway, _ = recording
    _, stored = ask(gateway, "POST", "/admin/policies", {"document": ALL_FAST})
    body = {"policies": {"fast": ALL_FAST}, "keep_for": stored["version"]}
    code, answer = ask(gateway, "POST", "/admin/backtest", body | other)
    assert (code, answer["error"]["param"]) == (400, "keep_for"), answer


def test_a_policy_keeps_its_prediction_and_is_held_to_it(
    recording: tuple[GatewayProcess, Path], tmp_path: Path
) -> None:
    gateway, _ = recording
    code, answer = ask(gateway, "GET", "/admin/backtest/check")
    assert code == 404, answer
    policy = tmp_path / "fast.toml"
    policy.write_text(ALL_FAST)
    status, text = lanewise("policy", "apply", str(policy), "--require-backtest", gateway=gateway)
    assert status == 0, text
    assert "is in force" in text
    with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        for number in range(NUM_TASKS):
            client.responses.create(
                model="auto", input=f"Say hello, {number}.", max_output_tokens=24
            )
    wait_until_at_rest(gateway)
    status, text = lanewise("backtest", "check", gateway=gateway)
    assert status in (0, 1), text
    assert f"{NUM_TASKS} tasks came" in text
    allowed = gateway.metrics().total("lanewise_backtest_interval_ratio", figure="slo_met")
    assert allowed > 0
    status, text = lanewise("policy", "apply", str(policy), "--require-backtest", gateway=gateway)
    assert status == 0, text
    assert text.startswith("Replay under ")
    assert "in force already" in text
    status, text = lanewise("backtest", "check", gateway=gateway)
    assert (status, "Too few tasks" in text) == (2, True), "the prediction is a new one"


def test_a_log_of_a_policy_that_was_in_force_some_changes_ago_is_back_tested(
    recording: tuple[GatewayProcess, Path], tmp_path: Path
) -> None:
    gateway, _ = recording
    status, text = lanewise("policy", "apply", str(_written(tmp_path, "mine")), gateway=gateway)
    assert status == 0, text
    version = text.rpartition("Version ")[2].split()[0]
    with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
        for number in range(2 * NUM_TASKS + 10):  # more than other policies decided
            client.responses.create(model="auto", input=f"Hello, {number}.", max_output_tokens=16)
    wait_until_at_rest(gateway)
    for name in ("second", "third"):
        path = str(_written(tmp_path, name))
        assert lanewise("policy", "apply", path, gateway=gateway)[0] == 0
    status, text = lanewise("backtest", gateway=gateway)
    assert status == 0, text
    assert text.startswith(f"Replay under 'v{version}', which made ")


def _written(folder: Path, name: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(f'version = "{name}"')
    return path


def test_workers_know_the_engines_that_they_share(tmp_path: Path) -> None:
    path, config = tmp_path / "decisions.jsonl", tmp_path / "lanewise.toml"
    admin = f'[[admin.keys]]\nname = "admin"\nkey = "{ADMIN_KEY}"\n'
    config.write_text(f'recording.path = "{path}"\n{admin}{CONFIG}')
    gateway = GatewayProcess(tmp_path, "--config", str(config), "--workers", "2")
    try:
        gateway.wait_until_ready()
        applying = ("policy", "apply", str(_written(tmp_path, "early")), "--require-backtest")
        status, text = lanewise(*applying, gateway=gateway)
        assert (status, "No back-test" in text) == (2, True), text
        assert "Not applied: it is stored as version 1." in text
        assert "lanewise policy activate 1" in text, "what can be done"
        with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY, max_retries=0) as client:
            for model in ("lanewise-fast", "lanewise-deep"):
                client.responses.create(model=model, input="Hi.", max_output_tokens=16)
        wait_until_at_rest(gateway)
        status, report = ask(gateway, "POST", "/admin/backtest", {"policies": {"f": ALL_FAST}})
        assert status == 200, report
        assert report["policies"][0]["before_energy_kj"] > 0, "a server's is not known"
        assert [each["backend"] for each in ask(gateway, "GET", "/admin/placements")[1]]
        status, text = lanewise("backtest", "--log", str(path))
        assert (status, "energy (kJ)" in text) == (0, True), text
    finally:
        assert gateway.stop() == 0, gateway.log
