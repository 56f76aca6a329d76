"""Measures how often typos, politeness, spaces or a paste change the decision on a prompt."""

from collections.abc import Callable, Sequence

import numpy as np

SEED = 20_260_115
MIN_WORD_CHARS = 4  # words that get a typo

Change = Callable[[str, np.random.Generator], str]


def typo(text: str, rng: np.random.Generator) -> str:
    """Swaps two letters of a word, or drops, doubles or mistypes one."""
    words = text.split(" ")
    able = [at for at, w in enumerate(words) if len(w) >= MIN_WORD_CHARS and w.isalpha()]
    if not able:
        return text
    at = able[int(rng.integers(len(able)))]
    word = words[at]
    letter = int(rng.integers(1, len(word) - 1))
    head, tail = word[:letter], word[letter:]
    slips = (
        head + tail[1] + tail[0] + tail[2:],
        head + tail[1:],
        head + tail[0] + tail,
        head + _beside(tail[0]) + tail[1:],
    )
    words[at] = slips[int(rng.integers(len(slips)))]
    return " ".join(words)


_KEY_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _beside(letter: str) -> str:
    for row in _KEY_ROWS:
        at = row.find(letter.lower())
        if at >= 0:
            return row[at - 1] if at else row[1]
    return letter


_COURTESIES = (
    ("Please ", ""),
    ("please ", ", thanks"),
    ("Hi, ", ""),
    ("Could you please ", "?"),
    ("", "\nThanks!"),
    ("Hello,\n", "\n\nThank you in advance"),
)


def politeness(text: str, rng: np.random.Generator) -> str:
    """Adds a courtesy before the text, behind it, or both."""
    before, behind = _COURTESIES[int(rng.integers(len(_COURTESIES)))]
    return f"{before}{text}{behind}"


def spaces(text: str, rng: np.random.Generator) -> str:
    """Doubles all spaces, as in pasted text."""
    return text.replace(" ", "  ")


CHANGES: dict[str, Change] = {"a typo": typo, "politeness": politeness, "double spaces": spaces}

# Prompts that stay trivial whatever is pasted behind them.
TRIVIAL_PROMPTS = (
    "Fix the typo in the heading",
    "Rename the variable tmp to total",
    "What does this function return?",
    "Add a comment above the first line",
    "How many lines are in this file?",
    "Remove the unused import",
    "Convert this to camelCase",
    "Summarise this in one sentence",
)
PASTE_CHARS = 24_000  # some 6,000 tokens
MAX_TEXTS = 2_000


def flips(texts: Sequence[str], decide: Callable[[str], str]) -> dict[str, int]:
    """Counts for each of `CHANGES` how many texts `decide` decides differently."""
    decided = [decide(text) for text in texts]
    found = {}
    for name, change in CHANGES.items():
        rng = np.random.default_rng(SEED)
        changed = (decide(change(text, rng)) for text in texts)
        found[name] = sum(map(str.__ne__, decided, changed))
    return found


def pasted(texts: Sequence[str]) -> list[str]:
    """Returns each of `TRIVIAL_PROMPTS` with a long paste of such texts behind it."""
    rng = np.random.default_rng(SEED)
    found = []
    for prompt in TRIVIAL_PROMPTS:
        paste = ""
        while len(paste) < PASTE_CHARS:
            paste += f"{texts[int(rng.integers(len(texts)))]}\n\n"
        found.append(f"{prompt}\n\n{paste[:PASTE_CHARS]}")
    return found


def sample(texts: Sequence[str]) -> Sequence[str]:
    """Takes at most `MAX_TEXTS` of the texts, evenly spaced."""
    return texts[:: max(1, -(-len(texts) // MAX_TEXTS))]
