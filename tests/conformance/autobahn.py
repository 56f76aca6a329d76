"""Runs Autobahn's WebSocket cases against the gateway's socket stack: `make conformance`.

The suite runs on Python 2.7 alone: where none is found, nothing is tested, and it says so. It is
installed from PyPI into an environment of its own, below the one of `make`.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SUITE = "autobahntestsuite==25.10.1"
VIRTUALENV = "virtualenv<20.22"  # the last that makes environments of Python 2.7

# 7.1.5 sends half of a message, a close, and then the rest: it expects the message to be dropped,
# which depends on what arrived together.
MAY_FAIL = frozenset({"7.1.5"})
GOOD = frozenset({"OK", "NON-STRICT", "INFORMATIONAL", "UNIMPLEMENTED"})
TIMEOUT_S = 1_500.0  # bounds a hang; all cases take a few minutes


def python_2() -> str | None:
    """Finds a Python 2.7 that runs: of the PATH, of pyenv, or as PYTHON27 names it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(map(str, pyenv.glob("versions/2.7*/bin/python2.7")))
    for python in (os.environ.get("PYTHON27"), "python2.7", *installed, "pypy2.7", "pypy"):
        if python is None or shutil.which(python) is None:
            continue
        asked = [python, "-c", "import sys, ssl; sys.exit(sys.version_info[:2] != (2, 7))"]
        # A shim of pyenv is there although it runs nothing.
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            return shutil.which(python)
    return None


def install(python: str, folder: Path) -> Path:
    """Makes the suite's environment, once; returns its command."""
    command = folder / "env/bin/wstest"
    if not command.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        quiet = subprocess.DEVNULL  # of words about what is old
        subprocess.run(
            [*pip, "--target", str(folder / "maker"), VIRTUALENV], check=True, stderr=quiet
        )
        environ = {**os.environ, "PYTHONPATH": str(folder / "maker")}
        make = [sys.executable, "-m", "virtualenv", "-q", "-p", python, str(folder / "env")]
        subprocess.run(make, env=environ, check=True)
        environ = {**os.environ, "PYTHONWARNINGS": "ignore"}
        pip_2 = [str(folder / "env/bin/pip"), "install", "-q", SUITE]
        if subprocess.run(pip_2, env=environ, check=False, stderr=quiet).returncode:
            raise SystemExit(f"Autobahn cannot be installed; see: {' '.join(pip_2)}")
    return command


@contextlib.contextmanager
def echo_server() -> Iterator[int]:
    """Starts the echo server, gives its port, and stops it."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(Path(__file__).with_name("echo_server.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as server:
        assert server.stdout is not None
        try:
            started = re.search(r"echoes on (\d+)", server.stdout.readline())
            assert started, "the echo server did not start"
            yield int(started[1])
        finally:
            server.terminate()


def run(wstest: Path, cases: list[str]) -> dict[str, Any]:
    """Runs the cases; returns the suite's report by case."""
    with tempfile.TemporaryDirectory(prefix="lw-autobahn-") as name, echo_server() as port:
        folder = Path(name)
        spec = {
            "outdir": str(folder / "reports"),
            "servers": [{"agent": "lanewise", "url": f"ws://127.0.0.1:{port}"}],
            "cases": cases,
            "exclude-cases": [],
            "exclude-agent-cases": {},
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        command = [str(wstest), "-m", "fuzzingclient", "-s", str(folder / "spec.json")]
        environ = {**os.environ, "PYTHONWARNINGS": "ignore"}
        asked = subprocess.run(
            command, cwd=folder, env=environ, check=False, timeout=TIMEOUT_S, capture_output=True
        )
        index = folder / "reports/index.json"
        if not index.exists():
            sys.stderr.buffer.write(asked.stdout[-4000:] + asked.stderr[-4000:])
            raise SystemExit("Autobahn wrote no report.")
        report: dict[str, Any] = json.loads(index.read_text())["lanewise"]
        return report


def main() -> int:
    """Runs the cases, and prints those that failed; returns the exit status."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", default="*", help='such as "7.*,1.1.*"')
    arguments.add_argument("--folder", type=Path, default=Path(sys.prefix) / "autobahn")
    given = arguments.parse_args()
    python = python_2()
    if python is None:
        print("Skipped: no Python 2.7, on which Autobahn runs, is here (PYTHON27 names one).")
        return 0
    report = run(install(python, given.folder), given.cases.split(","))
    failed = [
        f"{case}: {found['behavior']}, at the close {found['behaviorClose']}"
        for case, found in sorted(report.items())
        if not {found["behavior"], found["behaviorClose"]} <= GOOD and case not in MAY_FAIL
    ]
    behaviors = Counter(found["behavior"] for found in report.values())
    for line in failed:
        print(line)
    counted = ", ".join(f"{number} {name}" for name, number in behaviors.most_common())
    print(f"{len(report)} cases of Autobahn: {counted}; {len(failed)} failed that must not")
    return 1 if failed or not report else 0


if __name__ == "__main__":
    raise SystemExit(main())
