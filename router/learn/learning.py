"""Learns per tenant, from outcomes, what a large model gains over a small one.

The gain depends on the work and on the pair of models, so the trained classifier's `p_gain` is only
the prior. Two arms, `fast` and `deep`, each have a Bayesian linear model (a ridge) of how far the
success rate of their answers is from the prior, over a small vector of `traits` of the prompt. The
gain is the prior's plus the difference of the two; an outcome teaches the arms that answered.

Safeguards:

- Below `MIN_OUTCOMES` of either arm the prior decides alone; trust grows to one at twice as many,
  and is withdrawn while the learned arms clearly predict outcomes worse than the prior.
- A correction is at most `MAX_CORRECTION`, a refit moves the weights by at most `MAX_STEP`, and
  outcomes older than the last `MAX_OUTCOMES` fade.
- Everything learned is a sum over outcomes: processes can add theirs, and all can be undone.
- No text is kept: a prompt becomes 77 numbers, from which it cannot be read.
"""

import hashlib
import math
import zlib
from itertools import islice

import msgspec
import numpy as np
from numpy.typing import NDArray

from backends.contract import BackendGroup
from router.classify.log_odds import log_odds
from router.classify.task import TaskClass
from router.classify.text_features import CAPITALS, Reading, once

Floats = NDArray[np.float64]

SHAPE_TRAITS: tuple[str, ...] = (
    "length in words",
    "different words",
    "length of the words",
    "digits",
    "capitals",
    "lines",
    "commas",
    "brackets",
)
OPINION_TRAITS: tuple[str, ...] = ("constant", "gain", "deep", "security", "output tokens")
NUM_BUCKETS = 64  # that the prompt's words are sketched in
NUM_TRAITS = len(OPINION_TRAITS) + len(SHAPE_TRAITS) + NUM_BUCKETS
MAX_SKETCHED_WORDS = 128
MAX_TRAIT = 3.0
SKETCH_WEIGHT = 1.5

# Centre and spread of each shape over 5,000 public prompts with measured outcomes; 2026-01.
_CENTRES = (5.4, 4.9, 4.0, 0.8, 0.6, 2.0, 1.2, 0.6)
_SPREADS = (1.3, 1.0, 1.1, 1.0, 0.5, 1.6, 1.4, 1.0)

# Ridge penalties, in outcomes: so many are needed to move a weight halfway. Chosen by replay on
# public outcomes (tests/bench/learning.py); the constant is cheap, for a level is learned first.
PENALTY = 100.0
CONSTANT_PENALTY = 3.0

USUAL_SUCCESS = 0.8  # of the deep arm before anything is known; the constant soon corrects it
MIN_OUTCOMES = 100  # of each arm; below, the prior alone decides
MAX_OUTCOMES = 2_000  # of each arm; older ones fade
EXPLICIT_WEIGHT = 1.0  # of an observation that is no mere hint
HALF_EXPLICIT = 400  # outcomes of that kind, of each arm, for the learned gain to count half
REFIT_EVERY = 10  # outcomes
MAX_CORRECTION = 0.5  # of the gain
MAX_STEP = 0.5  # of the weights' length, per refit
ERROR_MEMORY = 200  # outcomes over which the two predictions are compared

ARMS: tuple[BackendGroup, ...] = ("fast", "deep")

# Traits of another version cannot be added to these.
TRAITS_VERSION = hashlib.sha256(
    repr((OPINION_TRAITS, SHAPE_TRAITS, NUM_BUCKETS, _CENTRES, _SPREADS, SKETCH_WEIGHT)).encode()
).hexdigest()[:8]


class Observation(msgspec.Struct, frozen=True):
    """Says how well one or both engines answered a prompt."""

    traits: Floats  # shape (NUM_TRAITS,)
    p_gain: float  # the prior's
    success: dict[BackendGroup, float]  # 0 to 1, of each engine that answered
    weight: float = 1.0  # 0 to 1: how sure the outcome is

    def residuals(self) -> list[tuple[BackendGroup, float]]:
        """Returns each engine's success less what the prior expects."""
        success = self.success.items()
        return [(arm, right - usual_success(arm, self.p_gain)) for arm, right in success]


