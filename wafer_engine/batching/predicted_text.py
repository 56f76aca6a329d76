"""Checks a predicted text against the answer in blocks: speculation with a draft from outside.

A step that checks k predicted tokens yields those of them that the model would have written anyway,
up to the first that it would not, and one token of its own. How many to check follows from what
came of it: blocks grow while they are kept whole and shrink where they are not. Once nothing of
them is kept, nothing is checked until the answer and the prediction have some tokens in a row in
common again, so that a wrong prediction costs next to nothing.

The simulation knows the whole answer, but what is checked next depends only on what came before.
"""

from collections.abc import Sequence

# Ours: how many tokens a block begins with and holds at most, and how many tokens in a row tell
# that the texts agree again, as servers that speculate by n-grams look for them.
FIRST_BLOCK = 16
MAX_BLOCK = 64
MEETING_TOKENS = 3
NEVER = 2**31  # no answer has as many tokens


class PredictedText:
    """Holds one sequence's predicted tokens, and how far they agree with its answer.

    Positions count the answer's tokens from 0. The answer is compared from `start` on: what comes
    before (reasoning, say) is not what was predicted.
    """

    def __init__(self, answer: Sequence[str], predicted: Sequence[str], start: int = 0) -> None:
        self._answer = answer
        self._predicted = predicted
        self._start = start
        self._next = start  # the position from which on blocks are checked
        self._shift = -start  # from a position to the predicted token for it
        self._block = FIRST_BLOCK
        self._kept: set[int] = set()  # indexes of the prediction
        self._checked: set[int] = set()
        self._places: dict[tuple[str, ...], list[int]] | None = None  # a run's -> what follows it

    @property
    def num_accepted(self) -> int:
        """Returns how many of the predicted tokens are in the answer so far."""
        return len(self._kept)

    @property
    def num_rejected(self) -> int:
        """Returns how many were computed, and are not in it."""
        return len(self._checked) - len(self._kept)

    def block_at(self, position: int) -> int:
        """Returns how many tokens to check where so many have been written; 0: none there.

        The step yields a token of its own, so the answer's last one is never predicted.
        """
        if position < self._next:
            return 0
        left = min(len(self._predicted) - position - self._shift, len(self._answer) - position - 1)
        return max(0, min(self._block, left))

    def plain_steps(self, position: int) -> int:
        """Returns how many steps come before the next block, where none is due."""
        return self._next - position if position < self._next else NEVER

    def check(self, position: int, num_tokens: int) -> int:
        """Checks a block; returns how many of its tokens the answer keeps."""
        first = position + self._shift
        num_kept = 0
        while (
            num_kept < num_tokens
            and self._predicted[first + num_kept] == self._answer[position + num_kept]
        ):
            num_kept += 1
        self._checked.update(range(first, first + num_tokens))
        self._kept.update(range(first, first + num_kept))
        self._next = position + num_kept + 1
        if num_kept == num_tokens:
            self._take_own(position + num_kept)
            self._block = min(2 * self._block, MAX_BLOCK)
        elif num_kept:
            self._block = max(self._block // 2, FIRST_BLOCK)
        else:
            self._block //= 2
            if not self._block:
                self._meet_again()
        return num_kept

    def _take_own(self, position: int) -> None:
        """Counts the model's own token behind a block as accepted if it was predicted, too."""
        index = position + self._shift
        if index < len(self._predicted) and self._predicted[index] == self._answer[position]:
            self._checked.add(index)
            self._kept.add(index)

    def _meet_again(self) -> None:
        """Finds where the answer next has a run of tokens that the prediction has, too."""
        if self._places is None:
            self._places = {}
            for index in range(len(self._predicted) - MEETING_TOKENS):
                run = tuple(self._predicted[index : index + MEETING_TOKENS])
                self._places.setdefault(run, []).append(index + MEETING_TOKENS)
        last = self._next + self._shift
        for position in range(max(self._next, self._start + MEETING_TOKENS), len(self._answer)):
            places = self._places.get(tuple(self._answer[position - MEETING_TOKENS : position]))
            if places:
                place = next((place for place in places if place >= last), places[-1])
                self._next, self._shift = position, place - position
                self._block = FIRST_BLOCK
                return
        self._next = NEVER
