"""The libraries of the console are what npm's packages and our SDK make, byte for byte."""

import shutil
import subprocess
from pathlib import Path

from tests.e2e.gateway_process import ROOT
from tests.e2e.node_bin import node_bin

VENDOR = Path("gateway") / "console" / "static" / "vendor"


def test_the_libraries_are_rebuilt_byte_for_byte(tmp_path: Path) -> None:
    assert (ROOT / "console" / "node_modules").exists(), "run `make setup`"
    for folder in ("console", "sdk/typescript/src"):
        copied = shutil.ignore_patterns("node_modules")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=copied)
    (tmp_path / "console" / "node_modules").symlink_to(ROOT / "console" / "node_modules")
    (tmp_path / VENDOR).mkdir(parents=True)
    subprocess.run(
        [str(node_bin() / "node"), "--preserve-symlinks", "build.mjs"],
        cwd=tmp_path / "console",
        timeout=120,
        check=True,
    )
    built = {path.name: path.read_bytes() for path in (tmp_path / VENDOR).iterdir()}
    kept = {path.name: path.read_bytes() for path in (ROOT / VENDOR).iterdir()}
    assert built.keys() == kept.keys()
    assert [name for name in kept if built[name] != kept[name]] == []
