"""Detects drift of a tenant's traffic from the data that its decisions are based on.

Each of these signs raises an alarm of its own:

- `p_deep` and `shape`: the population stability index (PSI) of the classifier's probability, and
  of eight numbers about the prompts' shape, between the reference and the newest prompts. 0 is no
  difference; from 0.2 on it is usually called a shift.
- `words`: the same index of the share of words that the classifier does not know.
- `failures`: a CUSUM over measured outcomes of the fast engine; it rises while answers fail more
  often than they used to, and no single bad day raises an alarm.

The reference is the classifier's training data (`reference.json`, written by `make train`) until
the tenant's own outcomes count in full, and then the traffic that they were learned from. Alarms
decide nothing, unless a policy's trade-off says so (`widen_on_drift`).
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal

import msgspec

from router.classify.classify import served_model
from router.classify.text_features import Reading, once
from router.classify.weights_file import WEIGHTS_PATH
from router.learn.learning import OPINION_TRAITS, SHAPE_TRAITS, Floats

Sign = Literal["p_deep", "shape", "words", "failures"]

PSI_ALARM, PSI_CLEAR = 0.2, 0.1  # hysteresis: an alarm ends well below where it began
MIN_SHIFTED = 2  # shapes; one alone is a habit of writing
HALF = 250  # prompts; once there are two halves, the last 250 to 500 are compared
CHECK_EVERY = 50  # prompts
NUM_BINS = 10
_FLOOR = 0.005  # share of an empty bin, so that the index stays finite

CUSUM_SLACK = 0.12  # failures per outcome above the usual that are tolerated
CUSUM_ALARM, CUSUM_CLEAR, CUSUM_MAX = 10.0, 1.0, 16.0  # outcomes
USUAL_MEMORY = 500  # outcomes over which the usual failure rate is averaged
MIN_OUTCOMES = 100  # before it is used

_SHAPE = slice(len(OPINION_TRAITS), len(OPINION_TRAITS) + len(SHAPE_TRAITS))  # of the traits
SIGNALS: tuple[str, ...] = ("p_deep", "unknown words", *SHAPE_TRAITS)
REFERENCE_PATH = WEIGHTS_PATH.with_name("reference.json")


@cache
def _known_words() -> frozenset[bytes]:
    return frozenset(term for term in served_model().vocabulary if isinstance(term, bytes))


class Histogram(msgspec.Struct, frozen=True):
    """Holds the shares of a signal's values between edges, one more than there are edges."""

    edges: tuple[float, ...]
    shares: tuple[float, ...]


class Reference(msgspec.Struct, frozen=True):
    """Holds the histograms that traffic is compared with, by signal."""

    histograms: dict[str, Histogram]
    weights: str = ""  # hash of the classifier's weights


class Standing(msgspec.Struct, frozen=True):
    """Says how far the traffic has moved."""

    psi: dict[str, float] = {}  # by signal
    failures: float = 0.0  # the CUSUM, in outcomes
    alarms: dict[Sign, str] = {}  # in words


def values_of(
    p_deep: float, reading: Reading, traits: Sequence[float] | Floats
) -> tuple[float, ...]:
    """Returns a prompt's numbers in the order of `SIGNALS`."""
    return (p_deep, _unknown_share(reading), *map(float, traits[_SHAPE]))


@once
def _unknown_share(reading: Reading) -> float:
    words = reading.words
    num_known = sum(map(_known_words().__contains__, words))
    return (len(words) - num_known) / len(words) if words else 0.0


