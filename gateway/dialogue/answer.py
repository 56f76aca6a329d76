"""Gathers an answer as a person sees it: its passages, where it runs and why, how fast it comes.

Times are microseconds of one clock, which the caller reads.
"""

import re
from collections import deque
from typing import Any, Literal

import msgspec

from backends import tokenizer
from gateway.wire.output_items import ASIDE
from lanewise.turn import (
    Done,
    Event,
    LanewiseError,
    OtherEvent,
    Rejoined,
    Response,
    Restarted,
    Started,
    TextDelta,
    Waiting,
)
from lanewise.types import Routing

PassageKind = Literal["answer", "thinking", "aside", "call", "note"]

# Over a shorter span frames that were read together would be measured, not the engine.
MIN_PACE_US = 100_000
MAX_ARGUMENTS_CHARS = 200  # of a call, shown

_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_CALLS = ("function_call", "custom_tool_call")
# What a model sends must not move the cursor or rename the window.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Passage(msgspec.Struct):
    """Is a piece of an answer; only the last one of an answer grows."""

    kind: PassageKind
    text: str = ""
    item_id: str = ""


class Pace(msgspec.Struct):
    """Measures how fast tokens come, from the first delta on, which may hold what had gathered."""

    first_us: int | None = None
    last_us: int = 0
    num_tokens: int = 0
    num_first_tokens: int = 0

    def take(self, text: str, now_us: int) -> None:
        """Counts the tokens of a delta, by the gateway's own rule."""
        self.num_tokens += tokenizer.count(text)
        self.last_us = now_us
        if self.first_us is None:
            self.first_us, self.num_first_tokens = now_us, self.num_tokens

    @property
    def tokens_per_s(self) -> float | None:
        """Returns the rate; None while the span is too short to say."""
        span_us = 0 if self.first_us is None else self.last_us - self.first_us
        if span_us < MIN_PACE_US:
            return None
        return (self.num_tokens - self.num_first_tokens) * 1e6 / span_us


