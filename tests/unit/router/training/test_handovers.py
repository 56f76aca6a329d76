"""Tests the weights that tell framing from tasks: fitted to the same bits, and what they learn."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from router.classify.framing_file import unpack
from router.classify.framing_model import BEFORE, BEHIND, MIN_LOG_ODDS

ROOT = Path(__file__).parents[4]
QUICK = "tests.unit.router.training.quick_training"


@pytest.mark.patience(120)
def test_training_is_reproduced_bit_for_bit(tmp_path: Path) -> None:
    """Two processes with different hash seeds and thread counts write the same file."""
    texts = [f"Migrate module {n % 7}. It stores rows. Tests pass" for n in range(120)]
    lines = [json.dumps({"source": f"s{n % 4}", "text": text}) for n, text in enumerate(texts)]
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    files = []
    for hash_seed in ("1", "2"):
        out = tmp_path / f"{hash_seed}.npz"
        command = [sys.executable, "-m", QUICK, "router.training.handovers", "--out", str(out)]
        command += ["--data", str(tmp_path / "all.jsonl")]
        environment = {"PYTHONHASHSEED": hash_seed, "OPENBLAS_NUM_THREADS": hash_seed}
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
        files.append(out.read_bytes())
    assert files[0] == files[1]
    log_odds = unpack(files[0]).log_odds
    assert log_odds("Migrate module 3.", BEFORE, gap=0) < MIN_LOG_ODDS
    assert log_odds("Thanks a lot, and see you tomorrow!", BEHIND, gap=2) > MIN_LOG_ODDS


def test_records_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "router.training.handovers", "--data", str(tmp_path / "none")]
    ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith("training: ")
