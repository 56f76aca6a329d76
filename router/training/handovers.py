"""Fits the weights by which sentences that hand a task over are told from the task's own.

    python -m router.training.handovers --data FILE... --out FILE

Framing are the sentences of `handovers.toml`, `framings.toml` and `wrappings.toml`, before and
behind a task. What is none are the first and the last sentences of the records and of the written
prompts. No label of a record counts. The classifier is trained after this, on what is left.
"""

import argparse
import math
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from router.classify.framing_file import WEIGHTS_PATH, pack
from router.classify.framing_model import (
    BEFORE,
    BEHIND,
    BESIDE_CHARS,
    GAP_CHARS,
    MAX_SENTENCE_CHARS,
    SHAPES,
    UNKNOWN,
    FramingModel,
    gap_in,
    sentences,
    shapes_of,
)
from router.classify.words import all_words_of
from router.record.labelled import Record, RecordError, read_records
from router.training.fit import DEFAULT_SEED
from router.training.prompts import (
    WRAPPINGS_PATH,
    everyday_prompts,
    fill,
    paste_asks,
    security_prompts,
    written_prompts,
)
from router.training.solver import Rows, fit_logistic, total

HANDOVERS_PATH = Path(__file__).with_name("handovers.toml")
FRAMINGS_PATH = Path(__file__).with_name("framings.toml")
PER_TEMPLATE = 12  # lines
GAPS = (" ", "\n", "\n\n")  # between framing and task
ASKS_WEIGHT = 3.0
ASKS = "asks"  # the source of short sentences that ask for work
WORDS_PER_PIECE = 4  # of the lists of plain words of framings
NUM_SENTENCES = 4  # of each end of a record
MAX_END_CHARS = 1_200  # of a record, in which they are
MIN_SENTENCES, MIN_LINES = 3, 2  # of tasks, or of framing, that a known word must be in
MIN_PAIRS = 8  # sentences that begin or end with the same two words
SOURCE_POWER = 0.3  # a source of n records counts n ** (1 - SOURCE_POWER)
FRAMING_SHARE = 0.5  # that all framing counts, as against all that is none
# That framing counts in the line of what is beside it. Every line is shown there, too, but of what
# people write most sentences of a paragraph are the task's own.
SAME_LINE_SHARE = 0.37
WORD_PENALTY, SHAPE_PENALTY = 1.0, 0.1


class Sentence(msgspec.Struct, frozen=True):
    """Holds a sentence, and whether it is framing."""

    words: list[bytes]
    shapes: list[int]
    side: int
    line: int  # it is of; -1 if it is a task's
    weight: float = 1.0

    @property
    def is_framing(self) -> bool:
        return self.line >= 0


def fit_framing(records: Sequence[Record], seed: int) -> FramingModel:
    """Fits a model; the same arguments give the same bits."""
    rng = np.random.default_rng(seed)
    plain = [*records, *written_prompts(seed), *security_prompts(seed), *paste_asks(seed)]
    plain += [*_asks(rng), *_as_asks(everyday_prompts(seed))]
    found = [*_framing(plain, rng), *_of_tasks(plain, rng)]
    words = _known(found)
    rows = _rows(found, {word: at for at, word in enumerate(words)})
    weight = np.array([sentence.weight for sentence in found])
    is_framing = np.array([float(sentence.is_framing) for sentence in found])
    is_task = 1 - is_framing
    num_of_tasks = total(is_task)
    framing_scale = FRAMING_SHARE * num_of_tasks / total(weight * is_framing)
    task_scale = num_of_tasks / total(weight * is_task)
    fitted = fit_logistic(
        rows,
        is_framing,
        weight * (framing_scale * is_framing + task_scale * is_task),
        np.array([WORD_PENALTY] * (3 * len(words)) + [SHAPE_PENALTY] * (2 * len(SHAPES))),
        num_steps=12,
    )
    of_words, of_shapes = np.split(fitted, [3 * len(words)])
    return FramingModel(
        words,
        of_words.reshape(len(words), 3).astype(np.float16).astype(np.float32),
        of_shapes.reshape(2, len(SHAPES)).astype(np.float32),
    )


