"""Decides one turn of the SDK, without its socket: what to send, and what to do about a loss.

`Turn` is a state machine. `lanewise.client` sends its `frame()`, feeds it every event of its
stream, and tells it when the socket is lost; then `again` says whether to send once more.
"""

import ipaddress
from typing import Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from lanewise.types import ResponseFields

Item = dict[str, Any]

# Codes of refusals that a fresh connection, or a restarted gateway, does not give.
ELSEWHERE = frozenset({"server_draining", "websocket_connection_limit_reached"})
# With more of what the model says to the client: its answer, or why it refuses one.
_WORDS = ("response.output_text.delta", "response.refusal.delta")
FIRST_DELAY_S, MAX_DELAY_S = 0.5, 8.0  # as the official SDKs wait between attempts


class LanewiseError(Exception):
    """Reports a refusal or failure: `code` is for programs, `retry_after_s` if waiting helps."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.param = param
        self.status = status
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Response(ResponseFields, kw_only=True):
    """Holds a response. `status` is `completed` or `incomplete`: a failure is an exception."""

    # What it answered, for a server that has forgotten it: ours, so no field of the protocol.
    asked: list[Item] = msgspec.field(name="-asked", default_factory=list)
    after: "Response | str | None" = msgspec.field(name="-after", default=None)

    @property
    def text(self) -> str:
        """Returns the text of all messages; with a `final_answer` among them, only that."""
        messages = [item for item in self.output if item.get("type") == "message"]
        final = [item for item in messages if item.get("phase") == "final_answer"]
        parts = [part for item in final or messages for part in item.get("content") or ()]
        return "".join(part.get("text") or part.get("refusal", "") for part in parts)

    @property
    def calls(self) -> list[Item]:
        """Lists calls that the application is to answer, by `create([outputs], after=response)`.

        One that was cut, by a cancel or a limit, is none: it must not be run.
        """
        kinds = ("function_call", "custom_tool_call")
        calls = [item for item in self.output if item.get("type") in kinds]
        return [call for call in calls if call.get("status") != "incomplete"]

    def context(self) -> list[Item] | None:
        """Returns the whole conversation as input items; None if it began before this client."""
        turns = [self]
        while isinstance(turns[-1].after, Response):
            turns.append(turns[-1].after)
        if turns[-1].after is not None:
            return None
        return [item for turn in reversed(turns) for item in (*turn.asked, *turn.output)]


class Started(msgspec.Struct):
    """Says that a response began, or its successor after a steer; `response.routing` says where."""

    response: Response


class TextDelta(msgspec.Struct):
    """Holds more text, or why there is none; `phase` is `commentary`, `final_answer` or None.

    docs/strategies.md has the phases.
    """

    text: str
    phase: str | None = None
    item_id: str = ""


class Waiting(msgspec.Struct):
    """Says that the task waits for a full pool (sent for `metadata={"queue_events": "true"}`)."""

    group: str
    place: int | None = None
    expected_wait_ms: int | None = None


class Restarted(msgspec.Struct):
    """Says that the connection was lost: text since the last `Started` is void and comes anew."""

    why: str


class Rejoined(msgspec.Struct):
    """Says that the answer goes on after a lost connection: nothing is void or missing."""

    response: Response


class OtherEvent(msgspec.Struct):
    """Holds any other event of the protocol, as it came."""

    type: str
    fields: dict[str, Any]


class Done(msgspec.Struct):
    """Ends a turn."""

    response: Response


Event = Started | TextDelta | Waiting | Restarted | Rejoined | OtherEvent | Done


class Steer(msgspec.Struct):
    """Follows a steer; `outcome` is None on its way, True (taken) or why it was refused."""

    target: str
    items: list[Item]
    outcome: bool | LanewiseError | None = None


class Again(msgspec.Struct, frozen=True):
    """Says that the turn is to be sent once more."""

    why: str
    counts: bool = True  # against the limit of retries, after a pause
    retry_after_s: float | None = None
    rejoins: bool = False  # only the rest of its response is to be asked for


class Received(msgspec.Struct):
    """Remembers what came of a response, so that none of it is told twice after a loss."""

    number: int = -1  # of the last event
    item_id: str | None = None  # of the item that is open
    kinds: set[str] = set()  # of its events
    num_chars: int = 0  # of its text
    num_skipped: int | None = None  # chars that came again; None: nothing comes again

    def take(self, event: dict[str, Any]) -> bool:
        """Notes an event; returns false for one that was told before the loss."""
        self.number = max(self.number, event.get("sequence_number", -1))
        item_id = event.get("item_id") or (event.get("item") or {}).get("id")
        kind = event["type"]
        if item_id is None:
            return True
        if kind == "response.output_item.added" and item_id != self.item_id:
            self.item_id, self.kinds, self.num_chars, self.num_skipped = item_id, set(), 0, None
        if item_id != self.item_id:
            return True
        if kind == "response.output_item.done":
            self.item_id = None
            return True
        return self._is_new(kind, event)

    def _is_new(self, kind: str, event: dict[str, Any]) -> bool:
        is_again = self.num_skipped is not None and kind in self.kinds
        self.kinds.add(kind)
        if not kind.endswith(".delta"):
            return not is_again
        text = event["delta"]
        if self.num_skipped is not None:
            num_known = min(len(text), self.num_chars - self.num_skipped)
            self.num_skipped += num_known
            event["delta"] = text = text[num_known:]
        self.num_chars += len(text)
        if self.num_skipped is not None:
            self.num_skipped += len(text)
        return bool(text)

    def rejoin(self) -> None:
        """Expects the open item again, from its beginning."""
        self.num_skipped = 0


class Turn:
    """Lasts from a `response.create` to the last terminal event, over any number of sockets."""

    TERMINALS: ClassVar = ("response.completed", "response.incomplete", "response.failed")

    def __init__(
        self, fields: dict[str, Any], asked: str | list[Item], after: Response | str | None
    ) -> None:
        self._fields = fields
        self._asked = as_items(asked)
        self._after = after
        self._whole = False  # the server has forgotten the parent: send all of it
        self._shown = False  # text that a restart makes void
        self._phases: dict[str, str | None] = {}
        self._steers: list[Steer] = []  # unanswered, or accepted and without a successor yet
        self._ended: Response | None = None  # a steered response whose successor is awaited
        self._received = Received()
        self._has_begun = False  # its response: `Started` was told
        self._rejoining: str | None = None  # why the rest of its response is asked for
        self.response_id: str | None = None
        self.cancelled = False
        self.num_retries = 0
        self.again: Again | None = None
        self.over = False
        self.error: LanewiseError | None = None

    def frame(self, stream_id: str) -> dict[str, Any]:
        """Returns the `response.create` to send now, or what asks for the rest of its response."""
        again, self.again = self.again, None
        if again is not None and again.rejoins:
            return {
                "type": "response.rejoin",
                "stream_id": stream_id,
                "response_id": self.response_id,
                "starting_after": self._received.number,
            }
        frame = {**self._fields, "type": "response.create", "stream_id": stream_id}
        if isinstance(self._after, Response) and self._whole:
            return frame | {"input": (self._after.context() or []) + self._asked}
        if self._after is not None:
            parent = self._after.id if isinstance(self._after, Response) else self._after
            frame["previous_response_id"] = parent
        return frame | {"input": self._asked}

    def steer(self, target: str, added: str | list[Item]) -> Steer:
        """Notes a steer that is about to be sent; its `outcome` is set by what comes back."""
        refused = _too_late() if self.over else _cancelled() if self.cancelled else None
        steer = Steer(target, as_items(added), refused)
        if refused is None:
            self._steers.append(steer)
        return steer

    def unsteer(self, steer: Steer) -> None:
        """Takes back a steer that could not be sent."""
        self._steers = [each for each in self._steers if each is not steer]

    @property
    def takes_steers(self) -> bool:
        """Says whether its response runs here; nobody knows while the rest of it is asked for."""
        is_here = self.again is None and self._rejoining is None
        return self.response_id is not None and is_here

    def fail(self, error: LanewiseError) -> None:
        """Ends the turn with that error."""
        self.error = error
        self._finish()

    def lost(self, why: str, retry_after_s: float | None = None) -> list[Event]:
        """Notes that the socket is gone: the rest of the response is to be asked for."""
        if self.over:
            return []
        if self.cancelled:
            self.fail(_cancelled())
            return []
        if self.response_id is not None and not self._steers and self._ended is None:
            self._rejoining = why
            self.again = Again(why, retry_after_s=retry_after_s, rejoins=True)
            return []
        return self._restart(why, retry_after_s)

    def _restart(self, why: str, retry_after_s: float | None = None) -> list[Event]:
        """Has all sent again since the last response that ended, as nobody has the rest."""
        self._rejoining = None
        if self._ended is not None:
            self._after, self._asked, self._ended = self._ended, [], None
            self._whole = False
        for steer in self._steers:
            if steer.target == self.response_id:
                steer.outcome = True  # what is sent again holds it
                self._asked = self._asked + steer.items
            elif steer.outcome is None:  # a sub-task's: nobody knows whether it got there
                steer.outcome = _lost(why)
        self._steers.clear()
        shown, self._shown = self._shown, False
        self.response_id, self._has_begun = None, False
        self.again = Again(why, retry_after_s=retry_after_s)
        return [Restarted(why)] if shown else []

    def receive(self, event: dict[str, Any]) -> list[Event]:
        """Takes one event of the turn's stream; one that makes no sense ends the turn."""
        try:
            return self._take(event)
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            got = f"Expected an event of the protocol, got {event.get('type')!r} ({error!r})."
            self.fail(LanewiseError("invalid_event", got))
            return []

    def _take(self, event: dict[str, Any]) -> list[Event]:
        kind = event["type"]
        if kind == "error":
            return self._refused(error_of(event))
        if kind.startswith("response.steer."):
            return self._steered(kind, event)
        if not self._received.take(event):
            return []
        if kind == "response.created":
            return self._created(msgspec.convert(event["response"], Response))
        if kind in self.TERMINALS:
            return self._terminal(msgspec.convert(event["response"], Response))
        if kind in _WORDS:
            self._shown = True
            item_id = event["item_id"]
            return [TextDelta(event["delta"], self._phases.get(item_id), item_id)]
        if kind == "response.waiting":
            self.response_id = event["response_id"]
            return [Waiting(event["group"], event.get("place"), event.get("expected_wait_ms"))]
        if kind == "response.output_item.added":
            self._phases[event["item"]["id"]] = event["item"].get("phase")
        return [OtherEvent(kind, event)]

    def _created(self, response: Response) -> list[Event]:
        is_same, self._rejoining = self._rejoining is not None and self._has_begun, None
        if is_same:
            self._received.rejoin()
            self.num_retries = 0
            return [Rejoined(response)]
        if self._ended is not None:  # the successor of a steered response
            self._after, self._ended = self._ended, None
            self._asked = [item for steer in self._steers for item in steer.items]
            self._steers.clear()
            self._whole = False
        self.response_id = response.id
        self._received, self._has_begun = Received(), True
        self._shown = False
        self._phases.clear()
        return [Started(response)]

    def _terminal(self, response: Response) -> list[Event]:
        response.asked, response.after = self._asked, self._after
        if response.status == "failed":
            error = response.error or {}
            code, message = error.get("code") or "server_error", error.get("message") or ""
            self.fail(LanewiseError(code, message))
            return []
        for steer in self._steers:  # acceptance comes before the end, or not at all
            steer.outcome = steer.outcome or _too_late()
        mine = [steer for steer in self._steers if steer.target == response.id]
        self._steers = [steer for steer in mine if steer.outcome is True]
        if self._steers:  # accepted: a successor comes, or why there is none, after a cancel, too
            self._ended = response
            return []
        self._finish()
        return [Done(response)]

    def _steered(self, kind: str, event: dict[str, Any]) -> list[Event]:
        target = event["steer"]["previous_response_id"]
        is_refused = kind == "response.steer.failed" and "id" not in event["steer"]
        if is_refused or kind == "response.steer.accepted":
            unanswered = (s for s in self._steers if s.outcome is None and s.target == target)
            steer = next(unanswered, None)
            if steer is not None:
                steer.outcome = error_of(event) if is_refused else True
                if is_refused or target != self.response_id:  # of a sub-task: the response goes on
                    self._steers.remove(steer)
        elif self._ended is not None and target == self._ended.id:
            ended, self._ended = self._ended, None
            if kind == "response.steer.pending":  # it waits for the outputs of tool calls
                self._finish()
                return [Done(ended)]
            self.fail(error_of(event))
        return []

    def _refused(self, error: LanewiseError) -> list[Event]:
        is_gone = self._rejoining is not None and error.code not in ELSEWHERE
        is_forgotten = error.code == "previous_response_not_found"
        if self.cancelled and (is_gone or is_forgotten):  # it would be sent again
            self.fail(_cancelled())
            return []
        if self._rejoining is not None and is_gone:
            events = self._restart(self._rejoining)
            self.again = Again(error.message, counts=False)
            return events
        sends_id = is_forgotten and not self._whole
        if sends_id and isinstance(self._after, Response) and self._after.context() is not None:
            self._whole = True
            self.again = Again(error.message, counts=False)
            return []
        if error.code in ELSEWHERE:
            return self.lost(str(error), error.retry_after_s)
        self.fail(error)
        return []

    def _finish(self) -> None:
        self.over = True
        for steer in self._steers:
            steer.outcome = steer.outcome or _too_late()


