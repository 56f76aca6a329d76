"""Guesses how long an answer would have been on an engine that did not give it.

It is as long as the other engine's answer, times the median ratio of the tasks that both answered
in full; without such tasks the ratio is 1. Where no engine answered in full (the task was refused,
say), it is drawn from that group's answers of which the classifier expected about as much.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Literal

import msgspec

from backends.contract import BackendGroup
from backends.script.chance import Chance
from router.backtest.arrivals import AnswerLength, Arrival
from router.pools.pools import GROUPS
from router.strategies.part_requests import TaskPart
from router.strategies.tool_rounds import Converse

MIN_PAIRS = 8  # of which a ratio is learned
MAX_DONORS = 2_000  # answers of a group, from which others are drawn
NEAR_DONORS = 12  # of which one is drawn
_PARTS = 1_000_000
VERDICT_TOKENS = 2
ROUND_TOKENS = 64  # of a fast engine's words around a sub-task, where no log has any
_ROUNDS = ("opening", "meanwhile", "closing")

Source = Literal["log", "pairs", "other", "classifier"]


class WordOdds(msgspec.Struct, frozen=True, kw_only=True):
    """Says how often what words would decide goes one way; `None`: by the task's own `p_gain`."""

    agree: float | None = None  # another fast answer agrees with the first
    verdict_yes: float | None = None  # the deep engine finds a fast answer right
    hands_on: float = 0.0  # a fast engine hands a sub-task to the deep one


class Lengths(msgspec.Struct, frozen=True):
    """Holds what was learned of answers' lengths."""

    ratios: dict[BackendGroup, float] = {}  # a group's answers over the other's, to the same tasks
    donors: dict[BackendGroup, tuple[tuple[int, int], ...]] = {}  # expected, and what it came to


def learn_lengths(arrivals: Iterable[Arrival]) -> Lengths:
    """Learns the ratios of lengths from tasks of a log."""
    pairs: list[float] = []
    donors: dict[BackendGroup, list[tuple[int, int]]] = {group: [] for group in GROUPS}
    for arrival in arrivals:
        known = dict(arrival.lengths)
        for group, length in known.items():
            donors[group].append((arrival.expected_output_tokens, length.output_tokens))
        if len(known) == len(GROUPS):
            fast, deep = (max(1, known[group].output_tokens) for group in GROUPS)
            pairs.append(math.log(deep / fast))
    ratios: dict[BackendGroup, float] = {}
    if len(pairs) >= MIN_PAIRS:
        ratio = math.exp(median(pairs))
        ratios = {"fast": 1 / ratio, "deep": ratio}
    return Lengths(
        ratios,
        {
            group: tuple(sorted(rows[:: len(rows) // MAX_DONORS + 1]))
            for group, rows in donors.items()
            if rows
        },
    )


class Guess:
    """Answers for one task what its words would have said."""

    __slots__ = ("_arrival", "_lengths", "_odds", "_seed", "end_prefix", "expected_tokens")

    def __init__(self, arrival: Arrival, lengths: Lengths, odds: WordOdds, seed: int) -> None:
        self._arrival = arrival
        self._lengths = lengths
        self._odds = odds
        self._seed = seed
        self.expected_tokens = arrival.expected_output_tokens  # of an answer, by the classifier
        self.end_prefix = arrival.end_prefix  # of prompt and answer

    def of(self, group: BackendGroup, part: TaskPart | None) -> AnswerLength:
        """Returns how long a group's answer to a part of the task is."""
        if part is not None and part.name == "verdict":
            return AnswerLength(VERDICT_TOKENS)
        if isinstance(part, Converse) and self.hands_on():
            number, rounds = _ROUNDS.index(part.round), self._arrival.rounds
            return AnswerLength(rounds[number] if number < len(rounds) else ROUND_TOKENS)
        return length_of(self._arrival, group, self._lengths, self._seed)

    def agrees(self, number: int) -> bool:
        """Returns whether the fast answer of that number agrees with the first."""
        agree = self._odds.agree
        share = 1 - self._arrival.p_gain if agree is None else agree
        return number == 0 or self._is(share, "agree", number)

    def says_yes(self) -> bool:
        """Returns whether the deep engine finds a fast answer right."""
        yes = self._odds.verdict_yes
        return self._is(1 - self._arrival.p_gain if yes is None else yes, "verdict")

    def hands_on(self) -> bool:
        """Returns whether the fast engine hands a sub-task on; as logged, where it did."""
        if self._arrival.rounds:
            return True
        return self._is(self._odds.hands_on, "delegate")

    def _is(self, share: float, *what: int | str) -> bool:
        return Chance(self._seed, self._arrival.id, *what).below(_PARTS) < share * _PARTS


def length_of(
    arrival: Arrival, group: BackendGroup, lengths: Lengths, seed: int = 0
) -> AnswerLength:
    """Returns the length of a group's answer: as the log has it, else as it is guessed."""
    other: AnswerLength | None = None
    for known, length in arrival.lengths:
        if known == group:
            return length
        other = length
    least = max(1, arrival.at_least_tokens)
    if other is not None:
        ratio = lengths.ratios.get(group, 1.0)
        return AnswerLength(max(least, round(other.output_tokens * ratio)))
    donors = lengths.donors.get(group) or next(iter(lengths.donors.values()), ())
    if not donors:
        return AnswerLength(max(least, arrival.expected_output_tokens))
    middle = bisect_left(donors, (arrival.expected_output_tokens, 0))
    first = max(0, min(middle - NEAR_DONORS // 2, len(donors) - NEAR_DONORS))
    drawn = Chance(seed, arrival.id, "length").pick(donors[first : first + NEAR_DONORS])
    return AnswerLength(max(least, drawn[1]))


def sources(arrivals: Sequence[Arrival], lengths: Lengths) -> dict[Source, int]:
    """Counts the tasks whose length on the other group comes from each source."""
    counts: dict[Source, int] = {"log": 0, "pairs": 0, "other": 0, "classifier": 0}
    for arrival in arrivals:
        num_known = len(arrival.lengths)
        if num_known == len(GROUPS):
            counts["log"] += 1
        elif num_known:
            counts["pairs" if lengths.ratios else "other"] += 1
        else:
            counts["classifier"] += 1
    return counts
