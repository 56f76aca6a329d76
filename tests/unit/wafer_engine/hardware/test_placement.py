"""Placements cover wafers without overlap and never overfill a PE."""

import itertools
import struct
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path

import numpy as np
import pytest

from wafer_engine.__main__ import main
from wafer_engine.calibration.placement_picture import placement_table, png, svg
from wafer_engine.hardware.models import MODELS, find_model
from wafer_engine.hardware.placement import PlacementError, Region, parts_of, place
from wafer_engine.hardware.spec import WSE2, WSE3

SOME = ("Llama-3.1-8B", "Llama-3.3-70B", "GLM-4.6", "gpt-oss-120b", "Qwen2.5-0.5B")


def overlap(one: Region, other: Region) -> bool:
    return (
        one.wafer == other.wafer
        and one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


@pytest.mark.parametrize("name", SOME)
def test_regions_cover_each_wafer_once(name: str) -> None:
    placement = place(find_model(name))
    assert not any(overlap(*pair) for pair in itertools.combinations(placement.regions, 2))
    for number in range(placement.num_wafers):
        covered = sum(region.num_pes for region in placement.regions if region.wafer == number)
        assert covered == WSE3.fabric_width * WSE3.fabric_height


@pytest.mark.parametrize("name", SOME)
def test_no_pe_holds_more_than_it_can(name: str) -> None:
    placement = place(find_model(name))
    assert placement.kv_tokens > 0
    assert max(placement.fill(region) for region in placement.regions) <= 1.0
    wafers = [region.wafer for region in placement.regions]
    assert wafers == sorted(wafers), "layers keep their order over the wafers"


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_parts_hold_all_weights(model) -> None:
    total = sum(part.weight_bytes for part in parts_of(model))
    assert total == pytest.approx(model.weight_bytes())
    per_token = sum(part.kv_bytes_per_token for part in parts_of(model))
    assert per_token == pytest.approx(model.kv_bytes_per_token())


def test_more_wafers_hold_more_cache() -> None:
    model = find_model("Llama-3.3-70B")
    four, six = place(model, num_wafers=4), place(model, num_wafers=6)
    assert six.kv_tokens > 3 * four.kv_tokens
    asked = place(model, kv_tokens=300_000)
    assert asked.num_wafers > 4
    assert asked.kv_tokens >= 300_000


def test_errors_say_by_how_much() -> None:
    model = find_model("Llama-3.3-70B")
    with pytest.raises(PlacementError, match=r"141\.1 GB, 3 x WSE-3 .* 16\.\d GB too little"):
        place(model, num_wafers=3)
    with pytest.raises(PlacementError, match="GB too little"):
        place(model, num_wafers=4, kv_tokens=200_000)
    with pytest.raises(PlacementError, match="at most one wafer a part"):
        place(model, num_wafers=500)
    with pytest.raises(PlacementError, match=r"layer 1 needs .* GB too little"):
        place(model, kv_tokens=50_000_000)


def test_whole_pes_may_take_one_wafer_more() -> None:
    model = find_model("gpt-oss-120b")
    assert place(model, weight_bits=8).num_wafers == 4
    with pytest.raises(PlacementError, match=r"3 x WSE-3 so tightly .* \d+\.\d MB too little"):
        place(model, weight_bits=8, num_wafers=3)


@pytest.mark.parametrize(
    "asked", [{"num_wafers": 0}, {"num_wafers": -3}, {"weight_bits": 3}, {"kv_tokens": -1}]
)
def test_numbers_out_of_range_are_refused(asked: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        place(find_model("Llama-3.1-8B"), **asked)


def test_a_picture_is_svg_or_png(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, code in (("x.jpg", 2), ("x", 2), ("x.svg", 0), ("x.png", 0)):
        path = tmp_path / name
        assert main(["place", "--model", "Llama-3.1-8B", "--out", str(path)]) == code, name
        assert path.exists() == (code == 0), name
    assert "name it .svg or .png" in capsys.readouterr().err


def test_speed_prints_no_row_that_the_cache_cannot_hold(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["speed"]) == 0
    lines = capsys.readouterr().out.replace(",", "").splitlines()
    capacity = int(next(line for line in lines if "KV cache for" in line).split()[-2])
    rows = [line.split() for line in lines if line.strip()[:1].isdigit() and "at most" not in line]
    assert len(rows) >= 6
    assert all(int(context) * int(seqs) <= capacity for context, seqs, *_ in rows)


def test_generations_differ() -> None:
    model = find_model("Llama-3.3-70B")
    assert place(model, wafer=WSE2).num_wafers >= place(model).num_wafers


def test_picture_is_well_formed_and_complete() -> None:
    placement = place(find_model("Llama-3.1-8B"))
    root = ElementTree.fromstring(svg(placement))
    titles = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == len(placement.regions)
    assert any(title.startswith("layer 32:") for title in titles)
    assert len(placement_table(placement).splitlines()) == 3 + len(placement.regions)


def test_a_png_shows_every_regions_weights_and_cache() -> None:
    placement = place(find_model("Llama-3.3-70B"))
    written = png(placement)
    chunks, at = {}, 8
    while at < len(written):
        length, kind = struct.unpack_from(">I4s", written, at)
        content = written[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack_from(">I", written, at + 8 + length)
        assert checksum == zlib.crc32(kind + content)
        chunks[kind], at = content, at + 12 + length
    assert list(chunks) == [b"IHDR", b"tEXt", b"IDAT", b"IEND"]
    width, height = struct.unpack_from(">II", chunks[b"IHDR"])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    pixels = lines[:, 1:].reshape(height, width, 3)
    dark = (pixels == (0x4C, 0x78, 0xA8)).all(axis=2).sum()
    light = (pixels == (0x9E, 0xCA, 0xE9)).all(axis=2).sum()
    layers = [region for region in placement.regions if region.part.name.startswith("layer")]
    drawn = sum(region.kv_bytes_per_pe * region.num_pes for region in layers)
    drawn /= sum(region.weight_bytes_per_pe * region.num_pes for region in layers)
    assert light / dark == pytest.approx(drawn, rel=0.1)
