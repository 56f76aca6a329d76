"""Says what a comparison needs to know of a rival, and how one comes onto this machine."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

INSTALL_LIMIT_S = 900.0

Mode = Literal["responses-ws", "responses-sse", "chat-sse", "chat-json"]
HTTP_MODES: tuple[Mode, ...] = ("responses-sse", "chat-sse", "chat-json")


class CannotInstallError(Exception):
    """It cannot be had here; the message is the reason, for the report."""


class Upstream(NamedTuple):
    """Says where all of them relay to."""

    port: int
    tls_port: int
    certificate: Path  # of its authority

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Started(NamedTuple):
    """Says how one is run, and how it is asked."""

    command: list[str]
    environ: Mapping[str, str]
    base_path: str  # before /responses and /chat/completions
    ready_path: str = "/health"  # answered by anything but an error of the server once it is up
    port_in_log: str = ""  # the log says "...<this>PORT..." where it chooses its port itself


class Rival(NamedTuple):
    """Is one gateway or relay to compare with."""

    name: str
    routes: bool  # whether it decides where a request goes; a relay decides nothing
    modes: Mapping[Mode, str]  # mode -> the model to ask for
    install: Callable[[Path], str]  # into a folder of its own; returns the version
    start: Callable[[Path, Path, int, Upstream], Started]  # (its folder, a scratch one, port, ...)
    key: str = "none"
    headers: tuple[str, ...] = ()  # NAME=VALUE
    note: str = ""  # what a reader of its figures must know


def same(model: str, *modes: Mode) -> dict[Mode, str]:
    """Returns the same model for each of them."""
    return dict.fromkeys(modes, model)


def venv_of(folder: Path, *requirements: str) -> Path:
    """Returns the `bin` of an environment with them, from PyPI, made anew when they change."""
    stamp, bin_folder = folder / "installed", folder / "venv" / "bin"
    wanted = hashlib.sha256("\n".join(requirements).encode()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        run([sys.executable, "-m", "venv", str(folder / "venv")])
        pip = [str(bin_folder / "python"), "-m", "pip", "--disable-pip-version-check"]
        run([*pip, "install", "-q", *requirements])
        stamp.write_text(wanted)
    return bin_folder


def version_of(bin_folder: Path, distribution: str) -> str:
    """Returns the version that pip knows."""
    code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    return run([str(bin_folder / "python"), "-c", code]).strip()


def run(
    command: list[str], cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> str:
    """Returns what it prints.

    Raises:
        CannotInstallError: It is not there, fails or takes too long; with its last words.
    """
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(environ or {})},
            capture_output=True,
            text=True,
            timeout=INSTALL_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstallError(f"{' '.join(command[:4])} ...: {error}") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip()[-400:]
        raise CannotInstallError(
            f"{' '.join(command[:4])} ... ended with {done.returncode}: {words}"
        )
    return done.stdout
