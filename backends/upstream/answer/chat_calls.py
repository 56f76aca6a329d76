"""Reads the calls of an upstream's chat completion, whose pieces say in many ways what they are of.

An index tells calls apart, where servers have one. Ids may be missing, late or all the same, and
names may come late, in pieces or again with each piece. A call is opened once its name is known.
"""

from enum import Enum, auto

import msgspec

from backends.contract import DeltaKind, GenerateRequest
from backends.upstream.answer.chat_chunks import ChunkCall, ChunkFunction
from backends.upstream.answer.errors import broken
from backends.upstream.answer.item_order import MAX_ITEMS, ItemOrder, TooMuchError
from backends.upstream.answer.reader import NO_ARGUMENTS, NO_EVENT

_NO_FUNCTION = ChunkFunction()


class _Named(Enum):
    """Says what a name under a call's index means."""

    MORE = auto()  # of the same call
    ANOTHER = auto()  # call begins
    AGAIN = auto()  # behind whole arguments: the next arguments are another call's


class _Call(msgspec.Struct, eq=False):
    key: int  # of its item
    given_id: str = ""  # the server's
    name: str = ""  # so far, until the call is open
    arguments: list[str] = []  # their pieces so far
    is_open: bool = False  # as an item
    is_named_again: bool = False  # behind whole arguments


class ChatCalls:
    """Has the calls of one answer."""

    def __init__(self, backend: str, request: GenerateRequest, items: ItemOrder) -> None:
        self._backend = backend
        self._request_id = request.id
        self._offered = frozenset(tool.name for tool in request.tools)
        self._items = items
        self._latest: dict[int, _Call] = {}  # under each index
        self._index = 0  # of the latest piece
        self._num_calls = 0
        self._ids: set[str] = set()  # of open calls

    def add(self, piece: ChunkCall) -> bool:
        """Adds a piece of a call; returns whether a call begins with it."""
        index = self._index if piece.index is None else piece.index
        function = piece.function or _NO_FUNCTION
        name, arguments = function.name or "", function.arguments or ""
        call = self._latest.get(index)
        if call is None and not (name or arguments or piece.id):
            return False
        begins = call is None
        if call is not None:
            name = name or (call.name if call.is_named_again else "")
            named = self._named(call, piece.id, name, arguments)
            begins = named is _Named.ANOTHER
            call.is_named_again = call.is_named_again or named is _Named.AGAIN
        if begins:
            if call is not None:
                self._end(call)
            if self._num_calls >= MAX_ITEMS:
                raise TooMuchError(f"an answer of more than {MAX_ITEMS} calls")
            self.open_named()
            call = self._latest[index] = _Call(self._num_calls)
            self._num_calls += 1
        assert call is not None
        self._index = index
        call.given_id = call.given_id or piece.id or ""
        if not call.is_open:
            call.name = self._joined(call.name, name)
        if arguments:
            call.arguments.append(arguments)
        if call.is_open:
            self._items.add(call.key, arguments)
        elif self._is_named(call.name, has_arguments=arguments != ""):
            self._open(call)
        return begins

    def open_named(self) -> None:
        """Opens calls whose names may be whole, as something else begins."""
        for call in self._latest.values():
            if call.is_open or not call.name:
                continue
            if call.name in self._offered or not self._begins_one(call.name):
                self._open(call)

    def end(self, *, is_whole: bool) -> None:
        """Ends all calls, `is_whole` unless the answer was cut.

        Raises the `Failure` of one without a name.
        """
        for call in self._latest.values():
            self._end(call, is_whole=is_whole)

    def _named(self, call: _Call, call_id: str | None, name: str, arguments: str) -> _Named:
        """Returns what a piece with that name, perhaps none, is to the call under its index."""
        if not name:
            return _Named.MORE
        if call_id and call.given_id and call_id != call.given_id:
            return _Named.ANOTHER
        if not call.arguments:
            is_other = name != call.name and {name, call.name} <= self._offered
            return _Named.ANOTHER if is_other else _Named.MORE
        if not call.is_open and self._begins_one(call.name + name):
            return _Named.MORE
        begin = arguments.lstrip()[:1]
        if not call.name or begin not in ("", "{") or not _is_whole(call.arguments):
            return _Named.MORE
        return _Named.AGAIN if name == call.name and not begin else _Named.ANOTHER

    def _joined(self, name: str, piece: str) -> str:
        """Adds a piece to a name, unless that has the whole name again."""
        if piece.startswith(name) and not self._begins_one(name + piece):
            return piece
        return name + piece

    def _begins_one(self, name: str) -> bool:
        return any(offered.startswith(name) for offered in self._offered)

    def _is_named(self, name: str, *, has_arguments: bool) -> bool:
        """Returns whether a name is whole as far as one can tell."""
        longer = any(each != name and each.startswith(name) for each in self._offered)
        if name in self._offered:
            return has_arguments or not longer
        return name != "" and has_arguments and not longer

    def _open(self, call: _Call) -> None:
        call.is_open = True
        call_id = call.given_id
        if not call_id or call_id in self._ids:
            call_id = f"call_{self._request_id}_{call.key}"
        self._ids.add(call_id)
        self._items.open(call.key, DeltaKind.FUNCTION_CALL, call_id=call_id, name=call.name)
        for text in call.arguments:
            self._items.add(call.key, text)

    def _end(self, call: _Call, *, is_whole: bool = True) -> None:
        if not call.is_open:
            if not call.name:
                if is_whole:
                    raise broken(self._backend, "the upstream called a tool without its name")
                return
            self._open(call)
        # A call without arguments gets an object without any, as clients decode it.
        if is_whole and not call.arguments and not self._items.known[call.key].wrapped:
            self._items.add(call.key, NO_ARGUMENTS)
        self._items.close(call.key)


def _is_whole(pieces: list[str]) -> bool:
    """Returns whether the pieces of a call's arguments make up an object."""
    if not pieces[-1].rstrip().endswith("}"):
        return False
    pieces[:] = ["".join(pieces)]
    try:
        return isinstance(msgspec.json.decode(pieces[0]), dict)
    except NO_EVENT:
        return False
