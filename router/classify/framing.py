"""Drops what only frames a task: greetings, tickets' headers, agents' templates, quotes, thanks.

First the marks that wrap a text go (quotes, fences, tags, JSON), and courtesies; then, at both
ends, the sentences that by their words hand a task over (`framing_model`); never all of a text. So
a task is judged alike however it is handed over.
"""

import re

import msgspec

from router.classify.courtesies import without_please, without_thanks
from router.classify.framing_model import served_framing
from router.classify.words import all_words_of, asks

MAX_SPACED_CHARS = 1_024  # of a text whose double spaces are removed; in longer ones few count
MAX_ROUNDS = 3  # what was within framing may be framed, too
EDGES = " \n\t\r\"'`*#=>-{}[]/"
_END_EDGES = EDGES + "._"
_HASHTAGS = re.compile(r"(?:\s+#\d{0,4}+[A-Za-z]\w{0,30}+)+\s*$")
MAX_HASHTAGS_CHARS = 100
# Tags around a task, and headers between dashed lines, as of Markdown files.
_TAGS_BEFORE = re.compile(
    r"(?:<[^<>\n]{1,80}>\s*(?:[^<>\n]{0,40}</[\w-]{1,40}>(?:\s*(?=<)|\s*\n\s*(?=\S)))?)+"
)
_TAGS_BEHIND = re.compile(r"(?:\s*</[^<>\n]{1,40}>)+\s*$")
_FRONT_MATTER = re.compile(r"---\n(?:[^\n]{0,80}\n){1,12}?---\n")
MAX_TAGS_CHARS = 120
# Tags of HTML that part a text into paragraphs, as of a mail.
_BLOCK_TAGS = re.compile(
    r"\s*</?(?:p|br|div|td|tr|li|ul|ol|h[1-6]|blockquote)\b[^<>\n]{0,80}>\s*"
    r"|^[ \t]*</?[\w-]{1,40}+(?: [^<>\n]{0,80})?>[ \t]*$",  # or any that has a line of its own
    re.MULTILINE,
)
_JSON = msgspec.json.Decoder()
_OTHER_ROLES = ("system", "developer", "assistant")  # whose messages are not the task
_OPEN, _CLOSED = ('{"', '{ "', "{\n", "[{"), ("}", "]")
# An object may be not quite JSON, since the text was put in as it is; these match before it, and
# behind.
_VALUE = r'(?:"[^"\n]{0,80}+"|[\w.+-]{1,40}+|\[\])'
_FIELDS_BEFORE = re.compile(
    r'\{\s*+(?:"[\w -]{1,40}+"\s*+:\s*+' + _VALUE + r'\s*+,\s*+){0,12}"[\w -]{1,40}+"\s*+:\s*+"'
)
_FIELDS_BEHIND = re.compile(
    r'"\s*+(?:,\s*+"[\w -]{1,40}+"\s*+:\s*+' + _VALUE + r"\s*+){0,12}\}\s*+$"
)
MAX_FIELDS_CHARS = 400
# "[09:14] Ana: " before each line of a chat.
_SPEAKERS = re.compile(
    r"^\[?\d{1,2}:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?\]? [<@]?\w[\w.-]{0,23}(?: \w[\w.-]{0,23})?>?: ?",
    re.MULTILINE,
)
# What somebody said, with who said it before, and little behind.
_SPEECH = re.compile(r'([^"]{0,120}[:,]? ?)"([^"]{24,})"([^"]{0,80})$')
# "[09:14] Ana: ", "[3/10/25, 18:02] Ana: ", "[09:14] <ana> " or "User: " before each message of a
# talk; "[09:14] ERROR: " is of a log.
_LEVELS = "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL"
_TURN = re.compile(
    rf"^(?:\[[\d/.,: -]{{4,24}}(?: ?[AaPp][Mm])?\] ?+(?!(?:{_LEVELS}):)"
    r"(?:<[^<>\n]{1,30}>|[^:\n]{1,30}:)"
    r"|(User|Human|Customer|Assistant|AI|Agent|Bot|Model):)[ \n]?",
    re.MULTILINE,
)
_ANSWERING = ("Assistant", "AI", "Agent", "Bot", "Model")
MIN_TURNS = 3
_MENTION = re.compile(r"\A@[\w.-]{1,30}[:,]? ")
# Blocks of an agent's template before what is asked: "<environment> ... </environment>".
_ABOUT = (
    "env|guideline|info|memory|meta|note|permission|preference|rule|setting|system|tool|workspace"
)
_BLOCKS = re.compile(
    rf"(?:<(?=\w*(?:{_ABOUT}))([\w-]{{1,40}})>\n(?:(?!</?\1>).){{0,1500}}?\n</\1>\s*)++", re.DOTALL
)
_QUOTED = re.compile(r"^ ?> ?", re.MULTILINE)
_CDATA = "<![CDATA["
_FENCES = re.compile(r"\A\s*(?:```\w*|\"\"\"|~~~)\n|\n(?:```|\"\"\"|~~~)\s*\Z")
_MARKUP = frozenset("<[{>#*-`=\"'0123456789")
_FENCE_MARKS = ("```", '"""', "~~~")
_END_MARKUP = (">", "]", "```", '"""', "~~~")
_QUOTE_CHARS = 200  # of a text's start, where quoted lines are looked for


