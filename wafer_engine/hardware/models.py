"""Holds the shapes of public models: their weights, KV cache and arithmetic.

The shapes are in `model_shapes.csv`, each with the published `config.json` it is from (2022-05 to
2026-08); a test recomputes every parameter count from the dimensions. Active parameters count the
input table, as total ones do. A name says the shape, nothing about quality.
"""

import csv
import difflib
import io
import re
from collections.abc import Iterable, Mapping
from importlib import resources

import msgspec


class Experts(msgspec.Struct, frozen=True):
    """Describes the mixture-of-experts part of a model."""

    num_experts: int  # per MoE layer
    top_k: int  # routed experts each token uses
    ffn: int  # inner width of one expert
    shared_ffn: int  # inner width of the expert every token uses; 0 where there is none
    num_layers: int  # layers that are MoE; the others are dense


class ModelShape(msgspec.Struct, frozen=True):
    """Holds the dimensions of one model."""

    name: str
    params_total_b: float  # 1e9 parameters
    params_active_b: float  # 1e9 parameters used by one token
    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn: int  # inner width of dense layers; 0 where every layer is MoE
    vocab: int
    moe: Experts | None = None
    latent_kv: int = 0  # MLA: values kept per token and layer instead of K and V
    ffn_mats: int = 3  # 3 for gated FFNs, 2 for plain ones
    tied_embeddings: bool = False
    sliding_layers: int = 0  # layers that attend to a window only
    sliding_window_tokens: int = 0
    native_expert_bits: float = 0.0  # published width of expert weights; 0: as the rest
    source: str = ""  # the repository on Hugging Face whose config.json has the dimensions

    @property
    def num_params(self) -> float:
        return self.params_total_b * 1e9

    @property
    def num_active_params(self) -> float:
        return self.params_active_b * 1e9

    @property
    def head_params(self) -> int:
        """Returns the parameters of the output projection: hidden x vocab."""
        return self.hidden * self.vocab

    @property
    def embedding_params(self) -> int:
        """Returns the parameters only looked up: the input table, unless it is the head itself."""
        return 0 if self.tied_embeddings else self.head_params

    @property
    def matmul_params(self) -> float:
        """Returns the active parameters in a token's matrix products, head included."""
        return self.num_active_params - self.embedding_params

    @property
    def layer_active_params(self) -> float:
        return (self.matmul_params - self.head_params) / self.num_layers

    @property
    def expert_params(self) -> float:
        """Returns the parameters of all routed experts of all layers; 0 for dense models."""
        if self.moe is None:
            return 0.0
        per_expert = self.ffn_mats * self.hidden * self.moe.ffn
        return float(per_expert * self.moe.num_experts * self.moe.num_layers)

    @property
    def active_ffn(self) -> float:
        """Returns the inner FFN width that a token uses in a mean layer, experts summed."""
        if self.moe is None:
            return float(self.ffn)
        routed = self.moe.top_k * self.moe.ffn + self.moe.shared_ffn
        dense_layers = self.num_layers - self.moe.num_layers
        return (routed * self.moe.num_layers + self.ffn * dense_layers) / self.num_layers

    @property
    def attention_macs_per_pair(self) -> int:
        """Counts one layer's multiply-accumulates per (query, key) pair: scores, then values.

        MLA is counted as run in decode, on the latent: 576 for scores, 512 for values, per head.
        """
        if self.latent_kv:
            return self.num_heads * (2 * self.latent_kv - 64)
        return 2 * self.num_heads * self.head_dim

    def kv_bytes_per_token(self, kv_bits: float = 16.0) -> float:
        """Returns one token's KV cache over all layers, in bytes; sliding layers count in full."""
        values = self.latent_kv or 2 * self.num_kv_heads * self.head_dim
        return self.num_layers * values * kv_bits / 8

    def weight_bytes(self, weight_bits: float = 16.0) -> float:
        """Returns all weights in bytes, every matrix at `weight_bits`."""
        return self.num_params * weight_bits / 8

    def attention_span(self, window_tokens: int | None = None) -> tuple[float, float]:
        """Returns a query's tokens in a mean layer, as `fixed + fraction * context_tokens`.

        Sliding layers, and all layers where `window_tokens` sets a sparse attention, count their
        whole window however short the context is: an upper bound that keeps the cost affine.
        """
        sliding = self.sliding_layers / self.num_layers
        if window_tokens is not None:
            own = min(self.sliding_window_tokens, window_tokens)
            return sliding * own + (1.0 - sliding) * window_tokens, 0.0
        return sliding * self.sliding_window_tokens, 1.0 - sliding


