"""Tests training: exact arithmetic, targets, records, and weights that come out the same."""

import contextlib
import gzip
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from router.classify.text_features import read
from router.classify.weights_file import load_model
from router.record.evaluation import auc
from router.record.labelled import (
    Record,
    RecordError,
    deep_target,
    gain_target,
    log2,
    output_target,
    read_records,
    security_target,
)
from router.training import __main__ as training
from router.training import fit, leave_out
from router.training.leave_out import fold_of
from router.training.prompts import (
    LANGUAGE_SOURCES,
    NUM_PASTED,
    SOURCE,
    with_pastes,
    written_prompts,
)
from router.training.solver import Rows, fit_linear, fit_logistic, fit_scale, sigmoid
from tests.unit.router.training.quick_training import WRITTEN

ROOT = Path(__file__).parents[4]
QUICK = "tests.unit.router.training.quick_training"
SEED = 3


def dense_rows(matrix: np.ndarray) -> Rows:
    row, column = np.nonzero(np.ones_like(matrix))
    return Rows(row, column, matrix[row, column], matrix.shape)


def test_sigmoid() -> None:
    x = np.linspace(-29, 29, 2_001)
    assert np.abs(sigmoid(x) - 1 / (1 + np.exp(-x))).max() < 1e-12
    assert sigmoid(np.array([-1e9, 0.0, 1e9])).tolist() == pytest.approx([0, 0.5, 1])


@pytest.mark.parametrize("value", [0.01, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 1_000.0])
def test_log2_is_close_and_exact_at_powers(value: float) -> None:
    assert abs(log2(value) - math.log2(value)) < 0.09
    assert log2(2.0 ** round(math.log2(value))) == round(math.log2(value))


def test_ridge_is_the_closed_form() -> None:
    rng = np.random.default_rng(SEED)
    matrix, target = rng.normal(size=(80, 6)), rng.normal(size=80)
    weight, penalty = rng.random(80) + 0.5, rng.random(6) + 0.5
    closed = np.linalg.solve(
        matrix.T @ (matrix * weight[:, None]) + np.diag(penalty), matrix.T @ (weight * target)
    )
    found = fit_linear(dense_rows(matrix), target, weight, penalty)
    assert found == pytest.approx(closed, abs=1e-4), SEED


def test_logistic_stops_where_the_gradient_is_zero() -> None:
    rng = np.random.default_rng(SEED)
    matrix = rng.normal(size=(200, 5))
    target = sigmoid(matrix @ rng.normal(size=5) * 2)
    weight, penalty = np.ones(200), np.full(5, 0.5)
    found = fit_logistic(dense_rows(matrix), target, weight, penalty, num_steps=30)
    gradient = matrix.T @ (sigmoid(matrix @ found) - target) + penalty * found
    assert np.abs(gradient).max() < 0.05, SEED


def test_scaling_calibrates() -> None:
    rng = np.random.default_rng(SEED)
    score = rng.normal(size=4_000)
    happened = (rng.random(4_000) < sigmoid(3 * score - 1)).astype(float)
    slope, offset = fit_scale(score, happened, np.ones(4_000))
    assert (slope, offset) == pytest.approx((3, -1), abs=0.25), SEED


@pytest.mark.parametrize(
    ("labels", "target"),
    [
        ({"lane": "deep"}, (1.0, 1.0)),
        ({"lane": "interactive", "files_changed": 9}, (0.0, 1.0)),
        ({"lane": "parallel"}, None),
        ({}, None),
        ({"files_changed": 4, "lines_added": 94, "lines_deleted": 0}, (0.5, 1.0)),
        ({"files_changed": 60, "lines_added": 9_000, "lines_deleted": 0}, (0.95, 1.0)),
    ],
)
def test_deep_target(labels: dict[str, object], target: tuple[float, float] | None) -> None:
    assert deep_target(Record(text="", labels=labels)) == target


@pytest.mark.parametrize(
    ("labels", "security", "gain", "output"),
    [
        ({}, None, None, None),
        ({"security": 1}, (1.0, 1.0), None, None),
        ({"security": 0}, (0.0, 1.0), None, None),
        ({"security_path": 1, "security": 0}, (1.0, 0.5), None, None),
        ({"small_ok": 0, "large_ok": 1}, None, (1.0, 1.0), None),
        (
            {"small_ok": 0, "large_ok": 1, "small_rate": 0.5, "large_rate": 0.75},
            None,
            (0.25, 1.0),
            None,
        ),
        ({"out_tokens": 64}, None, None, (6.0, 1.0)),
        ({"out_tokens": 0}, None, None, None),
    ],
)
def test_other_targets(
    labels: dict[str, object], security: object, gain: object, output: object
) -> None:
    record = Record(text="", labels=labels)
    assert security_target(record) == security
    assert gain_target(record) == gain
    assert output_target(record) == output


