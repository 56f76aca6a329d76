"""Finds values that a prompt or a tool's result mentions, by their form and by their names."""

import re
from collections.abc import Collection, Iterable, Sequence

from backends.script.last_message import ToolResult
from backends.script.topic import fold, word_set
from backends.script.work import Work

_QUOTED = re.compile(r"\"([^\"\n]{1,2000})\"|“([^”\n]{1,2000})”|(?<!\w)'([^'\n]{1,2000})'(?!\w)")
_BACKTICKED = re.compile(r"`([^`\n]{1,4000})`")
_FENCED = re.compile(r"```[\w+-]*\n(.*?)\n?```", re.DOTALL)
_DIGITS = r"-?(?:\d{1,3}(?:,\d{3}){1,4}(?!\d)|\d{1,15})(?:\.\d{1,12})?"  # 1200, 1,200 or 0.5
_NUMBER = re.compile(rf"(?<![\w.-]){_DIGITS}(?![\w])")
_JSON_KEY = re.compile(r"[\"'](\w{1,80})[\"']\s*:")
_URL = re.compile(r"\bhttps?://[^\s<>\"'`]+[^\s<>\"'`.,;:!?)]")
_EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}\b")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_PATH = re.compile(
    r"(?<![\w/:])(?:~|\.{0,2})?/?(?:[\w.-]{1,80}/){1,20}[\w.-]{0,80}[\w-]"
    r"|(?<![\w-])[\w-]{1,80}\.[a-z]{1,5}\b"
)
_PROPER = re.compile(r"(?m)(?<![.!?:]\s)(?<!^)\b[A-Z][\w'-]+(?: [A-Z][\w'-]+)*")
_FOR_PROPER = re.compile(
    r"\b(?:for|in|at|of|to|from|and|or|between|near|about)\s+([A-Z][\w'-]+(?: [A-Z][\w'-]+)*)"
)
_RUN = re.compile(
    r"(?i)\b(?:run|execute|type|call|command)\b(?: (?:the|following|shell|commands?)){0,4}:?\s+"
    r"(?P<command>[a-z./][^\n]{0,500})(?P<more>[^\n]?)"
)
_RUN_END = re.compile(r"(?i)[.!?]?\s*$|\.\s+[A-Z]|,? (?:and|then) (?:tell|show|report)")
_WORDS = re.compile(r"[A-Za-z]+")
_CAMEL_CASE = re.compile(r"([a-z0-9])([A-Z])")

# Property names that imply one kind of value.
_COMMAND_NAMES = word_set("cmd command script shell bash commandline")
_PATH_NAMES = word_set("path file filename filepath directory dir folder")
_PATTERNS = (
    (word_set("url uri link href website"), _URL),
    (word_set("email mail"), _EMAIL),
    (word_set("date day"), _DATE),
)
_PROPER_NAMES = word_set(
    "city location place country town region address origin destination name person user "
    "username customer company state topic subject title entity"
)
_TEXT_NAMES = word_set(
    "query question prompt text message input content q search term keyword body description "
    "request task instruction instructions"
)
_ANSWER_NAMES = word_set(
    "answer response result summary reply output explanation reasoning thought"
)
_NO_NAMES = word_set("i use call what please json")
MAX_RESULTS, MAX_RESULT_CHARS = 8, 500  # of tools that values are taken from: the latest, each cut
SEARCH_CHARS = 1_000  # a search for a name or an option, which is compiled for it, as work
LOOK_CHARS = 5  # to see that there is nothing to search for


