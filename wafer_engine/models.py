"""Shapes of public models: what their weights, KV cache and arithmetic amount to.

Sources: each model's published `config.json` and model card (2023-08 to 2026-08); every shape's
parameter count was recomputed from its dimensions. A name says the shape, nothing about quality.
"""

import msgspec


class Experts(msgspec.Struct, frozen=True):
    """The mixture-of-experts part of a model."""

    num_experts: int  # per MoE layer
    top_k: int  # routed experts each token uses
    ffn: int  # inner width of one expert
    shared_ffn: int  # inner width of the expert every token uses; 0 where there is none
    num_layers: int  # layers that are MoE; the others are dense


class ModelShape(msgspec.Struct, frozen=True):
    """Dimensions of one model."""

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

    @property
    def num_params(self) -> float:
        return self.params_total_b * 1e9

    @property
    def num_active_params(self) -> float:
        return self.params_active_b * 1e9

    @property
    def head_params(self) -> int:
        """Parameters of the output projection: hidden x vocab."""
        return self.hidden * self.vocab

    @property
    def embedding_params(self) -> int:
        """Parameters that a token only looks up: the input table, unless it is the head itself."""
        return 0 if self.tied_embeddings else self.head_params

    @property
    def matmul_params(self) -> float:
        """Active parameters that take part in a product per token, head included."""
        return self.num_active_params - self.embedding_params

    @property
    def layer_active_params(self) -> float:
        """Active parameters of a mean layer."""
        return (self.matmul_params - self.head_params) / self.num_layers

    @property
    def expert_params(self) -> float:
        """Parameters of all routed experts of all layers; 0 for dense models."""
        if self.moe is None:
            return 0.0
        per_expert = self.ffn_mats * self.hidden * self.moe.ffn
        return float(per_expert * self.moe.num_experts * self.moe.num_layers)

    @property
    def active_ffn(self) -> float:
        """Inner FFN width that one token passes through in a mean layer, experts summed."""
        if self.moe is None:
            return float(self.ffn)
        routed = self.moe.top_k * self.moe.ffn + self.moe.shared_ffn
        dense_layers = self.num_layers - self.moe.num_layers
        return (routed * self.moe.num_layers + self.ffn * dense_layers) / self.num_layers

    @property
    def attention_width(self) -> int:
        """Query heads times head size: values in one token's queries."""
        return self.num_heads * self.head_dim

    @property
    def attention_macs_per_pair(self) -> int:
        """Multiply-accumulates of one layer for one (query, key) pair: scores, then values.

        MLA is counted as run in decode, on the latent: 576 for scores, 512 for values, per head.
        """
        if self.latent_kv:
            return self.num_heads * (2 * self.latent_kv - 64)
        return 2 * self.attention_width

    def kv_bytes_per_token(self, kv_bits: float = 16.0) -> float:
        """KV cache of one token over all layers, in bytes; sliding layers count in full."""
        values = self.latent_kv or 2 * self.num_kv_heads * self.head_dim
        return self.num_layers * values * kv_bits / 8

    def weight_bytes(self, weight_bits: float = 16.0) -> float:
        """All weights in bytes, every matrix at `weight_bits`."""
        return self.num_params * weight_bits / 8

    def attention_span(self, window_tokens: int | None = None) -> tuple[float, float]:
        """Tokens a query attends to in a mean layer, as `fixed + fraction * context_tokens`.

        Sliding layers, and all layers where `window_tokens` sets a sparse attention, count their
        whole window however short the context is: an upper bound that keeps the cost affine.
        """
        sliding = self.sliding_layers / self.num_layers
        if window_tokens is not None:
            own = min(self.sliding_window_tokens, window_tokens)
            return sliding * own + (1.0 - sliding) * window_tokens, 0.0
        return sliding * self.sliding_window_tokens, 1.0 - sliding


