"""Tests model folders: what is read, and what is refused with a reason."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from wafer_engine.__main__ import main
from wafer_engine.mesh.mesh import Mesh
from wafer_engine.mesh.tokenizer import FileTokenizer
from wafer_engine.mesh.transformer import LOGIT_TOLERANCE, MeshTransformer, reference_logits
from wafer_engine.mesh.weights import MAX_PARAMS, load_model, read_safetensors

CONFIG = {
    "model_type": "qwen2",
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 30,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
}


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], dtype: str) -> None:
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        if dtype == "BF16":
            raw = (tensor.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        else:
            raw = tensor.astype({"F32": "<f4", "F16": "<f2", "I8": "<i1"}[dtype]).tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def tensors(*, biases: bool = True, tied: bool = True) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    found = {
        "model.embed_tokens.weight": rng.normal(size=(30, 16)),
        "model.norm.weight": rng.uniform(0.5, 1.5, 16),
    }
    if not tied:
        found["lm_head.weight"] = rng.normal(size=(30, 16))
    shapes = {
        "self_attn.q_proj": (16, 16),
        "self_attn.k_proj": (8, 16),
        "self_attn.v_proj": (8, 16),
        "self_attn.o_proj": (16, 16),
        "mlp.gate_proj": (24, 16),
        "mlp.up_proj": (24, 16),
        "mlp.down_proj": (16, 24),
    }
    for layer in range(2):
        at = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}{norm}.weight"] = rng.uniform(0.5, 1.5, 16)
        for name, shape in shapes.items():
            found[f"{at}{name}.weight"] = rng.normal(scale=0.25, size=shape)
            if biases and name[10:12] in ("q_", "k_", "v_"):
                found[f"{at}{name}.bias"] = rng.normal(size=shape[0])
    return found


def write_model(folder: Path, config: dict, dtype: str = "F32", **options: bool) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors(**options), dtype)
    return folder


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_is_read_and_decodes_alike_on_the_mesh(
    tmp_path: Path, dtype: str, tied: bool
) -> None:
    weights = load_model(write_model(tmp_path, CONFIG, dtype, tied=tied))
    expected = tensors(tied=tied)["model.layers.1.mlp.up_proj.weight"].T
    np.testing.assert_allclose(weights.layers[1].up, expected, rtol=0.01, atol=1e-4)
    model = MeshTransformer(Mesh(4), weights)
    for token in (3, 1, 4, 1, 5):
        logits = model.decode(token)
    reference = reference_logits(weights, [3, 1, 4, 1, 5])
    assert np.abs(logits - reference).max() <= LOGIT_TOLERANCE * np.abs(reference).max()


def test_missing_biases_are_zero(tmp_path: Path) -> None:
    weights = load_model(write_model(tmp_path, CONFIG, biases=False))
    assert not weights.layers[0].query_bias.any()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "bert"}, "expected one of llama, qwen2, mistral"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling"),
        ({"num_hidden_layers": 3}, "no tensor 'model.layers.2"),
        ({"hidden_size": 8192, "num_hidden_layers": 80}, r"times the 700 million"),
    ],
)
def test_what_cannot_be_simulated_says_why(tmp_path: Path, change: dict, reason: str) -> None:
    folder = write_model(tmp_path, {**CONFIG, **change})
    with pytest.raises(ValueError, match=reason):
        load_model(folder)
    assert MAX_PARAMS == 700_000_000


def test_a_dimension_that_is_missing_is_named(tmp_path: Path) -> None:
    config = {name: value for name, value in CONFIG.items() if name != "vocab_size"}
    with pytest.raises(ValueError, match="has no 'vocab_size'"):
        load_model(write_model(tmp_path, config))


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(FileNotFoundError, match="safetensors"):
        load_model(tmp_path)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    short, long = tmp_path / "short.safetensors", tmp_path / "long.safetensors"
    short.write_bytes(b"abc")
    long.write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    for path in (short, long):
        with pytest.raises(ValueError, match="is no safetensors file"):
            read_safetensors(path)
    write_safetensors(tmp_path / "int.safetensors", {"a": np.ones((2, 2))}, "I8")
    with pytest.raises(ValueError, match="tensor type I8 is not read"):
        read_safetensors(tmp_path / "int.safetensors")


WORDS = ["<unk>", "one", "two", "three", *(f"w{number}" for number in range(26))]


def write_tokenizer(folder: Path) -> None:
    spec = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(WORDS)},
            "unk_token": "<unk>",
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(spec))


def test_the_command_decodes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers", reason="the optional tokenizers package is not installed")
    folder = write_model(tmp_path, CONFIG)
    write_tokenizer(folder)
    arguments = ["decode", "--weights", str(folder), "--side", "4", "--tokens", "3", "--prompt"]
    assert main([*arguments, "one two three"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "differ from plain numpy by" in lines[0]
    assert lines[1].startswith("one two three")
    # The prompt: nine products of four steps and four allreduces in two layers, and the head's two.
    # Two tokens decoded: ten allreduces in two layers, and the head's two.
    assert "72 compute-shift steps, 54 allreduces" in lines[2]
    assert main([*arguments, " "]) == 2
    assert "the prompt has no tokens" in capsys.readouterr().err
    assert main([*arguments, "one", "--tokens", "0"]) == 2
    assert "--tokens 0: expected 1 or more" in capsys.readouterr().err


def test_a_missing_or_damaged_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no tokenizer"):
        FileTokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        FileTokenizer(tmp_path / "tokenizer.json")
