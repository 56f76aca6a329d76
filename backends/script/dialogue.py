"""Answers from the conversation itself: recalled facts, quotes, counts, tool results."""

import re
from collections.abc import Iterator

import msgspec

from backends.contract import Compaction, Message
from backends.prompt import parts_text
from backends.script.facts import Fact, find_facts, is_about_context, question_subject, recall
from backends.script.last_message import LastMessage, ToolResult, user_texts

MAX_QUOTE_CHARS = 1_200
MAX_DECODED_CHARS = 20_000  # of a tool's output or arguments; longer ones are quoted, not read
MAX_SUMMARIZED = 100  # messages of a summary, the latest
MAX_FACTS = 40  # of a summary
MAX_QUESTION_CHARS = 2_000  # longer messages are not questions about a fact
MAX_NOTED_CHARS = 600  # longer messages do not just state a fact

_QUOTED = r"\"([^\"]+)\"|'([^'\n]+)'|`([^`]+)`|“([^”]+)”"
_EXACTLY = re.compile(
    r"(?i)\b(?:reply|respond|answer|say|output|print|write)\b[^.\n]{0,60}?\bexactly\b"
    r"(?:\s+(?:this|the\s+(?:following|words?|text|phrase|string)))*\s*:?\s+"
    rf"(?:{_QUOTED}|(?P<rest>.+))"
)
_ONLY = re.compile(
    r"(?im)\b(?:reply|respond|answer)\s+(?:(?:only|just)\s+)?with\s+(?:(?:only|just)\s+)?"
    r"(?:the\s+(?:single\s+)?(?:words?|text|phrase|string|number)\s+)?"
    rf"(?:{_QUOTED}|(?-i:(?P<rest>[A-Z0-9][A-Z0-9_-]*))(?=[.!\s]*$))"
)
_THE_WORD = re.compile(
    r"(?i)\b(?:reply|respond|answer|say)\b[^.\n]{0,30}?\bthe (?:single |one )?word:?\s+"
    rf"(?:{_QUOTED}|(?P<rest>[\w-]+))"
)
_NOTHING_ELSE = re.compile(
    r"(?i)\b(?:reply|respond|answer)\b[^.\n]{0,40}\b(?:only|just|one word)\b|\bnothing else\b"
)
_SAY = re.compile(
    r"(?i)^\s*(?:please\s+)?(?:say|echo|repeat(?:\s+after\s+me)?)\s*:?\s+"
    r"(?:the\s+(?:words?|text|phrase|string)\s+)?"
    rf"(?:{_QUOTED}|(?!something|what|why|how|which|(?:that|it|this|them|if)\b)"
    r"(?P<rest>[^\n]{1,80}))\s*$"
)
_WANTED_WORDS = (_EXACTLY, _ONLY, _THE_WORD, _SAY)
_SENTENCE_END = re.compile(r"(?<=\w)[.!](?=\s+[A-Z]|\s*$)")

