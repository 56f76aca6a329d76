"""Names the kind of work that a prompt is about, for policies' conditions and the decision log.

A predictable rule, not a model: the first word that names a kind of work decides ("Refactor the
parser and add tests" is a refactoring, "Explain this refactoring" is not). After words for making
something ("add", "write") the thing made decides: "add unit tests" is about tests.
"""

from collections.abc import Sequence
from typing import Literal, get_args

Kind = Literal[
    "refactor",
    "fix",
    "test",
    "explain",
    "review",
    "document",
    "implement",
    "design",
    "optimise",
    "migrate",
    "translate",
    "summarise",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

MADE_WITHIN = 4  # words after a making word that may name what is made

# Kind -> the beginnings of its words; English, as public prompts are.
_STEMS: dict[Kind, tuple[str, ...]] = {
    "refactor": (
        *("refactor", "restructur", "renam", "reorganis", "reorganiz", "simplif", "tidy"),
        *("decoupl", "deduplicat", "modularis", "modulariz", "cleanup", "untangl"),
    ),
    "fix": ("fix", "bug", "debug", "repair", "troubleshoot", "diagnos", "crash", "broken"),
    "test": ("test", "pytest", "unittest", "coverage"),
    "explain": ("explain", "describ", "why", "clarif", "understand"),
    "review": ("review", "audit", "critiqu", "inspect"),
    "document": ("document", "docstring", "readme", "changelog", "comment"),
    "implement": ("implement", "add", "write", "creat", "build", "generat", "develop", "make"),
    "design": ("design", "architect", "plan", "propos", "rfc", "brainstorm"),
    "optimise": ("optimi", "profil", "speed", "faster", "accelerat", "benchmark"),
    "migrate": ("migrat", "upgrad", "port", "moderni", "convert"),
    "translate": ("translat",),
    "summarise": ("summar", "tldr", "condens"),
}
_MADE: tuple[Kind, ...] = ("test", "document", "design", "optimise", "summarise")

# These words begin as a stem does, and mean something else.
_OTHER_WORDS = frozenset(
    b"additional additionally address addresses adder portal portals portable portfolio portion "
    b"portrait planet planets plane planes plant plants plain testament testimony testosterone "
    b"makefile makeup fixture fixtures commented port ports tester testers".split()
)
# `port` is a noun more often than not: it is a migration only in front of these.
_PORT_TO = frozenset(b"to it this the our from".split())

# First two letters -> (stem, kind): a word is compared with few stems.
_TABLE: dict[bytes, list[tuple[bytes, Kind]]] = {}
for _kind, _stems in _STEMS.items():
    for _stem in _stems:
        _TABLE.setdefault(_stem[:2].encode(), []).append((_stem.encode(), _kind))


def kind_of(words: Sequence[bytes]) -> Kind | None:
    """Returns the first kind of work among a prompt's words (lower case, in order)."""
    for index, word in enumerate(words):
        kind = _kind_of_word(word, words[index + 1] if index + 1 < len(words) else b"")
        if kind == "implement":
            for later in words[index + 1 : index + 1 + MADE_WITHIN]:
                made = _kind_of_word(later, b"")
                if made in _MADE:
                    return made
            return "implement"
        if kind is not None:
            return kind
    return None


def _kind_of_word(word: bytes, following: bytes) -> Kind | None:
    if word == b"port" and following in _PORT_TO:
        return "migrate"
    if word in _OTHER_WORDS:
        return None
    if word == b"clean" and following in (b"up", b"this", b"it", b"the"):
        return "refactor"
    for stem, kind in _TABLE.get(word[:2], ()):
        if word.startswith(stem):
            return kind
    return None
