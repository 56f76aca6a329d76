"""A dialogue with the gateway as a state machine without I/O: what to send, and what to print.

It is idle, or a response is under way. A line typed meanwhile steers that response; if the response
has ended by then, the line becomes the next turn.
"""

from typing import Any

import msgspec

from backends import tokenizer

Event = dict[str, Any]

PINS = ("fast", "deep", "parallel")
_TERMINALS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ChatStep(msgspec.Struct, frozen=True):
    """The result of one input: text to print and frames to send."""

    text: str = ""  # to print as it is
    frames: tuple[Event, ...] = ()  # to send, in order
    ended: bool = False  # the turn is over
    failed: bool = False  # the turn ended without an answer


class Progress(msgspec.Struct):
    """The state of the response under way."""

    asked_us: int
    response_id: str | None = None
    routing: dict[str, Any] = {}
    first_us: int | None = None  # of its first token
    last_us: int = 0
    steered_us: int = 0  # when its steer was typed
    num_tokens: int = 0  # counted here by the gateway's own rule
    num_first_tokens: int = 0  # of the first delta, which the pace leaves out
    phase: str | None = None
    at_line_start: bool = True

    @property
    def tokens_per_s(self) -> float:
        """Returns the pace since the first token; 0 until a second delta has arrived."""
        if self.first_us is None or self.last_us <= self.first_us:
            return 0.0
        return (self.num_tokens - self.num_first_tokens) * 1e6 / (self.last_us - self.first_us)


class ChatState:
    """One conversation, in which every turn continues the previous one."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.pinned: str | None = None  # the route of the next turns; None: the router decides
        self._previous: str | None = None
        self._progress: Progress | None = None
        self._steering: str | None = None  # the steer that was sent and not answered yet

    @property
    def busy(self) -> bool:
        """Says whether a response is under way."""
        return self._progress is not None

    def restart(self) -> None:
        """Forgets the conversation: the next turn continues nothing."""
        self._previous = None

    def say(self, line: str, now_us: int) -> ChatStep:
        """Takes a line from the user: a new turn, or a steer of the response under way."""
        progress = self._progress
        if progress is None:
            self._progress = Progress(now_us)
            return ChatStep(frames=(self._create(line),))
        if progress.response_id is None or self._steering is not None:
            return ChatStep(text="(not yet: the last line has not arrived)\n")
        self._steering, progress.steered_us = line, now_us
        previous = progress.response_id
        frame = {"type": "response.steer", "previous_response_id": previous, "input": line}
        return ChatStep(frames=(frame,))

    def cancel(self) -> ChatStep:
        """Stops the response under way."""
        if self._progress is None or self._progress.response_id is None:
            return ChatStep()
        frame = {"type": "response.cancel", "response_id": self._progress.response_id}
        return ChatStep(frames=(frame,))

    def lost(self) -> ChatStep:
        """Ends the response under way, because the connection is lost."""
        was_busy = self.busy
        self._progress = self._steering = None
        return ChatStep(text="\n(the connection was lost)\n" if was_busy else "", ended=was_busy)

    def receive(self, event: Event, now_us: int) -> ChatStep:
        """Takes an event from the gateway; ignores kinds that it does not show."""
        progress = self._progress
        if progress is None:
            return ChatStep()
        kind = event["type"]
        if kind == "error":
            self._progress = self._steering = None
            text = _line(progress, f"error: {event['error']['message']}")
            return ChatStep(text=text, ended=True, failed=True)
        if kind == "response.created":
            return self._created(event["response"], progress)
        if kind == "response.output_item.added":
            return ChatStep(text=_heading(event["item"], progress))
        if kind in ("response.output_text.delta", "response.reasoning_summary_text.delta"):
            return _delta(event["delta"], progress, now_us)
        if kind == "response.steer.failed":
            return self._steer_failed(event, progress)
        if kind in _TERMINALS:
            return self._terminal(event["response"], progress)
        return ChatStep()

    def status(self, now_us: int) -> str:
        """Returns the toolbar's line: route, pace, and why."""
        pin = f"{self.model}{f' /{self.pinned}' if self.pinned else ''}"
        progress = self._progress
        if progress is None:
            return f" {pin}   /fast /deep /parallel /auto /new /quit"
        if progress.first_us is None:
            waited_s = (now_us - progress.asked_us) / 1e6
            return f" {pin}   waiting {waited_s:.1f} s   {progress.routing.get('why', '')}"
        route = progress.routing.get("route", "?")
        return (
            f" {route}   {progress.num_tokens:,} tokens   {progress.tokens_per_s:,.0f} tokens/s"
            f"   {progress.routing.get('why', '')}"
        )

    def _create(self, line: str) -> Event:
        frame: Event = {"type": "response.create", "model": self.model, "input": line}
        if self._previous is not None:
            frame["previous_response_id"] = self._previous
        if self.pinned is not None:
            frame["metadata"] = {"route": self.pinned}
        return frame

    def _created(self, response: dict[str, Any], progress: Progress) -> ChatStep:
        progress.response_id = response["id"]
        progress.routing = response.get("routing") or {}
        line, self._steering = self._steering, None
        return ChatStep(text=_line(progress, f"(redirected: {line})")) if line else ChatStep()

    def _steer_failed(self, event: Event, progress: Progress) -> ChatStep:
        """Notes that the response goes on unchanged; if it has ended, sends the line as a turn."""
        line, self._steering = self._steering, None
        if line is None:
            return ChatStep()
        if progress.response_id is None:
            return ChatStep(frames=(self._create(line),))
        return ChatStep(text=_line(progress, f"(not redirected: {event['error']['message']})"))

    def _terminal(self, response: dict[str, Any], progress: Progress) -> ChatStep:
        if response["status"] != "failed":
            self._previous = response["id"]
        if self._steering is None:
            self._progress = None
            text = _line(progress, summary(response, progress))
            return ChatStep(text=text, ended=True, failed=response["status"] == "failed")
        # The steered response follows, or `response.steer.failed`.
        text = _line(progress, "")
        self._progress = Progress(progress.steered_us)
        return ChatStep(text=text)


