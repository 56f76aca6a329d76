"""Measures what a tenant's first outcomes change: APGR before and after, beside random.

    python tests/bench/learning.py [--data FOLDER] [--unseen]

Replays measured outcomes of one kind of traffic at a time (labels `small_ok` and `large_ok`, schema
in docs/classifier.md): N outcomes of both engines go through `router.learn.learning.GainLearner` in
random order, then the rest is ranked by the gain it predicts. APGR is the share of the quality gap
recovered, averaged over all shares of calls to the large model; random is 0.5. Means over seeds.

The shipped prior was trained on some of the sources. `--unseen` replays every source with the gain
head fitted without it and its relatives, which is what a new tenant's traffic looks like; it takes
`train` and `dev` together. Without it, `dev` alone is replayed with the shipped prior.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from router.classify.classify import classify, features_of_text
from router.classify.linear_model import LinearModel
from router.classify.text_features import read
from router.learn.learning import GainLearner, Observation, traits
from router.record.evaluation import curve
from router.record.labelled import Record, read_records
from router.training.fit import fit

SEEDS = 10
SIZES = (0, 100, 200, 400)
MIN_RECORDS = 250
MIN_GAP = 0.05  # between the two models: with less there is nothing to recover, and APGR is noise
TRAINING_SEED = 1
# Sources of one kind: left out together, so that none of them is known from a sibling.
FAMILIES = (("routellm_mmlu", "mmlu_pro"), ("zeroeval",), ("llmrouter",))
DEFAULT_DATA = Path("../shared/data/routing")


class Replayed(NamedTuple):
    """Is one record, ready for replay."""

    observation: Observation
    small_ok: float
    large_ok: float


def replayed_of(records: Sequence[Record], prior: LinearModel | None = None) -> list[Replayed]:
    """Returns the records' observations; `prior` says the gain instead of the shipped model."""
    replayed = []
    for record in records:
        reading = read(record.text)
        task_class = classify(features_of_text(record.text))
        if prior is not None:
            log_odds = prior.score(reading).gain_log_odds
            p_gain = 1 / (1 + math.exp(-max(-30.0, min(30.0, log_odds))))
            task_class = msgspec.structs.replace(task_class, p_gain=p_gain)
        small, large = float(record.labels["small_ok"]), float(record.labels["large_ok"])
        vector = traits(reading, task_class)
        observation = Observation(vector, task_class.p_gain, {"fast": small, "deep": large})
        replayed.append(Replayed(observation, small, large))
    return replayed


def replay(replayed: Sequence[Replayed], num_outcomes: int, seed: int) -> float | None:
    """Returns APGR on what is not learned from: the same records for any `num_outcomes`."""
    order = np.random.default_rng(seed).permutation(len(replayed)).tolist()
    num_learned = min(max(SIZES), int(0.7 * len(replayed)))
    if num_outcomes > num_learned:
        return None
    learner = GainLearner()
    for at in order[:num_outcomes]:
        learner.observe(replayed[at].observation)
    rest = [replayed[at] for at in order[num_learned:]]
    scores = [one.observation.p_gain + learner.correction(one.observation.traits) for one in rest]
    found = curve([one.small_ok for one in rest], [one.large_ok for one in rest], scores)
    return None if found is None else found.apgr


def unseen_prior(sources: Sequence[str], records: Sequence[Record]) -> LinearModel:
    """Fits the classifier without these sources, on a quarter of the commits to save time."""
    others = [record for record in records if record.source not in sources]
    some = [r for at, r in enumerate(others) if "files_changed" not in r.labels or at % 4 == 0]
    return fit(some[::2], some[1::2], TRAINING_SEED)


def replays(records: Sequence[Record], *, unseen: bool) -> Iterator[tuple[str, list[Replayed]]]:
    """Yields each source that is large enough, with its observations."""
    by_source: dict[str, list[Record]] = {}
    for record in records:
        if "small_ok" in record.labels and "large_ok" in record.labels:
            by_source.setdefault(record.source, []).append(record)
    for family in FAMILIES:
        members = [name for name in by_source if name.startswith(family)]
        prior = unseen_prior(members, records) if unseen and members else None
        for name in members:
            gaps = [r.labels["large_ok"] - r.labels["small_ok"] for r in by_source[name]]
            if len(gaps) >= MIN_RECORDS and np.mean(gaps) >= MIN_GAP:
                yield name, replayed_of(by_source[name], prior)


def main() -> None:
    """Print a line for each source, and their mean."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--unseen", action="store_true", help="with priors that never saw a source")
    arguments = parser.parse_args()
    folders = ["train", "dev"] if arguments.unseen else ["dev"]
    records = read_records([arguments.data / folder for folder in folders])
    print(f"{'source':<26}{'records':>8}{'random':>8}" + "".join(f"{n:>8}" for n in SIZES))
    pairs: dict[int, list[tuple[float, float]]] = {size: [] for size in SIZES}  # before, after
    for name, replayed in replays(records, unseen=arguments.unseen):
        line = f"{name:<26}{len(replayed):>8}{0.5:>8.3f}"
        before = 0.0
        for size in SIZES:
            found = [replay(replayed, size, seed) for seed in range(SEEDS)]
            values = [value for value in found if value is not None]
            if not values:
                continue
            mean = float(np.mean(values))
            before = mean if not size else before
            pairs[size].append((before, mean))
            line += f"{mean:>8.3f}"
        print(line, flush=True)
    for size, found_pairs in pairs.items():
        if size and found_pairs:
            before, after = np.mean(found_pairs, axis=0).tolist()
            print(f"{size} outcomes, {len(found_pairs)} sources: {before:.3f} -> {after:.3f}")


if __name__ == "__main__":
    main()
