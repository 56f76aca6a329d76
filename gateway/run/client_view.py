"""What the client of a run has seen: which engine's token first, whose words last.

An edge: it calls other edges.
"""

from collections.abc import Callable

from gateway.run.branch import Branch, Branches
from gateway.wire.response import ResponseWriter
from router.strategies.actions import Forward


class ClientView:
    """See the module. Deltas of a machine that changes none go past it, but for the first."""

    def __init__(
        self, branches: Branches, writer: ResponseWriter, clock_us: Callable[[], int]
    ) -> None:
        self._branches = branches
        self._writer = writer
        self._clock_us = clock_us
        self.shows_commentary = True  # else it is kept, and shown only where nothing else comes
        self._hidden: list[Forward] = []
        self._speaker: Branch | None = None  # whose item is open
        self._has_text = False
        self.first_branch: Branch | None = None  # whose token came first
        self._answered_by: str | None = None

    @property
    def answered_by(self) -> str:
        """The backend whose words came last: the answer's."""
        return self._answered_by or self._branches.backends[-1]

    def see_first(self, branch: Branch) -> None:
        """The client gets its first token, from this branch."""
        self.first_branch = branch
        if branch.times is not None:
            branch.times.seen_us = self._clock_us()

    def forward(self, forward: Forward) -> None:
        """Show what a machine forwards, or keep it."""
        if forward.phase == "commentary" and not self.shows_commentary:
            self._hidden.append(forward)
            return
        branch = self._branches[forward.branch]
        if self.first_branch is None:
            self.see_first(branch)
        self._speaker = branch
        self._answered_by = branch.backend
        self._has_text = self._has_text or forward.phase is not None
        self._writer.push(forward.delta, forward.phase)

    def end_item_of(self, branch: Branch) -> None:
        """Close the open item if it is a branch's that says no more."""
        if self._speaker is branch:
            self._speaker = None
            self._writer.end_item()

    def show_hidden(self) -> None:
        """Show one draft as the answer, where the answer that was to improve it never came."""
        if self._has_text:
            return
        self.shows_commentary = True
        whole = (f.branch for f in self._hidden if self._branches[f.branch].state == "finished")
        number = next(whole, None)
        for hidden in self._hidden:
            if hidden.branch == number:
                self.forward(Forward(hidden.delta, "final_answer", hidden.branch))

    def release(self) -> None:
        """Drop the branches, which hold their run."""
        self.first_branch = self._speaker = None