# column -> field of `Experts`
_EXPERTS = {
    "num_experts": "num_experts", "top_k": "top_k", "expert_ffn": "ffn", "shared_ffn": "shared_ffn",
    "moe_layers": "num_layers",
}  # fmt: skip


def _shape(row: Mapping[str, str]) -> ModelShape:
    """Reads a line of the file; empty cells get the values of a plain dense model."""
    cells: dict[str, object] = {name: cell for name, cell in row.items() if cell}
    experts = {field: row[column] for column, field in _EXPERTS.items() if row[column]}
    if experts:
        cells["moe"] = experts
    cells.setdefault("params_active_b", row["params_total_b"])
    return msgspec.convert(cells, ModelShape, strict=False)


def read_table(package: str, name: str) -> list[dict[str, str]]:
    """Reads the lines of a CSV file in a package."""
    text = (resources.files(package) / name).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def _read_shapes() -> dict[str, ModelShape]:
    rows = {row["name"]: row for row in read_table(__package__, "model_shapes.csv")}
    return {
        name: msgspec.structs.replace(_shape(rows[row["same_as"] or name]), name=name)
        for name, row in rows.items()
    }


MODELS = _read_shapes()

# Public models with known names that are not modelled, and why.
_UNPUBLISHED = ("GPT-5.3-Codex-Spark", "GPT-5.6-Sol", "Gemma-4-31B", "Qwen-3.8-27B")
_HYBRIDS = ("Qwen3-Next-80B-A3B", "Kimi-Linear-48B-A3B")
NOT_MODELLED = {
    **dict.fromkeys(_UNPUBLISHED, "its dimensions are not published"),
    **dict.fromkeys(_HYBRIDS, "most of its layers are no attention layers"),
}

# Parts of a model's name that do not change its shape: tuning, precision, file format.
_ADDED = frozenset((
    "meta", "hf", "instruct", "it", "chat", "base", "thinking", "preview", "latest", "turbo",
    "fast", "dynamic", "quantized", "quant", "awq", "gptq", "gguf", "4bit", "8bit", "fp4", "nvfp4",
    "mxfp4", "fp8", "fp16", "bf16", "int4", "int8", "w4a16", "w8a8", "w8a16", "4k", "8k", "16k",
    "32k", "64k", "128k", "1m",
))  # fmt: skip
_RELEASE = re.compile(r"v0\.\d|\d{4}|\d{8}|q\d(?:-\w+)?")  # v0.3, 2507, 20250528, q4


def _folded(name: str) -> str:
    """Reduces a model's name to its shape: no organisation, tuning, precision or release."""
    plain = re.sub(r"\([^)]*\)", " ", name.rsplit("/", 1)[-1]).lower()
    words = re.split(r"[\s_\-:]+|(?<=[a-z])\.(?=[a-z])", plain)
    kept = [word for word in words if word not in _ADDED and not _RELEASE.fullmatch(word)]
    return re.sub(r"[^a-z0-9.]", "", "".join(kept)).replace("metallama", "llama")


def _dotless(folded: Iterable[str]) -> dict[str, str]:
    """Maps names without dots (`llama_3_1_8b`) to the names that they still identify."""
    found: dict[str, list[str]] = {}
    for name in folded:
        found.setdefault(name.replace(".", ""), []).append(name)
    return {dotless: names[0] for dotless, names in found.items() if len(names) == 1}


_BY_FOLDED_NAME = {_folded(name): shape for name, shape in MODELS.items()}
_BY_DOTLESS_NAME = _dotless(_BY_FOLDED_NAME)
_REASONS = {_folded(name): reason for name, reason in NOT_MODELLED.items()}


def find_model(name: str) -> ModelShape:
    """Finds a shape by model name, in common spellings.

    An organisation, blanks, hyphens and case do not matter, nor do words that say how a model was
    tuned, quantized or released: `nvidia/Llama-3.1-8B-Instruct-FP8` is `Llama-3.1-8B`. Raises
    ValueError for no such model, or one that is known but cannot be modelled.
    """
    folded = _folded(name)
    shape = _BY_FOLDED_NAME.get(_BY_DOTLESS_NAME.get(folded, folded))
    if shape is not None:
        return shape
    if folded in _REASONS:
        raise ValueError(f"model {name!r}: {_REASONS[folded]}, so it is not modelled")
    near = difflib.get_close_matches(folded, _BY_FOLDED_NAME, n=4, cutoff=0.5)
    names = ", ".join(_BY_FOLDED_NAME[key].name for key in near)
    nearest = f"the nearest of {len(MODELS)} known ones are {names}" if names else "none is near"
    raise ValueError(
        f"unknown model {name!r}: {nearest}; `python -m wafer_engine models` lists all"
    )
