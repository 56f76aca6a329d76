"""Plays a scripted answer back, token by token.

A simulated engine knows only how many tokens come when. An answer is cut to the request's stop
sequences and token limit; a `Playback` returns it piece by piece as tokens arrive.
"""

from array import array
from collections.abc import Iterable

import msgspec

from backends.contract import (
    Delta,
    DeltaKind,
    FinishReason,
    Item,
)
from backends.prompt import said_item
from backends.script.scripted_answer import AnswerItem, ScriptedAnswer
from backends.tokenizer import MAX_TOKEN_CHARS, token_ends


class Playback:
    """Returns an answer piece by piece.

    Every generation has at least one token, even if a stop sequence leaves no text at all.
    """

    def __init__(
        self, answer: ScriptedAnswer, max_output_tokens: int, stop: Iterable[str] = ()
    ) -> None:
        """Cuts the answer to a limit of at least one token, and before the first stop sequence."""
        self.reason = FinishReason.STOP
        self.stop_sequence: str | None = None  # that ends it
        self.items: list[AnswerItem] = []  # after cutting
        self.num_reasoning_tokens = 0
        self._ends: list[array[int]] = []  # item -> where in its text each token ends; 0 if silent
        left = max_output_tokens
        stops = [s for s in stop if s]
        for whole in answer.items:
            item, found = _until_stop(whole, stops) if stops else (whole, None)
            ends = array("I", (0,)) * item.num_silent_tokens
            # A text longer than this has more tokens than are left: the rest need not be read.
            ends.extend(token_ends(item.text[: (left + 4) * MAX_TOKEN_CHARS]))
            if len(ends) > left:
                self.reason = FinishReason.LENGTH
                ends = ends[:left]
                item = msgspec.structs.replace(
                    item,
                    text=item.text[: ends[-1] if ends else 0],
                    num_silent_tokens=min(item.num_silent_tokens, len(ends)),
                )
            if ends:
                self.items.append(item)
                self._ends.append(ends)
                left -= len(ends)
                if item.kind is DeltaKind.REASONING:
                    self.num_reasoning_tokens += len(ends)
            if self.reason is FinishReason.LENGTH or found is not None:
                self.stop_sequence = found if self.reason is FinishReason.STOP else None
                break
        self.num_tokens = max(max_output_tokens - left, 1)
        self._index = 0
        self._num_taken = 0  # of the current item
        self._char = 0  # the index in its text where they end

    def take(self, num_tokens: int, at_us: int) -> list[Delta]:
        """Takes the next tokens as deltas, one for each item they fall into."""
        deltas = []
        while num_tokens and self._index < len(self.items):
            item, ends = self.items[self._index], self._ends[self._index]
            taken = min(num_tokens, len(ends) - self._num_taken)
            num_tokens -= taken
            self._num_taken += taken
            char = ends[self._num_taken - 1]
            text = item.text[self._char : char]
            self._char = char
            is_whole = self._num_taken == len(ends)
            sealed = item.sealed if is_whole else ""
            deltas.append(
                Delta(self._index, item.kind, text, taken, at_us, item.call_id, item.name, sealed)
            )
            if is_whole:
                self._index += 1
                self._num_taken = self._char = 0
        return deltas

    def tokens(self) -> list[str]:
        """Returns each token's text, in order; of a silent one it is empty."""
        tokens: list[str] = []
        for item, ends in zip(self.items, self._ends, strict=True):
            starts = (0, *ends)
            tokens += [item.text[start:end] for start, end in zip(starts, ends, strict=False)]
        return tokens

    @property
    def num_before_text(self) -> int:
        """Returns how many tokens come before the first message."""
        num_tokens = 0
        for item, ends in zip(self.items, self._ends, strict=True):
            if item.kind is DeltaKind.TEXT:
                break
            num_tokens += len(ends)
        return num_tokens

    def num_reasoning_taken(self, num_taken: int) -> int:
        """Counts the reasoning in the first so many tokens: an answer reasons first."""
        return min(num_taken, self.num_reasoning_tokens)

    def prompt_items(self) -> list[Item] | None:
        """Returns the items as the next turn's prompt holds them, if it just extends this prompt.

        It does not after reasoning, which is not sent back, nor after a call that was cut short.
        """
        if self.num_reasoning_tokens or not self.items:
            return None
        if self.reason is FinishReason.LENGTH and self.items[-1].kind is not DeltaKind.TEXT:
            return None
        said = (
            said_item(item.kind, item.text, item.call_id, item.name, item.namespace)
            for item in self.items
        )
        return [item for item in said if item is not None]


def _until_stop(item: AnswerItem, stops: list[str]) -> tuple[AnswerItem, str | None]:
    """Cuts a message before its first stop sequence, which is returned if there is one."""
    if item.kind is not DeltaKind.TEXT:
        return item, None
    found = [(start, stop) for stop in stops if (start := item.text.find(stop)) >= 0]
    if not found:
        return item, None
    start, stop = min(found)
    return AnswerItem(DeltaKind.TEXT, item.text[:start]), stop
