"""Places a model's weights and KV cache in regions of PEs, on as many wafers as it takes.

Each layer owns one rectangle of PEs, weights and KV cache side by side in their SRAM; layers keep
their order over the wafers, so only activations cross. A PE's SRAM is weights, its share of the KV
cache and a reserve for code and buffers; what does not fit is an error that says by how much.
"""

import itertools
import math
from collections.abc import Sequence

import msgspec

from wafer_engine.hardware.models import ModelShape
from wafer_engine.hardware.spec import WSE3, WaferSpec

RESERVED_FRACTION = 0.05  # of a PE's SRAM: code, buffers, routing tables; assumed
MIN_BITS, MAX_BITS = 4.0, 16.0  # of a weight or a cached value, scales included


class PlacementError(ValueError):
    """Says that a model does not fit, and by how much."""


class ModelPart(msgspec.Struct, frozen=True):
    """Is a part of a model that needs a region of its own."""

    name: str
    weight_bytes: float
    kv_bytes_per_token: float


class Region(msgspec.Struct, frozen=True):
    """Is a rectangle of PEs and the contents of their SRAM."""

    part: ModelPart
    wafer: int  # from 0
    x: int  # west edge, in PEs
    y: int  # north edge, in PEs
    width: int
    height: int
    kv_tokens: int  # the placement's, every layer holds the same tokens

    @property
    def num_pes(self) -> int:
        return self.width * self.height

    @property
    def weight_bytes_per_pe(self) -> float:
        return self.part.weight_bytes / self.num_pes

    @property
    def kv_bytes_per_pe(self) -> float:
        return self.part.kv_bytes_per_token * self.kv_tokens / self.num_pes


class Placement(msgspec.Struct, frozen=True):
    """Is a whole model on its wafers."""

    model: str
    wafer: WaferSpec
    num_wafers: int
    kv_tokens: int  # KV capacity of the fullest wafer, so of the model
    regions: tuple[Region, ...]

    @property
    def usable_bytes_per_pe(self) -> float:
        return _usable_bytes(self.wafer, 1)

    def fill(self, region: Region) -> float:
        """Returns the fraction of its usable SRAM that a region fills."""
        used = region.weight_bytes_per_pe + region.kv_bytes_per_pe
        return used / self.usable_bytes_per_pe


def parts_of(
    model: ModelShape, weight_bits: float = 16.0, kv_bits: float = 16.0
) -> list[ModelPart]:
    """Lists a model's layers in order, between its input table and its output projection."""
    per_layer_kv = model.kv_bytes_per_token(kv_bits) / model.num_layers
    tables = model.head_params + model.embedding_params
    layer_bytes = (model.num_params - tables) * weight_bits / 8 / model.num_layers
    numbers = range(1, model.num_layers + 1)
    layers = [ModelPart(f"layer {number}", layer_bytes, per_layer_kv) for number in numbers]
    table_bytes = model.head_params * weight_bits / 8
    first = [ModelPart("embedding", table_bytes, 0.0)] if model.embedding_params else []
    return [*first, *layers, ModelPart("head", table_bytes, 0.0)]


