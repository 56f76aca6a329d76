"""The simulated wafer as a backend of the fast group.

An edge: it calls other edges.
"""

from typing import ClassVar

import msgspec

from backends.contract import BackendGroup, BackendInfo
from backends.simulated.backend import ScriptOptions, SimulatedBackend, check_attention_window
from wafer_engine.batching.speculation import Speculation
from wafer_engine.hardware.cost import DEFAULT_MODEL, LINK_LATENCY_US, WaferCost


class WaferOptions(ScriptOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What runs on the wafer. Fields left None take what `wafer_engine.hardware.cost` derives or
    fitted."""

    model: str = "lanewise-fast"  # the id clients pin it by
    shape: str = DEFAULT_MODEL  # a public model shape's name: wafer_engine/hardware/models.py
    wafer: str = "WSE-3"
    num_wafers: int | None = None  # None: as many as hold the weights and one full window
    weight_bits: float = 16.0
    kv_bits: float = 16.0
    speculation: Speculation | None = None  # None: the draft the hosted service is assumed to run
    attention_window_tokens: int | None = None  # sparse attention; all KV cache is kept
    max_num_seqs: int | None = None
    max_num_batched_tokens: int = 2048
    # Published services add a network and a front door (109 ms); here the real ones are in front.
    overhead_us: float | None = 0.0
    link_latency_us: float = LINK_LATENCY_US  # per crossing between wafers
    clock_hz: float | None = None


def cost_of(options: WaferOptions) -> WaferCost:
    """The cost model that options ask for.

    Raises:
        ValueError: An unknown shape or wafer, a model that does not fit, or an attention window
            that no context reaches.
    """
    check_attention_window(options.attention_window_tokens, options.window_tokens)
    return WaferCost(
        options.shape,
        wafer=options.wafer,
        num_wafers=options.num_wafers,
        weight_bits=options.weight_bits,
        kv_bits=options.kv_bits,
        kv_tokens=options.window_tokens,
        speculation=options.speculation,
        attention_window_tokens=options.attention_window_tokens,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        overhead_us=options.overhead_us,
        link_latency_us=options.link_latency_us,
        clock_hz=options.clock_hz,
    )


class WaferBackendConfig(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="wafer"
):
    """A wafer-scale engine: very fast for each user, few users at a time."""

    group: ClassVar[BackendGroup] = "fast"

    name: str = "wafer"
    options: WaferOptions = WaferOptions()

    def make(self) -> SimulatedBackend:
        """The backend; must run inside the event loop.

        Raises:
            OSError, ValueError: It cannot be made with these options.
        """
        options = self.options
        info = BackendInfo(
            name=self.name,
            model=options.model,
            group=self.group,
            window_tokens=options.window_tokens,
            max_output_tokens=options.max_output_tokens,
        )
        return SimulatedBackend(info, cost_of(options), options)