def summary(response: dict[str, Any], progress: Progress) -> str:
    """Sums up a response that ended: route, tokens, pace, and why."""
    routing = response.get("routing") or progress.routing
    usage = response.get("usage") or {}
    num_tokens = usage.get("output_tokens", progress.num_tokens)
    parts = [str(routing.get("route", response.get("model")))]
    parts += [", ".join(backend["name"] for backend in routing.get("backends", ()))]
    parts += [f"{num_tokens:,} tokens"]
    if progress.first_us is not None:
        parts += [f"first after {(progress.first_us - progress.asked_us) / 1e3:,.0f} ms"]
    if progress.tokens_per_s:
        parts += [f"{progress.tokens_per_s:,.0f} tokens/s"]
    reason = (response.get("incomplete_details") or {}).get("reason")
    error = response.get("error") or {}
    parts += [f"incomplete: {reason}" if reason else "", error.get("message", "")]
    parts += [str(routing.get("why", ""))]
    return f"[{' · '.join(part for part in parts if part)}]"


def _heading(item: dict[str, Any], progress: Progress) -> str:
    """Returns the text that separates an output item from the previous one."""
    if item["type"] == "reasoning":
        return _line(progress, "(thinking)")
    if item["type"] in ("function_call", "custom_tool_call"):
        return _line(progress, f"(calls {item['name']})")
    phase = item.get("phase")
    if phase is None or phase == progress.phase:
        return _line(progress, "") if not progress.at_line_start else ""
    progress.phase = phase
    name = {"commentary": "first thoughts", "final_answer": "answer"}.get(phase, phase)
    return _line(progress, f"({name})")


def _delta(text: str, progress: Progress, now_us: int) -> ChatStep:
    progress.num_tokens += tokenizer.count(text)
    progress.last_us = now_us
    if progress.first_us is None:
        progress.first_us, progress.num_first_tokens = now_us, progress.num_tokens
    progress.at_line_start = text.endswith("\n")
    return ChatStep(text=text)


def _line(progress: Progress, text: str) -> str:
    before = "" if progress.at_line_start else "\n"
    progress.at_line_start = True
    return f"{before}{text}\n" if text else before