class Values:
    """Finds values for a call's arguments or an answer in JSON."""

    def __init__(
        self,
        prompt: str,
        answer: str | None = None,
        turn: int = 0,
        options: Collection[str] = (),
        work: Work | None = None,
        results: Sequence[ToolResult] = (),
    ) -> None:
        """Scans a prompt; `answer` is the plain text, for properties that hold an answer.

        What the `results` of this turn's calls say comes before what the prompt says.
        `turn` is the index among several calls made of one prompt: each takes its own name.
        `options` are words in lower case that a call chooses among; they name nothing else.
        Once `work` is used up, nothing more is searched for.
        """
        self.prompt = prompt
        self._results = [(r.name, r.output[:MAX_RESULT_CHARS]) for r in results[-MAX_RESULTS:]]
        # The prompt is last: what was looked up is newer.
        said = [*(_JSON_KEY.sub(r"\1:", text) for _, text in self._results), prompt]
        self._said = "\n".join(said)
        self._search_chars = SEARCH_CHARS * (3 if self._results else 1)  # as much more text
        self._lowered = self._said.lower()
        self._work = work or Work()
        self._stated_of: dict[str, str | None] = {}  # by name; an array asks again for each item
        self._answer = answer
        self._turn = turn
        self._words = frozenset(map(fold, _WORDS.findall(self._said)))
        self.quoted = [str(found[found.lastindex or 0]) for found in _QUOTED.finditer(prompt)]
        self.backticked: list[str] = _FENCED.findall(prompt) + _BACKTICKED.findall(prompt)
        self._numbers = [_number(found) for found in _NUMBER.findall(self._said)]
        self._unused_numbers = iter(self._numbers)
        named = dict.fromkeys(_FOR_PROPER.findall(prompt) or _PROPER.findall(prompt))
        no_names = {*_NO_NAMES, *options}
        self.names: list[str] = [n for n in named if "_" not in n and n.lower() not in no_names]

    def mentions(self, name: str) -> bool:
        """Returns whether all the words of a name like `max_price` were said."""
        words = name_words(name)
        return bool(words) and self._words.issuperset(words)

    def text(self, name: str) -> str | None:
        """Finds a text for a property: what is stated of its name, else what the name implies."""
        if name not in self._stated_of:
            self._stated_of[name] = self._stated(name)
        if stated := self._stated_of[name]:
            return stated
        words = frozenset(name_words(name))
        if (given := self._result_of(words)) is not None:
            return given
        if words & _COMMAND_NAMES:
            return self.command()
        for names, pattern in _PATTERNS:
            if words & names:
                return _first(pattern.findall(self.prompt))
        if words & _PATH_NAMES:
            return _first(_PATH.findall(_URL.sub(" ", self.prompt)))
        if words & _PROPER_NAMES and self.names:
            return self.names[self._turn % len(self.names)]
        if words & _ANSWER_NAMES and self._answer:
            return self._answer
        if words & _TEXT_NAMES:
            return _first(self.quoted + self.backticked) or self.prompt.strip() or None
        return None

    def number(self, name: str) -> float | int | None:
        """Finds a number for a property: the one next to its name, else the next unused one."""
        words = name_words(name)
        for word in words:
            if not self._searches(word):
                continue
            beside = re.search(
                rf"\b{word}s?\b\W{{0,3}}(?:is|of|to|at|=|:)?\s*({_DIGITS})\b"
                rf"|(?<![\d.,])({_DIGITS})\s+{word}s?\b",
                self._said,
                re.IGNORECASE,
            )
            if beside:
                return _number(beside[1] or beside[2])
        if given := _NUMBER.search(self._result_of(frozenset(words)) or ""):
            return _number(given[0])
        return next(self._unused_numbers, None)

    def one_of(self, options: Iterable[object]) -> object | None:
        """Finds the option whose text is a word of the prompt."""
        for option in options:
            if isinstance(option, str) and option:
                spelled = rf"(?<!\w){re.escape(option)}(?!\w)"
                if self._searches(option) and re.search(spelled, self._said, re.IGNORECASE):
                    return option
            elif isinstance(option, int | float) and option in self._numbers:
                return option
        return None

    def command(self) -> str | None:
        """Finds a shell command: the one in backticks, else the text after "run"."""
        if self.backticked:
            return self.backticked[self._turn % len(self.backticked)]
        if found := _RUN.search(self.prompt):
            command = str(found["command"])
            end = _RUN_END.search(command, 1)
            # Longer text is not a command.
            if end and not (found["more"] and end.end() == len(command)):
                return command[: end.start()].strip(" \"'")
        return _first(self.quoted)

    def _stated(self, name: str) -> str | None:
        spelled = re.split(r"[_\s-]+", name[: len(self.prompt) + 1])
        if not self._searches(*spelled):
            return None
        words = r"[\s_-]+".join(map(re.escape, spelled))
        found = re.search(
            rf"\b{words}\b\s*(?:(?:is|=|:|of|as|to|set to|named|called)\s*)?"
            r"(?:\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`)"
            rf"|\b{words}\b\s*(?:=|:|\bis\b|\bset to\b|\bnamed\b|\bcalled\b)\s*([^\s,;\"'`]+)",
            self._said,
            re.IGNORECASE,
        )
        return str(found[found.lastindex or 0]).rstrip(".!?") if found else None

    def _result_of(self, words: frozenset[str]) -> str | None:
        """Finds the output of the tool that a property is named after: `weather`, `get_weather`."""
        outputs = (text for tool, text in self._results if words and words <= {*name_words(tool)})
        return next(outputs, None)

    def _searches(self, *words: str) -> bool:
        """Returns whether a search for words may find them, and there is work left for it."""
        self._work.affords(LOOK_CHARS)
        if not all(word.lower() in self._lowered for word in words):
            return False
        return self._work.affords(self._search_chars + 10 * sum(map(len, words)))


def name_words(name: str) -> list[str]:
    """Splits a name in any style into folded words: `maxPrices` has "max" and "price"."""
    return [fold(word) for word in _WORDS.findall(_CAMEL_CASE.sub(r"\1 \2", name))]


def _number(text: str) -> float | int:
    text = text.replace(",", "")
    return float(text) if "." in text else int(text[:16])


def _first(values: list[str]) -> str | None:
    return values[0] if values else None