def place(
    model: ModelShape,
    *,
    wafer: WaferSpec = WSE3,
    num_wafers: int | None = None,
    weight_bits: float = 16.0,
    kv_bits: float = 16.0,
    kv_tokens: int = 0,
) -> Placement:
    """Places a model, on the fewest wafers that hold it unless their number is given.

    The KV cache holds `kv_tokens` at least, over all sequences. Raises `PlacementError` if the
    model does not fit on that many wafers or one layer not on one, and ValueError for a width or a
    number out of range.
    """
    for name, bits in (("weight", weight_bits), ("kv", kv_bits)):
        if not MIN_BITS <= bits <= MAX_BITS:
            raise ValueError(f"{name}_bits {bits:g}: expected {MIN_BITS:g} to {MAX_BITS:g}")
    if num_wafers is not None and num_wafers < 1:
        raise ValueError(f"{num_wafers} wafers: expected 1 or more")
    if kv_tokens < 0:
        raise ValueError(f"{kv_tokens} tokens of KV cache: expected 0 or more")
    parts = parts_of(model, weight_bits, kv_bits)
    usable = _usable_bytes(wafer, wafer.fabric_width * wafer.fabric_height)
    needs = [part.weight_bytes + part.kv_bytes_per_token * kv_tokens for part in parts]
    largest = max(range(len(parts)), key=lambda index: needs[index])
    if needs[largest] > usable:
        raise PlacementError(
            f"{model.name}: {parts[largest].name} needs {needs[largest] / 1e9:.2f} GB, one "
            f"{wafer.name} has {usable / 1e9:.2f} GB usable: "
            f"{(needs[largest] - usable) / 1e9:.2f} GB too little"
        )
    if num_wafers is not None:
        return _place_on(model, parts, needs, wafer, num_wafers, kv_tokens)
    for count in range(_fewest_wafers(needs, usable), len(parts) + 1):
        try:
            return _place_on(model, parts, needs, wafer, count, kv_tokens)
        except PlacementError as error:  # whole PEs round up: what fits in bytes may not in PEs
            shortfall = error
    raise shortfall


def _place_on(
    model: ModelShape,
    parts: Sequence[ModelPart],
    needs: Sequence[float],
    wafer: WaferSpec,
    num_wafers: int,
    kv_tokens: int,
) -> Placement:
    usable = _usable_bytes(wafer, wafer.fabric_width * wafer.fabric_height)
    cuts = list(itertools.pairwise(_balanced_cuts(needs, num_wafers)))
    excess = max(sum(needs[first:last]) - usable for first, last in cuts)
    if excess > 0:
        total, have = sum(needs), usable * num_wafers
        raise PlacementError(
            f"{model.name} needs {total / 1e9:.1f} GB, {num_wafers} x {wafer.name} have "
            f"{have / 1e9:.1f} GB usable: {max(total - have, excess) / 1e9:.1f} GB too little"
            + ("" if total > have else " on the fullest one, as layers are not cut")
        )
    groups = [parts[first:last] for first, last in cuts]
    capacity = min(_room_tokens(group, usable) for group in groups)
    regions, capacity = _best_tiling(groups, wafer, capacity)
    if capacity < 0:
        tightest = max(regions, key=lambda region: _excess_bytes(region, wafer))
        raise PlacementError(
            f"{model.name} fills {num_wafers} x {wafer.name} so tightly that whole PEs cannot hold "
            f"it: {tightest.part.name} has {_excess_bytes(tightest, wafer) / 1e6:.1f} MB too little"
        )
    if capacity < kv_tokens:
        raise PlacementError(
            f"{model.name} on {num_wafers} x {wafer.name}: {kv_tokens:,} tokens of KV cache asked, "
            f"{capacity:,} fit: {kv_tokens - capacity:,} too many"
        )
    placed = tuple(msgspec.structs.replace(region, kv_tokens=capacity) for region in regions)
    return Placement(model.name, wafer, num_wafers, capacity, placed)


def _usable_bytes(wafer: WaferSpec, num_pes: int) -> float:
    return num_pes * wafer.sram_bytes_per_core * (1.0 - RESERVED_FRACTION)


def _fewest_wafers(needs: Sequence[float], usable: float) -> int:
    """Returns the fewest wafers: filling each in order as far as it goes needs no more."""
    num_wafers, filled = 1, 0.0
    for need in needs:
        if filled + need > usable:
            num_wafers, filled = num_wafers + 1, 0.0
        filled += need
    return num_wafers


