"""Answers that show the conversation was read: recalled facts, quotes, counts, tool results."""

import re
from collections.abc import Iterator
from itertools import islice

import msgspec

from backends.contract import Compaction, GenerateRequest, Item, Message
from backends.prompt import parts_text
from backends.script.ask import Ask, ToolResult, user_texts
from backends.script.facts import (
    Fact,
    find_facts,
    is_about_context,
    question_subject,
    recall,
)

MAX_QUOTE_CHARS = 1_200
MAX_DECODED_CHARS = 20_000  # of a tool's output or arguments; longer ones are quoted, not read
MAX_SUMMARIZED = 100  # messages, the last ones
MAX_FACTS = 40  # of a summary

_QUOTED = r"\"(?P<q1>[^\"]+)\"|'(?P<q2>[^'\n]+)'|`(?P<q3>[^`]+)`|“(?P<q4>[^”]+)”"
_EXACTLY = re.compile(
    r"\b(?:reply|respond|answer|say|output|print|write)\b[^.\n]{0,60}?\bexactly\b"
    r"(?:\s+(?:this|the\s+(?:following|words?|text|phrase|string)))*\s*:?\s+"
    rf"(?:{_QUOTED}|(?P<rest>.+))",
    re.IGNORECASE,
)
_ONLY = re.compile(
    r"\b(?:reply|respond|answer)\s+(?:(?:only|just)\s+)?with\s+(?:(?:only|just)\s+)?"
    r"(?:the\s+(?:single\s+)?(?:words?|text|phrase|string|number)\s+)?"
    rf"(?:{_QUOTED}|(?-i:(?P<rest>[A-Z0-9][A-Z0-9_-]*))(?=[.!\s]*$))",
    re.IGNORECASE | re.MULTILINE,
)
_THE_WORD = re.compile(
    r"\b(?:reply|respond|answer|say)\b[^.\n]{0,30}?\bthe (?:single |one )?word:?\s+"
    rf"(?:{_QUOTED}|(?P<rest>[\w-]+))",
    re.IGNORECASE,
)
_NOTHING_ELSE = re.compile(
    r"\b(?:reply|respond|answer)\b[^.\n]{0,40}\b(?:only|just|one word)\b|\bnothing else\b",
    re.IGNORECASE,
)
_SAY = re.compile(
    r"^\s*(?:please\s+)?(?:say|echo|repeat(?:\s+after\s+me)?)\s*:?\s+"
    r"(?:the\s+(?:words?|text|phrase|string)\s+)?"
    rf"(?:{_QUOTED}|(?!something|what|why|how|which|(?:that|it|this|them|if)\b)(?P<rest>[^\n]{{1,80}}))\s*$",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=\w)[.!](?=\s+[A-Z]|\s*$)")

_COUNT = re.compile(
    r"\bhow many (?P<what>messages|questions|times|turns|prompts)\b.{0,60}"
    r"\b(?:i|we|far|conversation)\b",
    re.IGNORECASE,
)
_FIRST = re.compile(r"\bmy (?:very )?first (?:message|question|prompt)\b", re.IGNORECASE)
_PREVIOUS = re.compile(
    r"\b(?:what did i (?:just )?(?:say|ask|write|tell you)|"
    r"my (?:last|previous) (?:message|question|prompt))\b\s*(?P<more>about\b)?",
    re.IGNORECASE,
)
_YOUR_LAST = re.compile(
    r"\b(?:what did you (?:just )?(?:say|answer|reply|write)|"
    r"your (?:last|previous) (?:answer|message|reply|response))\b",
    re.IGNORECASE,
)
_SUMMARY = re.compile(
    r"\bsummar\w{1,6}\b.{0,60}\b(?:conversation|chat|discussion|so far|we)\b", re.IGNORECASE
)
# "Why does our cache stampede?" wants thought: that nobody has told it is no answer.
_EXPLAINING = re.compile(
    r"\b(?:why|how)\s+(?:do|does|did|is|are|was|were|can|could|should|would|to|come)\b"
    r"|\bwhich of\b",
    re.IGNORECASE,
)
_PRONOUNS = frozenset(("it", "that", "this", "them"))
_TELLING = re.compile(
    r"\b(?:remember|memori[sz]e|note (?:that|down)|keep in mind|for later|my name is|call me|"
    r"i am|i'm|code ?word|password|secret)\b",
    re.IGNORECASE,
)
_TELLING_WORDS = "remember note code word password secret name key"