# name, total and active parameters (1e9), layers, hidden, heads, KV heads, head size, FFN, vocab
_SHAPES = (
    ModelShape("Llama-2-7B", 6.74, 6.74, 32, 4_096, 32, 32, 128, 11_008, 32_000),
    ModelShape("Llama-2-13B", 13.02, 13.02, 40, 5_120, 40, 40, 128, 13_824, 32_000),
    ModelShape("Llama-2-70B", 68.98, 68.98, 80, 8_192, 64, 8, 128, 28_672, 32_000),
    ModelShape("Llama-3-8B", 8.03, 8.03, 32, 4_096, 32, 8, 128, 14_336, 128_256),
    ModelShape("Llama-3.1-8B", 8.03, 8.03, 32, 4_096, 32, 8, 128, 14_336, 128_256),
    ModelShape("Llama-3-70B", 70.55, 70.55, 80, 8_192, 64, 8, 128, 28_672, 128_256),
    ModelShape("Llama-3.1-70B", 70.55, 70.55, 80, 8_192, 64, 8, 128, 28_672, 128_256),
    ModelShape("Llama-3.3-70B", 70.55, 70.55, 80, 8_192, 64, 8, 128, 28_672, 128_256),
    ModelShape(
        "DeepSeek-R1-Distill-Llama-70B", 70.55, 70.55, 80, 8_192, 64, 8, 128, 28_672, 128_256
    ),
    ModelShape("Llama-3.1-405B", 405.85, 405.85, 126, 16_384, 128, 8, 128, 53_248, 128_256),
    ModelShape("CodeLlama-34B", 33.74, 33.74, 48, 8_192, 64, 8, 128, 22_016, 32_000),
    ModelShape("Qwen2-72B", 72.71, 72.71, 80, 8_192, 64, 8, 128, 29_568, 152_064),
    ModelShape(
        "Qwen2.5-0.5B", 0.494, 0.494, 24, 896, 14, 2, 64, 4_864, 151_936, tied_embeddings=True
    ),
    ModelShape("Qwen3-32B", 32.76, 32.76, 64, 5_120, 64, 8, 128, 25_600, 151_936),
    ModelShape(
        "Qwen3-30B-A3B",
        30.53,
        3.35,
        48,
        2_048,
        32,
        4,
        128,
        0,
        151_936,
        moe=Experts(128, 8, 768, 0, 48),
    ),
    ModelShape(
        "Qwen3-235B-A22B",
        235.1,
        22.2,
        94,
        4_096,
        64,
        4,
        128,
        0,
        151_936,
        moe=Experts(128, 8, 1_536, 0, 94),
    ),
    ModelShape(
        "Qwen3-Coder-480B-A35B",
        480.2,
        35.4,
        62,
        6_144,
        96,
        8,
        128,
        0,
        151_936,
        moe=Experts(160, 8, 2_560, 0, 62),
    ),
    ModelShape("Mistral-7B", 7.24, 7.24, 32, 4_096, 32, 8, 128, 14_336, 32_000),
    ModelShape(
        "Mixtral-8x7B",
        46.7,
        12.9,
        32,
        4_096,
        32,
        8,
        128,
        0,
        32_000,
        moe=Experts(8, 2, 14_336, 0, 32),
    ),
    ModelShape(
        "Mixtral-8x22B",
        140.6,
        39.1,
        56,
        6_144,
        48,
        8,
        128,
        0,
        32_768,
        moe=Experts(8, 2, 16_384, 0, 56),
    ),
    ModelShape("GPT-J-6B", 6.05, 6.05, 28, 4_096, 16, 16, 256, 16_384, 50_400, ffn_mats=2),
    ModelShape("Falcon-180B", 179.5, 179.5, 80, 14_848, 232, 8, 64, 59_392, 65_024, ffn_mats=2),
    ModelShape(
        "BLOOM-176B",
        176.2,
        176.2,
        70,
        14_336,
        112,
        112,
        128,
        57_344,
        250_880,
        ffn_mats=2,
        tied_embeddings=True,
    ),
    ModelShape(
        "gpt-oss-120b",
        116.8,
        5.13,
        36,
        2_880,
        64,
        8,
        64,
        0,
        201_088,
        moe=Experts(128, 4, 2_880, 0, 36),
        sliding_layers=18,
        sliding_window_tokens=128,
        native_expert_bits=4.25,
    ),
    ModelShape(
        "Llama-4-Scout",
        108.6,
        17.2,
        48,
        5_120,
        40,
        8,
        128,
        16_384,
        202_048,
        moe=Experts(16, 1, 8_192, 8_192, 48),
    ),
    ModelShape(
        "Llama-4-Maverick",
        401.6,
        17.2,
        48,
        5_120,
        40,
        8,
        128,
        16_384,
        202_048,
        moe=Experts(128, 1, 8_192, 8_192, 24),
    ),
    ModelShape(
        "GLM-4.6",
        356.8,
        32.0,
        92,
        5_120,
        96,
        8,
        128,
        12_288,
        151_552,
        moe=Experts(160, 8, 1_536, 1_536, 89),
    ),
    ModelShape(
        "GLM-4.7",
        358.0,
        32.0,
        92,
        5_120,
        96,
        8,
        128,
        12_288,
        151_552,
        moe=Experts(160, 8, 1_536, 1_536, 89),
    ),
    ModelShape(
        "Kimi-K2.6",
        1026.0,
        32.6,
        61,
        7_168,
        64,
        64,
        192,
        18_432,
        163_840,
        moe=Experts(384, 8, 2_048, 2_048, 60),
        latent_kv=576,
    ),
    ModelShape(
        "DeepSeek-R1",
        671.0,
        37.6,
        61,
        7_168,
        128,
        128,
        192,
        18_432,
        129_280,
        moe=Experts(256, 8, 2_048, 2_048, 58),
        latent_kv=576,
    ),
)

MODELS = {shape.name: shape for shape in _SHAPES}
_BY_FOLDED_NAME = {shape.name.lower(): shape for shape in _SHAPES}

# Public models whose dimensions are not published: known by name, not modelled.
UNKNOWN_SHAPES = ("GPT-5.3-Codex-Spark", "GPT-5.6-Sol", "Gemma-4-31B", "Qwen-3.8-27B")


def find_model(name: str) -> ModelShape:
    """Find a shape by model name; case and an `-Instruct` or organisation prefix do not matter.

    Raises:
        ValueError: No such model, or one whose dimensions are not public.
    """
    folded = name.rsplit("/", 1)[-1].lower().removesuffix("-instruct")
    shape = _BY_FOLDED_NAME.get(folded) or _BY_FOLDED_NAME.get(
        folded.replace("meta-llama", "llama")
    )
    if shape is not None:
        return shape
    if folded in (closed.lower() for closed in UNKNOWN_SHAPES):
        raise ValueError(f"model {name!r}: its dimensions are not published, so it is not modelled")
    raise ValueError(f"unknown model {name!r}: expected one of {', '.join(MODELS)}")