class AnswerView:
    """Gathers what one turn says, over all its responses: a steered one has a successor."""

    def __init__(self, asked_us: int) -> None:
        self.passages: list[Passage] = []
        self.response: Response | None = None  # once it is over, unless it failed
        self.error: LanewiseError | None = None
        self.over = False
        self._routing = Routing()
        self._asked_us = asked_us
        self._first_us: int | None = None  # of its first words
        self._pace = Pace()
        self._waits = ""
        self._steers: deque[tuple[str, int]] = deque()  # sent, and not seen to begin

    @property
    def cancelled(self) -> bool:
        """Says whether somebody stopped it."""
        if self.error is not None:
            return self.error.code == "response_cancelled"
        return self.response is not None and _reason(self.response) == "cancelled"

    @property
    def text(self) -> str:
        """Returns the answer itself, without thoughts, asides and notes."""
        return "\n\n".join(passage.text for passage in self.passages if passage.kind == "answer")

    def steer(self, line: str, now_us: int) -> None:
        """Notes a steer that is about to be sent."""
        self._steers.append((line, now_us))

    def steer_refused(self, line: str, why: str | None = None) -> None:
        """Takes a steer back; without a reason nothing is said of it."""
        self._steers = deque(steer for steer in self._steers if steer[0] != line)
        if why is not None:
            self._note(f"not redirected: {why}")

    def fail(self, error: LanewiseError) -> None:
        """Ends it without an answer."""
        self.error, self.over = error, True

    def take(self, event: Event, now_us: int) -> None:
        """Takes an event of its turn; those that nobody would read are passed over."""
        match event:
            case Started(response):
                self._started(response)
            case TextDelta(text, phase, item_id):
                self._add("aside" if phase == "commentary" else "answer", text, item_id, now_us)
            case OtherEvent(kind, fields) if kind in _THOUGHTS:
                item_id = fields["item_id"]
                aside: PassageKind = "aside" if item_id.endswith(ASIDE) else "thinking"
                self._add(aside, fields["delta"], item_id, now_us)
            case OtherEvent("response.output_item.done", fields):
                self._called(fields["item"])
            case Waiting(group, place, wait_ms):
                about = "" if wait_ms is None else f", about {wait_ms / 1e3:.1f} s"
                self._waits = f"waits for {group}, as number {place or '?'}{about}"
            case Restarted(why):
                self._note(f"{why} The answer begins anew.")
                self._pace = Pace()
            case Rejoined():
                self._note("reconnected")
            case Done(response):
                self.response, self.over = response, True
                self._routing = response.routing or self._routing

    def route(self) -> str:
        """Returns where it runs and why, as a sentence; empty until that is known."""
        return route_line(self._routing)

    def status(self, now_us: int) -> str:
        """Returns one line about the answer under way."""
        if self._pace.first_us is None:
            waited = f"{(now_us - self._asked_us) / 1e6:.1f} s"
            return " · ".join(filter(None, (self._waits or "waiting", waited, self.route())))
        return " · ".join((_tokens(self._pace.num_tokens), *self._rate(), self.route()))

    def summary(self) -> str:
        """Returns one line about the answer that has ended, or failed."""
        if self.error is not None:
            return f"failed: {_line(self.error.message)}"
        if self.response is None:
            return ""
        usage = self.response.usage
        num_tokens = self._pace.num_tokens if usage is None else usage.output_tokens
        said = [_tokens(num_tokens)]
        if self._first_us is not None:
            said.append(f"first words after {(self._first_us - self._asked_us) / 1e3:,.0f} ms")
        said += self._rate()
        said += [f"{one['from']} failed, {one['to']} stood in" for one in self._routing.failovers]
        reason = _reason(self.response)
        return " · ".join([*said, *([reason.replace("_", " ")] if reason else [])])

    def _rate(self) -> list[str]:
        rate = self._pace.tokens_per_s
        return [] if rate is None else [f"{rate:,.0f} tokens/s"]

    def _started(self, response: Response) -> None:
        self._routing, self._waits = response.routing or self._routing, ""
        if self._steers:
            line, steered_us = self._steers.popleft()
            self._note(f"redirected: {line}")
            self._asked_us, self._first_us, self._pace = steered_us, None, Pace()

    def _add(self, kind: PassageKind, text: str, item_id: str, now_us: int) -> None:
        if not self.passages or self.passages[-1].item_id != item_id:
            if self.passages and self.passages[-1].kind != kind:
                self._pace = Pace()  # another engine may speak now, at its own pace
            self.passages.append(Passage(kind, item_id=item_id))
        self._pace.take(text, now_us)
        if self._first_us is None:
            self._first_us = now_us
        self.passages[-1].text += _CONTROLS.sub("", text)

    def _called(self, item: dict[str, Any]) -> None:
        if item["type"] in _CALLS:
            given = str(item.get("arguments", item.get("input", "")))
            call = f"{item['name']}({given[:MAX_ARGUMENTS_CHARS]})"
            self.passages.append(Passage("call", _CONTROLS.sub("", call)))

    def _note(self, text: str) -> None:
        self.passages.append(Passage("note", _line(text)))


def _line(text: str) -> str:
    """Returns words of the gateway, or an upstream's among them, as one line."""
    return " ".join(_CONTROLS.sub(" ", text).split())


def route_line(routing: Routing) -> str:
    """Puts where a task went, and why, into words that need no glossary."""
    if not routing.backends:
        return ""
    names = ", ".join(backend.name for backend in routing.backends)
    engine = {"fast": "Fast engine", "deep": "Deep engine"}.get(routing.route, "Both engines")
    how = f" by {routing.strategy}" if routing.strategy else ""
    return f"{engine} ({names}){how}: {_why(routing)}"


def _why(routing: Routing) -> str:
    # The rest of the sentence repeats the engines' names.
    names = " and ".join(backend.name for backend in routing.backends)
    why = re.sub(
        rf": {routing.route} on {re.escape(names)}( \(holds the conversation\))?\.",
        ".",
        routing.why,
    )
    if why.startswith(("A ", "An ")):
        why = f"a{why[1:]}"
    return why.replace("The client asked for", "you asked for")


def _tokens(number: int) -> str:
    return f"{number:,} token{'' if number == 1 else 's'}"


def _reason(response: Response) -> str:
    return (response.incomplete_details or {}).get("reason") or ""