def as_items(value: str | list[Item]) -> list[Item]:
    """Returns input as a list of items; a string is one user message."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return list(value)


def create_fields(hints: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a `response.create`: hints go where any client puts them, metadata."""
    metadata = {name: str(value) for name, value in hints.items() if value is not None}
    metadata |= fields.get("metadata") or {}
    return {"model": "auto", **fields} | ({"metadata": metadata} if metadata else {})


def socket_url(url: str) -> str:
    """Returns the WebSocket of a gateway by its http, https, ws or wss URL; else a ValueError."""
    scheme, separator, rest = url.partition("://")
    schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
    if not separator or scheme not in schemes:
        raise ValueError(f"expected an http, https, ws or wss URL, got {url!r}")
    base = rest.rstrip("/").removesuffix("/responses").removesuffix("/v1")
    return f"{schemes[scheme]}://{base}/v1/responses"


def is_loopback(url: str) -> bool:
    """Says whether a URL names this machine itself, as far as one sees without asking for it."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def retry_delay_s(num_retries: int, chance: float, retry_after_s: float | None) -> float:
    """Returns the pause before retry `num_retries` (from 0); `chance` is uniform in [0, 1).

    It doubles, with jitter down to a half, so that the clients of a lost gateway do not come back
    together; it is never shorter than the server asked for.
    """
    delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0**num_retries) * (1 - chance / 2)
    return max(delay_s, min(retry_after_s or 0.0, MAX_DELAY_S))


def error_of(event: dict[str, Any]) -> LanewiseError:
    """Returns an event's `error` as an exception."""
    error = event.get("error") or {}
    headers = error.get("headers") or {}
    after_ms, after_s = headers.get("retry-after-ms"), headers.get("retry-after")
    return LanewiseError(
        error.get("code") or "server_error",
        error.get("message") or "",
        param=error.get("param"),
        status=event.get("status"),
        retry_after_s=float(after_ms) / 1e3 if after_ms else float(after_s) if after_s else None,
    )


def _lost(why: str) -> LanewiseError:
    return LanewiseError("response_not_found", f"The sub-task went with the connection ({why}).")


def _cancelled() -> LanewiseError:
    return LanewiseError("response_cancelled", "The response was cancelled.")


def _too_late() -> LanewiseError:
    return LanewiseError(
        "response_already_completed",
        "The response has ended. Continue it with create(..., after=response).",
    )
