"""Serves the simulated GPU server as a backend of the deep group. This is an edge."""

from typing import ClassVar

from backends.configuration import BackendKind
from backends.contract import BackendGroup, BackendInfo
from backends.gpu_engine.cost import (
    DEFAULT_ENGINE,
    DEFAULT_GPU,
    DEFAULT_MODEL,
    DEFAULT_PRECISION,
    DEFAULT_TP,
    GpuCost,
)
from backends.simulated.backend import SimulatedBackend, SimulatedOptions, machine_options
from wafer_engine.batching.speculation import NO_SPECULATION, Speculation


class GpuOptions(SimulatedOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describes the GPU deployment. None stands for what `gpu_engine.cost` derives or fitted."""

    model: str = "lanewise-deep"  # the id clients pin it by
    accepts_images: bool = True
    shape: str = DEFAULT_MODEL  # a public model shape's name: wafer_engine/hardware/models.py
    gpu: str = DEFAULT_GPU
    engine: str = DEFAULT_ENGINE  # whose constants: backends/gpu_engine/constants/
    tp: int = DEFAULT_TP
    pp: int = 1
    dp: int = 1
    expert_parallel: bool = False  # routed experts over all tp x dp GPUs, else cut by tp
    precision: str = DEFAULT_PRECISION
    kv_precision: str | None = None  # of the KV cache; bf16 where None
    speculation: Speculation = NO_SPECULATION
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    kv_capacity_tokens: int | None = None
    window_tokens: int = 262_144
    max_output_tokens: int = 65_536


def cost_of(options: GpuOptions) -> GpuCost:
    """Makes the cost model that the options describe.

    Raises ValueError for an unknown name, a model that does not fit, or an attention window that
    no context reaches.
    """
    machine = machine_options(options)
    return GpuCost(model=machine.pop("shape"), **machine)


class GpuBackendConfig(BackendKind, frozen=True, tag="gpu"):
    """Configures a GPU server: many users at once, each at a tenth of the wafer's speed or less."""

    group: ClassVar[BackendGroup] = "deep"

    name: str = "gpu"
    options: GpuOptions = GpuOptions()

    def machine(self) -> tuple[BackendInfo, GpuCost]:
        """Describes the backend and what its steps cost. Raises ValueError, as `cost_of`."""
        options = self.options
        cost = cost_of(options)
        info = options.info(
            self.name,
            self.group,
            accepts_images=options.accepts_images,
            takes_predictions=options.takes_predictions,
            speed_basis=cost.fit.label,
        )
        return info, cost

    def make(self) -> SimulatedBackend:
        info, cost = self.machine()
        return SimulatedBackend(info, cost, self.options, power_w=cost.power_w)
