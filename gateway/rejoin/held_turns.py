"""Finds responses by the turn that their client names, while a connection runs them.

A client that comes back before its loss was noticed names the same turn: its old socket seems alive
until the next ping is missed. Only clients that name their turns cost anything here.
"""

from typing import NamedTuple, Protocol

from gateway.core.job import Job
from gateway.rejoin.matching import turn_of
from gateway.wire.response import ResponseStream

Turn = tuple[str, str, str | None, str | None]  # tenant, key, thread and turn


class TurnHolder(Protocol):
    """Is a connection that runs responses."""

    def writer_of(self, job: Job) -> ResponseStream | None: ...

    async def is_silent(self) -> bool: ...

    def give(self, response_id: str) -> None: ...


class HeldTurn(NamedTuple):
    """Holds the latest response of a turn, and the connection that runs it."""

    job: Job
    holder: TurnHolder


class HeldTurns:
    """Holds the turns that run on connections of this process."""

    def __init__(self) -> None:
        self._held: dict[Turn, HeldTurn] = {}

    def get(self, job: Job) -> HeldTurn | None:
        """Returns what runs of a job's turn, if its client names both thread and turn."""
        if not self._held or job.parsed.hints.agent.turn_id is None:
            return None
        return self._held.get(_turn(job))

    def hold(self, job: Job, holder: TurnHolder) -> None:
        """Notes who runs a job, until `release`."""
        if None not in turn_of(job.parsed):
            self._held[_turn(job)] = HeldTurn(job, holder)

    def release(self, job: Job) -> None:
        """Forgets who runs a job; harmless if its turn went on elsewhere."""
        held = self.get(job)
        if held is not None and held.job is job:
            del self._held[_turn(job)]


def _turn(job: Job) -> Turn:
    return job.tenant.id, job.tenant.key_id, *turn_of(job.parsed)