def dialogue_answer(request: GenerateRequest, ask: Ask) -> str | None:
    """An answer from the conversation itself, if the ask is about it."""
    if ask.results:
        return _about_results(ask)
    text = re.sub(r"\bwho am i\b", "what is my name", ask.gist, flags=re.IGNORECASE)
    return (
        _wanted_words(request, ask, text)
        or _about_messages(request, ask, text)
        or _recalled(request, ask, text)
        or _noted(ask)
    )


def relevant_fact(request: GenerateRequest, ask: Ask) -> Fact | None:
    """A fact from earlier turns that the ask names in full, whatever else it wants."""
    if len(ask.text) > 2_000 or not is_about_context(ask.text):
        return None
    return recall(ask.text, _context_facts(request, ask, ask.text))


def _wanted_words(request: GenerateRequest, ask: Ask, text: str) -> str | None:
    """The X of "reply with exactly: X", "say X" and their like."""
    patterns = (_EXACTLY, _ONLY, _THE_WORD, _SAY)
    found = next((found for pattern in patterns if (found := pattern.search(text))), None)
    if found is None:
        return None
    quoted = next((found[name] for name in ("q1", "q2", "q3", "q4") if found[name]), None)
    if quoted:
        return quoted
    rest: str = found["rest"].strip()
    if re.match(r"(?:the|my|our)\s", rest, re.IGNORECASE):
        fact = recall(rest, _facts(request, ask, rest))
        if fact is not None:
            return fact.value
    end = _SENTENCE_END.search(rest)
    return rest[: end.start()] if end else rest


def _about_messages(request: GenerateRequest, ask: Ask, text: str) -> str | None:
    """Answers that quote or count what was said."""
    before = list(user_texts(ask.context))
    counted = _COUNT.search(text)
    if counted:
        number = len(before) + 1
        plural = "messages" if number > 1 else "message"
        return f"You have sent {number} {plural} in this conversation, this one included."
    if _FIRST.search(text):
        return f"Your first message was: {_quote((before or [ask.text])[0])}"
    previous = _PREVIOUS.search(text)
    if previous and not previous["more"]:
        if not before:
            return "This is your first message in this conversation."
        return f"Before this, you said: {_quote(before[-1])}"
    if _YOUR_LAST.search(text):
        said = next(_assistant_texts(ask.context), None)
        return f"I said: {_quote(said)}" if said else "I have not said anything yet."
    if _SUMMARY.search(text):
        return _summary(request, ask, before)
    return None


def _summary(request: GenerateRequest, ask: Ask, before: list[str]) -> str:
    """What was told, then what was asked for: where it is cut, the facts are kept."""
    if not before:
        return "There is nothing to summarize yet: this is your first message."
    # A long context is read where telling words stand, and its newest part wholly.
    found = [f for words in (_TELLING_WORDS, "") for f in _context_facts(request, ask, words)]
    facts: dict[frozenset[str], Fact] = {}
    for fact in found:
        facts.setdefault(fact.words, fact)
    first = max(len(before) - MAX_SUMMARIZED, 0)
    # What told a fact is not quoted: it may have been overtaken.
    listed = "\n".join(
        f"{i}. {_quote(said, 160)}"
        for i, said in enumerate(before[first:], first + 1)
        if not any(fact.value in said for fact in found)
    )
    said = f"So far you have asked for {len(before)} things:\n\n{listed}"
    if not facts:
        return said
    told = "\n".join(f"- {f.subject} is {f.value}." for f in islice(facts.values(), MAX_FACTS))
    return f"You told me:\n\n{told}\n\n{said}"


