"""Finds which item a server's event is about, although ids may be missing or differ each time."""

from collections.abc import Callable, Hashable, Iterable, Sequence

import msgspec

from backends.contract import DeltaKind
from backends.upstream.answer.item_order import MAX_ITEMS, OrderedItem
from backends.upstream.answer.responses_events import ITEM_KINDS, UpstreamItem, item_texts

MAX_PAIRS = 10_000  # of items that neither ids nor places tell apart


class ItemKeys(msgspec.Struct, eq=False):
    """Finds the keys of one response's items in their order."""

    known: dict[Hashable, OrderedItem]  # by their keys; read only
    _by_index: dict[int, Hashable] = {}  # output_index -> key

    def note(self, key: Hashable, output_index: int | None) -> None:
        """Notes the place of a new item; the first that has it keeps it until it is closed."""
        if output_index is None:
            return
        earlier = self._by_index.get(output_index)
        is_free = len(self._by_index) < MAX_ITEMS if earlier is None else self.known[earlier].closed
        if is_free:
            self._by_index[output_index] = key

    def find(
        self,
        item_id: str | None,
        output_index: int | None,
        kind: DeltaKind,
        *,
        is_added: bool = False,
    ) -> Hashable:
        """Returns the key of a known item, or the one that a new item is to have.

        An item that `is_added` is not one that is closed.
        """
        if item_id is not None and item_id in self.known:
            return item_id
        key = None if output_index is None else self._by_index.get(output_index)
        if key is not None:
            item = self.known[key]
            if _kind(item) is kind and not (is_added and item.closed):
                return key
        return (output_index, kind) if item_id is None else item_id

    def only_open(self, output_index: int | None, kind: DeltaKind) -> Hashable | None:
        """Returns the key of the open item of a kind, if there is just one that has no other place.

        It is not asked about places that are known.
        """
        placed = () if output_index is None else self._by_index.values()
        found = [
            key
            for key, item in self.known.items()
            if not item.closed and _kind(item) is kind and key not in placed
        ]
        return found[0] if len(found) == 1 else None

    def of_output(
        self, output: Sequence[UpstreamItem], may_be: Callable[[Hashable, Sequence[str]], bool]
    ) -> list[Hashable]:
        """Returns the keys of a whole response's items, each of them once; new items have new ones.

        Ids count first, then places, then what was said, of which `may_be` tells whether it begins
        one of some texts, then the order: so that no item is taken for a new one because its id is
        another now.
        """
        left = dict(self.known)
        calls = {item.call_id: key for key, item in left.items() if item.call_id}

        def by_id(number: int, told: UpstreamItem) -> Iterable[Hashable]:
            return told.id, told.call_id, calls.get(told.call_id or "")

        def by_place(number: int, told: UpstreamItem) -> Iterable[Hashable]:
            return (self._by_index.get(number),)

        def by_text(number: int, told: UpstreamItem) -> Iterable[Hashable]:
            texts = item_texts(told)
            return (key for key in left if may_be(key, texts))

        def by_order(number: int, told: UpstreamItem) -> Iterable[Hashable]:
            return left

        keys: list[Hashable] = [("output", number) for number in range(len(output))]
        unknown = dict(enumerate(output[:MAX_ITEMS]))
        for rule in (by_id, by_place, by_text, by_order):
            if rule is by_text and len(left) * len(unknown) > MAX_PAIRS:
                break
            for number, told in list(unknown.items()):
                for key in rule(number, told):
                    if key in left and _is_like(left[key], told):
                        keys[number] = key
                        del left[key], unknown[number]
                        break
        return keys


def _is_like(item: OrderedItem, told: UpstreamItem) -> bool:
    """Returns whether both are of one kind, and calls of one name."""
    kind = _kind(item)
    is_call = kind >= DeltaKind.FUNCTION_CALL
    return kind is ITEM_KINDS.get(told.type) and (not is_call or item.name == (told.name or ""))


def _kind(item: OrderedItem) -> DeltaKind:
    """Returns the kind that the server says an item is of."""
    return DeltaKind.FUNCTION_CALL if item.wrapped else item.kind