_COUNT = re.compile(
    r"(?i)\bhow many (?:messages|questions|times|turns)\b.{0,60}\b(?:i|we|far|conversation)\b"
)
_FIRST = re.compile(r"(?i)\bmy (?:very )?first (?:message|question|prompt)\b")
_PREVIOUS = re.compile(
    r"(?i)\b(?:what did i (?:just )?(?:say|ask|write|tell you)|"
    r"my (?:last|previous) (?:message|question|prompt))\b(?!\s*about\b)"
)
_YOUR_LAST = re.compile(
    r"(?i)\b(?:what did you (?:just )?(?:say|answer|reply|write)|"
    r"your (?:last|previous) (?:answer|message|reply|response))\b"
)
_SUMMARY = re.compile(r"(?i)\bsummar\w{1,6}\b.{0,60}\b(?:conversation|chat|discussion|so far|we)\b")
_ABOUT_MESSAGES = (_COUNT, _FIRST, _PREVIOUS, _YOUR_LAST, _SUMMARY)
# "Why does our cache stampede?" needs reasoning, even if nobody has stated the cause.
_EXPLAINING = re.compile(
    r"(?i)\b(?:why|how)\s+(?:do|does|did|is|are|was|were|can|could|should|would|to|come)\b"
    r"|\bwhich of\b"
)
# Mere thanks in nine languages, and what is said to them.
MAX_THANKS_CHARS = 64
_THANKS = tuple(
    (re.compile(rf"(?i)\W*(?:{said})\W*"), reply)
    for said, reply in (
        (
            r"(?:(?:ok(?:ay)?|great|perfect|nice|cool|no)\W+)?"
            r"(?:many )?(?:thanks|thank you|thx|cheers)"
            r"(?: (?:a lot|so much|very much|again|for (?:your|the) help))?"
            r"(?:\W+that(?:'s| is)? ?(?:works?|worked|helps?|helped|it|all))?",
            "You're welcome.",
        ),
        (r"(?:(?:vielen|besten) )?dank(?:e(?: (?:dir|schön|sehr))?)?", "Gern geschehen."),
        (r"merci(?: beaucoup)?", "Je vous en prie."),
        (r"(?:muchas )?gracias", "De nada."),
        (r"(?:muito )?obrigad[oa]", "De nada."),
        (r"grazie(?: mille)?", "Prego."),
        (r"(?:большое )?спасибо(?: большое)?", "Пожалуйста."),
        (r"(?:谢谢|謝謝|多谢)(?:你|您)?", "不客气。"),
        (r"ありがとう(?:ございます|ございました)?", "どういたしまして。"),
    )
)
_WHO_AM_I = re.compile(r"(?i)\bwho am i\b")
_PRONOUNS = frozenset(("it", "that", "this", "them"))
_SWAPPED = {"my": "your", "our": "your", "your": "my", "i": "you", "me": "you", "you": "me"}
_TELLING = re.compile(
    r"(?i)\b(?:remember|memori[sz]e|note (?:that|down)|keep in mind|for later|my name is|call me|"
    r"i am|i'm|code ?word|password|secret)\b"
)
_TELLING_WORDS = "remember note code word password secret name key"


def dialogue_answer(message: LastMessage) -> str | None:
    """Answers from the conversation itself if the message is about it, else returns None."""
    if message.results:
        results = message.results[-8:]
        head = [f"Here is what the {len(results)} calls gave."] if len(results) > 1 else []
        return "\n\n".join([*head, *map(_about_result, results)])
    text = _WHO_AM_I.sub("what is my name", message.excerpt)
    return (
        _said_to_thanks(text)
        or _wanted_words(message, text)
        or _about_messages(message, text)
        or _recalled(message, text)
        or _noted(message)
    )


def _said_to_thanks(text: str) -> str | None:
    """Answers mere thanks, about which there is nothing to compose."""
    if len(text) > MAX_THANKS_CHARS:
        return None
    return next((reply for said, reply in _THANKS if said.fullmatch(text)), None)


def relevant_fact(message: LastMessage) -> Fact | None:
    """Finds a fact of earlier turns that the message names in full."""
    text = message.text
    if len(text) > MAX_QUESTION_CHARS or not is_about_context(text):
        return None
    return recall(text, find_facts(_stated_texts(message), text))


def _wanted_words(message: LastMessage, text: str) -> str | None:
    """Finds the X of "reply with exactly: X", "say X" and the like."""
    found = next(filter(None, (pattern.search(text) for pattern in _WANTED_WORDS)), None)
    if found is None:
        return None
    words: str = found[found.lastindex or 0]
    if found.lastgroup != "rest":
        return words
    words = words.strip()
    is_subject = re.match(r"(?:the|my|our)\s", words, re.IGNORECASE)
    if is_subject and (fact := recall(words, _facts(message, words))):
        return fact.value
    return _SENTENCE_END.split(words, maxsplit=1)[0]


def _about_messages(message: LastMessage, text: str) -> str | None:
    if not any(pattern.search(text) for pattern in _ABOUT_MESSAGES):
        return None  # before the context, which may be long, is read
    before = list(user_texts(message.context))
    if _COUNT.search(text):
        sent = f"{len(before) + 1} message{'s' if before else ''}"
        return f"You have sent {sent} in this conversation, this one included."
    if _FIRST.search(text):
        return f"Your first message was: {_quote((before or [message.text])[0])}"
    if _PREVIOUS.search(text):
        said = before and f"Before this, you said: {_quote(before[-1])}"
        return said or "This is your first message in this conversation."
    if _YOUR_LAST.search(text):
        own = [i for i in message.context if isinstance(i, Message) and i.role == "assistant"]
        said = parts_text(own[-1].content) if own else ""
        return f"I said: {_quote(said)}" if said else "I have not said anything yet."
    return _summary(message, before) if _SUMMARY.search(text) else None


