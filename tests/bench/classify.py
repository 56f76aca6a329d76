"""Measures one classification in microseconds, beside that of a plain dictionary of words.

    python tests/bench/classify.py [--data FILE...] [--json]

Texts of each size are different: with --data real prompts of about that size, and cuts of many
records where prompts are not so long; without, random words, half of them known. Each text is
classified in `NUM_ROUNDS` rounds over all of them, and its best time counts: what else the machine
did, it did in the other rounds. p50 and p99 are over texts. Rounds of the baseline come in between,
so that the ratio holds on a busy machine, too. Each round begins at another text: the first one
behind the baseline, which fills every cache, is several times as slow.

The baseline, "dictionary", is the same model without all that is not a sum: words and pairs of
the whole text by one regular expression, looked up in one dict, added up in Python for the four
heads; as lean as a router in plain Python can be. It corrects no typo, finds no last message, reads
all of a text, and counts nothing but words.
"""

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from router.classify.classify import features_of_text, form_opinion, served_model
from router.classify.text_features import forget_readings
from router.record.labelled import read_records

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import rows as shape

SEED = 7
CHARS_PER_TOKEN = 4
SIZES_TOKENS = (12, 50, 200, 1_000, 10_000, 160_000, 4_194_304)  # the last: 16 MiB
NUM_TEXTS, NUM_LONG_TEXTS, NUM_ROUNDS = 1_000, 200, 5
LONG_TOKENS, HUGE_TOKENS = 100_000, 1_000_000
NUM_HUGE_TEXTS = 5
MIN_WHOLE = 100  # real prompts of a size, else cuts are taken
MAX_BASELINE_CHARS = 4_000_000  # that the baseline reads in a round

_WORDS = re.compile(r"[^\W_]+")


def num_texts(num_tokens: int) -> int:
    """Returns how many texts of a size: fewer of those that fill the memory."""
    if num_tokens < LONG_TOKENS:
        return NUM_TEXTS
    return NUM_LONG_TEXTS if num_tokens < HUGE_TOKENS else NUM_HUGE_TEXTS


def made_texts(num_chars: int, num: int, rng: random.Random) -> list[str]:
    words = [word.decode() for word in served_model().vocabulary if isinstance(word, bytes)]
    words += ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(len(words))]
    pool = " ".join(rng.choices(words, k=500_000))
    pool *= 1 + 2 * num_chars // len(pool)
    starts = [rng.randrange(len(pool) - num_chars) for _ in range(num)]
    return [pool[start : start + num_chars] for start in starts]


def real_texts(paths: Sequence[Path], num_chars: int, num: int, rng: random.Random) -> list[str]:
    texts = [record.text for record in read_records(paths)]
    rng.shuffle(texts)
    whole = [text for text in texts if 0.8 * num_chars <= len(text) <= 1.2 * num_chars]
    if len(whole) >= MIN_WHOLE:
        return whole[:num]
    pool = "\n\n".join(texts) * (1 + num_chars * 2 // sum(map(len, texts)))
    starts = [rng.randrange(len(pool) - num_chars) for _ in range(num)]
    return [pool[start : start + num_chars] for start in starts]


def dictionary() -> Callable[[str], list[float]]:
    """Returns the baseline."""
    model = served_model()
    weights = {
        term.decode() if isinstance(term, bytes) else (term[0].decode(), term[1].decode()): row
        for term, row in zip(model.vocabulary, model.term_weights.tolist(), strict=False)
    }

    def score(text: str) -> list[float]:
        words = _WORDS.findall(text.lower())
        terms = {*words, *pairwise(words)}
        deep = security = gain = output = 0.0
        for term in terms:
            row = weights.get(term)
            if row is not None:
                deep += row[0]
                security += row[1]
                gain += row[2]
                output += row[3]
        return [deep, security, gain, output]

    return score


def classified(text: str) -> object:
    return form_opinion(features_of_text(text))


def explained(text: str) -> object:
    return form_opinion(features_of_text(text)).signals()


def best_us(
    subjects: Mapping[str, Callable[[str], object]], texts: Sequence[str]
) -> dict[str, list[float]]:
    """Returns for each subject the best time of each text, in order of size."""
    num_of_baseline = max(1, min(len(texts), MAX_BASELINE_CHARS // len(texts[0])))
    best: dict[str, list[float]] = {name: [float("inf")] * len(texts) for name in subjects}
    del best["dictionary"][num_of_baseline:]
    for first in range(NUM_ROUNDS):
        for name, subject in subjects.items():
            times = best[name]
            for number in range(len(times)):
                at = (first + number) % len(times)
                forget_readings()  # as if it had never come
                started_ns = time.perf_counter_ns()
                subject(texts[at])
                times[at] = min(times[at], (time.perf_counter_ns() - started_ns) / 1_000)
    return {name: sorted(times) for name, times in best.items()}


def row_of(row: dict[str, float]) -> shape.Row:
    """Makes the row of one size; the baseline is no goal, since it does less."""
    return shape.Row(
        name=f"classify {row['tokens']:,} tokens",
        unit="us",
        values=[row["classified_p50_us"]],
        baseline="a dictionary of words",
        baseline_values=[row["dictionary_p50_us"]],
        per="text",
        wall_us=[row["classified_p50_us"]],
        baseline_wall_us=[row["dictionary_p50_us"]],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+")
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    parser.add_argument("--texts", type=int, default=NUM_TEXTS, help="of each size, at most")
    shape.add_argument(parser)
    arguments = parser.parse_args()
    published = []
    rng = random.Random(SEED)
    subjects = {"classified": classified, "explained": explained, "dictionary": dictionary()}
    if not arguments.json and arguments.rows is None:
        print(f"{'':>15}  {'classified':>14}  {'with reasons':>14}  {'dictionary':>14}   ratio")
        print(f"{'':>15}" + f"  {'p50':>6}  {'p99':>6}" * 3 + "     p50")
    for num_tokens in SIZES_TOKENS:
        num_chars = num_tokens * CHARS_PER_TOKEN
        num = min(arguments.texts, num_texts(num_tokens))
        if arguments.data:
            texts = real_texts(arguments.data, num_chars, num, rng)
        else:
            texts = made_texts(num_chars, num, rng)
        row: dict[str, float] = {"tokens": num_tokens, "texts": len(texts)}
        for name, times in best_us(subjects, texts).items():
            row[f"{name}_p50_us"] = times[len(times) // 2]
            row[f"{name}_p99_us"] = times[len(times) * 99 // 100]
        row["ratio_p50"] = row["classified_p50_us"] / row["dictionary_p50_us"]
        published.append(row_of(row))
        if arguments.rows is not None:
            continue
        if arguments.json:
            print(json.dumps(row))
            continue
        cells = [
            f"  {row[f'{name}_p50_us']:6.0f}  {row[f'{name}_p99_us']:6.0f}" for name in subjects
        ]
        print(f"{num_tokens:>8} tokens{''.join(cells)}  {row['ratio_p50']:6.2f}")
    if arguments.rows is not None:
        shape.publish(published, arguments)


if __name__ == "__main__":
    main()
