"""Says what kind of work a tool call is, and which calls are the same.

Tools have no agreed names, so a kind is read off the words of the name and, of a shell, off its
command. A kind that is not recognised is "other", which weighs neither way.
"""

import re
from typing import Literal
from zlib import crc32

import msgspec

from backends.contract import CustomToolCall, FunctionCall

CallKind = Literal["edit", "test", "read", "wait", "other"]

MAX_ARGUMENT_CHARS = 32_768  # of a call, beyond which its arguments are compared as they are
MAX_COMMAND_CHARS = 2_000  # of a command, that are looked at

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_EDITING = frozenset(
    {
        *("edit", "write", "patch", "replace", "create", "insert", "update", "append", "rename"),
        *("delete", "remove"),
    }
)
_READING = frozenset(
    {
        *("read", "view", "open", "cat", "ls", "list", "glob", "grep", "search", "find", "fetch"),
        *("get", "lookup", "show", "scroll", "query"),
    }
)
_WAITING = frozenset({"wait", "poll", "sleep", "stdin", "status", "monitor"})
_COMMAND_FIELDS = ("command", "cmd", "script", "code", "input")

_EDITS = re.compile(
    r"apply_patch|\bsed\s+(?:-\w+\s+)*-\w*i|\bperl\s+-\w*i|\bgit\s+(?:apply|checkout|restore|mv|rm)"
    r"|\bpatch\s+-p|(?:^|[;&]\s*)(?:cat|echo|printf)\b[^|;&]*>|\btee\s"
)
_TESTS = re.compile(
    r"\b(?:pytest|unittest|tox|nox|jest|vitest|mocha|ctest|rspec|phpunit)\b"
    r"|\b(?:cargo|go|npm|pnpm|yarn|bun|mvn|gradlew?|make|dotnet|bazel|mix|rake|deno|swift)\s+"
    r"(?:run\s+)?(?:test|check)"
)
_WAITS = re.compile(r"\bsleep\s+\d|\btail\s+-f")
_READS = re.compile(
    r"(?:cat|sed\s+-n|head|tail|less|nl|wc|grep|rg|ag|find|fd|ls|tree|pwd|cd|file|stat|which|jq"
    r"|awk|sort|uniq|echo|git\s+(?:log|show|diff|status|blame|grep|branch|ls-files))\b"
)
_NEXT_COMMAND = re.compile(r"\s*(?:&&|\|\||[;|\n])\s*")


class Call(msgspec.Struct, frozen=True):
    """Holds what is remembered of a call until its result comes, and after."""

    id: str
    kind: CallKind
    signature: int  # the same for calls of one name with the same arguments
    result: int = 0  # of its output, once that is known; volatile numbers do not count


def call_of(item: FunctionCall | CustomToolCall) -> Call:
    """Returns what is remembered of a call."""
    given: object = None
    text = item.arguments if isinstance(item, FunctionCall) else item.input
    same = text
    if isinstance(item, FunctionCall) and len(text) <= MAX_ARGUMENT_CHARS:
        try:
            given = msgspec.json.decode(text)
            same = msgspec.json.encode(given, order="sorted").decode()
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass  # a model may write anything: then its words are compared
    signature = crc32(f"{item.name}\0{same}".encode("utf-8", "replace"))
    return Call(item.call_id, _kind(item.name, _command(given, text)), signature)


def _command(given: object, text: str) -> str:
    """Returns the command that a call's arguments hold, or the start of its text."""
    if isinstance(given, dict):
        for field in _COMMAND_FIELDS:
            value = given.get(field)
            if isinstance(value, list):
                value = " ".join(part for part in value if isinstance(part, str))
            if isinstance(value, str):
                return value[:MAX_COMMAND_CHARS]
        return ""
    return text[:MAX_COMMAND_CHARS]


def _kind(name: str, command: str) -> CallKind:
    words = {word.lower() for word in _WORD.findall(name)}
    if not words.isdisjoint(_WAITING):
        return "wait"
    if not words.isdisjoint(_EDITING):
        return "edit"
    if not words.isdisjoint(_READING):
        return "read"
    if "test" in words or "tests" in words:
        return "test"
    command = command.removeprefix("bash -lc ").removeprefix("bash -c ").strip()
    if _EDITS.search(command):
        return "edit"
    if _TESTS.search(command):
        return "test"
    if _WAITS.search(command):
        return "wait"
    parts = [part for part in _NEXT_COMMAND.split(command) if part]
    if parts and all(_READS.match(part) for part in parts):
        return "read"
    return "other"
