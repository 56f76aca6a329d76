"""Reads how a conversation's run goes, item by item: `read` takes the state so far and what is new.

`strain` rises with failing results, with calls that were made before to the same end, and with a
complaint; it falls with edits that land, tests that pass, and results as they should be. From
`STUCK` on the run is stuck, and stays so until enough has gone well in a row, more each time: so
a conversation does not flap between engines. A new ask starts afresh.

A run that tests, edits and tests again repeats a call, but is not stuck: what was called before an
edit that landed does not count as called before. The same failure does, whatever was edited.
Everything is bounded, and an item is read in time that its length does not change.
"""

import re
from collections.abc import Iterable

import msgspec

from backends.contract import (
    ContextItem,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Message,
    Part,
    TextPart,
)
from router.agent_runs.complaints import asks_back, complains
from router.agent_runs.follow_ups import follow_up_of
from router.agent_runs.tool_calls import Call, call_of
from router.agent_runs.tool_results import MAX_CHARS, Result, result_of

STUCK = 1.5  # of strain
MAX_STRAIN = 3.0
FAILED, FAILED_AGAIN = 0.5, 1.5  # the second: the same call, or the same error
REPEATED, READ_AGAIN = 1.5, 0.75  # the same call to the same end; reading does no harm
COMPLAINT = 1.5
WENT_THROUGH, EDITED = 0.25, 0.5  # less; tests that pass take all of it away
TESTS_PASSED_STEPS = 2  # of those that go well, for which tests that pass count
CALM_STEPS = 3  # in a row that end being stuck the first time; twice as many the second time
STEADY_STEPS = 4  # in a row from which a run that has edited or passed its tests goes well

MAX_CALLS = 32  # remembered, whether or not their outputs have come
NEAR_CALLS = 8  # within which reading the same again counts
MAX_FAILURES = 8  # remembered
MAX_ASKS = 4  # remembered, `ASK_CHARS` of each
ASK_CHARS = 400
SAME_ASK = 0.8  # share of two asks' words in common, for a repetition
MIN_ASK_WORDS = 4  # shorter asks ("go on") go on with the run, and are repeated for other reasons
MIN_ASK_CHARS = 8  # of languages without spaces
MAX_PARTS = 4  # of an item, that are read
MAX_SIGNS = 3

_WORD = re.compile(r"\w+")
_FIRST_UNSPACED = "\u2e80"  # from here on are the scripts of East Asia


class RunState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Holds how a run goes, since the last ask of its user where nothing else is said."""

    strain: float = 0.0  # 0 to `MAX_STRAIN`
    stuck: bool = False
    num_stuck: int = 0  # how often it was
    calm_steps: int = 0  # results in a row that were as they should be
    num_failed: int = 0  # results in a row that failed
    num_repeated: int = 0  # calls that were made before to the same end
    num_edits: int = 0  # that landed
    tests_pass: bool | None = None  # the newest; None: no test ran
    dissatisfied: bool = False  # the user complains, or asks the same again
    goes_on: bool = False  # the ask is no task of its own: too short, "go on" or thanks
    wants_more: bool = False  # it says "go on", and no more than that
    gives_thanks: bool = False  # it thanks, and no more than that
    was_thanked: bool = False  # thanks came since the ask, and nothing else but "go on" behind them
    answers_tools: bool = False  # the newest item is a tool's output
    num_tokens: int = 0  # since the ask
    signs: tuple[str, ...] = ()  # what strained it, in words, newest last

    # What is remembered for the items to come.
    was_answered: bool = False  # something followed the last ask
    is_asked: bool = False  # the newest answer ends with a question or an offer
    asks: tuple[str, ...] = ()  # their beginnings, of the whole conversation
    calls: tuple[Call, ...] = ()  # since the last edit that landed, that edit included
    failures: tuple[int, ...] = ()  # errors, by `Result.failure`

    @property
    def steady(self) -> bool:
        """Says whether the run goes well by what it has done, not by what it has read."""
        has_done = self.num_edits > 0 or self.tests_pass is True
        return not self.stuck and has_done and self.calm_steps >= STEADY_STEPS


NEW_RUN = RunState()


def read(run: RunState, items: Iterable[ContextItem]) -> RunState:
    """Returns the state after these items, which follow those that were read."""
    for entry in items:
        item = entry.item
        if isinstance(item, Message):
            if item.role == "user":
                run = _asked(run, _text(item.content), entry.num_tokens)
            elif item.role == "assistant":
                is_asked = asks_back(_text(item.content))
                run = _grown(run, entry.num_tokens, is_asked=is_asked)
        elif isinstance(item, FunctionCall | CustomToolCall):
            calls = (*run.calls, call_of(item))[-MAX_CALLS:]
            run = msgspec.structs.replace(_grown(run, entry.num_tokens), calls=calls)
        elif isinstance(item, FunctionCallOutput | CustomToolCallOutput):
            call = next((c for c in reversed(run.calls) if c.id == item.call_id), None)
            call = call or Call(item.call_id, "other", 0)
            result = result_of(_text(item.output), call.kind)
            run = _answered(_grown(run, entry.num_tokens, is_output=True), call, result)
    return run


def _grown(
    run: RunState, num_tokens: int, *, is_output: bool = False, is_asked: bool = False
) -> RunState:
    return msgspec.structs.replace(
        run,
        was_answered=True,
        is_asked=is_asked,
        answers_tools=is_output,
        num_tokens=run.num_tokens + num_tokens,
    )


def _asked(run: RunState, ask: str, num_tokens: int) -> RunState:
    """Notes a message of the user: more of the same ask, or a new one."""
    start = ask[:ASK_CHARS]
    asks = (*run.asks, start)[-MAX_ASKS:]
    if not run.was_answered:  # an ask in several messages, or after the client's own words
        return msgspec.structs.replace(run, asks=asks, num_tokens=run.num_tokens + num_tokens)
    repeats = any(_same(start, earlier) for earlier in run.asks)
    complaint = complains(ask, is_asked=run.is_asked)
    follow_up = follow_up_of(ask)
    goes_on = follow_up is not None or not _is_long(start)
    was_thanked = run.was_thanked or (follow_up == "thanks" and not run.goes_on)
    if goes_on and not complaint:
        return msgspec.structs.replace(
            run,
            asks=asks,
            num_tokens=run.num_tokens + num_tokens,
            goes_on=True,
            wants_more=follow_up == "more",
            gives_thanks=follow_up == "thanks",
            was_thanked=was_thanked and follow_up is not None,
            dissatisfied=False,
            answers_tools=False,
        )
    signs = ("the same ask again",) if repeats else ()
    if complaint:
        signs = (*signs, "a complaint about the last answer")
    if not signs:
        return RunState(asks=asks)
    fresh = RunState(asks=asks, dissatisfied=True, num_stuck=run.num_stuck)
    return _strained(fresh, COMPLAINT, *signs)


def _answered(run: RunState, call: Call, result: Result) -> RunState:
    """Notes a call's output."""
    earlier = [c for c in run.calls if c.signature == call.signature and c.id != call.id]
    done = msgspec.structs.replace(call, result=result.signature)
    calls = tuple(done if c.id == call.id else c for c in run.calls)
    run = msgspec.structs.replace(run, calls=calls)
    if result.verdict == "failed":
        return _failed(run, call, result, again=bool(call.signature and earlier))
    run = msgspec.structs.replace(run, num_failed=0)
    if result.verdict == "passed":
        return msgspec.structs.replace(
            _eased(run, MAX_STRAIN, TESTS_PASSED_STEPS), tests_pass=True, failures=()
        )
    if call.kind == "read":  # long ago it may have left the model's attention
        earlier = [c for c in earlier if c in run.calls[-NEAR_CALLS:]]
    same_end = any(c.result == result.signature for c in earlier)
    if same_end and call.signature and call.kind not in ("wait", "test"):
        run = msgspec.structs.replace(run, num_repeated=run.num_repeated + 1)
        size = READ_AGAIN if call.kind in ("read", "edit") else REPEATED
        return _strained(run, size, "the same call again, to the same end")
    if call.kind == "edit":
        landed = tuple(c for c in run.calls if c.kind == "edit" or not c.result)
        run = msgspec.structs.replace(run, num_edits=run.num_edits + 1, calls=landed)
        return _eased(run, EDITED, 1)
    return _eased(run, WENT_THROUGH, 1)


