"""The machines: wafers and the systems around them, as published.

Every number says its unit, whether it is published, computed or assumed, and where it comes from.
Fitted constants are not here: they live in `wafer_engine.constants`, one file per generation.
"""

import msgspec


class WaferSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One wafer generation and its system."""

    name: str
    num_cores: int
    fabric_width: int  # PEs a program can address, west to east
    fabric_height: int  # PEs a program can address, north to south
    sram_bytes: int  # whole wafer
    sram_bytes_per_core: int
    macs_per_cycle: int  # fp16 multiply-accumulates per core, dense
    clock_hz: float
    link_bits: int  # one fabric link, one direction, per cycle
    max_routed_paths: int  # per core
    io_bytes_per_s: float  # one system, all links
    power_w: float  # one system

    @property
    def peak_dense_flops(self) -> float:
        """Dense fp16 operations per second; a multiply-accumulate is two."""
        return self.num_cores * self.macs_per_cycle * 2 * self.clock_hz

    def cycles_to_us(self, cycles: float) -> float:
        return cycles / self.clock_hz * 1e6


# Cores, SRAM and power: Cerebras CS-2 datasheet (2022), published. Fabric size: Cerebras SDK
# examples (2023), published. Routed paths: five header bits, WaferLLM section 2 (OSDI 2025).
# Clock: WaferLLM converts cycles at 1.1 GHz; other users state 0.85 GHz for the CS-2. It is kept
# at 1.1 because the published tokens/s are 1.1 GHz over cycles. Four multiply-accumulates per
# cycle: second-hand. I/O: 12 x 100 GbE, CS-2 datasheet.
WSE2 = WaferSpec(
    name="WSE-2",
    num_cores=850_000,
    fabric_width=757,
    fabric_height=996,
    sram_bytes=40_000_000_000,
    sram_bytes_per_core=48 * 1024,
    macs_per_cycle=4,
    clock_hz=1.1e9,
    link_bits=32,
    max_routed_paths=32,
    io_bytes_per_s=150e9,
    power_w=23_000.0,
)

# Cores and SRAM: Cerebras WSE-3 datasheet and Hot Chips 2024, published. Fabric size: independent
# CS-3 rerun of WaferLLM (2026), measured. Eight-wide cores: the dense rate 900,000 x 8 x 2 x
# 1.1 GHz = 15.8 PFLOPS is computed; the quoted 125 PFLOPS counts sparsity. I/O still 1.2 Tb/s per
# system: second-hand (2026-05). Power: CS-3 datasheet, 23 kW, published.
WSE3 = WaferSpec(
    name="WSE-3",
    num_cores=900_000,
    fabric_width=762,
    fabric_height=1172,
    sram_bytes=44_000_000_000,
    sram_bytes_per_core=48 * 1024,
    macs_per_cycle=8,
    clock_hz=1.1e9,
    link_bits=32,
    max_routed_paths=32,
    io_bytes_per_s=150e9,
    power_w=23_000.0,
)

WAFERS = {"WSE-2": WSE2, "WSE-3": WSE3}
SYSTEMS = {"CS-2": WSE2, "CS-3": WSE3}


def find_wafer(name: str) -> WaferSpec:
    """Find a wafer by its own name or its system's (`WSE-3`, `CS-3`).

    Raises:
        ValueError: The name is none of the known ones.
    """
    wafer = WAFERS.get(name) or SYSTEMS.get(name)
    if wafer is None:
        known = ", ".join([*WAFERS, *SYSTEMS])
        raise ValueError(f"unknown wafer {name!r}: expected one of {known}")
    return wafer
