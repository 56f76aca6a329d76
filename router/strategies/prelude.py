"""Holds an engine's first words until it is known whether they are an answer.

An engine that is offered a tool of the gateway's may say a sentence before it calls it ("Let me
ask."), which is no answer. What is said at greater length is one, whatever comes behind it.
"""

from backends.contract import Delta, DeltaKind
from router.strategies.actions import Phase

# We chose two sentences: a fast engine writes them in 50 ms, by which a plain answer is late.
PRELUDE_TOKENS = 48


class Prelude:
    """Decides the phase of one branch's words; reasoning before them is not held."""

    def __init__(self) -> None:
        self.phase: Phase | None = None  # of the words, once it is known
        self._held: list[Delta] = []
        self._num_tokens = 0

    def take(self, delta: Delta) -> list[Delta]:
        """Takes a delta that is no call of the gateway's; returns what may be shown now."""
        if self.phase is not None or (delta.kind is DeltaKind.REASONING and not self._held):
            return [delta]
        self._held.append(delta)
        self._num_tokens += delta.num_tokens
        if delta.kind >= DeltaKind.FUNCTION_CALL or self._num_tokens > PRELUDE_TOKENS:
            return self.settle("final_answer")  # a call is for the client, as are words before it
        return []

    def phase_of(self, delta: Delta) -> Phase:
        """Returns the phase of a delta that may be shown; calls are the client's in any case."""
        is_aside = self.phase == "commentary" and delta.kind < DeltaKind.FUNCTION_CALL
        return "commentary" if is_aside else "final_answer"

    def settle(self, phase: Phase) -> list[Delta]:
        """Says what the words are, unless it is known; returns those that were held."""
        self.phase = self.phase or phase
        held, self._held = self._held, []
        return held