def without_framing(text: str, *, before: bool = True, behind: bool = True) -> str:
    """Returns a text without framing at its ends and without double spaces; never nothing of it."""
    text = text.strip()
    while len(text) <= MAX_SPACED_CHARS and "  " in text:
        text = text.replace("  ", " ")
    if before and behind and text.startswith(_OPEN) and text.endswith(_CLOSED):
        text = _unwrapped(text)
    if before and behind and text.count('"') == 2:
        text = _as_said(text)
    if before and behind and text.startswith("<") and text.endswith(">"):
        text = _BLOCK_TAGS.sub("\n\n", text).strip() or text
    if before and text.startswith("<"):
        blocks = _BLOCKS.match(text)
        text = text[blocks.end() :] if blocks and blocks.end() < len(text) else text
    if before and behind:
        text = _of_talk(text)
    framing = served_framing()
    for _ in range(MAX_ROUNDS):
        # Courtesies go first, so that a text is the same with and without them to what follows.
        text = without_thanks(text) if behind else text
        text = without_please(text) if before else text
        if behind and " #" in text[-MAX_HASHTAGS_CHARS:]:
            text = _HASHTAGS.sub("", text)
        if text[:1] in _MARKUP or text.endswith(_END_MARKUP) or "\n> " in text[:_QUOTE_CHARS]:
            text = _without_markup(text, before, behind)
        start, end = framing.task_in(text, before=before, behind=behind)
        if not start and end == len(text):
            break
        text = text[start:end].rstrip(_END_EDGES if end < len(text) else None)
        text = text.lstrip(EDGES) if before else text
    bare = text.lstrip(EDGES) if before else text
    return (bare.rstrip(_END_EDGES) if behind else bare) or text


def _without_markup(text: str, before: bool, behind: bool) -> str:
    """Removes marks of quotes, fences, tags and front matter around a text."""
    if _CDATA in text[:_QUOTE_CHARS]:
        text = text.replace(_CDATA, "", 1).replace("]]>", "", 1)
    if text.startswith(">") or "\n> " in text[:_QUOTE_CHARS]:
        text = _QUOTED.sub("", text)
    if _SPEAKERS.match(text):
        text = _SPEAKERS.sub("", text)
    if text.startswith(_FENCE_MARKS) or text.endswith(_FENCE_MARKS):
        text = _FENCES.sub("", text).strip()
    if before and text.startswith(("<", "---\n")):
        wrapped = _TAGS_BEFORE.match(text) or _FRONT_MATTER.match(text)
        text = text[wrapped.end() :] if wrapped and wrapped.end() < len(text) else text
    if behind and text.endswith(">"):
        tags = _TAGS_BEHIND.search(text, max(0, len(text) - MAX_TAGS_CHARS))
        text = text[: tags.start()] if tags and tags.start() else text
    return text


def _of_talk(text: str) -> str:
    """Returns what is asked in a talk: its last message, or the longest if all sides ask."""
    if _TURN.match(text) is None:
        return text
    turns = [*_TURN.finditer(text)]
    has_roles = turns[0][1] is not None
    if len(turns) < MIN_TURNS or ("\n\n" in text and not has_roles):  # it has more than the talk
        return text
    ends = [turn.start() for turn in turns[1:]]
    said = [
        (turn[1], text[turn.end() : end].strip())
        for turn, end in zip(turns, [*ends, len(text)], strict=True)
    ]
    asked = [words for who, words in said if who not in _ANSWERING and words]
    if not asked:
        return text
    found = asked[-1] if has_roles else max(asked, key=len)
    return _MENTION.sub("", found)


def _as_said(text: str) -> str:
    """Returns what is quoted, if the words around it ask for nothing."""
    said = _SPEECH.match(text)
    if said is None or asks(all_words_of(f"{said[1]} {said[3]}".encode("utf-8", "replace"))):
        return text
    return said[2].strip()


def _unwrapped(text: str) -> str:
    """Returns the longest text of a JSON object that wraps one, or of messages, one a line too."""
    values: list[object] = []
    for decode in (_JSON.decode, _JSON.decode_lines):
        try:
            values = [decode(text)]
            break
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
    else:
        return _between_fields(text)
    for value in values:  # those of objects within follow
        if isinstance(value, list):
            values.extend(value)
        elif isinstance(value, dict) and value.get("role") not in _OTHER_ROLES:
            values.extend(value.values())
    texts = [value.strip() for value in values if isinstance(value, str)]
    longest = max(texts, key=len, default="")
    return longest if " " in longest else text


def _between_fields(text: str) -> str:
    """Returns a text that was put into an object unescaped."""
    before = _FIELDS_BEFORE.match(text)
    behind = _FIELDS_BEHIND.search(text, max(0, len(text) - MAX_FIELDS_CHARS))
    if before is None or behind is None or before.end() >= behind.start():
        return text
    return text[before.end() : behind.start()]
