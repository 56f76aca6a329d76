"""Measures CPU time of other processes, and says whether the load was the limit."""

import time
from collections.abc import Mapping

MAX_BUSY = 0.9  # a process that is busier than that on one core may well have been the limit


def cpu_us(pid: int) -> float:
    """Returns a process's user and system time so far, of all threads, to the nanosecond.

    The clock id is what clock_getcpuclockid(3) gives on Linux; /proc's own counts ticks of 10 ms.
    """
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e3


class Watch:
    """Measures CPU and wall time of some processes, from now on.

    `subject` is the one that is measured; the others make its load, and must not be the limit.
    """

    def __init__(self, pids: Mapping[str, int], subject: str = "gateway") -> None:
        self._pids = dict(pids)
        self._subject = subject
        self.restart()

    def restart(self) -> None:
        """Forget what was so far."""
        self._before_us = {name: cpu_us(pid) for name, pid in self._pids.items()}
        self._began_s = time.perf_counter()

    def read(self) -> tuple[dict[str, float], float]:
        """Returns CPU microseconds of each process, and wall microseconds, since then."""
        spent_us = {name: cpu_us(pid) - self._before_us[name] for name, pid in self._pids.items()}
        return spent_us, (time.perf_counter() - self._began_s) * 1e6

    def verdict(self) -> str:
        """Says how busy each was, and where one of the load may have been the limit."""
        spent_us, wall_us = self.read()
        busy = {name: us / wall_us for name, us in spent_us.items()}
        said = ", ".join(f"{name} {share:.0%} busy" for name, share in busy.items())
        short = [n for n, share in busy.items() if n != self._subject and share > MAX_BUSY]
        return said + "".join(f"; {name} MAY HAVE BEEN THE LIMIT" for name in short)
