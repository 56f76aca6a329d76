"""Model shapes add up to the parameters their owners state."""

import pytest

from wafer_engine.models import MODELS, ModelShape, find_model


def recount(model: ModelShape) -> float:
    """Parameters from the dimensions alone."""
    heads = model.head_dim * (2 * model.num_heads + 2 * model.num_kv_heads)
    num_moe = model.moe.num_layers if model.moe else 0
    dense_ffn = model.ffn_mats * model.hidden * model.ffn * (model.num_layers - num_moe)
    shared = model.ffn_mats * model.hidden * model.moe.shared_ffn * num_moe if model.moe else 0
    return (
        model.num_layers * model.hidden * heads
        + dense_ffn
        + shared
        + model.expert_params
        + model.head_params
        + model.embedding_params
    )


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_dimensions_add_up(model: ModelShape) -> None:
    # MLA models compress their attention, so its plain count is a little high.
    tolerance = 0.05 if model.latent_kv else 0.02
    assert recount(model) == pytest.approx(model.num_params, rel=tolerance)
    assert model.num_active_params <= model.num_params
    assert model.layer_active_params > 0


def test_kv_bytes() -> None:
    assert find_model("Llama-3.1-8B").kv_bytes_per_token() == 32 * 2 * 8 * 128 * 2
    assert find_model("Llama-3.1-8B").kv_bytes_per_token(8) == 32 * 2 * 8 * 128
    assert find_model("DeepSeek-R1").kv_bytes_per_token() == 61 * 576 * 2


@pytest.mark.parametrize(
    ("name", "window", "span"),
    [
        ("Llama-3.1-8B", None, (0.0, 1.0)),
        ("Llama-3.1-8B", 512, (512.0, 0.0)),
        ("gpt-oss-120b", None, (64.0, 0.5)),
        ("gpt-oss-120b", 4096, (64.0 + 2048.0, 0.0)),
        ("gpt-oss-120b", 32, (32.0, 0.0)),
    ],
)
def test_attention_span_is_affine(name: str, window: int | None, span: tuple) -> None:
    assert find_model(name).attention_span(window) == pytest.approx(span)


def test_names_are_found_as_people_write_them() -> None:
    assert find_model("meta-llama/Llama-3.1-8B-Instruct").name == "Llama-3.1-8B"
    assert find_model("glm-4.6").name == "GLM-4.6"
    with pytest.raises(ValueError, match="dimensions are not published"):
        find_model("GPT-5.6-Sol")
    with pytest.raises(ValueError, match="unknown model"):
        find_model("no-such-model")
