"""Tests what a tenant's outcomes teach, and the bounds that learning keeps."""

import numpy as np
import pytest

from router.classify.classify import classify, features_of_text
from router.classify.text_features import read
from router.learn.learning import (
    ARMS,
    MAX_CORRECTION,
    MAX_OUTCOMES,
    MIN_OUTCOMES,
    NUM_TRAITS,
    GainLearner,
    Observation,
    merge,
    nothing_known,
    traits,
)
from router.record.evaluation import curve

SEED = 20_260_117


def observations(count: int, seed: int, *, noise: float = 0.3) -> list[Observation]:
    """Returns traffic whose gain hangs on two traits that the prior takes no account of."""
    chance = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        vector = np.clip(chance.normal(size=NUM_TRAITS), -3, 3)
        vector[0] = 1.0
        p_gain = float(chance.uniform(0.1, 0.3))
        fast = 0.55 - 0.15 * vector[5] + 0.15 * vector[9]
        success = {
            "fast": float(chance.random() < fast + noise * (chance.random() - 0.5)),
            "deep": float(chance.random() < 0.85),
        }
        made.append(Observation(vector, p_gain, success))  # type: ignore[arg-type]
    return made


def learned(taught: list[Observation]) -> GainLearner:
    learner = GainLearner()
    for observation in taught:
        learner.observe(observation)
    return learner


def apgr(learner: GainLearner, asked: list[Observation]) -> float:
    found = curve(
        [observation.success["fast"] for observation in asked],
        [observation.success["deep"] for observation in asked],
        [observation.p_gain + learner.correction(observation.traits) for observation in asked],
    )
    assert found is not None
    return found.apgr


def test_some_hundred_outcomes_of_ones_own_traffic_beat_the_prior() -> None:
    later = observations(3_000, SEED + 1)
    before = apgr(GainLearner(), later)
    with_200, with_400 = (apgr(learned(observations(n, SEED)), later) for n in (200, 400))
    assert before == pytest.approx(0.5, abs=0.04), f"seed {SEED}: the prior is to know nothing"
    assert with_200 > before + 0.08, f"seed {SEED}"
    assert with_400 > with_200 - 0.01, f"seed {SEED}"


def test_below_the_minimum_the_prior_rules_alone() -> None:
    taught = observations(2 * MIN_OUTCOMES, SEED)
    learner = learned(taught[:MIN_OUTCOMES])
    assert learner.trust == 0
    assert all(learner.correction(observation.traits) == 0 for observation in taught)
    assert learned(taught).trust == 1


def test_only_what_clients_say_stands_for_the_classifier() -> None:
    explicit = learned(observations(400, SEED))
    assert explicit.explicit == pytest.approx(0.5)
    hinted = learned(
        [Observation(x.traits, x.p_gain, x.success, 0.5) for x in observations(800, SEED)]
    )
    assert (hinted.trust, hinted.explicit) == (1, 0)


def test_a_gain_needs_outcomes_of_both_arms() -> None:
    """A small model's failures alone would send hopeless asks to the large one."""
    learner = learned(
        [Observation(x.traits, x.p_gain, {"fast": 0.0}) for x in observations(500, SEED)]
    )
    assert learner.num_outcomes == 0
    assert learner.correction(np.ones(NUM_TRAITS)) == 0


def test_outcomes_of_one_arm_each_teach_as_well_as_pairs() -> None:
    later = observations(3_000, SEED + 1)
    single = [
        Observation(x.traits, x.p_gain, {arm: x.success[arm]})
        for at, x in enumerate(observations(800, SEED))
        for arm in (ARMS[at % 2],)
    ]
    assert apgr(learned(single), later) > 0.6, f"seed {SEED}"


def test_no_flood_of_lies_moves_it_further_than_the_bound() -> None:
    lie = Observation(np.full(NUM_TRAITS, 3.0), 0.2, {"fast": 0.0, "deep": 1.0})
    learner = learned([lie] * 3_000)
    assert 0 < learner.correction(lie.traits) <= MAX_CORRECTION
    assert all(sums.num_outcomes <= MAX_OUTCOMES for sums in learner.known.values())


def test_trust_is_lost_while_the_prior_predicts_better() -> None:
    learner = learned(observations(400, SEED))
    assert learner.trust == 1
    learner.weights = {arm: weights + 0.5 for arm, weights in learner.weights.items()}
    for observation in observations(9, SEED + 2):  # one less than a refit
        learner.observe(observation)
    assert learner.trust == 0


def test_beginning_anew_is_the_prior_again_and_can_be_undone() -> None:
    learner = learned(observations(400, SEED))
    probe = observations(1, SEED + 3)[0].traits
    kept, distance = learner.known, learner.distance
    assert distance > 0.05
    learner.start(nothing_known(), 1)
    assert (learner.num_outcomes, learner.trust, learner.distance) == (0, 0, 0)
    assert learner.correction(probe) == 0
    learner.start(kept, 2)
    assert (learner.num_outcomes, learner.epoch, learner.fresh) == (400, 2, None)
    assert learner.distance == pytest.approx(distance, rel=0.3)


def test_a_surer_outcome_takes_the_place_of_a_hint() -> None:
    hint, explicit = observations(2, SEED)
    hint = Observation(explicit.traits, explicit.p_gain, {"fast": 1.0}, 0.2)
    learner, plain = learned([hint]), learned([explicit])
    learner.unlearn(hint)
    learner.observe(explicit)
    for arm in ARMS:
        np.testing.assert_allclose(learner.known[arm].gram, plain.known[arm].gram, atol=1e-5)
        np.testing.assert_allclose(learner.known[arm].moment, plain.known[arm].moment, atol=1e-5)
        assert learner.known[arm].num_outcomes == pytest.approx(plain.known[arm].num_outcomes)


def test_what_two_processes_learned_adds_up_to_what_one_would_have() -> None:
    taught = observations(400, SEED)
    together, halves = learned(taught), [learned(taught[:200]), learned(taught[200:])]
    shared = nothing_known()
    for half in halves:
        assert half.fresh is not None
        merge(shared, half.fresh)
    for arm in ARMS:
        np.testing.assert_allclose(shared[arm].gram, together.known[arm].gram, atol=0.01)
        np.testing.assert_allclose(shared[arm].moment, together.known[arm].moment, atol=0.01)


def test_old_outcomes_fade_so_that_new_traffic_counts() -> None:
    learner = learned(observations(MAX_OUTCOMES + 500, SEED))
    assert learner.num_outcomes == MAX_OUTCOMES
    probe = Observation(np.eye(NUM_TRAITS)[0], 0.2, {"fast": 1.0, "deep": 0.0})
    before = learner.correction(probe.traits)
    for _ in range(MAX_OUTCOMES):
        learner.observe(probe)
    assert learner.correction(probe.traits) < before - 0.3


ASKS = (
    "",
    "hi",
    "Fix the race in the lock manager.",
    "x " * 5_000,
    "日本語で書いて",
    "A,B(1\n2)" * 99,
)


@pytest.mark.parametrize("prompt", ASKS)
def test_traits_are_bounded_and_repeatable(prompt: str) -> None:
    task_class = classify(features_of_text(prompt))
    found = traits(read(prompt), task_class)
    assert found.shape == (NUM_TRAITS,)
    assert found[0] == 1
    assert np.abs(found).max() <= 3
    np.testing.assert_array_equal(found, traits(read(prompt), task_class))
