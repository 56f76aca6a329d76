"""Describes wafers and the systems around them, as published.

Every number says its unit, whether it is published, computed or assumed, and where it comes from.
Fitted constants are not here: they live in `wafer_engine.hardware.constants`, one file per
generation.
"""

import msgspec


class WaferSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one wafer generation and its system."""

    name: str
    num_cores: int
    fabric_width: int  # PEs a program can address, west to east
    fabric_height: int  # PEs a program can address, north to south
    sram_bytes: int  # whole wafer
    sram_bytes_per_core: int
    macs_per_cycle: int  # fp16 multiply-accumulates per core, dense
    clock_hz: float
    link_bits: int  # one fabric link, one direction, per cycle
    io_bytes_per_s: float  # one system, all links
    power_w: float  # one system

    def cycles_to_us(self, cycles: float) -> float:
        return cycles / self.clock_hz * 1e6


# Marks: [M] published or measured, [C] computed, [U] second-hand. Sources:
#   CS-2 datasheet, WSE-3 datasheet, CS-3 datasheet: Cerebras, 2022, 2024, 2024
#   Hot Chips: Cerebras at Hot Chips, 2024-08
#   SDK: examples of the Cerebras SDK, 2023
#   WaferLLM: OSDI 2025, section 2
#   rerun: independent rerun of WaferLLM's code on a CS-3, 2026
WSE2 = WaferSpec(
    name="WSE-2",
    num_cores=850_000,  # [M] CS-2 datasheet
    fabric_width=757,  # PEs; [M] SDK
    fabric_height=996,  # PEs; [M] SDK
    sram_bytes=40_000_000_000,  # [M] CS-2 datasheet
    sram_bytes_per_core=48 * 1024,  # [M] WaferLLM; 40 GB / 850,000 agrees
    macs_per_cycle=4,  # fp16, a core; [U] 2025
    # Hz; [M] WaferLLM converts its cycles at 1.1 GHz. Others state 0.85 GHz for the CS-2 [U]; the
    # published tokens/s are 1.1 GHz over cycles, so it stays.
    clock_hz=1.1e9,
    link_bits=32,  # a cycle and direction; [M] WaferLLM
    io_bytes_per_s=150e9,  # 12 x 100 GbE; [M] CS-2 datasheet
    power_w=23_000.0,  # [M] CS-2 datasheet
)

WSE3 = WaferSpec(
    name="WSE-3",
    num_cores=900_000,  # [M] WSE-3 datasheet, Hot Chips
    fabric_width=762,  # PEs; [M] rerun
    fabric_height=1172,  # PEs; [M] rerun
    sram_bytes=44_000_000_000,  # [M] WSE-3 datasheet
    sram_bytes_per_core=48 * 1024,  # [M] Hot Chips; 44 GB / 900,000 agrees
    # Eight-wide cores [M] Hot Chips: 900,000 x 8 x 2 x 1.1 GHz = 15.8 dense PFLOPS [C]; the quoted
    # 125 PFLOPS counts sparsity.
    macs_per_cycle=8,
    clock_hz=1.1e9,  # Hz; [M] the rerun converts at it too
    link_bits=32,  # a cycle and direction; [M] rerun, the same code
    io_bytes_per_s=150e9,  # still 1.2 Tb/s a system; [U] 2026-05
    power_w=23_000.0,  # [M] CS-3 datasheet
)

WAFERS = {"WSE-2": WSE2, "WSE-3": WSE3}
SYSTEMS = {"CS-2": WSE2, "CS-3": WSE3}


def find_wafer(name: str) -> WaferSpec:
    """Finds a wafer by its or its system's name (`WSE-3`, `CS-3`), or raises ValueError."""
    folded = name.strip().upper()
    wafer = WAFERS.get(folded) or SYSTEMS.get(folded)
    if wafer is None:
        known = ", ".join([*WAFERS, *SYSTEMS])
        raise ValueError(f"unknown wafer {name!r}: expected one of {known}")
    return wafer