def test_records_are_read_plain_and_zipped(tmp_path: Path) -> None:
    line = json.dumps({"id": "1", "source": "s", "text": "t", "labels": {"lane": "deep"}, "x": 0})
    (tmp_path / "a.jsonl").write_text(f"{line}\n\n")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(line.encode()))
    assert [record.lane for record in read_records([tmp_path])] == ["deep", "deep"]
    (tmp_path / "c.jsonl").write_text(f'{line}\n{{"id": "2"}}\n')
    with pytest.raises(RecordError, match=r"c\.jsonl:2: .*text"):
        read_records([tmp_path / "c.jsonl"])


def test_labels_that_are_null_or_no_numbers_count_as_missing() -> None:
    labels = {"lane": 7, "security": None, "small_ok": "yes", "large_ok": 1, "out_tokens": None}
    labels |= {"files_changed": [], "lines_added": None, "lines_deleted": 0}
    record = Record(text="", labels=labels)
    targets = (deep_target, security_target, gain_target, output_target)
    assert [target(record) for target in targets] == [None] * 4
    assert record.lane is None
    assert Record(text="", labels={"small_ok": True}).number("small_ok") == 1.0


def test_written_asks_are_filled_distinct_and_the_same_each_time() -> None:
    prompts = written_prompts(SEED)
    assert prompts == written_prompts(SEED) != written_prompts(SEED + 1)
    texts = [prompt.text for prompt in prompts]
    assert len(texts) > 4_000
    assert not any("{" in text or "}" in text for text in texts)
    assert {(prompt.lane, prompt.labels.get("security")) for prompt in prompts} == {
        ("interactive", 0),
        ("deep", 0),
        ("deep", 1),
        ("interactive", None),  # short asks
        ("deep", None),
        (None, 0),  # instructions, which are no tasks
    }
    english = [prompt.text for prompt in prompts if prompt.source == SOURCE]
    assert len(set(english)) == len(english) > 800
    assert {prompt.source for prompt in prompts} == {SOURCE, *LANGUAGE_SOURCES}


def test_pastes_leave_the_ask_its_lane_and_are_balanced() -> None:
    prompts = written_prompts(SEED)
    long = Record(text="lines of a log\n" * 40)
    pasted = with_pastes([*prompts, long], SEED)
    lane_of = {prompt.text: prompt.lane for prompt in prompts}
    assert [record.lane for record in pasted].count("deep") == NUM_PASTED // 2
    for record in pasted:
        assert len(record.text) > 1_000
        lines = record.text.split("\n")
        assert record.lane in (lane_of.get(lines[0]), lane_of.get(lines[-1]))
    assert with_pastes([long], SEED) == []


def test_folds_keep_sources_together() -> None:
    folds = {fold_of(Record(text="", source=f"exercism_{name}"), 5) for name in ("go", "cpp")}
    assert len(folds) == 1
    assert {fold_of(Record(text="", source=str(n)), 5) for n in range(99)} == set(range(5))


def test_records_without_what_a_head_is_fitted_to_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in WRITTEN:
        monkeypatch.setattr(fit, name, lambda seed: [])
    given, missing = tmp_path / "a.jsonl", tmp_path / "none"
    given.write_text('{"text": "Fix it.", "labels": {"lane": "deep", "security": 0}}\n')
    out = ["--out", str(tmp_path / "out.npz")]
    for main, more in ((training.main, out), (leave_out.main, [])):
        for path, told in ((given, "the head 'gain'"), (missing, "No such file")):
            assert main(["--data", str(path), "--calibrate", str(path), *more]) == 2
            assert told in capsys.readouterr().err
    assert not (tmp_path / "out.npz").exists()


def _training(data: Path, out: Path) -> "subprocess.Popen[str]":
    """Starts a training whose hash seed and number of threads follow from the file it writes."""
    command = [sys.executable, "-m", QUICK, "router.training.__main__", "--data", str(data)]
    command += ["--calibrate", str(data), "--out", str(out)]
    environment = {"PYTHONHASHSEED": out.stem, "OPENBLAS_NUM_THREADS": out.stem}
    output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=environment, **output)


@pytest.mark.patience(120)
def test_training_is_reproduced_bit_for_bit(tmp_path: Path) -> None:
    """Two processes with different hash seeds and thread counts write the same file."""
    lines = []
    for number in range(240):
        is_deep = number % 2 == 0
        text = f"{'migrate the storage' if is_deep else 'fix a typo in'} module {number % 7} again"
        labels = {"lane": "deep" if is_deep else "interactive", "security": 0}
        labels |= {"small_ok": number % 3 > 0, "large_ok": 1, "out_tokens": 10 + number}
        lines.append(json.dumps({"source": f"s{number % 4}", "text": text, "labels": labels}))
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    made = [tmp_path / "1.npz", tmp_path / "2.npz"]
    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(_training(tmp_path / "all.jsonl", out)) for out in made]
        told = [run.communicate()[0] for run in runs]
        assert [run.returncode for run in runs] == [0, 0], told
    assert made[0].read_bytes() == made[1].read_bytes()
    model = load_model(tmp_path / "1.npz")
    scores = [
        model.score(read(text)).deep_log_odds
        for text in (
            "migrate the storage",
            "migrate the module",
            "fix a typo",
            "a typo in the module",
        )
    ]
    assert auc([True, True, False, False], scores) == 1.0
    assert model.provenance.sources == ("s0", "s1", "s2", "s3")
