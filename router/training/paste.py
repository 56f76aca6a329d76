"""Short prompts with a long paste around them: the lane is the prompt's, not the paste's."""

from collections.abc import Sequence

import msgspec
import numpy as np

from router.record.labelled import Record

NUM_PASTED = 1_500
MAX_PROMPT_CHARS, MIN_PIECE_CHARS = 300, 200
MIN_PASTE_CHARS, MAX_PASTE_CHARS = 1_500, 24_000
BEHIND_SHARE = 0.7  # of the pastes stand behind the prompt, the others before it
SEPARATORS = ("\n\n", "\n", "\n\n```\n", "\n\nContext:\n")


def with_pastes(records: Sequence[Record], seed: int) -> list[Record]:
    """`NUM_PASTED` short prompts with pastes made of the longer texts, as many deep as interactive;
    none if there are no such prompts.
    """
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