def _sentence(
    text: str, side: int, beside: str, line: int = -1, weight: float = 1.0, *, gap: int
) -> Sentence:
    words = all_words_of(text.encode("utf-8", "replace"))
    return Sentence(words, shapes_of(text, words, beside, gap=gap), side, line, weight)


def _framing(plain: Sequence[Record], rng: np.random.Generator) -> Iterator[Sentence]:
    """Yields the sentences of each line, as they are in a paragraph, in a line, and in none.

    Beside them is a sentence of any record.
    """
    for line, (text, side) in enumerate(_lines(rng)):
        for gap, between in enumerate(GAPS):
            # The last one before a task reaches to it.
            parts = sentences(text.rstrip() + between if side == BEFORE else text)
            for at, part in enumerate(parts):
                if part.strip():
                    beside = plain[int(rng.integers(len(plain)))].text[:BESIDE_CHARS]
                    stands = gap_in(part) if side == BEFORE else gap
                    if side == BEFORE and at + 1 < len(parts):
                        beside = parts[at + 1][:BESIDE_CHARS]
                    elif side == BEHIND and at:
                        beside = parts[at - 1][-BESIDE_CHARS:]
                        stands = gap_in(beside[-GAP_CHARS:])
                    weight = 1.0 if stands else SAME_LINE_SHARE
                    yield _sentence(part, side, beside, line, weight, gap=stands)


def _lines(rng: np.random.Generator) -> Iterator[tuple[str, int]]:
    """Yields what stands before or behind a task, and which of both."""
    document, fillings = _document(HANDOVERS_PATH), _fillings()
    for name, side in (("before", BEFORE), ("behind", BEHIND)):
        for line in document[name].strip().splitlines():
            yield line.replace("\\n", "\n"), side
        for template in document[f"{name}_slots"].strip().splitlines():
            for _ in range(PER_TEMPLATE):
                yield fill(template, fillings, rng).replace("\\n", "\n"), side
    for name, block in _document(FRAMINGS_PATH).items():
        if name.endswith("_plain"):
            words = block.split()
            for at in range(0, len(words), WORDS_PER_PIECE):
                piece = " ".join(words[at : at + WORDS_PER_PIECE])
                yield from ((piece, BEFORE), (piece, BEHIND))
            continue
        for line in block.strip().splitlines():
            yield line, BEFORE if name.startswith("opening") else BEHIND
    for line in _document(WRAPPINGS_PATH)["wrappings"].strip().splitlines():
        before, behind = line.replace("\\n", "\n").split("{}")
        if before.strip():
            yield before.strip(), BEFORE
        if behind.strip():
            yield behind.strip(), BEHIND


def _asks(rng: np.random.Generator) -> list[Record]:
    """Makes short sentences that ask for work."""
    fillings = _fillings()
    templates = _document(HANDOVERS_PATH)["asks"].strip().splitlines()
    texts = [fill(template, fillings, rng) for template in templates for _ in range(PER_TEMPLATE)]
    return [Record(source=ASKS, text=text) for text in texts]


def _as_asks(records: Sequence[Record]) -> list[Record]:
    """Makes them count as much as the short sentences that ask for work."""
    return [msgspec.structs.replace(record, source=ASKS) for record in records]


def _fillings() -> dict[str, list[str]]:
    slots: Mapping[str, str] = tomllib.loads(HANDOVERS_PATH.read_text("utf-8"))["slots"]
    return {name: block.strip().splitlines() for name, block in slots.items()}


def _document(path: Path) -> dict[str, str]:
    return tomllib.loads(path.read_text("utf-8"))


