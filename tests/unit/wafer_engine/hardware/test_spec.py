"""The wafers' numbers hang together."""

import pytest

from wafer_engine.hardware.spec import WSE2, WSE3, WaferSpec, find_wafer


@pytest.mark.parametrize(("wafer", "flops"), [(WSE3, 15.84e15), (WSE2, 7.48e15)])
def test_peak_is_the_dense_rate(wafer: WaferSpec, flops: float) -> None:
    # A multiply-accumulate is two operations.
    peak_flops = wafer.num_cores * wafer.macs_per_cycle * 2 * wafer.clock_hz
    assert peak_flops == pytest.approx(flops)


@pytest.mark.parametrize("wafer", [WSE2, WSE3], ids=lambda wafer: wafer.name)
def test_sram_and_fabric_agree_with_the_core_count(wafer) -> None:
    assert wafer.num_cores * wafer.sram_bytes_per_core == pytest.approx(wafer.sram_bytes, rel=0.05)
    addressable = wafer.fabric_width * wafer.fabric_height
    assert 0.85 * wafer.num_cores < addressable <= wafer.num_cores


def test_systems_and_wafers_are_found_by_name() -> None:
    assert find_wafer("CS-3") is WSE3
    assert find_wafer("wse-2") is WSE2
    with pytest.raises(ValueError, match="expected one of WSE-2"):
        find_wafer("WSE-9")


def test_cycles_become_microseconds() -> None:
    assert WSE3.cycles_to_us(1100) == pytest.approx(1.0)
