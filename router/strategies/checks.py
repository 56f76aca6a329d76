"""Checks fast answers without asking another model: pure.

`fault` finds what certainly is wrong with an answer: JSON that does not fit the request's format,
a call that does not fit its tool, a text that the client's pattern does not match. `agreeing` finds
the answer that most of several independent ones give. Neither says that an answer is right.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from backends.client_patterns import compiled
from backends.contract import Delta, DeltaKind, FunctionTool, GenerateRequest
from router.strategies.items import text_of
from router.strategies.json_schema import fits

MAX_COMPARED_CHARS = 8_192  # of each answer
MIN_FACTS = 3  # for answers to be compared by them
AGREEING_FACTS, AGREEING_WORDS = 0.8, 0.6  # shares of one answer's that stand in the other

_FACT = re.compile(r"\d+(?:\.\d+)?|\b\w+[_.()]\w[\w.()]*|`[^`\n]{1,60}`")
_WORD = re.compile(r"\w+")
_CONCLUSION = re.compile(
    r"(?i)\\boxed\{([^{}\n]{1,64})\}|\banswer(?:\s+is|\s*[:=])\s*[*`$(]*([^\n*`$()]{1,64})"
)

Call = tuple[DeltaKind, str, str]  # kind, name, arguments


class FastAnswer(msgspec.Struct, frozen=True):
    """Holds what a fast engine answered: text, and calls of the client's tools."""

    text: str
    calls: tuple[Call, ...] = ()


def answer_of(deltas: Iterable[Delta]) -> FastAnswer:
    """Returns the answer that deltas add up to."""
    kept = list(deltas)
    called = [delta for delta in kept if delta.kind >= DeltaKind.FUNCTION_CALL]
    calls = []
    for _, item in groupby(called, key=attrgetter("index")):
        parts = list(item)
        calls.append((parts[0].kind, parts[0].name, "".join(part.text for part in parts)))
    return FastAnswer(text_of(kept), tuple(calls))


def fault(answer: FastAnswer, request: GenerateRequest, pattern: str) -> str:
    """Says in words what is certainly wrong with an answer; empty if nothing is.

    The client's `pattern` has to match the whole text; calls need not.
    """
    for kind, name, arguments in answer.calls:
        found = _fault_of_call(kind, name, arguments, request)
        if found:
            return found
    if answer.calls:
        return ""
    if request.tool_choice.mode == "required":
        return "it calls no tool"
    if not answer.text.strip():
        return "it says nothing"
    if request.text_format.type != "text":
        value = _decoded(answer.text)
        if value is None:
            return "it is no JSON"
        schema = request.text_format.schema
        if not fits(value[0], {"type": "object"} if schema is None else schema):
            return "it does not fit the schema"
    wanted = compiled(pattern) if pattern else None
    if wanted is not None and wanted.fullmatch(answer.text.strip()) is None:
        return "the client's pattern does not match it"
    return ""


def _fault_of_call(kind: DeltaKind, name: str, arguments: str, request: GenerateRequest) -> str:
    tool = next((tool for tool in request.tools if tool.name == name), None)
    allowed = request.tool_choice.names
    if tool is None or (allowed and name not in allowed):
        return f"it calls {name[:64]!r}, which is no tool of the request"
    if kind is not DeltaKind.FUNCTION_CALL or not isinstance(tool, FunctionTool):
        return ""
    value = _decoded(arguments or "{}")
    if value is None or not isinstance(value[0], dict):
        return f"the arguments of {name[:64]!r} are no JSON object"
    return "" if fits(value[0], tool.parameters) else f"the arguments of {name[:64]!r} do not fit"


def agreeing(answers: Sequence[FastAnswer]) -> tuple[int, int]:
    """Returns the answer that most others agree with, the first of several, and how many do."""
    counts = [sum(_agree(one, other) for other in answers if other is not one) for one in answers]
    best = max(range(len(answers)), key=counts.__getitem__)
    return best, counts[best]


def _agree(one: FastAnswer, other: FastAnswer) -> bool:
    if one.calls or other.calls:
        return _comparable(one.calls) == _comparable(other.calls)
    first, second = one.text[:MAX_COMPARED_CHARS], other.text[:MAX_COMPARED_CHARS]
    values = _decoded(first), _decoded(second)
    if None not in values:
        return values[0] == values[1]
    conclusions = _conclusion(first), _conclusion(second)
    if all(conclusions):
        return conclusions[0] == conclusions[1]
    share = share_of_facts(first, second)
    if share is not None:
        return share >= AGREEING_FACTS
    words = set(_words(first)), set(_words(second))
    together = len(words[0] | words[1])
    return not together or len(words[0] & words[1]) >= AGREEING_WORDS * together


def share_of_facts(text: str, other: str) -> float | None:
    """Returns the share of a text's facts (numbers, names, code) in another; None with few."""
    facts = set(_FACT.findall(text[:MAX_COMPARED_CHARS]))
    if len(facts) < MIN_FACTS:
        return None
    compared = other[:MAX_COMPARED_CHARS]
    return sum(fact in compared for fact in facts) / len(facts)


def _comparable(calls: tuple[Call, ...]) -> list[object]:
    return [(kind, name, _decoded(text) or text) for kind, name, text in calls]


def _conclusion(text: str) -> list[str]:
    """Returns the words of the last "the answer is ...", or of a short text as a whole."""
    found = list(_CONCLUSION.finditer(text))
    if found:
        return _words(found[-1][1] or found[-1][2])
    words = _words(text)
    return words if len(words) <= 4 else []


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _decoded(text: str) -> tuple[Any] | None:
    """Decodes JSON; None if it is none."""
    try:
        return (msgspec.json.decode(text),)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