def _of_tasks(records: Sequence[Record], rng: np.random.Generator) -> Iterator[Sentence]:
    sizes = Counter(record.group for record in records)
    for record in records:
        weight = sizes[record.group] ** -SOURCE_POWER
        weight *= ASKS_WEIGHT if record.source == ASKS else 1.0
        text = record.text.strip()
        head, tail = sentences(text[:MAX_END_CHARS]), sentences(text[-MAX_END_CHARS:])
        found = [
            *(
                (part, BEFORE, later[:BESIDE_CHARS], gap_in(part))
                for part, later in zip(head[:NUM_SENTENCES], [*head[1:], ""], strict=False)
            ),
            *(
                (part, BEHIND, earlier[-BESIDE_CHARS:], gap_in(earlier[-GAP_CHARS:]))
                for part, earlier in zip(tail[:0:-1][:NUM_SENTENCES], tail[-2::-1], strict=False)
            ),
        ]
        if len(head) == 1:  # may stand behind or before framing, of another language, too
            gap = int(rng.integers(len(GAPS)))
            beside = records[int(rng.integers(len(records)))].text[:BESIDE_CHARS]
            found = [(head[0], side, beside, gap) for side in (BEFORE, BEHIND)]
        for part, side, beside, gap in found:
            if len(part) <= MAX_SENTENCE_CHARS:
                yield _sentence(part, side, beside, weight=weight, gap=gap)


def _known(found: Sequence[Sentence]) -> list[bytes]:
    """Lists the words that are known, those of most tasks first, behind `UNKNOWN`."""
    of_tasks: Counter[bytes] = Counter()
    lines: dict[bytes, set[int]] = defaultdict(set)
    for sentence in found:
        if sentence.is_framing:
            for word in set(sentence.words):
                lines[word].add(sentence.line)
        else:
            of_tasks.update(set(sentence.words))
    known = {word for word, count in of_tasks.items() if count >= MIN_SENTENCES}
    known |= {word for word, of_lines in lines.items() if len(of_lines) >= MIN_LINES}
    words = [UNKNOWN, *sorted(known, key=lambda word: (-of_tasks[word], word))]
    pairs = Counter(pair for sentence in found for pair in set(_ends(sentence.words)))
    return [*words, *sorted(pair for pair, count in pairs.items() if count >= MIN_PAIRS)]


def _ends(words: Sequence[bytes]) -> list[bytes]:
    """Returns the two words that a sentence begins with, and the two that it ends with."""
    return [b" ".join(words[:2]), b" ".join(words[-2:])] if len(words) > 1 else []


def _rows(found: Sequence[Sentence], columns: Mapping[bytes, int]) -> Rows:
    """Makes a sparse matrix: three columns for each word, then the shapes of both sides."""
    row: list[int] = []
    column: list[int] = []
    value: list[float] = []
    num_word_columns = 3 * len(columns)
    for at, sentence in enumerate(found):
        words = [3 * columns.get(word, 0) for word in sentence.words]
        share = 1 / math.sqrt(len(words)) if words else 0.0
        counts = Counter(words)
        column += counts
        value += [share * count for count in counts.values()]
        if words:
            column += [words[0] + 1, words[-1] + 2]
            of_ends = [columns.get(pair) for pair in _ends(sentence.words)]
            column += [3 * pair + side for side, pair in enumerate(of_ends, 1) if pair is not None]
        first = num_word_columns + sentence.side * len(SHAPES)
        column += [first + shape for shape in sentence.shapes]
        value += [1.0] * (len(column) - len(value))
        row += [at] * (len(column) - len(row))
    return Rows(
        row=np.array(row, np.int64),
        column=np.array(column, np.int64),
        value=np.array(value),
        shape=(len(found), num_word_columns + 2 * len(SHAPES)),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Fits the weights and writes them to a file."""
    parser = argparse.ArgumentParser(prog="python -m router.training.handovers")
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, default=WEIGHTS_PATH)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    arguments = parser.parse_args(argv)
    try:
        records = read_records(arguments.data)
    except (OSError, RecordError) as error:
        print(f"training: {error}", file=sys.stderr)
        return 2
    model = fit_framing(records, arguments.seed)
    content = pack(model)
    arguments.out.write_bytes(content)
    print(f"{arguments.out}: {len(content):,} bytes, {len(model.words):,} words")
    return 0


if __name__ == "__main__":
    sys.exit(main())