def make_reference(rows: Sequence[Sequence[float]], weights: str = "") -> Reference:
    """Computes the deciles of each signal from rows of `values_of`; equal deciles are merged."""
    histograms = {}
    for name, column in zip(SIGNALS, zip(*rows, strict=True), strict=True):
        ordered = sorted(column)
        cuts = (round(ordered[len(ordered) * k // NUM_BINS], 4) for k in range(1, NUM_BINS))
        edges = tuple(dict.fromkeys(cut for cut in cuts if cut > ordered[0]))
        counts = [0] * (len(edges) + 1)
        for value in column:
            counts[bisect_right(edges, value)] += 1
        shares = tuple(round(count / len(column), 4) for count in counts)
        histograms[name] = Histogram(edges, shares)
    return Reference(histograms, weights)


def load_reference() -> Reference:
    """Reads the reference that ships with the package."""
    return msgspec.json.decode(REFERENCE_PATH.read_bytes(), type=Reference)


def psi(usual: Sequence[float], counts: Sequence[int]) -> float:
    """Computes the population stability index of counts against usual shares, both by bin."""
    total = sum(counts)
    index = 0.0
    for share, count in zip(usual, counts, strict=True):
        before, now = max(_FLOOR, share), max(_FLOOR, count / total)
        index += (now - before) * math.log(now / before)
    return index


class Monitor:
    """Watches one tenant's drift in bounded memory, at about 5 microseconds per prompt."""

    def __init__(self, reference: Reference) -> None:
        self.standing = Standing()
        self._begin(reference)
        self._num_outcomes = 0
        self._usual_failures = 0.0
        self._cusum = 0.0
        self._is_own = False

    def _begin(self, reference: Reference) -> None:
        self._histograms = [reference.histograms[name] for name in SIGNALS]
        self._newer = self._zeros()
        self._older: list[list[int]] | None = None
        self._num_newer = 0
        self._uncounted = array("d")  # the values of the newest prompts, one prompt after another

    def _zeros(self) -> list[list[int]]:
        return [[0] * len(histogram.shares) for histogram in self._histograms]

    def note(self, values: Sequence[float]) -> None:
        """Counts a prompt by its `values_of`."""
        self._uncounted.extend(values)
        self._num_newer += 1
        if self._num_newer % CHECK_EVERY:
            return
        self._count()
        if self._num_newer == HALF:
            self._older, self._newer, self._num_newer = self._newer, self._zeros(), 0
        if self._older is not None:
            joined = self._joined(self._older)
            self._judge({name: psi(usual.shares, counts) for name, usual, counts in joined})

    def _count(self) -> None:
        """Counts the newest prompts signal by signal, which is cheaper than one by one."""
        values = self._uncounted
        self._uncounted = array("d")
        for place, (usual, counts) in enumerate(zip(self._histograms, self._newer, strict=True)):
            signal = sorted(values[place :: len(SIGNALS)])
            num_below = 0
            for number, edge in enumerate(usual.edges):
                before, num_below = num_below, bisect_left(signal, edge)
                counts[number] += num_below - before
            counts[-1] += len(signal) - num_below

    def note_outcome(self, failure: float) -> None:
        """Counts a measured outcome of the fast engine, from 0 (success) to 1 (failure)."""
        self._num_outcomes += 1
        if self._num_outcomes > MIN_OUTCOMES:
            excess = failure - self._usual_failures - CUSUM_SLACK
            self._cusum = min(CUSUM_MAX, max(0.0, self._cusum + excess))
        step = 1 / min(self._num_outcomes, USUAL_MEMORY)
        self._usual_failures += step * (failure - self._usual_failures)
        self._judge(self.standing.psi)

    def settle(self) -> None:
        """Makes this traffic the reference, once; called when enough was learned from it."""
        if self._is_own or self._older is None:
            return
        self._is_own = True
        self._count()
        own = {}
        for name, histogram, counts in self._joined(self._older):
            total = sum(counts)
            own[name] = Histogram(histogram.edges, tuple(count / total for count in counts))
        self._begin(Reference(own))
        self._judge({})

    def _joined(self, older: list[list[int]]) -> Iterator[tuple[str, Histogram, list[int]]]:
        """Yields each signal, its reference, and the counts of both halves together."""
        signals = zip(SIGNALS, self._histograms, older, self._newer, strict=True)
        for name, histogram, before, now in signals:
            yield name, histogram, [a + b for a, b in zip(before, now, strict=True)]

    def _judge(self, found: dict[str, float]) -> None:
        """Raises and clears alarms, with hysteresis."""
        stood = self.standing.alarms
        alarms: dict[Sign, str] = {}

        def over(sign: Sign, value: float) -> bool:
            return value >= (PSI_CLEAR if sign in stood else PSI_ALARM)

        if over("p_deep", found.get("p_deep", 0.0)):
            alarms["p_deep"] = f"p_deep moved (PSI {found['p_deep']:.2f})"
        if over("words", found.get("unknown words", 0.0)):
            alarms["words"] = f"other words than before (PSI {found['unknown words']:.2f})"
        shifted = {n: found[n] for n in SHAPE_TRAITS if over("shape", found.get(n, 0.0))}
        if len(shifted) >= MIN_SHIFTED:
            worst = max(shifted, key=lambda name: shifted[name])
            alarms["shape"] = f"asks of another shape ({worst}: PSI {shifted[worst]:.2f})"
        if self._cusum >= (CUSUM_CLEAR if "failures" in stood else CUSUM_ALARM):
            alarms["failures"] = "the fast engine fails more often than it did"
        self.standing = Standing(found, self._cusum, alarms)
