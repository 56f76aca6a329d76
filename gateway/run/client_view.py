"""Tracks what a run's client has seen: whose token came first, and who answers. This is an edge."""

from collections.abc import Callable

import msgspec

from backends.contract import DeltaKind
from gateway.run.branch import Branch, Branches
from gateway.wire.response import ResponseWriter
from router.strategies.actions import Forward


class ClientView(msgspec.Struct, eq=False):
    """Shows forwarded deltas; a transparent machine's bypass it, except the first."""

    _branches: Branches
    _writer: ResponseWriter
    _clock_us: Callable[[], int]
    _speaker: Branch | None = None  # whose item is open
    first_branch: Branch | None = None  # whose token came first
    _answered_by: str | None = None

    @property
    def answered_by(self) -> str:
        """Returns the backend of the answer: whose words came last, commentary left out."""
        return self._answered_by or self._branches.backends[-1]

    def see_first(self, branch: Branch) -> None:
        """Notes that the client got its first token, from this branch."""
        self.first_branch = branch
        if branch.times is not None:
            branch.times.seen_us = self._clock_us()

    def goes_on_at(self, backend: str) -> None:
        """Notes who goes on with an answer whose deltas bypass this."""
        self._answered_by = backend

    def forward(self, forward: Forward) -> None:
        """Writes a forwarded delta."""
        branch = self._branches[forward.branch]
        if self.first_branch is None:
            self.see_first(branch)
        self._speaker = branch
        if forward.phase != "commentary":
            branch.is_shown = True
            branch.answers = branch.answers or forward.delta.kind is not DeltaKind.REASONING
            self._answered_by = branch.backend
        self._writer.push(forward.delta, forward.phase)

    def end_item_of(self, branch: Branch) -> None:
        """Closes the open item if it is this branch's, which has ended.

        A final answer that broke off is `incomplete`, even if others make the response whole.
        """
        if self._speaker is branch:
            self._speaker = None
            is_cut = branch.failed or branch.ended is None
            self._writer.end_item(is_cut=is_cut and branch.is_shown)

    def release(self) -> None:
        """Drops the branches, which refer to their run."""
        self.first_branch = self._speaker = None
