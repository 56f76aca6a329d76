"""Reads from a tool's output whether the call failed, passed its tests, or went through.

What a tool says itself comes first: an exit code or an error flag in its head or tail, where shells
and protocols of agents write it. Only then its words count, and not those of a file that was read:
source code and logs are full of errors. A search that finds nothing (exit code 1) has not failed.
"""

import re
from typing import Literal
from zlib import crc32

import msgspec

from router.agent_runs.tool_calls import CallKind

Verdict = Literal["failed", "passed", "went through"]  # passed: tests did

MAX_CHARS = 2_000  # of an output: half from its head, half from its tail
EDGE_CHARS = 300  # of head and tail: where an exit code or an error flag stands
MAX_ERROR_LINES = 3  # by which a failure is recognised again

_EXIT_CODE = re.compile(
    r"(?:exit(?:ed)?(?:[ _]with)?[ _]?(?:code|status)|returncode|return code)"
    r"[\"']?\s*[:=]?\s*(-?\d{1,10})",
    re.IGNORECASE,
)
_ERROR_FLAG = re.compile(
    r"\"is_?error\"\s*:\s*true|\"success\"\s*:\s*false|\"status\"\s*:\s*\"(?:error|failed)\""
    r"|\A\s*\{\s*\"error\"\s*:(?!\s*(?:null|false|\"\"))",
    re.IGNORECASE,
)
_ERROR_LINE = re.compile(
    r"^(?:E\s{2,}\S|<tool_use_error>|error(?:\[\w+\])?:|fatal:|npm ERR!"
    r"|FAIL(?:ED|:)?\s|--- FAIL|BUILD FAILED"
    r"|make: \*\*\*|panic:|thread '.*' panicked|Traceback \(most recent"
    r"|[\w.]*(?:Error|Exception)(?::|$)"
    r"|\S.{0,200}: (?:error:|command not found|No such file or directory|Permission denied)"
    r"|(?:command )?timed out|.{0,200}\b(?:compilation terminated|Tests? failed)).*",
    re.IGNORECASE | re.MULTILINE,
)
_TESTS_FAILED = re.compile(
    r"\b[1-9]\d* (?:failed|failing|failures?)\b|\b(?:failures|errors)=[1-9]|test result: FAILED"
    r"|^not ok \d",
    re.IGNORECASE | re.MULTILINE,
)
_TESTS_PASSED = re.compile(
    r"\b[1-9]\d* (?:passed|passing)\b|test result: ok|all tests pass|^OK\b|^ok\s|^PASS\b",
    re.IGNORECASE | re.MULTILINE,
)
_EDIT_FAILED = re.compile(
    r"^\W*(?:error|failed|fatal|invalid|could not|cannot|no match|patch (?:failed|does not))"
    r"|\bnot found in\b|\bno match(?:es)?\b|\bdid not (?:match|appear|apply)|\bnot unique\b"
    r"|\bfailed to\b|\bdoes not exist\b|\bnot (?:been )?applied\b|\bhas introduced\b",
    re.IGNORECASE | re.MULTILINE,
)
# Times, addresses and ids differ from one equal failure to the next; counts are kept.
_VOLATILE = re.compile(
    r"0x[0-9a-f]+|\b[0-9a-f]{7,}\b|\b\d+(?:\.\d+)?\s?(?:ms|s|sec|seconds)\b|\d+:\d+(?::\d+)?"
    r"|(?:duration|elapsed|time)\w*\"?\s*[:=]\s*\d+(?:\.\d+)?",
    re.IGNORECASE,
)
_HEADING = re.compile(r"^(?:chunk id|wall time|original token count).*\n?", re.I | re.M)


class Result(msgspec.Struct, frozen=True):
    """Holds what an output says."""

    verdict: Verdict
    signature: int  # of what it says, without what differs each time
    failure: int = 0  # of the error alone, by which it is recognised among other words


def result_of(text: str, kind: CallKind) -> Result:
    """Reads an output, of which `text` is head and tail."""
    plain = _VOLATILE.sub("#", _HEADING.sub("", text))
    verdict = _verdict(text, kind)
    signature = crc32(plain.encode("utf-8", "replace"))
    if verdict != "failed":
        return Result(verdict, signature)
    lines = [found.group() for found in _ERROR_LINE.finditer(plain)][-MAX_ERROR_LINES:]
    lines += [found.group() for found in _TESTS_FAILED.finditer(plain)][-1:]
    error = "\n".join(lines) or plain[-EDGE_CHARS:]
    return Result(verdict, signature, crc32(error.encode("utf-8", "replace")))


def _verdict(text: str, kind: CallKind) -> Verdict:
    edges = f"{text[:EDGE_CHARS]}\n{text[-EDGE_CHARS:]}" if len(text) > EDGE_CHARS else text
    found = _EXIT_CODE.search(edges)
    code = None if found is None else int(found.group(1))
    if code == 1 and kind == "read":
        return "went through"
    if code or (kind != "read" and _ERROR_FLAG.search(edges)):
        return "failed"
    if kind == "read":
        is_refused = code is None and _ERROR_LINE.match(text.lstrip()) is not None
        return "failed" if is_refused else "went through"
    if kind == "edit":
        is_refused = code is None and _EDIT_FAILED.search(text[:EDGE_CHARS]) is not None
        return "failed" if is_refused else "went through"
    if _TESTS_FAILED.search(text):
        return "failed"
    if kind == "test" and (code == 0 or _TESTS_PASSED.search(text)):
        return "passed"
    if code is None and _ERROR_LINE.search(text):
        return "failed"
    return "passed" if _TESTS_PASSED.search(text) else "went through"
