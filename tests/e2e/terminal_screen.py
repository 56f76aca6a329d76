"""Offers a terminal for tests: a command runs on it, and what it shows can be read."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pyte

from tests.e2e.gateway_process import LANEWISE

TIMEOUT_S = 60.0  # bounds a hang
COLUMNS, LINES = 100, 40


def _without_size() -> dict[str, str]:
    """Returns the environment without a size: workers of xdist have one, and it would win."""
    return {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}


def _heed_ctrl_c() -> None:
    """Heeds SIGINT: a test in a shell's background ignores it, and so would what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Screen:
    """Is a terminal with a `lanewise` command on it: type, and wait for what it shows."""

    def __init__(
        self, *arguments: str, columns: int = COLUMNS, environ: dict[str, str] | None = None
    ) -> None:
        self._screen = pyte.Screen(columns, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._screen.write_process_input = self.type
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
        self.process = subprocess.Popen(
            [str(LANEWISE), *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=_without_size() | {"TERM": "xterm"} | (environ or {}),
            start_new_session=True,
            preexec_fn=_heed_ctrl_c,
        )
        os.close(slave)

    @property
    def text(self) -> str:
        """Returns what it shows now."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, pattern: str) -> None:
        """Waits until it shows that."""
        deadline = time.monotonic() + TIMEOUT_S
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.text}"
            if select.select([self._master], [], [], 0.2)[0]:
                self._stream.feed(os.read(self._master, 65536))

    def wait_for_end(self) -> int:
        """Returns its exit status; reads its last words, since it may wait for that."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it goes on:\n{self.text}"
            if select.select([self._master], [], [], 0.2)[0]:
                with contextlib.suppress(OSError):  # the other end is closed
                    self._stream.feed(os.read(self._master, 65536))
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
