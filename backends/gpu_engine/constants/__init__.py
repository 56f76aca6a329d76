"""Reads the fitted constants of GPU engines: one file per engine family and version.

A file holds one set of constants per GPU it was fitted on. `python -m backends.gpu_engine
calibrate` writes those in this folder, `lanewise engine fit` others.
"""

from importlib import resources
from pathlib import Path

import msgspec

from wafer_engine.hardware.constants import read_constants

FAR_BAND = 0.25  # mean error of a card's own rows that is told with its figures: as of another's


class GpuConstants(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the efficiencies and overheads of one engine version on one kind of GPU."""

    gpus: tuple[str, ...]  # GpuSpec names these were fitted on; empty: any
    compute: float  # fraction of peak operations that matrix products reach
    memory: float = 0.8  # fraction of memory bandwidth for weights
    kv: float = 0.8  # fraction of memory bandwidth for the KV cache
    step_us: float = 200.0  # per step, whatever it holds
    layer_us: float = 0.0  # per layer and step: small kernels between the products
    seq_us: float = 0.0  # per sequence and step: sampling, scheduling, detokenizing
    # Of the link that the rows used; 0: as `spec.LINKS` has it, which is also so on another link.
    allreduce_us: float = 0.0  # per allreduce of a large message: its latency
    all_to_all_us: float = 0.0
    link: float = 0.0  # fraction of a link's bandwidth
    links: tuple[str, ...] = ()  # the kinds of link that the three belong to
    launch_us: float = 0.0  # per layer: the least duration of a decode step's products, host-bound
    eager_us: float = 0.0  # the same for steps with prompt tokens, which run without graphs
    grouped_kv: float = 0.0  # instead of `kv` for models with grouped heads; 0: the same
    quantized: float = 1.0  # memory efficiency of weight-only quantized products, relative
    dequantized: float = 1.0  # compute efficiency of weight-only 4-bit products, relative
    moe: bool = False  # for mixture-of-experts models only
    rows: tuple[str, ...] = ()  # what these were fitted to
    basis: str = ""  # the source of a set that was taken over, and the reason
    band: float = 0.0  # mean error of the rows it is for, or of cards left out; 0: not known

    @property
    def label(self) -> str:
        """Says where a figure that rests on a set taken over comes from, and how far to trust it.

        Of a set of the card's own it only says so where that is not far; else it is empty.
        """
        if not self.basis:
            is_far = self.band >= FAR_BAND
            return f"off its own measurements by about {self.band:.0%}" if is_far else ""
        return f"{self.basis}, within about {self.band:.0%}" if self.band else self.basis


class EngineConstants(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the limits and constants of one engine family at one version."""

    family: str
    version: str
    memory_fraction: float  # of what weights and buffers leave, given to the KV cache
    buffer_bytes: float  # per GPU: activations, graphs, communication
    max_num_seqs: int  # the engine's default, or what the rows were measured with
    max_num_batched_tokens: int  # likewise
    sets: tuple[GpuConstants, ...]

    def for_gpu(self, gpu: str, moe: bool = False, link: str = "") -> GpuConstants:
        """Returns the set fitted on a GPU, or the one for any; MoE models prefer their own.

        Of the sets for any, one whose rows had the same kind of link comes first. Raises ValueError
        if this engine version was fitted on neither.
        """
        own = [constants for constants in self.sets if gpu in constants.gpus]
        anyones = [constants for constants in self.sets if not constants.gpus]
        anyones.sort(key=lambda constants: link not in constants.links)
        for wanted in (moe, False):
            for constants in [*own, *anyones]:
                if constants.moe == wanted:
                    return constants
        fitted = ", ".join(name for constants in self.sets for name in constants.gpus)
        raise ValueError(f"{self.family} {self.version} has no constants for {gpu}: has {fitted}")


_NAMES = sorted(
    entry.name.removesuffix(".json")
    for entry in resources.files(__name__).iterdir()
    if entry.name.endswith(".json")
)
ENGINES = {name: read_constants(__name__, name, EngineConstants) for name in _NAMES}


def find_engine(name: str) -> EngineConstants:
    """Finds constants by file name (`trtllm_0_17`), or in a file that `lanewise engine fit` wrote.

    Raises ValueError if there is no such file, or it is none of constants.
    """
    if name.endswith(".json"):
        try:
            return msgspec.json.decode(Path(name).read_bytes(), type=EngineConstants)
        except OSError as error:
            raise ValueError(f"constants {name}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise ValueError(f"constants {name}: {error}") from error
    engine = ENGINES.get(name)
    if engine is None:
        raise ValueError(f"no constants for engine {name!r}: expected one of {', '.join(ENGINES)}")
    return engine
