"""Keeps many records in little memory: encoded and compressed, block by block."""

import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

import msgspec

BLOCK = 32  # records that are encoded together
MAX_DECODED = 8  # blocks that are kept as they were decoded, as neighbours are read next
_LEVEL = 1  # of zlib: the higher ones save a tenth more, and take three times as long

Kind = TypeVar("Kind", bound=msgspec.Struct)


class Packed(Sequence[Kind]):
    """Holds frozen structs of one kind, which are best read in their order."""

    def __init__(self, kind: type[Kind], records: Iterable[Kind] = ()) -> None:
        self._kind = kind
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode: Any = msgspec.msgpack.Decoder(list[kind]).decode  # type: ignore[valid-type]
        self._blocks: list[bytes] = []
        self._newest: list[Kind] = []  # of a block that is not full yet
        self._decoded: OrderedDict[int, list[Kind]] = OrderedDict()
        for record in records:
            self.append(record)

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (self._kind, self._blocks, self._newest)

    def __len__(self) -> int:
        return len(self._blocks) * BLOCK + len(self._newest)

    def append(self, record: Kind) -> None:
        """Adds one at the end."""
        self._newest.append(record)
        if len(self._newest) == BLOCK:
            self._blocks.append(zlib.compress(self._encode(self._newest), _LEVEL))
            self._newest = []

    @overload
    def __getitem__(self, index: int) -> Kind: ...

    @overload
    def __getitem__(self, index: slice) -> list[Kind]: ...

    def __getitem__(self, index: int | slice) -> Kind | list[Kind]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        number, place = divmod(index, BLOCK)
        if number == len(self._blocks):
            return self._newest[place]
        block = self._decoded.get(number)
        if block is None:
            block = self._decoded[number] = self._decode(zlib.decompress(self._blocks[number]))
            if len(self._decoded) > MAX_DECODED:
                self._decoded.popitem(last=False)
        return block[place]

    def __iter__(self) -> Iterator[Kind]:
        for block in self._blocks:
            yield from self._decode(zlib.decompress(block))
        yield from self._newest


def _unpickled(kind: type[Kind], blocks: list[bytes], newest: list[Kind]) -> Packed[Kind]:
    packed = Packed(kind, newest)
    packed._blocks = blocks
    return packed
