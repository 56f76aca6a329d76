"""Makes the clients' environments: each from a lock file with hashes, again only if that changed.

`python -m tests.clients.environments` makes all of them; the tests make what is missing.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tests.e2e.gateway_process import ROOT
from tests.e2e.node_bin import node_bin

CLIENTS = Path(__file__).parent
# Folders with a `requirements.lock`; `make lock` resolves them anew from `requirements.in`.
PYTHON = ("agents", "libraries")
NODE = CLIENTS / "node"
INSTALL_TIMEOUT_S = 900.0  # bounds a hang; Claude Code alone is 200 MB
_STAMP = ".made-from"
_UV = re.compile(r"^uv==.*?[^\\]$", re.MULTILINE | re.DOTALL)


def python_of(name: str) -> Path:
    """Returns the interpreter of one of `PYTHON`."""
    return environment(f"clients-{name}", CLIENTS / name / "requirements.lock")


def environment(name: str, lock: Path) -> Path:
    """Returns an environment's interpreter; makes it if it is not there or its lock changed."""
    folder = ROOT / f".venv-{name}"
    python = folder / "bin" / "python"
    made_from = _made_from(lock, sys.version)
    if _read(folder / _STAMP) != made_from:
        print(f"Making {folder.name} ...", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        uv = _UV.search(lock.read_text())
        assert uv is not None, f"{lock} installs the rest by uv"
        (folder / "uv.lock").write_text(uv[0] + "\n")
        pip = (python, "-m", "pip", "install", "--disable-pip-version-check", "-q", "--no-deps")
        _run(*pip, "--require-hashes", "-r", folder / "uv.lock")
        install = ("pip", "install", "-q", "--no-deps", "--require-hashes")
        _run(folder / "bin" / "uv", *install, "--python", python, "-r", lock)
        (folder / _STAMP).write_text(made_from)
    return python


def node_modules() -> Path:
    """Returns the folder of npm's packages, installed likewise."""
    modules = NODE / "node_modules"
    binaries = node_bin()
    made_from = _made_from(NODE / "package-lock.json", str(binaries))
    if _read(modules / _STAMP) != made_from:
        print("Installing the clients of npm ...", flush=True)
        shutil.rmtree(modules, ignore_errors=True)
        npm = binaries.parent / "lib/node_modules/npm/bin/npm-cli.js"
        arguments = ("ci", "--no-audit", "--no-fund", "--loglevel=error")
        _run(binaries / "node", npm, *arguments, cwd=NODE)
        (modules / _STAMP).write_text(made_from)
    return modules


def examples() -> None:
    """Installs what the Python examples need, as `make example` does."""
    _run("make", "-s", ".venv-examples/.made", cwd=ROOT)


def _made_from(lock: Path, interpreter: str) -> str:
    return hashlib.sha256(lock.read_bytes() + interpreter.encode()).hexdigest()


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    subprocess.run([*map(str, command)], cwd=cwd, timeout=INSTALL_TIMEOUT_S, check=True)


if __name__ == "__main__":
    for each in PYTHON:
        python_of(each)
    examples()
    node_modules()
