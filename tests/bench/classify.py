"""Microseconds of one classification, from the text of an ask to its class, and to its reasons.

    python tests/bench/classify.py [--data FILE...] [--json]

Texts of each size are different in every call: cut from real records with --data, else made of
random words (half of them known), so that nothing is warm but the code. Wall time of a single
call; p50 and p99 over all calls of a size.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

from router.classify import MODEL, features_of_text, form_opinion
from router.training.records import read_records

SEED = 7
CHARS_PER_TOKEN = 4
SIZES_TOKENS = (12, 50, 200, 1_000, 10_000, 160_000)
NUM_CALLS = 2_000


def made_texts(num_chars: int, num: int, rng: random.Random) -> list[str]:
    words = [word.decode() for word in MODEL.vocabulary if isinstance(word, bytes)]
    words += ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(len(words))]
    pool = " ".join(rng.choices(words, k=500_000))
    starts = [rng.randrange(len(pool) - num_chars) for _ in range(num)]
    return [pool[start : start + num_chars] for start in starts]


def real_texts(paths: Sequence[Path], num_chars: int, num: int, rng: random.Random) -> list[str]:
    texts = [record.text for record in read_records(paths)]
    rng.shuffle(texts)
    pool = "\n\n".join(texts) * (1 + num_chars * 2 // sum(map(len, texts)))
    starts = [rng.randrange(len(pool) - num_chars) for _ in range(num)]
    return [pool[start : start + num_chars] for start in starts]


def measure(texts: Sequence[str]) -> dict[str, float]:
    """p50 and p99 of the class, and p50 with the reasons in words, in microseconds."""
    for text in texts[:100]:
        form_opinion(features_of_text(text)).signals()
    classified, explained = [], []
    for text in texts:
        started_ns = time.perf_counter_ns()
        opinion = form_opinion(features_of_text(text))
        decided_ns = time.perf_counter_ns()
        opinion.signals()
        classified.append((decided_ns - started_ns) / 1_000)
        explained.append((time.perf_counter_ns() - started_ns) / 1_000)
    classified.sort()
    explained.sort()
    middle, late = len(texts) // 2, len(texts) * 99 // 100
    return {
        "p50_us": classified[middle],
        "p99_us": classified[late],
        "explained_p50_us": explained[middle],
        "explained_p99_us": explained[late],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+")
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    arguments = parser.parse_args()
    rng = random.Random(SEED)
    for num_tokens in SIZES_TOKENS:
        num_chars = num_tokens * CHARS_PER_TOKEN
        num = NUM_CALLS if num_tokens < 100_000 else 100
        if arguments.data:
            texts = real_texts(arguments.data, num_chars, num, rng)
        else:
            texts = made_texts(num_chars, num, rng)
        row = {"tokens": num_tokens, "calls": num} | measure(texts)
        if arguments.json:
            print(json.dumps(row))
        else:
            print(
                f"{num_tokens:>8} tokens  p50 {row['p50_us']:6.1f}  p99 {row['p99_us']:6.1f}"
                f"   with reasons {row['explained_p50_us']:6.1f} {row['explained_p99_us']:6.1f}"
            )


if __name__ == "__main__":
    main()