def _summary(message: LastMessage, before: list[str]) -> str:
    """Lists the stated facts, then the requests: if it is cut, the facts are kept."""
    if not before:
        return "There is nothing to summarize yet: this is your first message."
    # Of a long context, the parts near telling words are read, and the newest part in full.
    found = [f for words in (_TELLING_WORDS, "") for f in find_facts(_stated_texts(message), words)]
    facts: dict[frozenset[str], Fact] = {}
    for fact in found:
        facts.setdefault(fact.words, fact)
    first = max(len(before) - MAX_SUMMARIZED, 0)
    # A message that stated a fact is not quoted: a later one may have changed the fact.
    listed = "\n".join(
        f"{i}. {_quote(said, 160)}"
        for i, said in enumerate(before[first:], first + 1)
        if not any(fact.value in said for fact in found)
    )
    said = f"So far you have asked for {len(before)} things:\n\n{listed}"
    if not facts:
        return said
    stated = "\n".join(f"- {f.subject} is {f.value}." for f in [*facts.values()][:MAX_FACTS])
    return f"You told me:\n\n{stated}\n\n{said}"


def _recalled(message: LastMessage, text: str) -> str | None:
    subject = question_subject(text)
    about_context = is_about_context(text)
    if len(text) > MAX_QUESTION_CHARS or not (subject or (about_context and "?" in text)):
        return None
    if subject and subject.lower() in _PRONOUNS:
        # "The code word is X. Repeat it.": this means the last fact.
        fact = next(iter(find_facts([message.excerpt, *_stated_texts(message)])), None)
    else:
        fact = recall(subject or text, _facts(message, subject or text))
    if fact is None:
        is_known_here = about_context and not _EXPLAINING.search(text)
        return "I do not know: nothing said so far tells me." if is_known_here else None
    if _NOTHING_ELSE.search(text):
        return fact.value
    stated = _as_answer(fact)
    return f"{stated[0].upper()}{stated[1:]}."


def _noted(message: LastMessage) -> str | None:
    text = message.text
    if len(text) > MAX_NOTED_CHARS or "?" in text or not _TELLING.search(text):
        return None
    stated = "; ".join(map(_as_answer, find_facts([text])[:5]))
    return f"Noted: {stated}. I will keep that in mind." if stated else None


def _as_answer(fact: Fact) -> str:
    """Says a fact from the answerer's side: "my name" becomes "your name"."""
    words = [_SWAPPED.get(word.lower(), word) for word in fact.subject.split()]
    return f"{' '.join(words)} is {fact.value}"


def _facts(message: LastMessage, question: str) -> list[Fact]:
    return find_facts([message.excerpt]) + find_facts(_stated_texts(message), question)


def _stated_texts(message: LastMessage) -> Iterator[str]:
    """Yields what the model was given, newest first, without its own output."""
    for item in reversed(message.context):
        if isinstance(item, Message) and item.role != "assistant":
            yield parts_text(item.content)
        elif isinstance(item, Compaction) and item.summary is not None:
            yield item.summary
    if message.instructions:
        yield message.instructions


def _about_result(result: ToolResult) -> str:
    name = f"`{result.name}`" if result.name else "The tool"
    output = result.output.strip()
    if not output:
        return f"{name} finished without any output."
    if given := _fields(result.arguments):
        name += f" ({_cut(', '.join([*given.values()][:3]), 120)})"
    if fields := list(_fields(output).items())[:12]:
        pairs = ", ".join(f"{key} is {field}" for key, field in fields)
        return f"{name} says: {_cut(pairs)}."
    if "\n" in output or len(output) > 160:
        return f"{name} gave:\n\n```\n{_cut(output)}\n```"
    return f"{name} gave: {output}"


def _fields(text: str) -> dict[str, str]:
    """Reads a JSON object's fields as text; returns none for anything else or too long."""
    try:
        value = msgspec.json.decode(text[: MAX_DECODED_CHARS + 1])
    except (msgspec.DecodeError, RecursionError):
        return {}
    if not isinstance(value, dict) or len(text) > MAX_DECODED_CHARS:
        return {}
    return {
        key: field if isinstance(field, str) else msgspec.json.encode(field).decode()
        for key, field in value.items()
    }


def _quote(text: str, max_chars: int = MAX_QUOTE_CHARS) -> str:
    return f'"{_cut(text.strip(), max_chars)}"'


def _cut(text: str, max_chars: int = MAX_QUOTE_CHARS) -> str:
    return text if len(text) <= max_chars else text[:max_chars].rstrip() + " ..."
