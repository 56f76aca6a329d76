"""Decides when a process that does not answer is given up.

Its supervisor asks every `BEAT_INTERVAL_S`. A process is given up once `MISSED_BEATS` answers in a
row are missing and one of two things is so. It has used `HUNG_CPU_S` of CPU time since its last
answer: its event loop is held, for nothing that is allowed holds it for long. Or `SILENT_S` have
passed: it is stopped or blocked. A process that a busy machine starves uses little CPU time, and
gets to its answer within the longer wait.
"""

BEAT_INTERVAL_S = 2.0
BEAT_TIMEOUT_S = 2.0  # for one answer
MISSED_BEATS = 3
HUNG_CPU_S = 10.0
SILENT_S = 30.0


class Patience:
    """Holds what is known of one process; times are monotonic, in seconds."""

    def __init__(self, now_s: float, cpu_s: float) -> None:
        """Counts from now; `cpu_s` is the CPU time that the process has used."""
        self.answered(now_s, cpu_s)

    def answered(self, now_s: float, cpu_s: float) -> None:
        """Notes that the process has answered."""
        self._num_missed = 0
        self._answered_s = now_s
        self._cpu_s = cpu_s

    def missed(self, now_s: float, cpu_s: float) -> str | None:
        """Notes that an answer is missing; returns why the process is given up, if it is."""
        self._num_missed += 1
        silent_s, used_s = now_s - self._answered_s, cpu_s - self._cpu_s
        if self._num_missed < MISSED_BEATS or (used_s < HUNG_CPU_S and silent_s < SILENT_S):
            return None
        return f"no answer for {silent_s:.0f} s, in which it used {used_s:.0f} s of CPU time"
