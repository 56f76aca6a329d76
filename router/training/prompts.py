"""Requests with lanes that were written for training, from the templates in `prompts.toml`."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from router.record.labelled import Record

TEMPLATES_PATH = Path(__file__).with_name("prompts.toml")
PER_TEMPLATE = 4  # how often each is filled
SOURCE = "written"

_KINDS = (  # section, lane, security
    ("interactive", "interactive", 0),
    ("deep", "deep", 0),
    ("security", "deep", 1),
    ("decoy", "interactive", 0),
)
_SLOT = re.compile(r"\{(\w+)\}")


def written_prompts(seed: int) -> list[Record]:
    """Each template filled a few times, without doubles; the same for the same seed."""
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
    """The template with every slot filled; what fills a slot may have slots itself."""
    while slot := _SLOT.search(template):
        filling = slots[slot[1]]
        chosen = filling[int(rng.integers(len(filling)))]
        template = f"{template[: slot.start()]}{chosen}{template[slot.end() :]}"
    return template