def _balanced_cuts(needs: Sequence[float], num_wafers: int) -> list[int]:
    """Cuts the parts into consecutive groups whose fullest is as empty as can be.

    Group w is parts[cuts[w]:cuts[w + 1]], never empty.
    """
    count = len(needs)
    if num_wafers > count:
        raise PlacementError(f"{num_wafers} wafers for {count} parts: at most one wafer a part")
    sums = [0.0, *itertools.accumulate(needs)]
    # fullest[w][n]: the least possible fullest group of the first n parts on w wafers.
    fullest = [[float("inf")] * (count + 1) for _ in range(num_wafers + 1)]
    cut_before = [[0] * (count + 1) for _ in range(num_wafers + 1)]
    fullest[0][0] = 0.0
    for wafers in range(1, num_wafers + 1):
        for end in range(wafers, count + 1):
            for start in range(end - 1, wafers - 2, -1):
                group = sums[end] - sums[start]
                if group >= fullest[wafers][end]:
                    break
                worst = max(group, fullest[wafers - 1][start])
                if worst < fullest[wafers][end]:
                    fullest[wafers][end], cut_before[wafers][end] = worst, start
    cuts = [count]
    for wafers in range(num_wafers, 0, -1):
        cuts.append(cut_before[wafers][cuts[-1]])
    return cuts[::-1]


def _room_tokens(group: Sequence[ModelPart], usable: float) -> int:
    per_token = sum(part.kv_bytes_per_token for part in group)
    if not per_token:
        return 2**53
    return int((usable - sum(part.weight_bytes for part in group)) / per_token)


def _best_tiling(
    groups: Sequence[Sequence[ModelPart]], wafer: WaferSpec, room_tokens: int
) -> tuple[list[Region], int]:
    """Tiles all wafers for the KV capacity that survives rounding to whole PEs.

    Regions come out a little smaller or larger than their share, and the tightest one decides.
    Tiling for a few per cent less leaves the tables, which have no KV cache, some slack.
    """

    def tiling(percent: int) -> tuple[list[Region], int]:
        wanted_tokens = room_tokens * percent // 100
        tiled = (_tile_wafer(part, i, wafer, wanted_tokens) for i, part in enumerate(groups))
        regions = list(itertools.chain.from_iterable(tiled))
        return regions, min(_region_tokens(region, wafer) for region in regions)

    return max((tiling(percent) for percent in range(100, 79, -2)), key=lambda tiled: tiled[1])


def _excess_bytes(region: Region, wafer: WaferSpec) -> float:
    """Returns the bytes of weights that a region lacks room for; negative if it has room."""
    return region.part.weight_bytes - _usable_bytes(wafer, region.num_pes)


def _region_tokens(region: Region, wafer: WaferSpec) -> int:
    """Returns the tokens of KV that fit beside a region's weights; may be negative."""
    free = -_excess_bytes(region, wafer)
    if not region.part.kv_bytes_per_token:
        return 2**53 if free >= 0 else -1
    return math.floor(free / region.part.kv_bytes_per_token)


def _tile_wafer(
    group: Sequence[ModelPart], number: int, wafer: WaferSpec, kv_tokens: int
) -> list[Region]:
    needs = [part.weight_bytes + part.kv_bytes_per_token * kv_tokens for part in group]
    cuts = list(itertools.pairwise(_balanced_cuts(needs, _strip_count(len(group), wafer))))
    heights = _shares([sum(needs[first:last]) for first, last in cuts], wafer.fabric_height)
    regions, y = [], 0
    for (first, last), height in zip(cuts, heights, strict=True):
        x = 0
        widths = _shares(needs[first:last], wafer.fabric_width)
        for part, width in zip(group[first:last], widths, strict=True):
            regions.append(Region(part, number, x, y, width, height, kv_tokens))
            x += width
        y += height
    return regions


def _strip_count(num_parts: int, wafer: WaferSpec) -> int:
    """Returns how many strips make equal parts most nearly square."""

    def stretch(strips: int) -> float:
        width = wafer.fabric_width / -(-num_parts // strips)
        height = wafer.fabric_height / strips
        return max(width / height, height / width)

    return min(range(1, num_parts + 1), key=stretch)


def _shares(needs: Sequence[float], length: int) -> list[int]:
    """Splits a length in proportion, in whole PEs, all of it and none empty."""
    total = sum(needs)
    edges = [round(length * part / total) for part in itertools.accumulate(needs)]
    shares = [last - first for first, last in itertools.pairwise([0, *edges])]
    if min(shares) < 1:
        raise PlacementError(f"a part of {min(needs):.0f} bytes is too small for a row of PEs")
    return shares