def _recalled(request: GenerateRequest, ask: Ask, text: str) -> str | None:
    """The fact a question is about, or that it is not known."""
    subject = question_subject(text)
    about_context = is_about_context(text)
    if len(text) > 2_000 or not (subject or (about_context and "?" in text)):
        return None
    if subject is not None and subject.lower() in _PRONOUNS:
        # "The code word is X. Repeat it.": what was told last is meant.
        fact = next(iter(find_facts([ask.gist, *_told_texts(request, ask.context)])), None)
    else:
        fact = recall(subject or text, _facts(request, ask, subject or text))
    if fact is not None and _NOTHING_ELSE.search(text):
        return fact.value
    if fact is not None:
        return f"{_second_person(fact.subject)} is {fact.value}."
    if _EXPLAINING.search(text):
        return None
    if about_context and subject:
        known = subject.split()[0].lower() in ("the", "my", "our", "your", "this", "that", "who")
        subject = _second_person(subject if known else f"the {subject}", start=False)
        return f"I do not know {subject}: nothing said so far tells me."
    if about_context:
        return "I do not know: nothing said so far tells me."
    return None


def _noted(ask: Ask) -> str | None:
    """An acknowledgement of something told."""
    if len(ask.text) > 600 or "?" in ask.text or not _TELLING.search(ask.text):
        return None
    facts = find_facts([ask.text])
    if not facts:
        return None
    told = "; ".join(f"{_second_person(f.subject, start=False)} is {f.value}" for f in facts[:5])
    return f"Noted: {told}. I will keep that in mind."


def _facts(request: GenerateRequest, ask: Ask, question: str) -> list[Fact]:
    return find_facts([ask.gist]) + _context_facts(request, ask, question)


def _context_facts(request: GenerateRequest, ask: Ask, question: str) -> list[Fact]:
    return find_facts(_told_texts(request, ask.context), question)


def _told_texts(request: GenerateRequest, context: tuple[Item, ...]) -> Iterator[str]:
    """What the model was told, newest first; its own words are no source."""
    for item in reversed(context):
        if isinstance(item, Message) and item.role != "assistant":
            yield parts_text(item.content)
        elif isinstance(item, Compaction) and item.summary is not None:
            yield item.summary
    if request.instructions:
        yield request.instructions


def _assistant_texts(context: tuple[Item, ...]) -> Iterator[str]:
    for item in reversed(context):
        if isinstance(item, Message) and item.role == "assistant":
            yield parts_text(item.content)


def _about_results(ask: Ask) -> str:
    """An answer that uses what this turn's tools gave."""
    parts = [_about_result(result) for result in ask.results[-8:]]
    if len(parts) == 1:
        return parts[0]
    return "\n\n".join([f"Here is what the {len(parts)} calls gave.", *parts])


def _about_result(result: ToolResult) -> str:
    name = f"`{result.name}`" if result.name else "The tool"
    output = result.output.strip()
    if not output:
        return f"{name} finished without any output."
    value = _decoded(output)
    if isinstance(value, dict) and value:
        pairs = ", ".join(f"{key} is {_plain(field)}" for key, field in list(value.items())[:12])
        return f"{name}{_with(result)} says: {_cut(pairs)}."
    if "\n" in output or len(output) > 160:
        return f"{name}{_with(result)} gave:\n\n```\n{_cut(output)}\n```"
    return f"{name}{_with(result)} gave: {output}"


def _with(result: ToolResult) -> str:
    """The arguments of a call in a few words."""
    arguments = _decoded(result.arguments)
    if not isinstance(arguments, dict):
        return ""
    words = [str(value) for value in arguments.values() if isinstance(value, str | int | float)]
    return f" ({_cut(', '.join(words[:3]), 120)})" if words else ""


def _decoded(text: str) -> object:
    """A JSON text's value; None if it is not JSON or too long to be read."""
    if len(text) > MAX_DECODED_CHARS:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _plain(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _second_person(subject: str, *, start: bool = True) -> str:
    """A subject as the answer says it: "my name" becomes "your name"."""
    words = subject.split()
    swaps = {"my": "your", "our": "your", "your": "my", "i": "you", "me": "you", "you": "me"}
    text = " ".join(swaps.get(word.lower(), word) for word in words)
    return text[0].upper() + text[1:] if start else text


def _quote(text: str, max_chars: int = MAX_QUOTE_CHARS) -> str:
    return f'"{_cut(text.strip(), max_chars)}"'


def _cut(text: str, max_chars: int = MAX_QUOTE_CHARS) -> str:
    return text if len(text) <= max_chars else text[:max_chars].rstrip() + " ..."
