"""Model shapes add up to the parameters their owners state."""

import pytest

from wafer_engine.hardware.models import MODELS, ModelShape, find_model


def recount(model: ModelShape, num_experts: int) -> float:
    """Parameters from the dimensions alone, so many routed experts a layer counted."""
    heads = model.head_dim * (2 * model.num_heads + 2 * model.num_kv_heads)
    num_moe = model.moe.num_layers if model.moe else 0
    dense_ffn = model.ffn_mats * model.hidden * model.ffn * (model.num_layers - num_moe)
    shared = model.ffn_mats * model.hidden * model.moe.shared_ffn * num_moe if model.moe else 0
    return (
        model.num_layers * model.hidden * heads
        + dense_ffn
        + shared
        + num_experts * model.expert_params / (model.moe.num_experts if model.moe else 1)
        + model.head_params
        + model.embedding_params
    )


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_dimensions_add_up(model: ModelShape) -> None:
    # MLA models compress their attention, so its plain count is a little high.
    tolerance = 0.05 if model.latent_kv else 0.02
    num_experts = model.moe.num_experts if model.moe else 0
    assert recount(model, num_experts) == pytest.approx(model.num_params, rel=tolerance)
    if model.moe and not model.latent_kv:
        active = recount(model, model.moe.top_k)
        assert active == pytest.approx(model.num_active_params, rel=0.02)
    assert model.num_active_params <= model.num_params
    assert model.layer_active_params > 0
    assert model.sliding_layers < model.num_layers
    assert model.source


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


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("Meta-Llama-3-8B-Instruct", "Llama-3-8B"),
        ("Llama 3.3 70B", "Llama-3.3-70B"),
        ("llama3.1-70b", "Llama-3.1-70B"),
        ("llama_3_1_70b", "Llama-3.1-70B"),
        ("meta-llama/Llama-2-70b-chat-hf", "Llama-2-70B"),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "Llama-3.3-70B"),
        ("nvidia/Llama-4-Maverick-17B-128E-Instruct-FP8", "Llama-4-Maverick-17B-128E"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "Mixtral-8x7B"),
        ("Mistral-Large-Instruct-2411", "Mistral-Large"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "Qwen3-235B-A22B"),
        ("Qwen2.5-72B-Instruct-AWQ", "Qwen2.5-72B"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("GPT OSS 120B (mxfp4)", "gpt-oss-120b"),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-R1"),
        ("DeepSeek-V3", "DeepSeek-V3"),
        ("moonshotai/Kimi-K2-Instruct-0905", "Kimi-K2"),
        ("zai-org/GLM-4.5-Air-FP8", "GLM-4.5-Air"),
        ("facebook/opt-1.3b", "OPT-1.3B"),
        ("opt-13b", "OPT-13B"),
        ("tiiuae/falcon-180B-chat", "Falcon-180B"),
        ("microsoft/Phi-3-mini-4k-instruct", "Phi-3-mini"),
        ("glm-4.6", "GLM-4.6"),
    ],
)
def test_names_are_found_as_people_write_them(written: str, name: str) -> None:
    assert find_model(written).name == name


def test_every_name_finds_its_own_shape() -> None:
    assert [find_model(name).name for name in MODELS] == list(MODELS)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("GPT-5.6-Sol", "dimensions are not published"),
        ("Qwen3-Next-80B-A3B-Instruct", "no attention layers"),
        ("Llama-3.1-7B", "unknown model 'Llama-3.1-7B': the nearest of .* Llama-3.1-70B"),
        ("no-such-model", "unknown model"),
        ("", "unknown model"),
    ],
)
def test_a_model_that_is_not_modelled_says_why(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        find_model(name)
