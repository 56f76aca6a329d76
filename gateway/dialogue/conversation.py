"""Decides what a typed line means: an ask, a steer, or a command about the asks to come."""

from collections.abc import Iterator
from typing import Any

import msgspec

from lanewise.turn import Response

ROUTES = ("fast", "deep", "parallel")
BOTH = "both"  # each engine is asked by itself, so that their answers can be compared
HELP = """\
/fast /deep /parallel   ask for that route; /auto lets the router choose
/both                   ask each engine by itself; the deep answer is what goes on
/strategy NAME          how both engines work on one answer, such as breadth or advise
/new   a new conversation    /quit   leave (Ctrl-C stops an answer, twice leaves)"""


class Ask(msgspec.Struct, frozen=True):
    """Holds the SDK's arguments of `stream` for one turn, and its title beside another."""

    title: str
    fields: dict[str, Any]


class Dialogue:
    """Knows where a conversation stands, and how its next asks are to be routed."""

    def __init__(
        self, model: str = "auto", route: str | None = None, strategy: str | None = None
    ) -> None:
        self._model = model
        self._route = route
        self._strategy = strategy
        self._after: Response | None = None

    def asks(self) -> Iterator[Ask]:
        """Yields what to ask with the next line: one turn, or one of each engine."""
        shared = {
            "model": self._model,
            "after": self._after,
            "metadata": {"queue_events": "true"},
        }
        if self._route == BOTH:
            for route in ("fast", "deep"):
                yield Ask(route, shared | {"route": route})
        else:
            wishes = {"route": self._route, "strategy": self._strategy}
            yield Ask("", shared | {name: wish for name, wish in wishes.items() if wish})

    def answered(self, response: Response) -> None:
        """Takes the response that the next turn continues; of both engines, the last one."""
        self._after = response

    def command(self, line: str) -> str | None:
        """Carries out a command, and returns what to say; None ends the dialogue."""
        name, _, rest = line.removeprefix("/").partition(" ")
        rest = rest.strip()
        if name in ("quit", "exit", "q"):
            return None
        if name == "new":
            self._after = None
            return "(a new conversation)"
        if name in (*ROUTES, BOTH, "auto"):
            self._route, self._strategy = None if name == "auto" else name, None
            return ""
        if name == "strategy" and rest:
            self._route, self._strategy = None, rest
            return ""
        return HELP

    def wishes(self) -> str:
        """Returns the model and what is asked of the router, for a line of status."""
        wish = self._strategy or self._route
        return self._model + (f" /{wish}" if wish else "")
