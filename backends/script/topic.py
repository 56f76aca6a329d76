"""What an ask is about: its telling words, and the programming language it wants."""

import re
from functools import lru_cache

import msgspec

from backends.script.words import word_set

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

_LANGUAGES = (
    ("typescript", re.compile(r"\btypescript\b|\.tsx?\b|\bts\b", re.IGNORECASE)),
    ("javascript", re.compile(r"\bjavascript\b|\bnode(?:\.?js)?\b|\.jsx?\b|\breact\b", re.I)),
    ("python", re.compile(r"\bpython3?\b|\.py\b|\bpytest\b|\bdjango\b|\bpandas\b", re.IGNORECASE)),
    ("rust", re.compile(r"\brust\b|\.rs\b|\bcargo\b", re.IGNORECASE)),
    (
        "go",
        re.compile(
            r"\bgolang\b|\.go\b|\b(?:in|using|with|a|some|of) Go\b|\bGo (?:function|code|program)"
        ),
    ),
    ("cpp", re.compile(r"\bc\+\+|\bcpp\b|\.(?:cc|cpp|hpp)\b", re.IGNORECASE)),
    ("csharp", re.compile(r"\bc#|\bcsharp\b|\.cs\b|\bdotnet\b", re.IGNORECASE)),
    ("java", re.compile(r"\bjava\b|\bspring boot\b", re.IGNORECASE)),
    ("sql", re.compile(r"\bsql\b|\bpostgres(?:ql)?\b|\bmysql\b|\bsqlite\b", re.IGNORECASE)),
    ("bash", re.compile(r"\bbash\b|\bshell script\b|\bzsh\b|\.sh\b", re.IGNORECASE)),
)

_CODE = re.compile(
    r"\b(?:(?:some|the|sample|example|source|write|working|python|rust|go)\s+code|"
    r"code\s+(?:for|that|to|which|in|snippet|sample|example|review)|coding|function|class|method|script|program|snippet|algorithm|implement(?:ation)?|"
    r"refactor|unit tests?|regex|endpoint|api client|parser|data structure|component|query|module|"
    r"fizz ?buzz|fibonacci|binary search|linked list|quicksort|debug|fix (?:the|this|my) \w+|"
    r"hello world)\b",
    re.IGNORECASE,
)
_PROSE = re.compile(
    r"\b(?:poem|haiku|story|essay|letter|email|limerick|song|joke|speech|no code|without code)\b",
    re.IGNORECASE,
)
_MAKING = re.compile(
    r"\b(?:write|implement|create|generate|build|code|make|show|give|port|translate|convert)\b",
    re.IGNORECASE,
)
# "Reverse a string in Python.": an order, or how to, for what programs do, and the language.
_DOING = re.compile(
    r"(?:^|[.!?:;\n]\s*)(?:please\s+|(?:can|could|would) you\s+(?:please\s+)?|"
    r"how (?:to|(?:do|can|would|should) (?:i|you|we|one))\s+)?"
    r"(?:add|append|calculate|check|compute|concatenate|convert|copy|count|define|delete|"
    r"deserialize|detect|download|draw|encode|decode|encrypt|evaluate|extract|fetch|filter|find|"
    r"flatten|format|get|group|hash|insert|invert|iterate|join|list|load|loop|map|merge|multiply|"
    r"open|parse|print|read|remove|rename|replace|return|reverse|rotate|round|search|send|"
    r"serialize|shuffle|simulate|solve|sort|split|square|strip|sum|swap|transpose|trim|validate|"
    r"zip)\b[^.!?\n]{0,300}?\b(?:in|using|with)\s+(?:\w+\s+)?"
    r"(?:python|javascript|typescript|node|rust|go(?:lang)?|c\+\+|cpp|c#|csharp|java|sql|bash)"
    r"(?![\w-])",
    re.IGNORECASE,
)
_EXPLAINING = re.compile(
    r"\b(?:explain|why|reasons?|compare|difference|history|opinion|what (?:is|are|was|were)|"
    r"what's|should i|pros and cons)\b",
    re.IGNORECASE,
)


class Topic(msgspec.Struct, frozen=True):
    """What it is about."""

    words: tuple[str, ...]  # telling words as written, lower case, no repetitions; may be empty
    name: tuple[str, ...]  # words of an identifier for the main thing; never empty
    language: str | None  # a fence's label, if one is asked for
    wants_code: bool

    @property
    def phrase(self) -> str:
        """The topic in a few words: "overlapping intervals"."""
        return " ".join(self.words[:3]) or "this"

    @property
    def noun(self) -> str:
        """One word for one of the things it handles."""
        word = self.words[min(len(self.words), 3) - 1] if self.words else "value"
        return _singular(word)


@lru_cache(maxsize=8)  # a request's ask is read for its tools, its reasoning and its answer
def read_topic(ask: str) -> Topic:
    """Find the topic in an ask; only its first 4,000 characters are read."""
    ask = ask[:4_000]
    words: dict[str, None] = {}
    for found in _WORD.findall(ask):
        word = found.lower().strip("'-")
        if len(word) > 2 and word not in _FILLER:
            words[word] = None
        if len(words) >= 8:
            break
    language = next((name for name, pattern in _LANGUAGES if pattern.search(ask)), None)
    wants_code = _CODE.search(ask) is not None or (
        language is not None and (_MAKING.search(ask) is not None or _DOING.search(ask) is not None)
    )
    if _PROSE.search(ask) or (_EXPLAINING.search(ask) and not _MAKING.search(ask)):
        wants_code = False
    return Topic(tuple(words), _name(ask, list(words)), language, wants_code)


def _name(ask: str, words: list[str]) -> tuple[str, ...]:
    """Words for an identifier: one the ask spells out, else its first telling words."""
    spelled = _IDENTIFIER.search(ask)
    if spelled:
        return tuple(part for part in (spelled[1] or spelled[2]).lower().split("_") if part)[:6]
    parts = [part for word in words[:3] for part in re.findall(r"[a-z]+", word)][:4]
    if not parts:
        return ("solve",)
    return (_singular(parts[0]), *parts[1:]) if len(parts) > 1 else ("handle", parts[0])


def _singular(word: str) -> str:
    """ "intervals" to "interval", and "merges" to "merge"."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
