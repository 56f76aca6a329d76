"""What a prompt is about: its telling words, names made of them, and whether it wants code."""

import re
from functools import lru_cache

import msgspec

MAX_READ_CHARS = 4_000  # of a prompt, its beginning


def word_set(text: str) -> frozenset[str]:
    """Make a set of a text's words; lists of words read best as text."""
    return frozenset(text.split())


_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_IDENTIFIER = re.compile(r"`([A-Za-z_]\w{1,40})(?:\(\))?`|\b([a-z]+(?:_[a-z0-9]+)+)\b")

# Words that say how to answer, not what about.
_FILLER = word_set(
    "a an the and or but if then else of for to in on at by with without from into over under "
    "as is are was were be been do does did can could should would will shall may might must "
    "have has had i me my mine we us our ours you your yours he she it its they them their this "
    "that these those what which who whom whose when where why how all any each every some no "
    "not only just very so too also again more most less please thanks thank hello hi hey ok "
    "okay let lets let's want need needs like make give show tell write create implement "
    "generate build produce provide add explain describe summarize summarise discuss compare "
    "answer reply respond say code program function functions method methods class classes "
    "script snippet module library example examples test tests unit line lines word words token "
    "tokens sentence sentences paragraph paragraphs item items idea ideas step steps short "
    "brief long detailed simple full complete good nice best new using use uses called named "
    "about exactly least takes take returns return given gets get one two three four five six "
    "seven eight nine ten hundred thousand language here there python javascript typescript "
    "golang rust java cpp csharp sql bash shell now than because main something anything "
    "between per up out don't doesn't isn't"
)

# Programs are written in Python alone, but each of these says that a program is wanted.
_LANGUAGE = re.compile(
    r"(?i)\b(?:python3?|typescript|javascript|node\.?js|rust|golang|cpp|csharp|java|sql|bash)\b"
    r"|\w\.(?:py|tsx?|jsx?|rs|go|cc|cpp|cs|sh)\b|\bc\+\+|\bc#|(?-i:\b(?:in|using|with) Go\b)"
)
_CODE = re.compile(
    r"(?i)\b(?:(?:some|the|sample|example|source|write|working|python|rust|go)\s+code|"
    r"code\s+(?:for|that|to|which|in|snippet|sample|example|review)|coding|function|class|method|"
    r"script|program|snippet|algorithm|implement(?:ation)?|"
    r"refactor|unit tests?|regex|endpoint|api client|parser|data structure|component|query|module|"
    r"fizz ?buzz|fibonacci|binary search|linked list|quicksort|debug|fix (?:the|this|my) \w+|"
    r"hello world)\b"
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
    """Holds what a prompt is about."""

    words: tuple[str, ...]  # telling words as written, lower case, no repetitions; may be empty
    phrase: str  # the topic in a few words: "overlapping intervals"
    noun: str  # one word for one of the things it handles
    function: str  # a function's name
    wants_code: bool


@lru_cache(maxsize=8)  # a request's prompt is read for its tools, its reasoning and its answer
def read_topic(prompt: str) -> Topic:
    """Find the topic of a prompt."""
    prompt = prompt[:MAX_READ_CHARS]
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
        noun=_singular(words[:3][-1]) if words else "value",
        function="_".join(_name_parts(prompt, words)),
        wants_code=_wants_code(prompt),
    )


def fold(word: str) -> str:
    """Drop a word's case, spelling variant and plural."""
    word = word.lower().replace("colour", "color").replace("favourite", "favorite")
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _wants_code(prompt: str) -> bool:
    if _PROSE.search(prompt) or (_EXPLAINING.search(prompt) and not _MAKING.search(prompt)):
        return False
    return bool(_CODE.search(prompt) or _LANGUAGE.search(prompt))


def _name_parts(prompt: str, words: tuple[str, ...]) -> list[str]:
    """Find words for an identifier: one the prompt spells out, else its first telling words."""
    spelled = _IDENTIFIER.search(prompt)
    if spelled:
        return [part for part in (spelled[1] or spelled[2]).lower().split("_") if part][:6]
    parts = [part for word in words[:3] for part in re.findall(r"[a-z]+", word)][:4]
    if not parts:
        return ["solve"]
    return [_singular(parts[0]), *parts[1:]] if len(parts) > 1 else ["handle", parts[0]]


def _singular(word: str) -> str:
    """Make "interval" of "intervals" and "merge" of "merges"."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
