"""Shows a placement as a picture and as a table.

The SVG names every region and says its bytes; the PNG is the same picture without the words, which
go into its text chunk.
"""

import struct
import zlib
from collections.abc import Iterator
from html import escape

import numpy as np

from wafer_engine.hardware.placement import Placement, Region

_SCALE = 0.32  # pixels per PE
_GAP = 24  # pixels between wafers
_TOP = 64
_COLUMNS = 6  # wafers in a row of the picture
_COLOURS = {"layer": "#4c78a8", "embedding": "#e0a030", "head": "#c05050"}
_KV_COLOUR = "#9ecae9"
_FREE_COLOUR = "#ffffff"
_EDGE_COLOUR = "#222222"
_CAPTION = 16  # pixels above a wafer

Box = tuple[float, float, float, float, str]  # left, top, width, height, colour


def svg(placement: Placement) -> str:
    """Draws every wafer and its regions as SVG; the lighter part of a region is its KV cache."""
    total_width, total_height = _size(placement)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_width:.0f}" '
        f'height="{total_height:.0f}" font-family="sans-serif">',
        f'<text x="{_GAP}" y="26" font-size="18">{escape(_title(placement))}</text>',
        f'<text x="{_GAP}" y="46" font-size="12">dark: weights, light: KV cache, white: free; '
        f"hover over a region for its bytes per PE</text>",
    ]
    for number in range(placement.num_wafers):
        x, y = _origin(number, placement)
        lines.append(
            f'<text x="{x:.0f}" y="{y - 4:.0f}" font-size="11">{placement.wafer.name} '
            f"{number + 1}</text>"
        )
    for region in placement.regions:
        lines += _region(region, placement)
    return "\n".join([*lines, "</svg>", ""])


def png(placement: Placement) -> bytes:
    """Draws the same boxes as PNG."""
    width, height = (round(length) for length in _size(placement))
    pixels = np.full((height, width, 3), 255, dtype=np.uint8)
    for region in placement.regions:
        for left, top, wide, tall, colour in _boxes(region, placement):
            rows = slice(round(top), round(top + tall))
            columns = slice(round(left), round(left + wide))
            pixels[rows, columns] = _rgb(colour)
        left, top, wide, tall = _frame(region, placement)
        pixels[round(top), round(left) : round(left + wide)] = _rgb(_EDGE_COLOUR)
        pixels[round(top) : round(top + tall), round(left)] = _rgb(_EDGE_COLOUR)
    # Every line begins with its filter: 0, none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits a channel, RGB
    title = b"Title\0" + _title(placement).encode("latin-1", "replace")
    pixel_bytes = zlib.compress(lines.tobytes(), 9)
    chunks = {b"IHDR": header, b"tEXt": title, b"IDAT": pixel_bytes, b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, chunks, chunks.values()))


def _chunk(kind: bytes, content: bytes) -> bytes:
    """Encodes a chunk of a PNG file: length, kind, content, checksum (PNG specification, 5.3)."""
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour.removeprefix("#")))


def _size(placement: Placement) -> tuple[float, float]:
    left, _ = _origin(min(_COLUMNS, placement.num_wafers) - 1, placement)
    _, top = _origin(placement.num_wafers - 1, placement)
    wafer = placement.wafer
    return left + wafer.fabric_width * _SCALE + _GAP, top + wafer.fabric_height * _SCALE + _GAP


def _origin(number: int, placement: Placement) -> tuple[float, float]:
    row, column = divmod(number, min(_COLUMNS, placement.num_wafers))
    wafer = placement.wafer
    return (
        _GAP + column * (wafer.fabric_width * _SCALE + _GAP),
        _TOP + _CAPTION + row * (wafer.fabric_height * _SCALE + _GAP + _CAPTION),
    )


def _frame(region: Region, placement: Placement) -> tuple[float, float, float, float]:
    x, y = _origin(region.wafer, placement)
    left, top = x + region.x * _SCALE, y + region.y * _SCALE
    return left, top, region.width * _SCALE, region.height * _SCALE


def _boxes(region: Region, placement: Placement) -> Iterator[Box]:
    """Yields the boxes of a region filled from the bottom: weights, then KV cache."""
    left, top, width, height = _frame(region, placement)
    usable = placement.usable_bytes_per_pe
    weights = height * region.weight_bytes_per_pe / usable
    kv = height * region.kv_bytes_per_pe / usable
    bottom = top + height
    yield left, top, width, height, _FREE_COLOUR
    yield left, bottom - weights, width, weights, _COLOURS[region.part.name.split()[0]]
    yield left, bottom - weights - kv, width, kv, _KV_COLOUR


def _title(placement: Placement) -> str:
    return (
        f"{placement.model} on {placement.num_wafers} x {placement.wafer.name}, "
        f"KV cache for {placement.kv_tokens:,} tokens"
    )


def _region(region: Region, placement: Placement) -> list[str]:
    left, top, width, height = _frame(region, placement)
    note = (
        f"{region.part.name}: {region.width} x {region.height} PEs, "
        f"{region.weight_bytes_per_pe:,.0f} B weights, {region.kv_bytes_per_pe:,.0f} B KV a PE"
    )
    boxes = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" fill="{colour}" />'
        for x, y, wide, tall, colour in _boxes(region, placement)
    ]
    return [
        f"<g><title>{escape(note)}</title>",
        *boxes,
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="none" stroke="{_EDGE_COLOUR}" stroke-width="0.6" />',
        f'<text x="{left + 3:.1f}" y="{top + 11:.1f}" font-size="9" fill="#fff">'
        f"{escape(region.part.name.removeprefix('layer '))}</text></g>",
    ]


def placement_table(placement: Placement) -> str:
    """Lists where each region is and what each of its PEs holds, in bytes."""
    lines = [
        _title(placement),
        f"{placement.wafer.sram_bytes_per_core:,} B of SRAM a PE, "
        f"{placement.usable_bytes_per_pe:,.0f} B usable",
        f"{'region':12}  {'wafer':>5}  {'at':>10}  {'PEs':>11}  {'weights':>8}  {'KV':>8}  "
        f"{'full':>6}",
    ]
    for region in placement.regions:
        at, size = f"{region.x},{region.y}", f"{region.width}x{region.height}"
        lines.append(
            f"{region.part.name:12}  {region.wafer + 1:5}  {at:>10}  {size:>11}  "
            f"{region.weight_bytes_per_pe:8,.0f}  {region.kv_bytes_per_pe:8,.0f}  "
            f"{placement.fill(region):6.1%}"
        )
    return "\n".join(lines)
