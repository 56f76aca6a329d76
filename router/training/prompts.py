"""Generates training records: prompts with lanes from the templates in `prompts.toml`, and short
prompts with a long paste, since the lane is the prompt's and not the paste's.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from router.record.labelled import Record

TEMPLATES_PATH = Path(__file__).with_name("prompts.toml")
PER_TEMPLATE = 4  # prompts
SOURCE = "written"

NUM_PASTED = 1_500
MAX_PROMPT_CHARS, MIN_PIECE_CHARS = 300, 200
MIN_PASTE_CHARS, MAX_PASTE_CHARS = 1_500, 24_000
BEHIND_SHARE = 0.7  # of the pastes are behind the prompt, the others before it
SEPARATORS = ("\n\n", "\n", "\n\n```\n", "\n\nContext:\n")

_KINDS = (  # section, lane, security
    ("interactive", "interactive", 0),
    ("deep", "deep", 0),
    ("security", "deep", 1),
    ("decoy", "interactive", 0),
)
_SLOT = re.compile(r"\{(\w+)\}")


def written_prompts(seed: int) -> list[Record]:
    """Fills each template a few times, without duplicates; the same for the same seed."""
    document = tomllib.loads(TEMPLATES_PATH.read_text())
    slots = {name: _lines(block) for name, block in document["slots"].items()}
    rng = np.random.default_rng(seed)
    records = []
    for section, lane, security in _KINDS:
        texts: dict[str, None] = {}
        for template in _lines(document[section]):
            for _ in range(PER_TEMPLATE):
                text = _fill(template, slots, rng)
                texts[text[0].upper() + text[1:] if rng.random() < 0.5 else text] = None
        labels = {"lane": lane, "security": security}
        records += [Record(source=SOURCE, text=text, labels=labels) for text in texts]
    return records


def _lines(block: str) -> list[str]:
    return block.strip().split("\n")


def _fill(template: str, slots: Mapping[str, Sequence[str]], rng: np.random.Generator) -> str:
    """Fills every slot of a template; fillings may have slots themselves."""
    while slot := _SLOT.search(template):
        filling = slots[slot[1]]
        chosen = filling[int(rng.integers(len(filling)))]
        template = f"{template[: slot.start()]}{chosen}{template[slot.end() :]}"
    return template


def with_pastes(records: Sequence[Record], seed: int) -> list[Record]:
    """Makes `NUM_PASTED` short prompts with pastes of longer texts, half of them deep."""
    short = [record for record in records if len(record.text) <= MAX_PROMPT_CHARS]
    prompts = [[r for r in short if r.lane == lane] for lane in ("interactive", "deep")]
    pieces = [record.text for record in records if len(record.text) > MIN_PIECE_CHARS]
    if not all(prompts) or not pieces:
        return []
    rng = np.random.default_rng(seed)
    pasted = []
    for number in range(NUM_PASTED):
        of_lane = prompts[number % 2]
        prompt = of_lane[int(rng.integers(len(of_lane)))]
        paste = _paste(pieces, int(rng.integers(MIN_PASTE_CHARS, MAX_PASTE_CHARS)), rng)
        separator = SEPARATORS[int(rng.integers(len(SEPARATORS)))]
        behind = float(rng.random()) < BEHIND_SHARE
        text = f"{prompt.text}{separator}{paste}" if behind else f"{paste}\n\n{prompt.text}"
        pasted.append(msgspec.structs.replace(prompt, text=text))
    return pasted


def _paste(pieces: Sequence[str], num_chars: int, rng: np.random.Generator) -> str:
    chosen: list[str] = []
    while sum(map(len, chosen)) < num_chars:
        chosen.append(pieces[int(rng.integers(len(pieces)))])
    return "\n\n".join(chosen)
