"""Generates training records: prompts with lanes from the templates in `prompts.toml` and, of a
few words each, in `short_asks.toml`, the same in other languages, asks that are told apart by
security alone (`security_asks.toml`), and short prompts with a long paste, since the lane is the
prompt's and not the paste's, among them asks about that (`paste_asks.toml`).

Other languages come from templates of their own (`languages.toml`), and from the English prompts
word by word (`glossary.tsv`): no grammar, but every word in many contexts.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from router.classify.text_features import is_code
from router.record.labelled import Record

TEMPLATES_PATH = Path(__file__).with_name("prompts.toml")
SHORT_ASKS_PATH = Path(__file__).with_name("short_asks.toml")  # uses the slots of both files
SECURITY_ASKS_PATH = Path(__file__).with_name("security_asks.toml")
EVERYDAY_ASKS_PATH = Path(__file__).with_name("everyday_asks.toml")
PASTE_ASKS_PATH = Path(__file__).with_name("paste_asks.toml")
PER_TEMPLATE = 4  # prompts
PER_ASK = 6  # pastes that each ask about one is shown with
GLOSSARY_PATH = Path(__file__).with_name("glossary.tsv")
LANGUAGES_PATH = Path(__file__).with_name("languages.toml")
LANGUAGES = ("de", "fr", "es", "pt", "zh", "ja")  # the columns of the glossary, after English
UNSPACED = ("zh", "ja")
PER_PROMPT = 2  # languages that each English prompt is put into
SOURCE = "written"
EVERYDAY_SOURCE, PASTE_SOURCE = "written_everyday", "written_paste"
OTHER_LANGUAGES = ("it", "ru", "ko")  # that have templates, and no column
LANGUAGE_SOURCES = frozenset(f"{SOURCE}_{of}" for of in (*LANGUAGES, *OTHER_LANGUAGES))

WRAPPINGS_PATH = Path(__file__).with_name("wrappings.toml")
NUM_WRAPPED = 2_500
NUM_PASTED = 2_500
MAX_PROMPT_CHARS, MIN_PIECE_CHARS = 300, 200
MIN_PASTE_CHARS, MAX_PASTE_CHARS = 1_500, 24_000
BEHIND_SHARE = 0.7  # of the pastes are behind the prompt, the others before it
SEPARATORS = ("\n\n", "\n", "\n\n```\n", "\n\nContext:\n")

_KINDS: tuple[tuple[str, dict[str, Any]], ...] = (  # section, labels
    ("interactive", {"lane": "interactive", "security": 0}),
    ("deep", {"lane": "deep", "security": 0}),
    ("security", {"lane": "deep", "security": 1}),
    ("decoy", {"lane": "interactive", "security": 0}),
    ("harmless", {"security": 0}),
    ("sensitive", {"security": 1}),
)
_SLOT = re.compile(r"\{(\w+)\}")
_WORD = re.compile(r"\w+|[^\w\s]+")
_BETWEEN_CHARACTERS = re.compile(r"(?<=[^\x00-\x7f]) | (?=[^\x00-\x7f])")


def written_prompts(seed: int) -> list[Record]:
    """Fills each template a few times, without duplicates; the same for the same seed."""
    document = tomllib.loads(TEMPLATES_PATH.read_text("utf-8"))
    short_asks = tomllib.loads(SHORT_ASKS_PATH.read_text("utf-8"))
    blocks = {**document["slots"], **short_asks["slots"]}
    slots = {name: _lines(block) for name, block in blocks.items()}
    rng = np.random.default_rng(seed)
    short = _filled(short_asks, slots, SOURCE, rng)  # says nothing of security
    english = [
        *_filled(document, slots, SOURCE, rng),
        *(msgspec.structs.replace(r, labels={"lane": r.labels["lane"]}) for r in short),
    ]
    languages = tomllib.loads(LANGUAGES_PATH.read_text("utf-8"))
    return _in_all_languages(english, languages, slots, rng)


def security_prompts(seed: int) -> list[Record]:
    """Fills the templates of `security_asks.toml`, which say nothing of the lane."""
    document = tomllib.loads(SECURITY_ASKS_PATH.read_text("utf-8"))
    slots = {name: _lines(block) for name, block in document.pop("slots").items()}
    rng = np.random.default_rng(seed)
    english = _filled(document.pop("en"), slots, SOURCE, rng)
    return _in_all_languages(english, document, slots, rng)


def everyday_prompts(seed: int) -> list[Record]:
    """Lists the asks of `everyday_asks.toml`, in all languages."""
    return _listed(EVERYDAY_ASKS_PATH, EVERYDAY_SOURCE, seed)


def paste_asks(seed: int) -> list[Record]:
    """Lists the asks about a paste in all languages, without a paste."""
    return _listed(PASTE_ASKS_PATH, PASTE_SOURCE, seed)


def _listed(path: Path, source: str, seed: int) -> list[Record]:
    """Lists the asks of a file that has sections by language, and no slots."""
    document = tomllib.loads(path.read_text("utf-8"))
    rng = np.random.default_rng(seed)
    records = []
    for sections in document.values():
        records += _filled(sections, {}, source, rng)
    return records


def _in_all_languages(
    english: list[Record],
    languages: Mapping[str, Mapping[str, str]],
    slots: Mapping[str, Sequence[str]],
    rng: np.random.Generator,
) -> list[Record]:
    """Adds the prompts of each language's own templates, and the English ones word by word."""
    records = [*english]
    for language, sections in languages.items():
        records += _filled(sections, slots, f"{SOURCE}_{language}", rng)
    return [*records, *_translated(english, rng)]


