"""Tests shapes from `config.json` files: the parameters come to what their owners state."""

import json
from pathlib import Path
from typing import Any

import pytest

from wafer_engine.hardware.cost import WaferCost
from wafer_engine.hardware.model_config import model_named
from wafer_engine.hardware.models import find_model

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip
MIXTRAL = {
    **LLAMA, "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8,
    "num_experts_per_tok": 2,
}  # fmt: skip
QWEN = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "head_dim": 128,
    "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 6144,
    "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8,
    "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
    "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432,
    "vocab_size": 129280, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 36, "head_dim": 64,
    "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 2880,
    "vocab_size": 201088, "num_local_experts": 128, "num_experts_per_tok": 4,
    "sliding_window": 128, "quantization_config": {"quant_method": "mxfp4"},
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "Llama-3.1-8B"),
        (MIXTRAL, "Mixtral-8x7B"),
        (QWEN, "Qwen3-30B-A3B"),
        (DEEPSEEK, "DeepSeek-V3"),
        (GPT_OSS, "gpt-oss-120b"),
        ({"model_type": "llama4", "text_config": LLAMA}, "Llama-3.1-8B"),
    ],
    ids=["llama", "mixtral", "qwen-moe", "deepseek", "gpt-oss", "multimodal"],
)
def test_a_config_gives_the_shape_of_the_table(tmp_path: Path, config: dict, name: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    read, known = model_named(str(path)), find_model(name)
    assert read.num_params == pytest.approx(known.num_params, rel=0.02)
    assert read.num_active_params == pytest.approx(known.num_active_params, rel=0.03)
    for field in ("num_layers", "hidden", "num_kv_heads", "latent_kv", "moe", "sliding_layers"):
        assert getattr(read, field) == getattr(known, field), field
    assert read.kv_bytes_per_token() == known.kv_bytes_per_token()


def test_a_wafer_takes_it_too(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    known = WaferCost("Llama-3.1-8B").tokens_per_s(1024)
    assert WaferCost(str(path)).tokens_per_s(1024) == pytest.approx(known, rel=0.01)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "expected JSON"),
        ("[]", "expected a JSON object"),
        ("[" * 9_000, "expected JSON"),
        ("{}", "no hidden_size"),
        ('{"text_config": [1]}', "no hidden_size"),
        (json.dumps(LLAMA | {"num_hidden_layers": "many"}), "num_hidden_layers is 'many'"),
        (json.dumps(LLAMA | {"vocab_size": 0}), "vocab_size is 0"),
        (json.dumps(LLAMA | {"model_type": "mamba2"}), "no attention layers"),
    ],
)
def test_a_wrong_config_names_the_field(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=reason):
        model_named(str(path))
