"""Finds a prompt's topic: its telling words, names made of them, and whether it asks for code."""

import re
from functools import lru_cache
from keyword import iskeyword

import msgspec

MAX_READ_CHARS = 4_000  # of a prompt, its beginning


def word_set(text: str) -> frozenset[str]:
    """Makes a set of the words in a text."""
    return frozenset(text.split())


_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_IDENTIFIER = re.compile(r"`([A-Za-z_]\w{1,40})(?:\(\))?`|\b([a-z]+(?:_[a-z0-9]+)+)\b")

# Words without a topic.
FUNCTION_WORDS = word_set(
    "a an the and or of for to in on at by with from as is are was were be been do does did can "
    "could would i me my we us our you your it its this that these what which who whom when where "
    "how please use get given one"
)
# Words about how to answer.
_FILLER = FUNCTION_WORDS | word_set(
    "but if then else without into over under should will shall may might must have has had mine "
    "ours yours he she they them their those whose why all any each every some no not only just "
    "very so too also again more most less thanks thank hello hi hey ok okay let lets let's want "
    "need needs like make give show tell write create implement generate build produce provide "
    "add explain describe summarize summarise discuss compare answer reply respond say code "
    "program function functions method methods class classes script snippet module library "
    "example examples test tests unit line lines word words token tokens sentence sentences "
    "paragraph paragraphs item items idea ideas step steps short brief long detailed simple full "
    "complete good nice best new using uses called named about exactly least takes take returns "
    "return gets two three four five six seven eight nine ten hundred thousand language here "
    "there python javascript typescript golang rust java cpp csharp sql bash shell now than "
    "because main something anything between per up out don't doesn't isn't"
)

# Programs are in Python only, but any language or file name shows that code is wanted.
_CODE = re.compile(
    r"(?i)\b(?:(?:some|the|sample|example|source|write|working|python|rust|go)\s+code|"
    r"code\s+(?:for|that|to|which|in|snippet|sample|example|review)|coding|function|class|method|"
    r"script|program|snippet|algorithm|implement(?:ation)?|refactor|unit tests?|regex|endpoint|"
    r"api client|parser|data structure|component|query|module|fizz ?buzz|fibonacci|binary search|"
    r"linked list|quicksort|debug|fix (?:the|this|my) \w+|hello world|"
    r"python3?|typescript|javascript|node\.?js|rust|golang|cpp|csharp|java|sql|bash)\b"
    r"|\w\.(?:py|tsx?|jsx?|rs|go|cc|cpp|cs|sh)\b|\bc\+\+|\bc#|(?-i:\b(?:in|using|with) Go\b)"
)
_PROSE = re.compile(
    r"(?i)\b(?:poem|haiku|story|essay|letter|email|limerick|song|joke|speech|(?:no|without) code)\b"
)
_MAKING = re.compile(
    r"(?i)\b(?:write|implement|create|generate|build|code|make|show|give|port|translate|convert)\b"
)
_EXPLAINING = re.compile(
    r"(?i)\b(?:explain|why|reasons?|compare|difference|history|opinion|what (?:is|are|was|were)|"
    r"what's|should i|pros and cons)\b"
)


class Topic(msgspec.Struct, frozen=True):
    """Holds a prompt's topic."""

    words: tuple[str, ...]  # telling words as written, lower case, no repetitions; may be empty
    phrase: str  # the topic in a few words: "overlapping intervals"
    noun: str  # one word for one of the things it handles
    function: str  # a function's name
    wants_code: bool


def read_topic(prompt: str) -> Topic:
    """Finds the topic of a prompt."""
    return _topic_of(prompt[:MAX_READ_CHARS])


@lru_cache(maxsize=8)  # a prompt is read for its tools, its reasoning and its text
def _topic_of(prompt: str) -> Topic:
    found: dict[str, None] = {}
    for match in _WORD.finditer(prompt):
        word = match[0].lower().strip("'-")
        if len(word) > 2 and word not in _FILLER:
            found[word] = None
            if len(found) >= 8:
                break
    words = tuple(found)
    return Topic(
        words=words,
        phrase=" ".join(words[:3]) or "this",
        noun=fold(words[:3][-1]) if words else "value",
        function="_".join(_name_parts(prompt, words)),
        wants_code=_wants_code(prompt),
    )


def fold(word: str) -> str:
    """Drops a word's case, spelling variant and plural: "Merges" becomes "merge"."""
    word = word.lower().replace("colour", "color").replace("favourite", "favorite")
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    is_plural = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return word[:-1] if is_plural else word


def _wants_code(prompt: str) -> bool:
    if _PROSE.search(prompt) or (_EXPLAINING.search(prompt) and not _MAKING.search(prompt)):
        return False
    return _CODE.search(prompt) is not None


def _name_parts(prompt: str, words: tuple[str, ...]) -> list[str]:
    """Finds words for an identifier: one in the prompt, else its first telling words."""
    if spelled := _IDENTIFIER.search(prompt):
        named = [part for part in (spelled[1] or spelled[2]).lower().split("_") if part][:6]
        name = "_".join(named)
        if name.isidentifier() and not iskeyword(name):
            return named
    parts = [part for word in words[:3] for part in re.findall(r"[a-z]+", word)][:4]
    if not parts:
        return ["solve"]
    return [fold(parts[0]), *parts[1:]] if len(parts) > 1 else ["handle", parts[0]]
