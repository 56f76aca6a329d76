"""Serves the simulated wafer as a backend of the fast group. This is an edge."""

from typing import ClassVar

from backends.configuration import BackendKind
from backends.contract import BackendGroup, BackendInfo
from backends.simulated.backend import SimulatedBackend, SimulatedOptions, machine_options
from wafer_engine.batching.speculation import Speculation
from wafer_engine.hardware.cost import DEFAULT_MODEL, LINK_LATENCY_US, WaferCost


class WaferOptions(SimulatedOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describes the wafers. None stands for what `wafer_engine.hardware.cost` derives or fitted."""

    model: str = "lanewise-fast"  # the id clients pin it by
    shape: str = DEFAULT_MODEL  # a public model shape's name: wafer_engine/hardware/models.py
    wafer: str = "WSE-3"
    num_wafers: int | None = None  # None: as many as hold the weights and one full window
    weight_bits: float = 16.0
    kv_bits: float = 16.0
    speculation: Speculation | None = None  # None: the draft assumed for the service
    max_num_seqs: int | None = None
    max_num_batched_tokens: int = 2048
    long_prefill_tokens: int = 256
    link_latency_us: float = LINK_LATENCY_US  # per crossing between wafers
    clock_hz: float | None = None


def cost_of(options: WaferOptions) -> WaferCost:
    """Makes the cost model that the options describe.

    Raises ValueError for an unknown name, a model that does not fit, or an attention window that
    no context reaches.
    """
    machine = machine_options(options)
    return WaferCost(machine.pop("shape"), kv_tokens=options.window_tokens, **machine)


class WaferBackendConfig(BackendKind, frozen=True, tag="wafer"):
    """Configures a wafer-scale engine: very fast for each user, few users at a time."""

    group: ClassVar[BackendGroup] = "fast"

    name: str = "wafer"
    options: WaferOptions = WaferOptions()

    def machine(self) -> tuple[BackendInfo, WaferCost]:
        """Describes the backend and what its steps cost. Raises ValueError, as `cost_of`."""
        options = self.options
        info = options.info(self.name, self.group, takes_predictions=options.takes_predictions)
        return info, cost_of(options)

    def make(self) -> SimulatedBackend:
        info, cost = self.machine()
        return SimulatedBackend(info, cost, self.options, power_w=cost.power_w)
