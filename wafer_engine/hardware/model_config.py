"""Reads a model's shape from its `config.json`, as Hugging Face publishes it beside the weights.

The parameters are counted from the dimensions: norms and biases, under a per cent, are left out.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from wafer_engine.hardware.models import Experts, ModelShape, find_model

MAX_CONFIG_BYTES = 1_000_000
# Families whose feed-forward layers have no gate: two matrices, not three.
_PLAIN_FFN = frozenset(
    ("gpt2", "gpt_neox", "gptj", "opt", "falcon", "phi", "starcoder2", "nemotron", "bloom", "mpt")
)
_NUM_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_NO_ATTENTION = ("mamba", "rwkv", "linear_attn_config", "linear_num_key_heads")


def model_named(name: str) -> ModelShape:
    """Finds a model by its name, or, if that ends in `.json`, in its `config.json`.

    Raises ValueError for no such model, or a file that is missing or wrong.
    """
    if not name.endswith(".json"):
        return find_model(name)
    try:
        return read_model_config(Path(name))
    except OSError as error:
        raise ValueError(f"model file {name}: {error.strerror}") from error


def read_model_config(path: Path) -> ModelShape:
    """Reads a shape from a `config.json`; its folder's name, or what the file says, is its name.

    Raises ValueError, which names the field, for a file that is no such configuration, and for
    models whose layers are not attention layers. Raises OSError if there is no such file.
    """
    raw = path.read_bytes()
    if len(raw) > MAX_CONFIG_BYTES:
        raise ValueError(f"{path}: {len(raw):,} bytes, expected a config.json of at most 1 MB")
    try:
        fields = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError(f"{path}: expected a JSON object, as in a model's config.json")
    try:
        return _shape(fields, path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _shape(fields: dict[str, Any], path: Path) -> ModelShape:
    text = fields.get("text_config")  # of a multimodal one: the language model
    config = {**fields, **text} if isinstance(text, dict) else fields
    for name in _NO_ATTENTION:
        if name in str(config.get("model_type", "")) or config.get(name):
            raise ValueError(f"{name}: most layers are no attention layers, which is not modelled")
    hidden = _whole(config, "hidden_size", "n_embd", "d_model")
    num_layers = _whole(config, "num_hidden_layers", "n_layer", "num_layers")
    num_heads = _whole(config, "num_attention_heads", "n_head")
    head_dim = _whole(config, "head_dim", default=max(1, hidden // num_heads))
    model_type = str(config.get("model_type", ""))
    latent = _whole(config, "kv_lora_rank", default=0, least=0)
    sliding, window = _sliding(config, num_layers)
    shape = ModelShape(
        name=_name(fields, path),
        params_total_b=0.0,
        params_active_b=0.0,
        num_layers=num_layers,
        hidden=hidden,
        num_heads=num_heads,
        num_kv_heads=_whole(config, "num_key_value_heads", "num_kv_heads", default=num_heads),
        head_dim=head_dim,
        ffn=_whole(config, "intermediate_size", "n_inner", "ffn_dim", default=4 * hidden),
        vocab=_whole(config, "vocab_size"),
        moe=_experts(config, num_layers),
        latent_kv=latent and latent + _whole(config, "qk_rope_head_dim", default=64),
        ffn_mats=2 if model_type in _PLAIN_FFN else 3,
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        sliding_layers=sliding,
        sliding_window_tokens=window,
        native_expert_bits=4.25 if _quantization(config) == "mxfp4" else 0.0,
        source=str(path),
    )
    if shape.moe is not None and shape.moe.num_layers == num_layers:
        shape = msgspec.structs.replace(shape, ffn=0)
    active = 0 if shape.moe is None else shape.moe.top_k
    every = 0 if shape.moe is None else shape.moe.num_experts
    return msgspec.structs.replace(
        shape,
        params_total_b=_count(shape, config, every) / 1e9,
        params_active_b=_count(shape, config, active) / 1e9,
    )


def _count(model: ModelShape, config: Mapping[str, Any], num_experts: int) -> float:
    """Counts the parameters, so many routed experts a layer."""
    moe = model.moe
    num_moe = moe.num_layers if moe else 0
    per_width = model.ffn_mats * model.hidden
    ffn = per_width * model.ffn * (model.num_layers - num_moe)
    if moe is not None:
        ffn += per_width * (moe.shared_ffn + num_experts * moe.ffn) * num_moe
        ffn += model.hidden * moe.num_experts * num_moe  # the router
    attention = model.num_layers * _attention_params(model, config)
    return float(attention + ffn + model.head_params + model.embedding_params)


def _attention_params(model: ModelShape, config: Mapping[str, Any]) -> int:
    hidden, heads = model.hidden, model.num_heads
    if not model.latent_kv:
        return hidden * model.head_dim * (2 * heads + 2 * model.num_kv_heads)
    # Latent attention: queries and values go through narrow matrices.
    rank, rope = _whole(config, "kv_lora_rank"), _whole(config, "qk_rope_head_dim", default=64)
    nope = _whole(config, "qk_nope_head_dim", default=128)
    value = _whole(config, "v_head_dim", default=128)
    narrow = _whole(config, "q_lora_rank", default=0, least=0)
    wide = heads * (nope + rope)
    queries = narrow * (hidden + wide) if narrow else hidden * wide
    return queries + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden


def _experts(config: Mapping[str, Any], num_layers: int) -> Experts | None:
    number = next((config[name] for name in _NUM_EXPERTS if config.get(name)), 0)
    if not isinstance(number, int) or number < 2:
        return None
    ffn = _whole(config, "moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    shared = _whole(config, "shared_expert_intermediate_size", default=0, least=0)
    shared = shared or ffn * _whole(config, "n_shared_experts", default=0, least=0)
    dense = _whole(config, "first_k_dense_replace", default=0, least=0)
    every = _whole(config, "decoder_sparse_step", "interleave_moe_layer_step", default=1)
    plain = config.get("mlp_only_layers")
    dense = max(dense, len(plain) if isinstance(plain, list) else 0)
    top_k = _whole(config, "num_experts_per_tok", "num_experts_per_token", "moe_top_k", default=1)
    return Experts(number, top_k, ffn, shared, max(1, (num_layers - dense) // every))


def _sliding(config: Mapping[str, Any], num_layers: int) -> tuple[int, int]:
    """Returns how many layers attend to a window only, and how wide it is."""
    window = config.get("sliding_window")
    if not isinstance(window, int) or window <= 0 or config.get("use_sliding_window") is False:
        return 0, 0
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        number = sum(kind == "sliding_attention" for kind in kinds)
    else:
        pattern = config.get("sliding_window_pattern")
        number = num_layers - num_layers // pattern if isinstance(pattern, int) and pattern else 0
    # All layers with a window would leave no context to grow: counted in full instead.
    return (number, window) if number < num_layers else (0, 0)


def _quantization(config: Mapping[str, Any]) -> str:
    found = config.get("quantization_config")
    return str(found.get("quant_method", "")) if isinstance(found, dict) else ""


def _name(fields: Mapping[str, Any], path: Path) -> str:
    written = fields.get("_name_or_path")
    if isinstance(written, str) and written.strip("./"):
        return written.rsplit("/", 1)[-1][:64]
    folder = re.sub(r"[^\w.-]", "", path.resolve().parent.name) or "model"
    return folder if path.stem == "config" else path.stem


def _whole(
    config: Mapping[str, Any], *names: str, default: int | None = None, least: int = 1
) -> int:
    """Reads the first of some fields that is there."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 10**9:
            raise ValueError(f"{name} is {value!r}: expected a whole number from {least}")
        return value
    if default is None:
        raise ValueError(f"no {names[0]}: expected a model's config.json, as Hugging Face has it")
    return default
