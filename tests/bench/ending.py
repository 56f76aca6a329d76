"""Ends a process together with all that it began."""

import contextlib
import os
import signal
import subprocess


def end(process: subprocess.Popen[bytes], stop: signal.Signals, patience_s: float) -> None:
    """Send `stop`, so that it ends what it began; then SIGKILL to its session, whoever is left.

    The process must have been started with `start_new_session`.
    """
    process.send_signal(stop)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