class Sums(msgspec.Struct):
    """Holds sums over one arm's outcomes, in float32 as they are stored."""

    gram: NDArray[np.float32]  # shape (NUM_TRAITS, NUM_TRAITS)
    moment: NDArray[np.float32]  # shape (NUM_TRAITS,)
    num_outcomes: float = 0.0  # sum of their weights, less what faded
    num_explicit: float = 0.0  # of these, from outcomes as sure as feedback

    def add(self, traits: Floats, residual: float, weight: float) -> None:
        self.gram += (weight * np.outer(traits, traits)).astype(np.float32)
        self.moment += (weight * residual * traits).astype(np.float32)
        self.num_outcomes += weight
        if abs(weight) >= EXPLICIT_WEIGHT:
            self.num_explicit += weight

    def fade(self) -> None:
        if self.num_outcomes > MAX_OUTCOMES:
            share = MAX_OUTCOMES / self.num_outcomes
            self.gram *= np.float32(share)
            self.moment *= np.float32(share)
            self.num_explicit *= share
            self.num_outcomes = float(MAX_OUTCOMES)

    def solution(self) -> Floats:
        """Solves for the ridge's weights."""
        regularised = self.gram.astype(np.float64) + _PENALTIES
        return np.linalg.solve(regularised, self.moment).astype(np.float64)


_PENALTIES = np.diag([CONSTANT_PENALTY] + [PENALTY] * (NUM_TRAITS - 1))

Known = dict[BackendGroup, Sums]


def nothing_known() -> Known:
    """Returns sums over no outcomes."""
    shape = NUM_TRAITS, NUM_TRAITS
    return {arm: Sums(np.zeros(shape, np.float32), np.zeros(shape[0], np.float32)) for arm in ARMS}


def merge(known: Known, other: Known) -> None:
    """Adds the outcomes of `other` to `known`, then fades the oldest."""
    for arm, sums in known.items():
        sums.gram += other[arm].gram
        sums.moment += other[arm].moment
        sums.num_outcomes += other[arm].num_outcomes
        sums.num_explicit += other[arm].num_explicit
        sums.fade()


class GainLearner:
    """Learns one tenant's gain. Not for use from several threads.

    `known` sums all outcomes, `fresh` those of them not yet shared with other processes.
    """

    def __init__(self) -> None:
        self.known = nothing_known()
        self.fresh: Known | None = None
        self.weights: dict[BackendGroup, Floats] = {arm: np.zeros(NUM_TRAITS) for arm in ARMS}
        self.epoch: int | None = None  # resets and restores so far; None: not known yet
        self.loaded = False  # whether `known` includes other processes' outcomes
        self._num_unfitted = 0
        self._lead = 0.0  # squared error of the prior less that of the learned arms: mean,
        self._lead_square = 0.0  # and mean square
        self._difference = np.zeros(NUM_TRAITS)  # weights of the gain: deep less fast

    @property
    def num_outcomes(self) -> float:
        """Returns the outcomes of the arm that has fewer, since a gain needs both."""
        return min(self.known["fast"].num_outcomes, self.known["deep"].num_outcomes)

    @property
    def trust(self) -> float:
        """Returns how much the learned correction counts, from 0 to 1."""
        if self.known["fast"].num_outcomes <= MIN_OUTCOMES:
            return 0.0  # as with most tenants
        num_outcomes = self.num_outcomes
        if num_outcomes <= MIN_OUTCOMES:
            return 0.0
        deviation = math.sqrt(max(0.0, self._lead_square - self._lead**2) / ERROR_MEMORY)
        if self._lead < -2 * deviation:
            return 0.0
        return min(1.0, num_outcomes / MIN_OUTCOMES - 1)

    @property
    def explicit(self) -> float:
        """Returns how far the learned gain replaces `p_deep` (0 to 1); hints do not count."""
        num_explicit = max(0.0, min(sums.num_explicit for sums in self.known.values()))
        return self.trust * num_explicit / (num_explicit + HALF_EXPLICIT)

    @property
    def distance(self) -> float:
        """Returns the root mean square of the learned correction over the outcomes seen."""
        gram = sum((sums.gram for sums in self.known.values()), np.zeros(1, np.float32))
        count = sum(sums.num_outcomes for sums in self.known.values())
        if not count:
            return 0.0
        return math.sqrt(max(0.0, float(self._difference @ gram @ self._difference) / count))

    def correction(self, traits: Floats) -> float:
        """Returns what to add to the prior's gain for a prompt with these traits."""
        trust = self.trust
        if not trust:
            return 0.0
        moved = float(traits @ self._difference)
        return trust * max(-MAX_CORRECTION, min(MAX_CORRECTION, moved))

    def observe(self, observation: Observation) -> None:
        """Learns from one outcome."""
        for arm, residual in observation.residuals():
            learned = residual - float(observation.traits @ self.weights[arm])
            lead, step = residual**2 - learned**2, observation.weight / ERROR_MEMORY
            self._lead += step * (lead - self._lead)
            self._lead_square += step * (lead**2 - self._lead_square)
        self._add(observation, observation.weight)
        self._num_unfitted += 1
        if self._num_unfitted >= REFIT_EVERY:
            self.refit()

    def unlearn(self, observation: Observation) -> None:
        """Removes an outcome that a surer one replaces."""
        self._add(observation, -observation.weight)

    def _add(self, observation: Observation, weight: float) -> None:
        if self.fresh is None:
            self.fresh = nothing_known()
        for arm, residual in observation.residuals():
            self.known[arm].add(observation.traits, residual, weight)
            self.known[arm].fade()
            self.fresh[arm].add(observation.traits, residual, weight)

    def adopt(self, known: Known) -> None:
        """Adopts the sums of all processes, which must include this one's fresh outcomes."""
        if not self._difference.any():  # nothing of its own yet, so nothing to step from
            fresh = self.fresh
            self.start(known, self.epoch)
            self.fresh = fresh
            return
        self.known, self.loaded = known, True
        self.refit()

    def refit(self) -> None:
        """Moves the weights towards the solution by at most `MAX_STEP`."""
        self._num_unfitted = 0
        for arm, sums in self.known.items():
            step = sums.solution() - self.weights[arm]
            length = float(np.sqrt(step @ step))
            self.weights[arm] += step if length <= MAX_STEP else step * (MAX_STEP / length)
        self._difference = self.weights["deep"] - self.weights["fast"]

    def start(self, known: Known, epoch: int | None) -> None:
        """Restarts from `known` after a reset or a restore, dropping fresh outcomes."""
        self.known, self.fresh, self.epoch = known, None, epoch
        self.weights = {arm: sums.solution() for arm, sums in known.items()}
        self._difference = self.weights["deep"] - self.weights["fast"]
        self._lead, self._lead_square, self._num_unfitted = 0.0, 0.0, 0
        self.loaded = True


