"""A placement as a picture and as a table."""

from html import escape

from wafer_engine.placement import Placement, Region

_SCALE = 0.32  # pixels per PE
_GAP = 24  # pixels between wafers
_TOP = 64
_COLUMNS = 6  # wafers in a row of the picture
_COLOURS = {"layer": "#4c78a8", "embedding": "#e0a030", "head": "#c05050"}
_KV_COLOUR = "#9ecae9"


def svg(placement: Placement) -> str:
    """Draw every wafer and its regions; the lighter part of a region is its KV cache."""
    wafer = placement.wafer
    width, height = wafer.fabric_width * _SCALE, wafer.fabric_height * _SCALE
    columns = min(_COLUMNS, placement.num_wafers)
    rows = -(-placement.num_wafers // columns)
    total_width = columns * (width + _GAP) + _GAP
    total_height = _TOP + rows * (height + _GAP + 16)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_width:.0f}" '
        f'height="{total_height:.0f}" font-family="sans-serif">',
        f'<text x="{_GAP}" y="26" font-size="18">{escape(_title(placement))}</text>',
        f'<text x="{_GAP}" y="46" font-size="12">dark: weights, light: KV cache, white: free; '
        f"hover over a region for its bytes per PE</text>",
    ]
    for number in range(placement.num_wafers):
        x = _GAP + number % columns * (width + _GAP)
        y = _TOP + number // columns * (height + _GAP + 16)
        lines.append(
            f'<text x="{x:.0f}" y="{y + 10:.0f}" font-size="11">{wafer.name} {number + 1}</text>'
        )
        lines.append(f'<g transform="translate({x:.1f} {y + 14:.1f})">')
        for region in placement.regions:
            if region.wafer == number:
                lines += _region(region, placement)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _title(placement: Placement) -> str:
    return (
        f"{placement.model} on {placement.num_wafers} x {placement.wafer.name}, "
        f"KV cache for {placement.kv_tokens:,} tokens"
    )


def _region(region: Region, placement: Placement) -> list[str]:
    """A region filled from the bottom: weights, then KV cache."""
    usable = placement.usable_bytes_per_pe
    x, y = region.x * _SCALE, region.y * _SCALE
    width, height = region.width * _SCALE, region.height * _SCALE
    weights = height * region.weight_bytes_per_pe / usable
    kv = height * region.kv_bytes_per_pe / usable
    colour = _COLOURS[region.part.name.split()[0]]
    note = (
        f"{region.part.name}: {region.width} x {region.height} PEs, "
        f"{region.weight_bytes_per_pe:,.0f} B weights, {region.kv_bytes_per_pe:,.0f} B KV a PE"
    )

    def box(top: float, tall: float, fill: str) -> str:
        return (
            f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{tall:.1f}" '
            f'fill="{fill}" />'
        )

    bottom = y + height
    return [
        f"<g><title>{escape(note)}</title>",
        box(bottom - weights, weights, colour),
        box(bottom - weights - kv, kv, _KV_COLOUR),
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="none" stroke="#222" stroke-width="0.6" />',
        f'<text x="{x + 3:.1f}" y="{y + 11:.1f}" font-size="9" fill="#fff">'
        f"{escape(region.part.name.removeprefix('layer '))}</text></g>",
    ]


def placement_table(placement: Placement) -> str:
    """One line per region: where it is and what each of its PEs holds, in bytes."""
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