def _failed(run: RunState, call: Call, result: Result, *, again: bool) -> RunState:
    again = again or result.failure in run.failures
    failures = tuple(known for known in run.failures if known != result.failure)
    run = msgspec.structs.replace(
        run,
        failures=(*failures, result.failure)[-MAX_FAILURES:],
        num_failed=run.num_failed + 1,
        num_repeated=run.num_repeated + again,
        tests_pass=False if call.kind == "test" else run.tests_pass,
    )
    sign = "the same failure again" if again else "a tool output reports a failure"
    return _strained(run, FAILED_AGAIN if again else FAILED, sign)


def _strained(run: RunState, size: float, *signs: str) -> RunState:
    strain = min(MAX_STRAIN, run.strain + size)
    is_stuck = run.stuck or strain >= STUCK
    return msgspec.structs.replace(
        run,
        strain=strain,
        stuck=is_stuck,
        num_stuck=run.num_stuck + (is_stuck and not run.stuck),
        calm_steps=0,
        signs=tuple(dict.fromkeys((*run.signs, *signs)))[-MAX_SIGNS:],
    )


def _eased(run: RunState, size: float, num_steps: int) -> RunState:
    strain, calm_steps = max(0.0, run.strain - size), run.calm_steps + num_steps
    is_over = run.stuck and calm_steps >= CALM_STEPS * run.num_stuck
    if is_over or (not run.stuck and strain == 0):
        return msgspec.structs.replace(
            run, strain=0.0, stuck=False, calm_steps=calm_steps, signs=()
        )
    return msgspec.structs.replace(run, strain=strain, calm_steps=calm_steps)


def _same(ask: str, earlier: str) -> bool:
    if ask == earlier:
        return _is_long(ask)
    first, second = set(_WORD.findall(ask.lower())), set(_WORD.findall(earlier.lower()))
    if min(len(first), len(second)) < MIN_ASK_WORDS:
        return False
    return len(first & second) >= SAME_ASK * len(first | second)


def _is_long(ask: str) -> bool:
    """Returns whether an ask says what is to be done, in languages without spaces, too."""
    if len(_WORD.findall(ask)) >= MIN_ASK_WORDS:
        return True
    return max(ask, default="") >= _FIRST_UNSPACED and len(ask) >= MIN_ASK_CHARS


def _text(parts: tuple[Part, ...]) -> str:
    """Returns head and tail of what an item says."""
    texts = []
    for part in parts[:MAX_PARTS]:
        if isinstance(part, TextPart):
            text, half = part.text, MAX_CHARS // 2
            texts.append(text if len(text) <= MAX_CHARS else f"{text[:half]}\n{text[-half:]}")
    return "\n".join(texts)
