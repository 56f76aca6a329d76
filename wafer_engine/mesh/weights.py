"""Reads the weights of small models from a model folder.

A folder is what model hubs hand out: `config.json` and `model.safetensors` (one file or several).
The safetensors format is read here, as it is a length, a JSON header and raw numbers. Llama-style
models are understood: RMS norms, rotary positions, grouped heads, gated FFN, biases on Q, K and V.
"""

import json
import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from wafer_engine.mesh.mesh import Array

# Parameters beyond which a functional simulation is pointless: hours a token in double precision.
MAX_PARAMS = 700_000_000


class TransformerShape(msgspec.Struct, frozen=True):
    """Holds the dimensions of a model that is really computed."""

    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rope_base: float = 10_000.0
    norm_epsilon: float = 1e-5

    @property
    def num_params(self) -> int:
        heads = self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)
        layer = self.hidden * heads + 3 * self.hidden * self.ffn + 2 * self.hidden
        return self.num_layers * layer + 2 * self.vocab * self.hidden + self.hidden


class LayerWeights(msgspec.Struct, frozen=True):
    """Holds one layer; matrices are inputs by outputs."""

    attention_norm: Array
    query: Array
    key: Array
    value: Array
    query_bias: Array
    key_bias: Array
    value_bias: Array
    output: Array
    ffn_norm: Array
    gate: Array
    up: Array
    down: Array


class TransformerWeights(msgspec.Struct, frozen=True):
    """Holds a whole model."""

    shape: TransformerShape
    embedding: Array  # vocab x hidden
    layers: tuple[LayerWeights, ...]
    final_norm: Array
    head: Array  # hidden x vocab


def load_model(folder: Path) -> TransformerWeights:
    """Reads a Llama-style model from `config.json` and its safetensors files.

    Raises ValueError if it is too large to simulate (by how much), of another architecture, or
    lacks a dimension or a tensor, and FileNotFoundError for no such folder, configuration or
    weights file.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    try:
        shape = _shape_of(config)
    except KeyError as error:
        raise ValueError(f"{folder / 'config.json'} has no {error}") from error
    if shape.num_params > MAX_PARAMS:
        raise ValueError(
            f"{folder} has {shape.num_params / 1e6:,.0f} million parameters, "
            f"{shape.num_params / MAX_PARAMS:.1f} times the {MAX_PARAMS / 1e6:,.0f} million that "
            "the mesh simulation takes: use the cost model instead"
        )
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no *.safetensors in {folder}")
    tensors: dict[str, Array] = {}
    for file in files:
        tensors.update(read_safetensors(file))
    return _model(shape, tensors)


# What the hub's Llama-style files call a layer's tensors; its matrices are outputs by inputs.
_LAYER_TENSORS = {
    "attention_norm": "input_layernorm.weight",
    "query": "self_attn.q_proj.weight",
    "key": "self_attn.k_proj.weight",
    "value": "self_attn.v_proj.weight",
    "output": "self_attn.o_proj.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


def _model(shape: TransformerShape, tensors: dict[str, Array]) -> TransformerWeights:
    def find(name: str) -> Array:
        if name not in tensors:
            raise ValueError(f"the weights hold no tensor {name!r}")
        return tensors[name]

    embedding = find("model.embed_tokens.weight")
    head = find("lm_head.weight") if "lm_head.weight" in tensors else embedding
    layers = []
    for number in range(shape.num_layers):
        at = f"model.layers.{number}."
        found = {field: find(at + name).T for field, name in _LAYER_TENSORS.items()}
        for part in ("query", "key", "value"):
            bias = at + _LAYER_TENSORS[part].replace("weight", "bias")
            found[f"{part}_bias"] = tensors.get(bias, np.zeros(found[part].shape[1]))
        layers.append(LayerWeights(**found))
    return TransformerWeights(shape, embedding, tuple(layers), find("model.norm.weight"), head.T)


def _shape_of(config: dict[str, Any]) -> TransformerShape:
    supported = ("llama", "qwen2", "mistral")
    if config.get("model_type") not in supported:
        raise ValueError(
            f"model type {config.get('model_type')!r}: expected one of {', '.join(supported)}"
        )
    if config.get("rope_scaling"):
        raise ValueError("scaled rotary positions are not simulated: config.json sets rope_scaling")
    heads = int(config["num_attention_heads"])
    return TransformerShape(
        num_layers=int(config["num_hidden_layers"]),
        hidden=int(config["hidden_size"]),
        num_heads=heads,
        num_kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
        ffn=int(config["intermediate_size"]),
        vocab=int(config["vocab_size"]),
        rope_base=float(config.get("rope_theta") or 10_000.0),
        norm_epsilon=float(config.get("rms_norm_eps") or 1e-5),
    )


_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit


def read_safetensors(path: Path) -> dict[str, Array]:
    """Reads every tensor of a safetensors file, widened to doubles.

    Raises ValueError for another format, or a type other than F64, F32, F16 and BF16.
    """
    raw = path.read_bytes()
    if len(raw) < 8:
        raise ValueError(f"{path} is no safetensors file: {len(raw)} bytes")
    (length,) = struct.unpack("<Q", raw[:8])
    if length > min(len(raw) - 8, _MAX_HEADER_BYTES):
        raise ValueError(f"{path} is no safetensors file: it claims a header of {length} bytes")
    header = json.loads(raw[8 : 8 + length])
    body = memoryview(raw)[8 + length :]
    header.pop("__metadata__", None)
    return {
        name: _decode(body[slice(*entry["data_offsets"])], entry["dtype"]).reshape(entry["shape"])
        for name, entry in header.items()
    }


def _decode(data: memoryview, dtype: str) -> Array:
    if dtype == "BF16":  # the upper half of a 32-bit float
        halves = np.frombuffer(data, dtype="<u2").astype(np.uint32)
        return (halves << 16).view(np.float32).astype(np.float64)
    if dtype not in _DTYPES:
        raise ValueError(f"tensor type {dtype} is not read: expected BF16, {', '.join(_DTYPES)}")
    return np.frombuffer(data, dtype=_DTYPES[dtype]).astype(np.float64)
