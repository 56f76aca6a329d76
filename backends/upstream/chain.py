"""Continues a response that an upstream remembers: only new items are sent, with its id.

A server that speaks Responses remembers the latest response of each stream of a socket (with
`store`, every response, for any connection). If a request's context begins with exactly the context
and the output of such a response of its own tenant, the request continues it. Every other request
is sent whole, and so is one whose response the server has lost; clients do not notice.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec

from backends.bounds import max_answer_bytes
from backends.contract import (
    Finish,
    FinishReason,
    FunctionTool,
    GenerateRequest,
    Reasoning,
)
from backends.net.socket_messages import LONE_BYTES
from backends.net.sse import MAX_EVENT_BYTES
from backends.prompt import digest_of, said_item
from backends.upstream.answer.item_order import OrderedItem
from backends.upstream.answer.reader import Reader
from backends.upstream.answer.reported_usage import max_input_tokens
from backends.upstream.options import UpstreamOptions
from backends.upstream.request_body import request_body

FIRST_EVENT_BYTES = 256 << 10  # of an event that repeats nothing
# All events of an answer may have so many: one for a token has 150 to 500 bytes, and servers may
# send two. One that a socket passes to `ReadHold.take_one` has a token, and is no longer than that
# token's share.
SPARE_STREAM_BYTES, STREAM_BYTES_PER_TOKEN = 4 << 20, LONE_BYTES
# Codex' name for W3C's header in `client_metadata`, since a socket has headers only once.
SOCKET_TRACEPARENT = "ws_request_header_traceparent"
PARENT_LOST = "previous_response_not_found"  # the server's code; sending the whole context helps


ChainKey = tuple[int, int, int]


class Chain(msgspec.Struct, frozen=True, dict=True):
    """Is a response that a server remembers."""

    response_id: str
    salt: int  # only requests with the same one may continue it
    digests: tuple[int, ...]  # of its context's and output's items, but for reasoning
    num_bytes: int = 0  # of what was sent for it, and of its output; at least its tokens

    @cached_property
    def key(self) -> ChainKey:
        """Returns the salt, the length and the last digest, which few chains share."""
        return self.salt, len(self.digests), self.digests[-1]


class Turn:
    """Is one request as an upstream gets it, whole or continuing a chain, and its output.

    `begin` starts another attempt and forgets the output of the last.
    """

    # Takes events that only go on with the open text, and returns false if they do not: then
    # `Receive` takes them, as it does while this is None.
    go_on: Callable[[list[Any]], bool] | None = None
    num_bytes_left = 0  # that the server may still send about the latest body
    max_event_bytes = 0  # of one of its events about it
    _num_known_bytes = 0  # of the chain that it continues
    _num_bytes = 0  # with those of the body
    _response_id: str | None = None  # the server's, once the response is complete
    _said: Sequence[OrderedItem] = ()  # as soon
    _num_said_tokens = 0  # as the server counts, as soon

    def __init__(self, request: GenerateRequest, options: UpstreamOptions) -> None:
        self._request = request
        self._options = options
        self.continues = options.continues and (request.may_store or not options.stores)
        self.generate = request.generate  # False for a warm-up
        self.traceparent = request.traceparent
        self.salt = request.cache_salt
        self.digests: tuple[int, ...] = ()
        if options.continues:  # reasoning has no hash, however much it weighs: it is in no chain
            said = [each.digest for each in request.items if not isinstance(each.item, Reasoning)]
            self.digests = tuple(said)

    def whole(self) -> dict[str, Any]:
        self._num_known_bytes = 0
        return request_body(self._request, self._options)

    def follows(self, chain: Chain) -> bool:
        """Returns whether the request continues the chain and has items to add."""
        known, own = chain.digests, self.digests
        num_known = len(known)
        return num_known < len(own) and chain.salt == self.salt and own[:num_known] == known

    def followed_keys(self) -> Iterator[ChainKey]:
        """Yields the keys of chains that it may follow, the longest first."""
        for length in range(len(self.digests) - 1, 0, -1):
            yield self.salt, length, self.digests[length - 1]

    def after(self, chain: Chain) -> dict[str, Any]:
        """Returns the body with the items that `chain` lacks; the turn must follow it."""
        items = self._request.items
        said = [n for n, entry in enumerate(items) if not isinstance(entry.item, Reasoning)]
        # Reasoning right after a response is the server's own.
        first = said[len(chain.digests)]
        rest = msgspec.structs.replace(self._request, items=items[first:])
        self._num_known_bytes = chain.num_bytes
        return request_body(rest, self._options) | {"previous_response_id": chain.response_id}

    def sent(self, num_bytes: int) -> None:
        """Notes the size of the latest body, as it is sent, and what may come for it.

        The server's events repeat parts of the request, and the last one the whole answer.
        """
        self._num_bytes = num_bytes = self._num_known_bytes + num_bytes
        num_tokens = self._request.max_output_tokens
        spare_bytes = SPARE_STREAM_BYTES + STREAM_BYTES_PER_TOKEN * num_tokens
        self.num_bytes_left = spare_bytes + 8 * num_bytes
        answer = max_answer_bytes(num_tokens, self._options.max_answer_bytes)
        self.max_event_bytes = min(FIRST_EVENT_BYTES + 2 * (num_bytes + answer), MAX_EVENT_BYTES)

    def max_input_tokens(self) -> int:
        """Returns the most tokens that the server can count for the prompt."""
        options = self._options
        return max_input_tokens(
            self._request, self._num_bytes, options.max_image_tokens, options.window_tokens
        )

    def begin(self) -> None:
        self._num_said_tokens, self._said, self._response_id = 0, (), None
        self.go_on = None

    def finished(self, finish: Finish, reader: Reader) -> None:
        """Notes how the response ended, if the turn `continues`; its reader keeps what it said."""
        # Cut by a stop sequence of ours, the server's memory and the client's would differ.
        is_whole = finish.reason is FinishReason.STOP
        self._response_id = reader.response_id if is_whole and not self._request.stop else None
        self._said = () if self._response_id is None else reader.items.said()
        self._num_said_tokens = finish.usage.num_output_tokens

    def chain(self) -> Chain | None:
        """Returns the chain that can be continued, once the response has ended."""
        if self._response_id is None:
            return None
        namespaces: dict[str, str | None] = {}
        for tool in self._request.tools:
            if isinstance(tool, FunctionTool):
                namespaces[tool.name] = tool.namespace
        digests, num_said_bytes = self.digests, 0
        for said in self._said:
            text, namespace = said.said, namespaces.get(said.name)
            num_said_bytes += len(text)
            item = said_item(said.kind, text, said.call_id, said.name, namespace)
            if item is not None:
                digests += (digest_of(item),)
        num_bytes = self._num_bytes + max(num_said_bytes, self._num_said_tokens)
        return Chain(self._response_id, self.salt, digests, num_bytes) if digests else None


class StoredChains:
    """Holds chains that any connection can continue; evicts the oldest when full."""

    def __init__(self, max_chains: int) -> None:
        self._max_chains = max_chains
        self._chains: dict[ChainKey, Chain] = {}

    def find(self, turn: Turn) -> Chain | None:
        for key in turn.followed_keys() if self._chains else ():
            chain = self._chains.get(key)
            if chain is not None and turn.follows(chain):
                return chain
        return None

    def add(self, chain: Chain) -> None:
        self._chains.pop(chain.key, None)
        self._chains[chain.key] = chain
        while len(self._chains) > self._max_chains:
            del self._chains[next(iter(self._chains))]

    def forget(self, chain: Chain) -> None:
        if self._chains.get(chain.key) == chain:
            del self._chains[chain.key]