def usual_success(arm: BackendGroup, p_gain: float) -> float:
    """Returns an engine's success rate by the prior."""
    return USUAL_SUCCESS if arm == "deep" else USUAL_SUCCESS - p_gain


def traits(reading: Reading, task_class: TaskClass) -> Floats:
    """Returns `trait_values` as a vector."""
    return np.array(trait_values(reading, task_class))


def trait_values(reading: Reading, task_class: TaskClass) -> list[float]:
    """Computes a prompt's `NUM_TRAITS` traits (-3 to 3): opinions, shape and hashed words."""
    shape, sketch = _prompt_traits(reading)
    opinion = [
        1.0,
        log_odds(task_class.p_gain, 1e-4),
        log_odds(task_class.p_deep, 1e-4) / 3,
        log_odds(task_class.p_security, 1e-4) / 3,
        (math.log2(task_class.expected_output_tokens or 1) - 9) / 2,
    ]
    return _bounded(opinion) + shape + sketch


@once
def _prompt_traits(reading: Reading) -> tuple[list[float], list[float]]:
    """Returns the traits that depend on the prompt alone: shape and hashed words."""
    words, prompt = reading.words, reading.prompt
    num_words, num_bytes = len(words), max(1, len(prompt))
    distinct = dict.fromkeys(words)
    shape = (
        math.log2(1 + num_words),
        math.log2(1 + len(distinct)),
        len(b"".join(words)) / num_words if words else 0.0,
        16 * (len(prompt) - len(prompt.translate(None, b"0123456789"))) / num_bytes,
        16 * (len(prompt) - len(prompt.translate(None, CAPITALS))) / num_bytes,
        math.log2(1 + prompt.count(b"\n")),
        math.log2(1 + prompt.count(b",")),
        math.log2(1 + prompt.count(b"(")),
    )
    scaled = [
        (value - centre) / spread
        for value, centre, spread in zip(shape, _CENTRES, _SPREADS, strict=True)
    ]
    return _bounded(scaled), _sketch(distinct)


def _sketch(distinct: dict[bytes, None]) -> list[float]:
    buckets = [0.0] * NUM_BUCKETS
    if not distinct:
        return buckets
    share = SKETCH_WEIGHT / math.sqrt(min(len(distinct), MAX_SKETCHED_WORDS))
    for word in islice(distinct, MAX_SKETCHED_WORDS):
        hashed = zlib.crc32(word)
        buckets[hashed % NUM_BUCKETS] += share if hashed & 0x10000 else -share
    is_bounded = max(buckets) <= MAX_TRAIT and min(buckets) >= -MAX_TRAIT
    return buckets if is_bounded else _bounded(buckets)


def _bounded(values: list[float]) -> list[float]:
    return [
        value if -MAX_TRAIT <= value <= MAX_TRAIT else math.copysign(MAX_TRAIT, value)
        for value in values
    ]