def _filled(
    sections: Mapping[str, str],
    slots: Mapping[str, Sequence[str]],
    source: str,
    rng: np.random.Generator,
) -> list[Record]:
    records = []
    for section, labels in _KINDS:
        texts: dict[str, None] = {}
        for template in _lines(sections.get(section, "")):
            for _ in range(PER_TEMPLATE):
                text = fill(template, slots, rng)
                texts[text[0].upper() + text[1:] if rng.random() < 0.5 else text] = None
        records += [Record(source=source, text=text, labels=labels) for text in texts]
    return records


def _translated(records: Sequence[Record], rng: np.random.Generator) -> list[Record]:
    """Puts each prompt into some languages, word by word; words without an entry stay."""
    glossary = _glossary()
    made = []
    for record in records:
        for number in rng.permutation(len(LANGUAGES))[:PER_PROMPT].tolist():
            language = LANGUAGES[number]
            words = [_in(language, word, glossary, rng) for word in _WORD.findall(record.text)]
            text = " ".join(word for word in words if word)
            if language in UNSPACED:
                text = _BETWEEN_CHARACTERS.sub("", text)
            made.append(Record(source=f"{SOURCE}_{language}", text=text, labels=record.labels))
    return made


def _glossary() -> dict[str, list[list[str]]]:
    """Reads for each English word its translations by language."""
    rows = [line.split("\t") for line in GLOSSARY_PATH.read_text("utf-8").splitlines()[1:]]
    return {row[0]: [cell.split("/") for cell in row[1:]] for row in rows}


def _in(
    language: str, word: str, glossary: dict[str, list[list[str]]], rng: np.random.Generator
) -> str:
    entry = glossary.get(word.lower())
    if entry is None:
        return word
    choices = entry[LANGUAGES.index(language)]
    return choices[int(rng.integers(len(choices)))]


def _lines(block: str) -> list[str]:
    return block.strip().splitlines()


def fill(template: str, slots: Mapping[str, Sequence[str]], rng: np.random.Generator) -> str:
    """Fills every slot of a template; fillings may have slots themselves."""
    while slot := _SLOT.search(template):
        filling = slots[slot[1]]
        chosen = filling[int(rng.integers(len(filling)))]
        template = f"{template[: slot.start()]}{chosen}{template[slot.end() :]}"
    return template


def with_wrappings(records: Sequence[Record], seed: int) -> list[Record]:
    """Hands `NUM_WRAPPED` short prompts over as people and agents do; their labels stay."""
    lines = _lines(tomllib.loads(WRAPPINGS_PATH.read_text("utf-8"))["wrappings"])
    wrappings = [line.replace("\\n", "\n") for line in lines]
    short = [record for record in records if len(record.text) <= MAX_PROMPT_CHARS]
    rng = np.random.default_rng(seed)
    wrapped = []
    for number in range(NUM_WRAPPED if short else 0):
        record = short[int(rng.integers(len(short)))]
        text = wrappings[number % len(wrappings)].replace("{}", record.text)
        wrapped.append(msgspec.structs.replace(record, text=text))
    return wrapped


def with_pastes(records: Sequence[Record], seed: int) -> list[Record]:
    """Makes `NUM_PASTED` short prompts with pastes of longer texts, half of them deep."""
    short = [record for record in records if len(record.text) <= MAX_PROMPT_CHARS]
    prompts = [[r for r in short if r.lane == lane] for lane in ("interactive", "deep")]
    pieces = [record.text for record in records if len(record.text) > MIN_PIECE_CHARS]
    if not all(prompts) or not pieces:
        return []
    rng = np.random.default_rng(seed)
    chosen = (prompts[number % 2] for number in range(NUM_PASTED))
    return [_pasted(of[int(rng.integers(len(of)))], pieces, MIN_PASTE_CHARS, rng) for of in chosen]


def asks_with_pastes(records: Sequence[Record], seed: int) -> list[Record]:
    """Shows each ask about a paste with some: longer texts that are code or have it in front."""
    pieces = [r.text for r in records if len(r.text) > MIN_PIECE_CHARS and is_code(r.text)]
    if not pieces:
        return []
    rng = np.random.default_rng(seed)
    asks = paste_asks(seed)
    return [_pasted(ask, pieces, MIN_PIECE_CHARS, rng) for ask in asks for _ in range(PER_ASK)]


def _pasted(
    prompt: Record, pieces: Sequence[str], min_chars: int, rng: np.random.Generator
) -> Record:
    paste = _paste(pieces, int(rng.integers(min_chars, MAX_PASTE_CHARS)), rng)
    separator = SEPARATORS[int(rng.integers(len(SEPARATORS)))]
    behind = float(rng.random()) < BEHIND_SHARE
    text = f"{prompt.text}{separator}{paste}" if behind else f"{paste}\n\n{prompt.text}"
    return msgspec.structs.replace(prompt, text=text)


def _paste(pieces: Sequence[str], num_chars: int, rng: np.random.Generator) -> str:
    chosen: list[str] = []
    while sum(map(len, chosen)) < num_chars:
        chosen.append(pieces[int(rng.integers(len(pieces)))])
    return "\n\n".join(chosen)
