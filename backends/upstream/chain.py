"""Going on from what an upstream remembers: only new items are sent, by its own response's id.

A server that speaks Responses remembers the latest response of each stream of a socket (with
`store`, every response, for any connection). Where a request's context begins with exactly what
such a response was given and said, it goes on from there. Everything else is sent whole, and so is
what the server no longer knows: nobody hears of it.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from backends.contract import (
    CustomToolCall,
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    FunctionCall,
    FunctionTool,
    GenerateRequest,
    Item,
    Message,
    TextPart,
)
from backends.prompt import digest_of
from backends.upstream.options import UpstreamOptions
from backends.upstream.request_body import request_body

PARENT_LOST = "previous_response_not_found"  # the server's code; the whole context will do


class Chain(msgspec.Struct, frozen=True):
    """A response that a server remembers."""

    response_id: str
    digests: tuple[int, ...]  # of its context's items and its output's; reasoning weighs nothing


class Turn:
    """One request as an upstream gets it, whole or as what follows a chain; and what it answered.

    Attempts follow one another: `begin` forgets what the one before has said.
    """

    def __init__(self, request: GenerateRequest, options: UpstreamOptions) -> None:
        self._request = request
        self._options = options
        self._whole: dict[str, Any] | None = None
        self.digests = tuple(entry.digest for entry in request.items if entry.num_tokens)
        self._said: dict[int, tuple[Delta, list[str]]] = {}  # item -> its first delta, its text
        self._is_complete = False

    @property
    def generate(self) -> bool:
        """False: a warm-up."""
        return self._request.generate

    def whole(self) -> dict[str, Any]:
        """The body with the whole context."""
        if self._whole is None:
            self._whole = self._body(self._request)
        return self._whole

    def follows(self, chain: Chain) -> bool:
        """Whether it goes on from there, with something to add."""
        known = chain.digests
        return len(known) < len(self.digests) and self.digests[: len(known)] == known

    def after(self, chain: Chain) -> dict[str, Any]:
        """The body with what `chain` does not hold yet; it must follow it."""
        items = self._request.items
        weighing = [number for number, entry in enumerate(items) if entry.num_tokens]
        # What weighs nothing behind an answer is reasoning: the server's own.
        first = weighing[len(chain.digests)]
        rest = msgspec.structs.replace(self._request, items=items[first:])
        return self._body(rest) | {"previous_response_id": chain.response_id}

    def _body(self, request: GenerateRequest) -> dict[str, Any]:
        body = request_body(request, self._options)
        return body if request.generate else body | {"generate": False}

    # -- what it answered --------------------------------------------------------------------

    def begin(self) -> None:
        """Another attempt."""
        self._said = {}
        self._is_complete = False

    def said(self, deltas: Iterable[Delta], finish: Finish | None) -> None:
        """Take in what was read."""
        if not self._options.continues:
            return
        for delta in deltas:
            known = self._said.get(delta.index)
            if known is None:
                known = self._said[delta.index] = (delta, [])
            known[1].append(delta.text)
        # Cut by a stop sequence of ours, the server's memory and the client's would differ.
        is_whole = finish is not None and finish.reason is FinishReason.STOP
        self._is_complete = is_whole and not self._request.stop

    def chain(self, response_id: str | None) -> Chain | None:
        """What can be gone on from, once it has ended."""
        if response_id is None or not self._is_complete:
            return None
        items = (self._item(first, "".join(text)) for first, text in self._said.values())
        output = tuple(digest_of(item) for item in items if item is not None)
        digests = self.digests + output
        return Chain(response_id, digests) if digests else None

    def _item(self, delta: Delta, text: str) -> Item | None:
        """An item as the next request will have it; reasoning weighs nothing there."""
        if delta.kind is DeltaKind.TEXT:
            return Message("assistant", (TextPart(text),))
        if delta.kind is DeltaKind.FUNCTION_CALL:
            namespaces = {
                tool.name: tool.namespace
                for tool in self._request.tools
                if isinstance(tool, FunctionTool)
            }
            return FunctionCall(
                delta.call_id, delta.name, text, namespace=namespaces.get(delta.name)
            )
        if delta.kind is DeltaKind.CUSTOM_CALL:
            return CustomToolCall(delta.call_id, delta.name, text)
        return None


class StoredChains:
    """Chains that any connection can go on from; bounded, the least recently made goes first."""

    def __init__(self, max_chains: int) -> None:
        self._max_chains = max_chains
        self._chains: dict[tuple[int, int], Chain] = {}  # its length and last digest

    def find(self, turn: Turn) -> Chain | None:
        """The longest that a turn follows."""
        for length in range(len(turn.digests) - 1, 0, -1):
            chain = self._chains.get((length, turn.digests[length - 1]))
            if chain is not None and turn.follows(chain):
                return chain
        return None

    def add(self, chain: Chain) -> None:
        """Remember one."""
        key = len(chain.digests), chain.digests[-1]
        self._chains.pop(key, None)
        self._chains[key] = chain
        while len(self._chains) > self._max_chains:
            del self._chains[next(iter(self._chains))]

    def forget(self, chain: Chain) -> None:
        """The server does not know it any more."""
        key = len(chain.digests), chain.digests[-1]
        if self._chains.get(key) == chain:
            del self._chains[key]
